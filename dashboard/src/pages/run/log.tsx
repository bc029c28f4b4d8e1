// The lines that a run wrote into its log, in order, as they come.
import type { JSX } from "preact";
import type { LogLine, Run } from "../../api/types";
import { sayStep } from "../../format/step";
import { clock } from "../../format/time";
import { Empty, Loaded } from "../../parts/page";
import { usePages } from "../../parts/pager";
import { Table } from "../../parts/table";

export function LogTab({ run }: { run: Run }): JSX.Element {
  const pages = usePages<LogLine>(`runs/${run.id}/log?limit=200`, [`run:${run.id}`, "runs"], (line) => String(line.no));
  return (
    <Loaded from={pages.first}>
      {() => pages.rows.length === 0 ? (
        <Empty icon="info" title="Nothing is logged"><p>A workflow writes lines with <code>ctx.log</code>, a step with <code>step.log</code>. The last 1,000 are kept.</p></Empty>
      ) : (
        <>
          <Table label="Log" rows={pages.rows} rowKey={(line) => String(line.no)} columns={[
            { name: "line", number: true, weight: 2, cell: (line) => line.no },
            { name: "at", number: true, cell: (line) => clock(line.at) },
            { name: "text", grow: true, cell: (line) => <span class="mono log-text">{line.text}</span> },
            { name: "of", weight: 2, cell: (line) => <span class="faint">{line.step ? `${sayStep(line.step)}${line.try_number ? `, try ${line.try_number}` : ""}` : "the workflow"}</span> },
          ]} />
          {pages.more}
        </>
      )}
    </Loaded>
  );
}
