// Rows as comma-separated values, as the server writes them.

/** A cell. What a spreadsheet would take for a formula is made a text. */
function cell(text: string): string {
  const plain = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[,"\n\r]/.test(plain) ? `"${plain.replaceAll('"', '""')}"` : plain;
}

export const csv = (rows: string[][]): string => rows.map((row) => `${row.map(cell).join(",")}\n`).join("");

/** The address of a text that is downloaded as it is here. */
export const csvUrl = (rows: string[][]): string => `data:text/csv;charset=utf-8,${encodeURIComponent(csv(rows))}`;
