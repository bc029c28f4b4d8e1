// The columns of the list of runs. Which of them are shown is part of the address.
import type { ComponentChildren, JSX } from "preact";
import type { RunRow, Why } from "../../api/types";
import { count } from "../../format/number";
import { Menu } from "../../parts/menu";
import type { Column } from "../../parts/table";
import { RunStateBadge } from "../../parts/state";
import { Ago, Took } from "../../parts/time";
import { Link, param, patchSearch } from "../../route/place";
import { to } from "../../route/route";

export type RunColumn = Column<RunRow> & { id: string };

const whyText = (run: RunRow): string => (typeof run.why === "string" ? run.why : (run.why as Why | null | undefined)?.text ?? "");

/** What a run does or why it does not: one line. */
function Now({ run }: { run: RunRow }): JSX.Element | null {
  if (run.failure && run.state === "failed") return <span class="cut bad" title={run.failure.message}>{run.failure.message}</span>;
  const text = whyText(run);
  return text ? <span class="cut faint" title={text}>{text}</span> : null;
}

const column = (id: string, name: string, cell: (run: RunRow) => ComponentChildren, rest: Partial<RunColumn> = {}): RunColumn => ({ id, name, cell, ...rest });

export const COLUMNS: RunColumn[] = [
  column("state", "state", (run) => <RunStateBadge run={run} />),
  column("workflow", "workflow", (run) => (
    <span class="main-cell">
      <Link data-row href={to("runs", run.id)} class="cut">{run.workflow}</Link>
      <span class="sub cut">{run.key ?? run.id}</span>
    </span>
  )),
  column("id", "run", (run) => <Link href={to("runs", run.id)} class="mono" tabIndex={-1}>{run.id}</Link>, { weight: 3 }),
  column("key", "key", (run) => (run.key ? <Link class="cut key-cell" href={to("keys", run.workflow, run.key)}>{run.key}</Link> : <span class="faint">–</span>), { weight: 2 }),
  column("duplicates", "dup", (run) => (run.duplicates ? <span title={`${run.duplicates} starts with its key were suppressed`}>×{count(run.duplicates)}</span> : ""), { weight: 2, number: true }),
  column("why", "why", (run) => <Now run={run} />, { weight: 2, grow: true }),
  column("queue", "queue", (run) => run.queue, { weight: 3 }),
  column("attempt", "attempts", (run) => run.attempt, { weight: 4, number: true }),
  column("priority", "priority", (run) => run.priority, { weight: 3, number: true }),
  column("build", "build", (run) => run.build ?? "–", { weight: 3 }),
  column("tags", "tags", (run) => Object.entries(run.tags ?? {}).map(([name, value]) => <Link key={name} class="tag" href={`runs?tag=${encodeURIComponent(`${name}:${value}`)}`}>{name}: {value}</Link>), { weight: 3 }),
  column("created", "created", (run) => <Ago at={run.created_at} />, { number: true }),
  column("took", "took", (run) => <Took from={run.started_at} to={run.finished_at} />, { weight: 2, number: true }),
];

const STANDARD = ["state", "workflow", "key", "duplicates", "why", "attempt", "created", "took"];

/** The columns that an address asks for. */
export function columnsOf(text: string): RunColumn[] {
  const ids = text ? text.split(",") : STANDARD;
  return COLUMNS.filter((one) => one.id === "workflow" || ids.includes(one.id));
}

export function ColumnPicker(): JSX.Element {
  const ids = columnsOf(param("columns")).map((one) => one.id);
  const toggle = (id: string): void => {
    const next = ids.includes(id) ? ids.filter((one) => one !== id) : [...ids, id];
    const same = next.length === STANDARD.length && STANDARD.every((one) => next.includes(one));
    patchSearch({ columns: same ? null : next.join(",") });
  };
  return (
    <Menu title="Columns" quiet>
        {COLUMNS.filter((one) => one.id !== "workflow").map((one) => <label key={one.id} class="tick"><input type="checkbox" checked={ids.includes(one.id)} onChange={() => toggle(one.id)} />{one.name === "dup" ? "duplicates" : one.name}</label>)}
    </Menu>
  );
}
