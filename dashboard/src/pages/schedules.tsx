// Schedules: when each comes next, in words and in local time, and what can be done about it.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { requestKey, send } from "../api/client";
import { useResource } from "../api/resource";
import type { Occurred, Schedule } from "../api/types";
import { now } from "../clock";
import { cli, curl } from "../format/command";
import { cronWords } from "../format/cron";
import { sayOccurred } from "../format/schedule";
import { duration, inWords, local, relative, zone } from "../format/time";
import { changedHere } from "../live/live";
import { ask, type Question } from "../parts/ask";
import { Action } from "../parts/button";
import { Icon } from "../parts/icon";
import { Payload } from "../parts/json-view";
import { Empty, Fact, Loaded, PageFrame, Panel } from "../parts/page";
import { usePages } from "../parts/pager";
import { Table } from "../parts/table";
import { Ago, When } from "../parts/time";
import { toast } from "../parts/toast";
import { Link } from "../route/place";
import { to } from "../route/route";
import { Backfill } from "./schedules/backfill";

/** When it comes, in words. */
function saySpec({ spec }: Schedule): string {
  if (spec.cron) return `${cronWords(spec.cron.cron) ?? spec.cron.cron}, ${spec.cron.time_zone}`;
  return spec.every ? `Every ${duration(spec.every.every_ms)}` : "";
}

export function SchedulesPage(): JSX.Element {
  const pages = usePages<Schedule>("schedules", ["schedules", "runs"], (row) => row.name);
  return (
    <PageFrame title="Schedules" about={<>Times are local: {zone()}.</>}>
      <Loaded from={pages.first}>
        {() => pages.rows.length === 0 ? (
          <Empty icon="schedules" title="No schedules"><p>A schedule starts a workflow again and again:</p><pre>{"onward schedules put nightly-report report --cron '0 3 * * *' --time-zone Europe/Berlin"}</pre></Empty>
        ) : (
          <>
            <Table label="Schedules" rows={pages.rows} rowKey={(row) => row.name} columns={[
              { name: "schedule", cell: (row) => <span class="main-cell"><span class="row tight"><Link data-row href={to("schedules", row.name)}>{row.name}</Link>{row.paused_at ? <span class="mark"><Icon name="pause" />paused</span> : null}</span><span class="sub shown">{saySpec(row)}</span></span> },
              { name: "workflow", weight: 2, cell: (row) => <Link href={to("workflows", row.workflow)}>{row.workflow}</Link> },
              { name: "next", cell: (row) => <Next at={row.paused_at ? null : row.next_at} /> },
              { name: "latest", weight: 2, cell: (row) => (row.latest ? <Link href={to("keys", row.latest.workflow, row.latest.key)}><Ago at={row.latest.at} /></Link> : <span class="faint">–</span>) },
              { name: "if the last still runs", weight: 3, cell: (row) => row.overlap.replace("_", " ") },
              { name: "actions", weight: 2, cell: (row) => <span class="row tight end"><PauseButton schedule={row} quiet /><TriggerButton schedule={row} quiet /></span> },
            ]} />
            {pages.more}
          </>
        )}
      </Loaded>
    </PageFrame>
  );
}

function Next({ at }: { at: number | null }): JSX.Element {
  if (!at) return <span class="faint">–</span>;
  return <span class="main-cell"><span>{inWords(at, now.value)}</span><span class="sub shown num">{relative(at, now.value)}</span></span>;
}

export function SchedulePage({ name }: { name: string }): JSX.Element {
  const found = useResource<Schedule>(to("schedules", name), { topics: ["schedules", "runs"], exact: true });
  return (
    <Loaded from={found}>
      {(data) => <ScheduleView schedule={data} />}
    </Loaded>
  );
}

