// One run: what it is, why it stands where it stands, and its steps over time.
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { write } from "../api/json";
import { useResource } from "../api/resource";
import type { Run, RunAnswer, TimelineAnswer } from "../api/types";
import { askVerb, VERBS } from "../actions";
import { cli, curl } from "../format/command";
import { count, shortId } from "../format/number";
import { useKey } from "../keys";
import { watchRun } from "../live/live";
import { Action, Button } from "../parts/button";
import { CopyButton, copyAndSay } from "../parts/copy";
import { Icon } from "../parts/icon";
import { Menu } from "../parts/menu";
import { Loaded, PageFrame } from "../parts/page";
import { RunStateBadge } from "../parts/state";
import { Ago, Took, When } from "../parts/time";
import { Link, param, patchSearch } from "../route/place";
import { to } from "../route/route";
import { asStored } from "../session";
import { AttemptsTab } from "./run/attempts";
import { ChildrenTab } from "./run/children";
import { askFork } from "./run/fork";
import { HistoryTab } from "./run/history";
import { KeyTab } from "./run/key";
import { LogTab } from "./run/log";
import { SignalsTab } from "./run/signals";
import { StepsTab } from "./run/steps";
import { TimelineTab } from "./run/timeline";
import { WhyLine } from "./run/why";
import { PayloadTab } from "./run/payload";
import { StartForm, type Fields } from "./workflows/start";

const TABS = [["timeline", "Timeline"], ["steps", "Steps"], ["data", "Input and output"], ["attempts", "Attempts and errors"], ["history", "History"], ["signals", "Signals"], ["log", "Log"], ["children", "Children"], ["key", "Key"]] as const;

export function RunPage({ id }: { id: string }): JSX.Element {
  const topics = ["runs", `run:${id}`];
  useEffect(() => watchRun(id), [id]);
  const answer = useResource<RunAnswer>(to("runs", id), { topics, exact: true });
  // Ten thousand steps are not fetched again because another run changed.
  const timeline = useResource<TimelineAnswer>(`${to("runs", id)}/timeline`, { topics: [`run:${id}`] });
  const run = answer.data?.run;
  const stand = run ? `${run.state} ${run.attempt}` : "";
  useEffect(() => {
    if (stand && timeline.data) timeline.refetch();
  }, [stand]);
  return (
    <Loaded from={answer}>
      {(data) => <RunView answer={data} timeline={timeline} />}
    </Loaded>
  );
}

function RunView({ answer, timeline }: { answer: RunAnswer; timeline: ReturnType<typeof useResource<TimelineAnswer>> }): JSX.Element {
  const { run, why } = answer;
  const tab = param("tab") || "timeline";
  useKey("c", () => void copyAndSay(cli("onward", "runs", "show", run.id), "the command"));
  useKey("r", () => !VERBS[0]?.unfit(run) && askVerb("retry", run));
  useKey("f", () => askFork(run, timeline.data?.steps ?? []));
  return (
    <PageFrame title={run.workflow} head={<RunActions run={run} steps={timeline.data?.steps ?? []} />} about={<RunHead run={run} />}>
      <WhyLine run={run} why={why} />
      <RunFacts run={run} answer={answer} />
      <div class="tabs" role="tablist" aria-label="About this run">
        {TABS.map(([name, title]) => (
          <button key={name} type="button" role="tab" id={`tab-${name}`} aria-selected={tab === name} aria-controls="tab-panel" tabIndex={tab === name ? 0 : -1} onClick={() => patchSearch({ tab: name === "timeline" ? null : name, step: null })} onKeyDown={moveTab}>
            {title}
            {name === "attempts" && run.attempt > 1 ? <span class="count">{run.attempt}</span> : null}
            {name === "key" && run.duplicates ? <span class="count">{count(run.duplicates)}</span> : null}
          </button>
        ))}
      </div>
      <div id="tab-panel" role="tabpanel" aria-labelledby={`tab-${tab}`} class="tab-panel">
        {ofTimeline.includes(tab) && timeline.data?.cut ? <Cut run={run.id} records={timeline.data.rows.seq.length} /> : null}
        {tab === "timeline" ? <Loaded from={timeline}>{(data) => <TimelineTab run={run} answer={data} />}</Loaded> : null}
        {tab === "steps" ? <Loaded from={timeline}>{(data) => <StepsTab run={run} answer={data} />}</Loaded> : null}
        {tab === "data" ? <PayloadTab run={run} /> : null}
        {tab === "attempts" ? <Loaded from={timeline}>{(data) => <AttemptsTab run={run} answer={data} />}</Loaded> : null}
        {tab === "history" ? <HistoryTab run={run} /> : null}
        {tab === "signals" ? <SignalsTab run={run} /> : null}
        {tab === "log" ? <LogTab run={run} /> : null}
        {tab === "children" ? <ChildrenTab run={run} /> : null}
        {tab === "key" ? <KeyTab run={run} duplicates={answer.duplicates ?? null} /> : null}
      </div>
    </PageFrame>
  );
}

