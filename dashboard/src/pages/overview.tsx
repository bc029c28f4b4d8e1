// At a glance: what runs, what is stuck and why, what failed, what was kept from happening twice.
import type { JSX } from "preact";
import { SLOW_MS, useResource } from "../api/resource";
import { STATES, type ErrorGroup, type KeyRow, type Page, type QueueRow, type RunRow, type Stats, type Workflows } from "../api/types";
import { now, serverNow } from "../clock";
import { sayCalm } from "../format/calm";
import { count, many, short, shortId } from "../format/number";
import { duration } from "../format/time";
import { AreaChart, lastHour } from "../parts/chart";
import { Icon } from "../parts/icon";
import { Loaded, PageFrame, Panel } from "../parts/page";
import { RunStateBadge, STATE_ICON } from "../parts/state";
import { Ago } from "../parts/time";
import { Link } from "../route/place";
import { to } from "../route/route";
import { NoRuns } from "./runs/none";

export function OverviewPage(): JSX.Element {
  const stats = useResource<Stats>("stats", { topics: ["runs", "workers", "queues"] });
  return (
    <PageFrame title="Overview">
      <Loaded from={stats}>
        {(data) => (Object.values(data.runs).reduce((sum, one) => sum + (one ?? 0), 0) === 0 ? <NoRuns /> : <Glance stats={data} />)}
      </Loaded>
    </PageFrame>
  );
}

function Glance({ stats }: { stats: Stats }): JSX.Element {
  return (
    <div class="stack">
      <div class="tiles states">
        {STATES.map((state) => (
          <Link key={state} href={`runs?state=${state}`} class={`tile state-tile state-${state}`}>
            <span class="tile-name"><Icon name={STATE_ICON[state]} />{state}</span>
            <span class="tile-value num" title={count(stats.runs[state] ?? 0)}>{short(stats.runs[state] ?? 0)}</span>
          </Link>
        ))}
        <Link href="workers" class={stats.workers.length ? "tile" : "tile bad"}>
          <span class="tile-name"><Icon name="workers" />workers</span>
          <span class="tile-value num">{stats.workers.length}</span>
        </Link>
      </div>
      {stats.series?.length ? <Panel title="Last hour"><AreaChart points={lastHour(stats.series, serverNow())} /></Panel> : null}
      <div class="columns">
        <Attention stats={stats} />
        <RecentErrors />
        <Suppressed />
        <Recent />
      </div>
    </div>
  );
}

/** Stuck runs that are named; the others are on the page Waiting. */
const STUCK_SHOWN = 4;

/** What an operator may have to look at. */
function Attention({ stats }: { stats: Stats }): JSX.Element {
  const queues = useResource<Page<QueueRow>>("queues", { topics: ["queues", "runs"] });
  const stuck = useResource<Page<RunRow>>(`waiting?for=stuck&limit=${STUCK_SHOWN + 1}`, { topics: ["runs"], gap: SLOW_MS });
  const workflows = useResource<Workflows>("workflows", { topics: ["runs", "workers"], gap: SLOW_MS });
  const lines: JSX.Element[] = [];
  const queued = Object.values(stats.queued).reduce((sum, one) => sum + one, 0);
  if (stats.workers.length === 0 && queued > 0) lines.push(<>No worker is up, and {many(queued, "run is", "runs are")} queued. <Link href="workers">Workers</Link></>);
  for (const queue of queues.data?.items ?? []) {
    if (queue.paused_at) lines.push(<>Queue <b>{queue.name}</b> is paused, since <Ago at={queue.paused_at} />. <Link href="queues">Queues</Link></>);
    else if (queue.oldest_due_at && now.value - queue.oldest_due_at > 60_000) lines.push(<>Queue <b>{queue.name}</b> is late: its oldest run is due for {duration(now.value - queue.oldest_due_at)}. <Link href={`runs?state=queued&queue=${encodeURIComponent(queue.name)}`}>Look</Link></>);
  }
  for (const row of workflows.data?.items ?? []) {
    const waiting = row.runs.queued ?? 0;
    if (waiting && !row.served_by) lines.push(<>No worker serves <b>{row.name}</b>, and {many(waiting, "run of it is", "runs of it are")} queued. <Link href={`runs?state=queued&workflow=${encodeURIComponent(row.name)}`}>Look</Link></>);
  }
  const held = stuck.data?.items ?? [];
  for (const run of held.slice(0, STUCK_SHOWN)) lines.push(<><Link href={to("runs", run.id)}>{run.workflow} {shortId(run.id)}</Link> is stuck: <code>{run.waits_for?.code}</code> {run.waits_for?.detail}</>);
  if (held.length > STUCK_SHOWN) lines.push(<><Link href="waiting?for=stuck">More runs</Link> are stuck.</>);
  for (const [what, { data, error }] of [["queues", queues], ["waiting runs", stuck], ["workflows", workflows]] as const) {
    if (!data && error) lines.push(<>The {what} could not be looked at: {error.message}</>);
  }
  return (
    <Panel title="Needs attention">
      {lines.length ? <ul class="lines">{lines.map((line, i) => <li key={i}><Icon name="warning" /><span>{line}</span></li>)}</ul> : <Calm queues={queues.data} stuck={stuck.data} workflows={workflows.data} />}
    </Panel>
  );
}

