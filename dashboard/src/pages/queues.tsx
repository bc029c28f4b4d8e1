// Queues: how much waits, how long it has waited, and what holds it back.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { send } from "../api/client";
import { useResource } from "../api/resource";
import type { QueueLimits, QueueRow, Worker } from "../api/types";
import { now } from "../clock";
import { cli, curl } from "../format/command";
import { count } from "../format/number";
import { duration } from "../format/time";
import { changedHere } from "../live/live";
import { ask, Same } from "../parts/ask";
import { Action, Button } from "../parts/button";
import { Dialog } from "../parts/dialog";
import { Icon } from "../parts/icon";
import { useSending } from "../parts/form";
import { Empty, Loaded, PageFrame } from "../parts/page";
import { usePages } from "../parts/pager";
import { Table } from "../parts/table";
import { Ago } from "../parts/time";
import { toast } from "../parts/toast";
import { Link } from "../route/place";
import { to } from "../route/route";

export function QueuesPage(): JSX.Element {
  const pages = usePages<QueueRow>("queues", ["queues", "runs"], (row) => row.name);
  const workers = useResource<{ items: Worker[] }>("workers", { topics: ["workers"] });
  const [editing, setEditing] = useState<QueueRow | null>(null);
  return (
    <PageFrame title="Queues" about="A queue routes runs to the workers that serve it, and may limit them.">
      <Loaded from={pages.first}>
        {() => pages.rows.length === 0 ? (
          <Empty icon="queues" title="No queues yet"><p>Every run is on a queue, “default” unless its start says otherwise:</p><pre>onward start mail --queue mail</pre></Empty>
        ) : (
          <><Table label="Queues" rows={pages.rows} rowKey={(row) => row.name} columns={[
            { name: "queue", cell: (row) => <span class="row tight wrap"><Link data-row href={`runs?queue=${encodeURIComponent(row.name)}`}>{row.name}</Link>{row.paused_at ? <span class="mark"><Icon name="pause" />paused</span> : null}</span> },
            { name: "queued", number: true, cell: (row) => <Link href={`runs?state=queued&queue=${encodeURIComponent(row.name)}`}>{count(row.queued)}</Link> },
            { name: "running", number: true, weight: 2, cell: (row) => <Link href={`runs?state=running&queue=${encodeURIComponent(row.name)}`}>{count(row.running)}</Link> },
            { name: "oldest due", number: true, weight: 2, cell: (row) => <Late at={row.oldest_due_at} /> },
            { name: "workers", number: true, weight: 2, cell: (row) => workers.data?.items.filter((worker) => worker.queues.includes(row.name)).length ?? "–" },
            { name: "limits", weight: 2, grow: true, cell: (row) => <span class="faint">{sayLimits(row.limits)}</span> },
            { name: "actions", cell: (row) => <span class="row tight end"><PauseButton queue={row} /><Action need="admin" kind="quiet" onClick={() => setEditing(row)}>Limits</Action></span> },
          ]} />{pages.more}</>
        )}
      </Loaded>
      {editing ? <LimitForm queue={editing} onClose={() => setEditing(null)} /> : null}
    </PageFrame>
  );
}

function Late({ at }: { at: number | null | undefined }): JSX.Element {
  if (!at || at > now.value) return <span class="faint">–</span>;
  const late = now.value - at;
  return <span class={late > 60_000 ? "bad" : ""} title="How long its oldest run could have been claimed">{duration(late)}</span>;
}

function sayLimits(limits: QueueLimits | null | undefined): string {
  const said: string[] = [];
  if (limits?.concurrency) said.push(`${limits.concurrency} at once`);
  if (limits?.per_worker) said.push(`${limits.per_worker} per worker`);
  if (limits?.per_lane) said.push(`${limits.per_lane} per lane`);
  if (limits?.rate) said.push(`${limits.rate.count} per ${duration(limits.rate.period_ms)}`);
  return said.join(", ") || "no limit";
}