function ScheduleView({ schedule }: { schedule: Schedule }): JSX.Element {
  const [filling, setFilling] = useState(false);
  const catchUp = typeof schedule.catch_up === "string" ? schedule.catch_up : `all, at most ${schedule.catch_up.all.max}`;
  const times = schedule.next ?? (schedule.next_at ? [schedule.next_at] : []);
  return (
    <PageFrame title={schedule.name} about={saySpec(schedule)} head={<><TriggerButton schedule={schedule} /><PauseButton schedule={schedule} /><Action icon="down" onClick={() => setFilling(true)}>Backfill…</Action><RemoveButton schedule={schedule} /></>}>
      {schedule.paused_at ? <div class="notice warning" role="note"><Icon name="pause" /><div>Paused since <When at={schedule.paused_at} />: its times pass without a run.</div></div> : null}
      <div class="columns">
        <Panel title="Next times" head={<span class="faint">{zone()}</span>}>
          {times.length === 0 ? <p class="faint">It comes no more.</p> : (
            <ol class="times">{times.slice(0, 5).map((at) => <li key={at}><b>{inWords(at, now.value)}</b><span class="faint num">{local(at)} · {relative(at, now.value)}</span></li>)}</ol>
          )}
        </Panel>
        <Panel title="What it starts">
          <dl class="facts">
            <Fact name="workflow"><Link href={to("workflows", schedule.workflow)}>{schedule.workflow}</Link></Fact>
            <Fact name="queue">{schedule.queue}</Fact>
            <Fact name="pattern"><code>{schedule.spec.cron ? `${schedule.spec.cron.cron} (${schedule.spec.cron.time_zone})` : `every ${duration(schedule.spec.every?.every_ms ?? 0)}`}</code></Fact>
            <Fact name="if the last still runs">{schedule.overlap.replace("_", " ")}</Fact>
            <Fact name="after an outage">{catchUp}</Fact>
            <Fact name="latest">{schedule.latest ? <Link href={to("keys", schedule.latest.workflow, schedule.latest.key)}><Ago at={schedule.latest.at} /></Link> : "none yet"}</Fact>
            <Fact name="its runs"><Link href={`runs?tag=${encodeURIComponent(`schedule:${schedule.name}`)}`}>all of them</Link></Fact>
          </dl>
          <Payload title="Input" value={schedule.input} />
        </Panel>
      </div>
      {filling ? <Backfill schedule={schedule} onClose={() => setFilling(false)} /> : null}
    </PageFrame>
  );
}

function PauseButton({ schedule, quiet }: { schedule: Schedule; quiet?: boolean }): JSX.Element {
  const verb = schedule.paused_at ? "resume" : "pause";
  const path = `${to("schedules", schedule.name)}/${verb}`;
  const title = verb === "pause" ? "Pause" : "Resume";
  const question = {
    title: `${title} schedule ${schedule.name}?`,
    text: <p>{verb === "pause" ? "Its times pass without a run until it is resumed." : "It goes on with its next time. What passed meanwhile is not caught up: backfill it if you need it."}</p>,
    act: title,
    cli: cli("onward", "schedules", verb, schedule.name),
    curl: curl("POST", path),
    onAct: async () => {
      await send("POST", path);
      toast(`${verb === "pause" ? "Paused" : "Resumed"} ${schedule.name}.`);
      changedHere("schedules");
    },
  };
  return <Action kind={quiet ? "quiet" : "plain"} icon={verb === "pause" ? "pause" : "play"} onClick={() => ask(question)}>{title}</Action>;
}

function TriggerButton({ schedule, quiet }: { schedule: Schedule; quiet?: boolean }): JSX.Element {
  const path = `${to("schedules", schedule.name)}/trigger`;
  // Its key is made with the dialog, so that a second press of the button starts nothing.
  const question = (key: string): Question => ({
    title: `Start ${schedule.workflow} now?`,
    text: <p>One run, as the overlap policy “{schedule.overlap.replace("_", " ")}” allows. The times of the schedule stay as they are.</p>,
    act: "Trigger",
    cli: cli("onward", "schedules", "trigger", schedule.name),
    curl: curl("POST", path),
    onAct: async () => {
      const { value } = await send<Occurred>("POST", path, undefined, { "Idempotency-Key": key });
      const { text, run } = sayOccurred(value);
      toast(text, "info", run ? to("runs", run) : undefined);
      changedHere("schedules", "runs");
    },
  });
  return <Action kind={quiet ? "quiet" : "primary"} icon="play" onClick={() => ask(question(requestKey()))}>Trigger</Action>;
}

function RemoveButton({ schedule }: { schedule: Schedule }): JSX.Element {
  const path = to("schedules", schedule.name);
  const question = {
    title: `Remove schedule ${schedule.name}?`,
    text: <p>It starts no more runs. Those that it started stay.</p>,
    act: "Remove",
    need: "admin" as const,
    danger: true,
    cli: cli("onward", "schedules", "remove", schedule.name),
    curl: curl("DELETE", path),
    onAct: async () => {
      await send("DELETE", path);
      toast(`Removed ${schedule.name}.`);
      changedHere("schedules");
    },
  };
  return <Action need="admin" icon="trash" onClick={() => ask(question)}>Remove</Action>;
}
