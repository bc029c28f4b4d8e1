// One key: the run or result that it stands for, and everyone who came with it later.
import type { JSX } from "preact";
import { send } from "../../api/client";
import { useResource } from "../../api/resource";
import { isEnded, type Duplicates, type RunRow, type StepKey } from "../../api/types";
import { cli, curl } from "../../format/command";
import { duration } from "../../format/time";
import { changedHere } from "../../live/live";
import { ask } from "../../parts/ask";
import { Action } from "../../parts/button";
import { CopyButton } from "../../parts/copy";
import { DuplicateList } from "../../parts/duplicates";
import { Icon } from "../../parts/icon";
import { Payload } from "../../parts/json-view";
import { Fact, Loaded, PageFrame, Panel } from "../../parts/page";
import { RunStateBadge } from "../../parts/state";
import { Ago, Took, When } from "../../parts/time";
import { toast } from "../../parts/toast";
import { go, Link } from "../../route/place";
import { to } from "../../route/route";
import { FailureView } from "../run/step";
import { KeyStateBadge } from "./state";

interface KeyAnswer {
  run: RunRow;
  duplicates: Duplicates;
  expires_at: number | null;
  /** Whether the run has the key, rather than had it. */
  held: boolean;
}

export function KeyPage({ workflow, name }: { workflow: string; name: string }): JSX.Element {
  const found = useResource<KeyAnswer>(`${to("keys", workflow, name)}?past=true`, { topics: ["runs"] });
  return (
    <PageFrame title={name} about={<>key of workflow <Link href={to("workflows", workflow)}>{workflow}</Link></>} head={<><CopyButton text={name} what="the key" words="Copy key" /><CopyButton text={cli("onward", "keys", "show", workflow, name)} what="the command" words="Copy as CLI" /></>}>
      <Loaded from={found}>{(data) => <><Release workflow={workflow} name={name} answer={data} /><KeyView answer={data} /></>}</Loaded>
    </PageFrame>
  );
}

/** The way to let a request happen once more whose run has ended. */
function Release({ workflow, name, answer }: { workflow: string; name: string; answer: KeyAnswer }): JSX.Element | null {
  const { run, held } = answer;
  if (!held) return null;
  const path = `runs/${run.id}/key`;
  const release = (): void => ask({
    title: "Release this key?",
    text: <p>The next start with it makes a new run, which does the work again. Do this only if it did not happen, or may happen twice. The run itself stays.</p>,
    act: "Release",
    need: "admin",
    danger: true,
    typed: "release",
    cli: cli("onward", "keys", "release", "--workflow", workflow, name),
    curl: curl("DELETE", path),
    onAct: async () => {
      const { value } = await send<{ released: boolean }>("DELETE", path);
      toast(value.released ? "Released." : "The run has it no more.");
      changedHere();
    },
  });
  const unfit = isEnded(run.state) ? null : "Only the key of a run that has ended can be released.";
  return <p class="row"><Action need="admin" kind="danger" icon="trash" disabled={unfit} onClick={release}>Release</Action></p>;
}

function KeyView({ answer }: { answer: KeyAnswer }): JSX.Element {
  const { run, duplicates, held, expires_at } = answer;
  return (
    <div class="stack">
      <Panel title={held ? "The run that has it" : "The run that had it"}>
        <dl class="facts">
          <Fact name="state"><RunStateBadge run={run} /></Fact>
          <Fact name="run"><Link class="mono" href={to("runs", run.id)}>{run.id}</Link></Fact>
          <Fact name="first start"><When at={run.created_at} /></Fact>
          <Fact name="took"><Took from={run.started_at} to={run.finished_at} /></Fact>
          <Fact name="key is free again">{!held ? "it is: a start with it now makes a new run" : expires_at ? <Ago at={expires_at} /> : "when the run is no longer kept"}</Fact>
        </dl>
      </Panel>
      <Strip first={run.created_at} duplicates={duplicates} />
      <Panel title="Starts that came later"><DuplicateList duplicates={duplicates} first={run.created_at} /></Panel>
    </div>
  );
}

/** The first start and the later ones on one line of time. */
function Strip({ first, duplicates }: { first: number; duplicates: Duplicates }): JSX.Element | null {
  const times = duplicates.latest.map((one) => one.at);
  if (times.length === 0) return null;
  const span = Math.max(1, Math.max(...times) - first);
  return (
    <div class="strip" role="img" aria-label={`First start, then ${duplicates.count} duplicates within ${duration(span)}`}>
      <i class="strip-first" title="first start" />
      {duplicates.latest.map((one, i) => <i key={i} class={one.same_input ? "strip-same" : "strip-other"} style={{ left: `${((one.at - first) / span) * 100}%` }} title={`${one.same_input ? "same input" : "other input"}, ${duration(one.at - first)} later`} />)}
      <span class="strip-span num">{duration(span)}</span>
    </div>
  );
}

export function StepKeyPage({ name }: { name: string }): JSX.Element {
  const found = useResource<{ key: StepKey; duplicates: Duplicates }>(to("step-keys", name), { topics: ["runs"], exact: true });
  const path = to("step-keys", name);
  const release = (): void => ask({
    title: "Release this key?",
    text: <p>The next step with it executes again. Do this only if you know that the work did not happen, or may happen twice. If it is held, its holder can no longer record under it.</p>,
    act: "Release",
    need: "admin",
    danger: true,
    typed: "release",
    cli: cli("onward", "keys", "release", name),
    curl: curl("DELETE", path),
    onAct: async () => {
      await send("DELETE", path);
      toast("Released.");
      changedHere();
      go("keys?tab=steps");
    },
  });
  return (
    <PageFrame title={name} about="key of a step: its work is done once over all runs" head={<><CopyButton text={name} what="the key" words="Copy key" /><Action need="admin" kind="danger" icon="trash" onClick={release}>Release</Action></>}>
      <Loaded from={found}>{(data) => <StepKeyView found={data} />}</Loaded>
    </PageFrame>
  );
}

function StepKeyView({ found }: { found: { key: StepKey; duplicates: Duplicates } }): JSX.Element {
  const { key: row, duplicates } = found;
  const run = /^[0-9a-f]{8}-[0-9a-f-]{27}/.exec(row.holder?.id ?? "")?.[0];
  return (
    <div class="stack">
      <Panel title="Who has it">
        <dl class="facts">
          <Fact name="state"><KeyStateBadge state={row.state} /></Fact>
          <Fact name="holder">{run ? <Link class="mono" href={to("runs", run)}>{row.holder.id}</Link> : <code>{row.holder?.id}</code>}</Fact>
          <Fact name="taken"><When at={row.taken_at} /></Fact>
          <Fact name="settled"><When at={row.settled_at} /></Fact>
          <Fact name={row.state === "held" ? "held until" : "kept until"}>{row.until ? <Ago at={row.until} /> : "for good"}</Fact>
          <Fact name="suppressed"><b class="num">{row.duplicates}</b></Fact>
        </dl>
        {row.failure ? <FailureView failure={row.failure} /> : row.state === "done" ? <Payload title="Result" value={row.result} /> : <p class="notice"><Icon name="info" />Its work is under way. Steps that meet it wait.</p>}
      </Panel>
      <Panel title="Steps that came later"><DuplicateList duplicates={duplicates} first={row.taken_at} got="the result that was there" /></Panel>
    </div>
  );
}