function PauseButton({ queue }: { queue: QueueRow }): JSX.Element {
  const verb = queue.paused_at ? "resume" : "pause";
  const path = `${to("queues", queue.name)}/${verb}`;
  const question = {
    title: `${verb === "pause" ? "Pause" : "Resume"} queue ${queue.name}?`,
    text: <p>{verb === "pause" ? "No run of it is claimed until it is resumed. Runs that a worker holds go on." : <>Its runs are claimed again. It is paused since <Ago at={queue.paused_at} />.</>}</p>,
    act: verb === "pause" ? "Pause" : "Resume",
    cli: cli("onward", "queues", verb, queue.name),
    curl: curl("POST", path),
    onAct: async () => {
      await send("POST", path);
      toast(verb === "pause" ? `Paused ${queue.name}.` : `Resumed ${queue.name}.`);
      changedHere("queues");
    },
  };
  return <Action kind="quiet" icon={verb === "pause" ? "pause" : "play"} onClick={() => ask(question)}>{question.act}</Action>;
}

/** The same on the command line, which names one limit at least. */
function sayCommand(name: string, limits: QueueLimits): string | undefined {
  const words: string[] = [];
  if (limits.concurrency) words.push("--concurrency", String(limits.concurrency));
  if (limits.per_worker) words.push("--per-worker", String(limits.per_worker));
  if (limits.per_lane) words.push("--per-lane", String(limits.per_lane));
  if (limits.rate) words.push("--rate", `${limits.rate.count}/${limits.rate.period_ms}ms`);
  return words.length ? cli("onward", "queues", "set", name, ...words) : undefined;
}

function LimitForm({ queue, onClose }: { queue: QueueRow; onClose: () => void }): JSX.Element {
  const before = queue.limits ?? {};
  const [values, setValues] = useState({ concurrency: before.concurrency ?? "", per_worker: before.per_worker ?? "", per_lane: before.per_lane ?? "", n: before.rate?.count ?? "", seconds: before.rate ? before.rate.period_ms / 1000 : "" });
  const put = (name: keyof typeof values) => (event: Event) => setValues({ ...values, [name]: (event.currentTarget as HTMLInputElement).value });
  const number = (value: string | number): number | null => (value === "" ? null : Number(value));
  const path = to("queues", queue.name);
  const rate = values.n === "" ? null : { count: Number(values.n), period_ms: Math.round(Number(values.seconds || 1) * 1000) };
  const limits = { concurrency: number(values.concurrency), per_worker: number(values.per_worker), per_lane: number(values.per_lane), rate };
  const { act, busy, error } = useSending(async () => {
    await send("PUT", path, limits);
    toast(`Changed the limits of ${queue.name}.`);
    changedHere("queues");
    onClose();
  });
  return (
    <Dialog title={`Limits of ${queue.name}`} onClose={onClose}>
      <form onSubmit={act}>
        <div class="dialog-body fields">
          <label class="field">Runs at once<input type="number" min="1" value={values.concurrency} placeholder="no limit" onInput={put("concurrency")} /></label>
          <label class="field">Per worker<input type="number" min="1" value={values.per_worker} placeholder="no limit" onInput={put("per_worker")} /></label>
          <label class="field">Per lane<input type="number" min="1" value={values.per_lane} placeholder="no limit" onInput={put("per_lane")} /></label>
          <label class="field">Starts<input type="number" min="1" value={values.n} placeholder="no limit" onInput={put("n")} /></label>
          <label class="field">in so many seconds<input type="number" min="0.1" step="0.1" value={values.seconds} placeholder="1" onInput={put("seconds")} /></label>
          {error ? <p class="problem wide" role="alert">{error}</p> : null}
          <div class="wide"><Same cli={sayCommand(queue.name, limits)} curl={curl("PUT", path, JSON.stringify(limits))} /></div>
        </div>
        <footer class="dialog-foot"><Button onClick={onClose}>Keep as it is</Button><Action need="admin" type="submit" kind="primary" disabled={busy}>Set the limits</Action></footer>
      </form>
    </Dialog>
  );
}
