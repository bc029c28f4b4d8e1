// The workers that are up: what they serve, what they hold, and until when their lease holds.
import type { JSX } from "preact";
import { useResource } from "../api/resource";
import type { Worker } from "../api/types";
import { now } from "../clock";
import { count, shortId } from "../format/number";
import { duration } from "../format/time";
import { Icon } from "../parts/icon";
import { Empty, Loaded, PageFrame } from "../parts/page";
import { Table } from "../parts/table";
import { Link } from "../route/place";
import { to } from "../route/route";

export function WorkersPage(): JSX.Element {
  const workers = useResource<{ items: Worker[] }>("workers", { topics: ["workers", "runs"] });
  return (
    <PageFrame title="Workers" about="A worker claims runs of the queues and workflows it serves. When its lease ends, others take its runs over.">
      <Loaded from={workers}>
        {({ items }) => items.length === 0 ? (
          <Empty icon="workers" title="No worker is up"><p>Runs stay queued until one is. In your program:</p><pre>onward.worker().serve(ORDER, order).start().await?</pre><p class="faint">This page and all others work without one.</p></Empty>
        ) : (
          <Table label="Workers" rows={items} rowKey={(row) => row.id} columns={[
            { name: "worker", cell: (row) => <span class="main-cell"><b data-row tabIndex={-1}>{row.place}</b><span class="sub shown mono">{shortId(row.id)}</span></span> },
            { name: "lease", cell: (row) => <Lease until={row.lease_until} /> },
            { name: "runs held", number: true, cell: (row) => count(row.running) },
            { name: "build", weight: 2, cell: (row) => <code class="cut">{row.build}</code> },
            { name: "queues", weight: 2, cell: (row) => row.queues.join(", ") },
            { name: "workflows", weight: 2, grow: true, cell: (row) => <span class="row wrap tight">{row.workflows.map((name) => <Link key={name} class="tag" href={to("workflows", name)}>{name}</Link>)}</span> },
          ]} />
        )}
      </Loaded>
    </PageFrame>
  );
}

function Lease({ until }: { until: number }): JSX.Element {
  const left = until - now.value;
  if (left < 0) return <span class="state state-failed"><Icon name="cross" />ended {duration(-left)} ago</span>;
  return <span class="state state-completed"><Icon name="check" />holds, {duration(Math.ceil(left / 1000) * 1000)} left</span>;
}
