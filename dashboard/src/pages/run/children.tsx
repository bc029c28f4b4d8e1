// The runs that a run started, newest first.
import type { JSX } from "preact";
import type { Run, RunRow } from "../../api/types";
import { sayStep } from "../../format/step";
import { Empty, Loaded } from "../../parts/page";
import { usePages } from "../../parts/pager";
import { RunStateBadge } from "../../parts/state";
import { Table } from "../../parts/table";
import { Ago, Took } from "../../parts/time";
import { Link } from "../../route/place";
import { to } from "../../route/route";

export function ChildrenTab({ run }: { run: Run }): JSX.Element {
  const pages = usePages<RunRow>(`runs?parent=${run.id}&limit=50`, ["runs", `run:${run.id}`], (child) => child.id);
  return (
    <Loaded from={pages.first}>
      {() => pages.rows.length === 0 ? (
        <Empty icon="fork" title="No children"><p>A workflow starts other runs with <code>ctx.start</code>. This one has not.</p></Empty>
      ) : (
        <>
          <Table label="Children" rows={pages.rows} rowKey={(child) => child.id} columns={[
            { name: "state", cell: (child) => <RunStateBadge run={child} /> },
            { name: "workflow", grow: true, cell: (child) => <Link data-row class="cut" href={to("runs", child.id)}>{child.workflow}</Link> },
            { name: "started by", weight: 2, cell: (child) => <span class="faint">{child.parent ? sayStep(child.parent.step) : ""}{child.parent?.detached ? ", detached" : ""}</span> },
            { name: "created", number: true, cell: (child) => <Ago at={child.created_at} /> },
            { name: "took", number: true, weight: 2, cell: (child) => <Took from={child.started_at} to={child.finished_at} /> },
          ]} />
          {pages.more}
        </>
      )}
    </Loaded>
  );
}
