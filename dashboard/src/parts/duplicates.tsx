// What came later with a key: when, from where, and whether it asked for the same.
import type { JSX } from "preact";
import type { Duplicates } from "../api/types";
import { csvUrl } from "../format/csv";
import { count, many } from "../format/number";
import { duration, utc } from "../format/time";
import { Icon } from "./icon";
import { Empty } from "./page";
import { Table } from "./table";
import { Ago, When } from "./time";

export function DuplicateList({ duplicates, first, got = "the run that was there" }: { duplicates: Duplicates; first: number; got?: string }): JSX.Element {
  const latest = [...duplicates.latest].sort((a, b) => b.at - a.at);
  const other = latest.filter((one) => !one.same_input).length;
  if (duplicates.count === 0) return <Empty icon="check" title="No duplicates"><p>Nobody came a second time.</p></Empty>;
  const rows = [["at", "caller", "input"], ...latest.map((one) => [utc(one.at), one.caller, one.same_input ? "same" : "other"])];
  return (
    <div class="stack">
      <div class="tiles">
        <div class="tile"><span class="tile-name">suppressed</span><span class="tile-value num">{count(duplicates.count)}</span></div>
        <div class="tile"><span class="tile-name">with the same input</span><span class="tile-value num">{count(latest.length - other)}</span><span class="faint">got {got}</span></div>
        <div class={other ? "tile bad" : "tile"}><span class="tile-name">with another input</span><span class="tile-value num">{count(other)}</span><span class="faint">were refused: key_conflict</span></div>
      </div>
      {duplicates.count > latest.length ? <p class="faint">The newest {many(latest.length, "duplicate")} are kept; {count(duplicates.count - latest.length)} older ones are only counted.</p> : null}
      <div class="row end"><a class="button" href={csvUrl(rows)} download="duplicates.csv"><Icon name="download" />CSV</a></div>
      <Table label="Duplicates" rows={latest.map((one, i) => ({ ...one, i }))} rowKey={(one) => `${one.at}-${one.i}`} columns={[
        { name: "when", number: true, cell: (one) => <When at={one.at} /> },
        { name: "age", weight: 2, cell: (one) => <Ago at={one.at} /> },
        { name: "after the first", weight: 2, number: true, cell: (one) => duration(one.at - first) },
        { name: "from", grow: true, cell: (one) => <code>{one.caller || "unknown"}</code> },
        { name: "input", cell: (one) => (one.same_input ? <span class="state state-completed"><Icon name="check" />same</span> : <span class="state state-failed"><Icon name="cross" />other</span>) },
      ]} />
    </div>
  );
}
