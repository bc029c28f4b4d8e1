// Runs in a table, with a box to select each.
import type { JSX } from "preact";
import type { RunRow } from "../../api/types";
import { Table, type Column } from "../../parts/table";
import type { RunColumn } from "./columns";

interface RunTableProps {
  rows: RunRow[];
  picked: Set<string>;
  setPicked: (picked: Set<string>) => void;
  columns: RunColumn[];
}

export function RunTable({ rows, picked, setPicked, columns }: RunTableProps): JSX.Element {
  const toggle = (id: string): void => {
    const next = new Set(picked);
    if (!next.delete(id)) next.add(id);
    setPicked(next);
  };
  const box: Column<RunRow> = {
    name: "select",
    cell: (run) => <input type="checkbox" aria-label={`Select run ${run.id}`} checked={picked.has(run.id)} onChange={() => toggle(run.id)} />,
  };
  const every = rows.length > 0 && rows.every((run) => picked.has(run.id));
  return (
    <>
      <label class="tick select-all"><input type="checkbox" checked={every} onChange={() => setPicked(every ? new Set() : new Set(rows.map((run) => run.id)))} />Select all {rows.length} shown</label>
      <Table label="Runs" rows={rows} rowKey={(run) => run.id} columns={[box, ...columns]} chosen={(run) => picked.has(run.id)} />
    </>
  );
}
