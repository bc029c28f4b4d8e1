// Rows as comma-separated values, as the server writes them.

/** A number stays one, also below zero. */
export type Cell = string | number;

/** A cell. A text that a spreadsheet would take for a formula is kept from that. */
function cell(text: Cell): string {
  if (typeof text === "number") return String(text);
  const plain = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[,"\n\r]/.test(plain) ? `"${plain.replaceAll('"', '""')}"` : plain;
}

export const csv = (rows: Cell[][]): string => rows.map((row) => `${row.map(cell).join(",")}\n`).join("");

/** The address of a text that is downloaded as it is here. */
export const csvUrl = (rows: Cell[][]): string => `data:text/csv;charset=utf-8,${encodeURIComponent(csv(rows))}`;
