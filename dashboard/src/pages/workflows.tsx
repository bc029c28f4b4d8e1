// The workflows that the store knows, and one of them with its steps.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { SLOW_MS, useResource } from "../api/resource";
import { STATES, type StepStat, type WorkflowRow, type Workflows } from "../api/types";
import { count, many, percent, short } from "../format/number";
import { sayStep } from "../format/step";
import { duration } from "../format/time";
import { Action } from "../parts/button";
import { Icon } from "../parts/icon";
import { Empty, Loaded, PageFrame, Panel } from "../parts/page";
import { StateBadge } from "../parts/state";
import { Table } from "../parts/table";
import { Ago } from "../parts/time";
import { Link } from "../route/place";
import { to } from "../route/route";
import { StartForm } from "./workflows/start";

const total = (row: WorkflowRow): number => Object.values(row.runs).reduce((sum, one) => sum + (one ?? 0), 0);

export function WorkflowsPage(): JSX.Element {
  const list = useResource<Workflows>("workflows", { topics: ["runs", "workers"], gap: SLOW_MS });
  const [starting, setStarting] = useState<string | null>(null);
  return (
    <PageFrame title="Workflows" about={list.data ? `Runs are counted over the newest ${many(list.data.sample, "run")}.` : undefined} head={<Action icon="plus" kind="primary" onClick={() => setStarting("")}>Start a run</Action>}>
      <Loaded from={list}>
        {({ items }) => items.length === 0 ? (
          <Empty icon="workflows" title="No workflows yet"><p>A workflow is a name and a function. It shows up here when a worker serves it, or when a run of it is started.</p><pre>onward.worker().serve(ORDER, order).start().await?</pre></Empty>
        ) : (
          <Table label="Workflows" rows={items} rowKey={(row) => row.name} columns={[
            { name: "workflow", grow: true, cell: (row) => <Link data-row href={to("workflows", row.name)}>{row.name}</Link> },
            { name: "served by", number: true, cell: (row) => (row.served_by ? many(row.served_by, "worker") : <span class="bad row tight end"><Icon name="warning" />none</span>) },
            ...STATES.map((state) => ({ name: state, number: true, weight: (state === "failed" ? 1 : 2) as 1 | 2, cell: (row: WorkflowRow) => <CountLink row={row} state={state} /> })),
            { name: "runs", number: true, cell: (row: WorkflowRow) => short(total(row)) },
            { name: "last start", number: true, weight: 2, cell: (row: WorkflowRow) => <Ago at={row.last_started_at} /> },
          ]} />
        )}
      </Loaded>
      {starting !== null ? <StartForm workflow={starting} known={list.data?.items.map((row) => row.name) ?? []} onClose={() => setStarting(null)} /> : null}
    </PageFrame>
  );
}

function CountLink({ row, state }: { row: WorkflowRow; state: (typeof STATES)[number] }): JSX.Element {
  const number = row.runs[state] ?? 0;
  if (!number) return <span class="faint">0</span>;
  return <Link class={state === "failed" ? "bad" : ""} href={`runs?state=${state}&workflow=${encodeURIComponent(row.name)}`}>{short(number)}</Link>;
}

export function WorkflowPage({ name }: { name: string }): JSX.Element {
  const list = useResource<Workflows>("workflows", { topics: ["runs", "workers"], gap: SLOW_MS });
  const steps = useResource<{ sample: number; items: StepStat[] }>(`${to("workflows", name)}/steps`, { topics: ["runs"], gap: SLOW_MS });
  const [starting, setStarting] = useState(false);
  const row = list.data?.items.find((one) => one.name === name);
  return (
    <PageFrame title={name} about={row ? <>served by {many(row.served_by, "worker")}{row.last_started_at ? <>, last started <Ago at={row.last_started_at} /></> : null}</> : "workflow"}
      head={<><Link class="button" href={`runs?workflow=${encodeURIComponent(name)}`}><Icon name="runs" />Its runs</Link><Action icon="plus" kind="primary" onClick={() => setStarting(true)}>Start a run</Action></>}>
      {row && !row.served_by ? <div class="notice warning" role="note"><Icon name="warning" /><div>No live worker serves it: its runs stay queued until one does.</div></div> : null}
      <div class="stack">
        {row ? <div class="row wrap">{STATES.map((state) => <Link key={state} class="plain" href={`runs?state=${state}&workflow=${encodeURIComponent(name)}`}><StateBadge state={state} /> <b class="num">{count(row.runs[state] ?? 0)}</b></Link>)}<span class="faint">among the newest {many(list.data?.sample ?? 0, "run")} of all workflows</span></div> : null}
        <Loaded from={steps}>{(data) => <StepStats sample={data.sample} items={data.items} />}</Loaded>
      </div>
      {starting ? <StartForm workflow={name} known={[]} onClose={() => setStarting(false)} /> : null}
    </PageFrame>
  );
}

/** How long each step takes; bars share one scale, so that the slow ones stand out. */
function StepStats({ sample, items }: { sample: number; items: StepStat[] }): JSX.Element {
  const top = Math.max(1, ...items.map((item) => Number(item.p99_ms)));
  const share = (ms: number): number => (Math.log1p(Number(ms)) / Math.log1p(top)) * 100;
  return (
    <Panel title="Steps" flush head={<span class="faint">over the newest {many(sample, "ended run")}; bars are logarithmic</span>}>
      {items.length === 0 ? <p class="faint pad">No ended run has recorded a step yet.</p> : (
        <Table label="Durations of steps" rows={items} rowKey={(item) => item.step} columns={[
          { name: "step", cell: (item) => sayStep(item.step) },
          { name: "p50 · p95 · p99", weight: 2, grow: true, cell: (item) => <span class="percentiles" aria-hidden="true"><i class="p99" style={{ width: `${share(item.p99_ms)}%` }} /><i class="p95" style={{ width: `${share(item.p95_ms)}%` }} /><i class="p50" style={{ width: `${share(item.p50_ms)}%` }} /></span> },
          { name: "p50", number: true, cell: (item) => duration(Number(item.p50_ms)) },
          { name: "p95", number: true, cell: (item) => duration(Number(item.p95_ms)) },
          { name: "p99", number: true, weight: 2, cell: (item) => duration(Number(item.p99_ms)) },
          { name: "tries", number: true, weight: 2, cell: (item) => count(item.count) },
          { name: "failed tries", number: true, cell: (item) => (item.failures ? <span class="bad">{count(item.failures)} · {percent(item.failures, item.count)}</span> : <span class="faint">0</span>) },
        ]} />
      )}
    </Panel>
  );
}