/** What is drawn of the timeline, which has an end. */
const ofTimeline: string[] = ["timeline", "steps", "attempts"];

function Cut({ run, records }: { run: string; records: number }): JSX.Element {
  return (
    <div class="notice warning" role="note"><Icon name="warning" />
      <div>Cut after {count(records)} records: what came later is not shown here. <Link href={`${to("runs", run)}?tab=history`}>The history has all of them</Link></div>
    </div>
  );
}

function moveTab(event: KeyboardEvent): void {
  const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
  if (!step) return;
  const tabs = [...document.querySelectorAll<HTMLElement>("[role=tab]")];
  const next = tabs[(tabs.indexOf(event.currentTarget as HTMLElement) + step + tabs.length) % tabs.length];
  next?.focus();
  next?.click();
}

function RunHead({ run }: { run: Run }): JSX.Element {
  return (
    <span class="row wrap">
      <RunStateBadge run={run} />
      <span class="row tight"><code>{run.id}</code><CopyButton text={run.id} what="the id" /></span>
    </span>
  );
}

function RunActions({ run, steps }: { run: Run; steps: string[] }): JSX.Element {
  const shown = VERBS.filter((info) => info.verb !== (run.paused_at ? "pause" : "resume"));
  const path = `runs/${run.id}`;
  const [starting, setStarting] = useState(false);
  return (
    <>
      {shown.map((info) => (
        <Action key={info.verb} need={info.need} icon={info.icon} kind={info.verb === "retry" && !info.unfit(run) ? "primary" : "plain"} disabled={info.unfit(run)} onClick={() => askVerb(info.verb, run)}>{info.title}</Action>
      ))}
      <Action icon="fork" onClick={() => askFork(run, steps)}>Fork…</Action>
      <Menu title="More" closes>
        <Action kind="quiet" onClick={() => setStarting(true)}>Start like this…</Action>
        <Button kind="quiet" onClick={() => void copyAndSay(cli("onward", "runs", "show", run.id), "the command")}>Copy as CLI</Button>
        <Button kind="quiet" onClick={() => void copyAndSay(curl("GET", path), "the curl command")}>Copy as curl</Button>
        <Button kind="quiet" onClick={() => void copyAndSay(location.href, "the link")}>Copy link</Button>
      </Menu>
      {starting ? <StartForm workflow={run.workflow} known={[]} like={likeOf(run)} hidden={!asStored.value} onClose={() => setStarting(false)} /> : null}
    </>
  );
}

/** The start that would make the same run, without its key. */
function likeOf(run: Run): Partial<Fields> {
  return {
    input: run.input === undefined || !asStored.value ? "" : write(run.input, 2),
    queue: run.queue === "default" ? "" : run.queue,
    tags: Object.entries(run.tags ?? {}).map(([name, value]) => `${name}=${value}`).join(" "),
  };
}

function RunFacts({ run, answer }: { run: Run; answer: RunAnswer }): JSX.Element {
  const facts: [string, JSX.Element | string | null][] = [
    ["created", <When at={run.created_at} />],
    ["queued for", <Took from={run.created_at} to={run.started_at ?? run.finished_at} />],
    ["took", <Took from={run.started_at} to={run.finished_at} />],
    ["attempts", <span class="num">{run.attempt}</span>],
    ["queue", <Link href={`runs?queue=${encodeURIComponent(run.queue)}`}>{run.queue}</Link>],
    ["key", run.key ? <Link href={to("keys", run.workflow, run.key)}>{run.key}</Link> : null],
    ["lane", run.lane ?? null],
    ["priority", run.priority ? String(run.priority) : null],
    ["build", run.build],
    ["deadline", run.deadline_at ? <Ago at={run.deadline_at} /> : null],
    ["children", answer.children ? String(answer.children) : null],
    ["started by", run.parent ? <Link href={to("runs", run.parent.run)}>{shortId(run.parent.run)} · {run.parent.step}</Link> : null],
    ["goes on from", run.continued_from ? <Link href={to("runs", run.continued_from)}>{shortId(run.continued_from)}</Link> : null],
    ["goes on as", run.continued_as ? <Link href={to("runs", run.continued_as)}>{shortId(run.continued_as)}</Link> : null],
    ["next with its key", run.successor ? <Link href={to("runs", run.successor)}>{shortId(run.successor)}</Link> : null],
  ];
  const tags = Object.entries(run.tags ?? {});
  return (
    <dl class="facts">
      {facts.filter(([, value]) => value !== null && value !== undefined).map(([name, value]) => <div key={name} class="fact"><dt>{name}</dt><dd>{value}</dd></div>)}
      {tags.length ? <div class="fact"><dt>tags</dt><dd class="row wrap tight">{tags.map(([name, value]) => <Link key={name} class="tag" href={`runs?tag=${encodeURIComponent(`${name}:${value}`)}`}>{name}: {value}</Link>)}</dd></div> : null}
    </dl>
  );
}
