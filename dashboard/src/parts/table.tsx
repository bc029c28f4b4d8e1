// A table of rows. Columns of less weight give way on narrow screens.
import type { ComponentChildren, JSX } from "preact";

export interface Column<T> {
  name: string;
  /** 1 is always shown, 2 from 720 px, 3 from 1080 px, 4 from 1400 px. */
  weight?: 1 | 2 | 3 | 4;
  number?: boolean;
  grow?: boolean;
  cell: (row: T) => ComponentChildren;
}

/** Headings that are read out and not shown. */
const UNSEEN = ["select", "actions", "age"];

interface TableProps<T> {
  label: string;
  columns: Column<T>[];
  rows: T[];
  rowKey: (row: T) => string;
  chosen?: (row: T) => boolean;
}

export function Table<T>({ label, columns, rows, rowKey, chosen }: TableProps<T>): JSX.Element {
  const css = (column: Column<T>): string => `w${column.weight ?? 1}${column.number ? " num" : ""}${column.grow ? " grow" : ""}`;
  return (
    <div class="table-wrap" tabIndex={0} role="region" aria-label={`${label}, as a table`}>
      <table class="table">
        <thead>
          <tr>{columns.map((column) => <th key={column.name} scope="col" class={css(column)}>{UNSEEN.includes(column.name) ? <span class="off-screen">{column.name}</span> : column.name}</th>)}</tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={rowKey(row)} class={chosen?.(row) ? "chosen" : ""}>
              {columns.map((column) => <td key={column.name} class={css(column)}>{column.cell(row)}</td>)}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