/** That all is well, as far as it was looked at. */
function Calm({ queues, stuck, workflows }: { queues: Page<QueueRow> | undefined; stuck: Page<RunRow> | undefined; workflows: Workflows | undefined }): JSX.Element {
  if (!queues || !stuck || !workflows) return <p class="calm faint">Looking…</p>;
  const looks = { queues: { looked: queues.items.length, more: !!queues.next }, sample: workflows.sample, waiting: { looked: stuck.looked ?? 0, more: !!stuck.next } };
  return <p class="calm"><Icon name="check" /><span>{sayCalm(looks)}{stuck.next ? <> <Link href="waiting?for=stuck">Look further</Link></> : null}</span></p>;
}

function RecentErrors(): JSX.Element {
  const errors = useResource<{ items: ErrorGroup[] }>("errors", { topics: ["runs"], gap: SLOW_MS });
  return (
    <Panel title="Errors" head={<Link href="errors">All</Link>}>
      <Loaded from={errors}>
        {({ items }) => items.length === 0 ? <p class="calm"><Icon name="check" />No failed runs.</p> : (
          <ul class="lines">
            {items.slice(0, 6).map((group) => (
              <li key={group.fingerprint}><span class="count bad">{short(group.count)}</span><span class="cut"><Link href={to("runs", group.sample_run)}>{group.message}</Link><span class="faint"> {group.workflow} · <Ago at={group.last_at} /></span></span></li>
            ))}
          </ul>
        )}
      </Loaded>
    </Panel>
  );
}

function Suppressed(): JSX.Element {
  const top = useResource<{ items: KeyRow[] }>("keys/top", { topics: ["runs"], gap: SLOW_MS });
  return (
    <Panel title="Duplicates kept from happening" head={<Link href="keys">Keys</Link>}>
      <Loaded from={top}>
        {({ items }) => items.length === 0 ? <p class="calm faint">No start came twice with the same key.</p> : (
          <ul class="lines">
            {items.slice(0, 6).map((row) => (
              <li key={`${row.workflow}/${row.key}`}><span class="count">×{short(row.duplicates)}</span><span class="cut"><Link href={to("keys", row.workflow, row.key)}>{row.key}</Link><span class="faint"> {row.workflow}</span></span></li>
            ))}
          </ul>
        )}
      </Loaded>
    </Panel>
  );
}

function Recent(): JSX.Element {
  const recent = useResource<Page<RunRow>>("runs?limit=8", { topics: ["runs"] });
  return (
    <Panel title="Newest runs" head={<Link href="runs">All</Link>}>
      <Loaded from={recent}>
        {({ items }) => (
          <ul class="lines recent">
            {items.slice(0, 8).map((run) => (
              <li key={run.id}><RunStateBadge run={run} /><span class="cut"><Link data-row href={to("runs", run.id)}>{run.workflow}</Link><span class="faint"> {run.key ?? shortId(run.id)}</span></span><span class="spring" /><span class="faint num"><Ago at={run.created_at} /></span></li>
            ))}
          </ul>
        )}
      </Loaded>
    </Panel>
  );
}
