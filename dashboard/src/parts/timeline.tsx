// The timeline of a run: a lane per step, each bar cut into delay, queue wait, tries, back-off and waits.
import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import type { RunRow, TimelineAnswer } from "../api/types";
import { count as sayCount, many } from "../format/number";
import { sayStep, stepName } from "../format/step";
import { clock, duration } from "../format/time";
import { fit } from "../timeline/fit";
import { layOut, type Lane, type Segment, type Timeline as Layout } from "../timeline/layout";
import { makeScale, ticks, type Scale } from "../timeline/scale";
import { Icon, type IconName } from "./icon";
import { Minimap } from "./minimap";
import { VirtualList } from "./virtual";

interface TimelineProps {
  answer: TimelineAnswer;
  run: RunRow;
  now: number;
  chosen: string;
  onChoose: (lane: Lane) => void;
}

const ROW_HEIGHT = 28;
/** With more rows than these, some are out of view on any screen. */
const MANY_ROWS = 40;

export function Timeline({ answer, run, now, chosen, onChoose }: TimelineProps): JSX.Element {
  const [collapse, setCollapse] = useState(true);
  const [group, setGroup] = useState(false);
  const [errors, setErrors] = useState(false);
  const [wanted, setWanted] = useState("");
  const [view, setView] = useState<[number, number]>([0, 1]);
  const rows = useSignal<[number, number]>([0, 20]);
  const moment = run.finished_at ?? now;
  const layout = useMemo(() => layOut(answer, run, { group, now: moment }), [answer, run, group, moment]);
  const shown = useMemo(() => only(layout, wanted, errors), [layout, wanted, errors]);
  const [short, even] = useMemo(() => [makeScale(layout, true), makeScale(layout, false)], [layout]);
  const scale = collapse ? short : even;
  useEffect(() => setView([0, 1]), [collapse, run.id]);
  const zoomed = view[0] > 0 || view[1] < 1;
  const whole = useMemo((): Layout => ({ ...layout, lanes: shown }), [layout, shown]);
  return (
    <div class="timeline">
      <div class="timeline-tools">
        <label class="search-field"><Icon name="search" /><span class="off-screen">Find a step</span><input type="search" placeholder="Find a step" value={wanted} onInput={(event) => setWanted(event.currentTarget.value)} /></label>
        <Tick label="Errors only" value={errors} set={setErrors} />
        <Tick label="Group by name" value={group} set={setGroup} />
        {short.hidden > 0 ? <Tick label={`Shorten idle time (${duration(short.hidden)})`} value={collapse} set={setCollapse} /> : null}
        <span class="spring" />
        {shown.length > MANY_ROWS ? <button type="button" class="button quiet" onClick={() => setView(spanOf(shown.slice(Math.max(1, rows.peek()[0]), rows.peek()[1]), scale))}>Zoom to the rows in view</button> : null}
        {zoomed ? <button type="button" class="button quiet" onClick={() => setView([0, 1])}>Show all time</button> : null}
        <span class="faint num">{shown.length - 1 < layout.steps && !group ? `${sayCount(Math.max(0, shown.length - 1))} of ` : ""}{many(layout.steps, "step")}</span>
      </div>
      <Legend />
      <Minimap timeline={whole} scale={scale} view={view} rows={rows} onView={setView} />
      <Axis scale={scale} view={view} zero={layout.from} />
      <VirtualList label="Steps of the run" count={shown.length} rowHeight={ROW_HEIGHT} onView={(first, last) => (rows.value = [first, last])}
        row={(i) => <LaneRow lane={shown[i] as Lane} scale={scale} view={view} chosen={(shown[i] as Lane).name === chosen && (shown[i] as Lane).kind !== "run"} onChoose={onChoose} />} />
    </div>
  );
}

/** The stretch that some lanes take, with a little room on both sides. */
function spanOf(lanes: Lane[], scale: Scale): [number, number] {
  const from = Math.min(...lanes.map((lane) => scale.place(lane.from)));
  const to = Math.max(...lanes.map((lane) => scale.place(lane.to)));
  const room = Math.max((to - from) * 0.02, 1e-6);
  return [Math.max(0, from - room), Math.min(1, to + room)];
}

function only(layout: Layout, wanted: string, errors: boolean): Lane[] {
  if (!wanted && !errors) return layout.lanes;
  const text = wanted.toLowerCase();
  const fits = (lane: Lane): boolean => `${lane.name} ${sayStep(lane.name)}`.toLowerCase().includes(text) && (!errors || lane.segments.some((segment) => segment.kind === "failed"));
  return layout.lanes.filter((lane) => lane.kind === "run" || fits(lane));
}

function Tick({ label, value, set }: { label: string; value: boolean; set: (value: boolean) => void }): JSX.Element {
  return <label class="tick"><input type="checkbox" checked={value} onChange={(event) => set(event.currentTarget.checked)} />{label}</label>;
}

const LEGEND: [string, string][] = [["delay", "delayed"], ["queue", "queued"], ["ok", "executing"], ["failed", "failed try"], ["backoff", "back-off"], ["wait", "waiting"]];

function Legend(): JSX.Element {
  return <div class="legend" aria-hidden="true">{LEGEND.map(([kind, name]) => <span key={kind}><i class={`swatch bar-${kind}`} />{name}</span>)}</div>;
}

function Axis({ scale, view, zero }: { scale: Scale; view: [number, number]; zero: number }): JSX.Element {
  const size = view[1] - view[0];
  // Round times may all fall where the drawing is short; then the places are even instead.
  const narrow = matchMedia("(max-width: 720px)").matches;
  const even = (narrow ? [0, 0.5] : [0, 0.2, 0.4, 0.6, 0.8]).map((place) => Math.round(scale.time(view[0] + place * size) - zero));
  const marks = scale.breaks.length ? even : ticks(scale.time(view[0]), scale.time(view[1]), zero, narrow ? 3 : 6);
  const placed: { mark: number; at: number }[] = [];
  for (const mark of marks) {
    const at = (scale.place(zero + mark) - view[0]) / size;
    const before = placed[placed.length - 1];
    if (at >= 0 && at <= 0.95 && (!before || at - before.at > (narrow ? 0.25 : 0.09))) placed.push({ mark, at });
  }
  return (
    <div class="axis" aria-hidden="true">
      <span class="axis-name">step</span>
      <div class="axis-marks">
        {placed.map(({ mark, at }) => <span key={mark} style={{ left: `${at * 100}%` }}>{mark === 0 ? "0" : `+${duration(mark)}`}</span>)}
        {scale.breaks.map(({ at, ms }) => <i key={at} class="break" style={{ left: `${((at - view[0]) / size) * 100}%` }} title={`${duration(ms)} without work, drawn short`} />)}
      </div>
      <span class="axis-took">took</span>
    </div>
  );
}

const LANE_ICON: Record<Lane["kind"], IconName> = { run: "runs", step: "step", timer: "clock", signal: "signal", group: "workflows" };

function LaneRow({ lane, scale, view, chosen, onChoose }: { lane: Lane; scale: Scale; view: [number, number]; chosen: boolean; onChoose: (lane: Lane) => void }): JSX.Element {
  const pieces = fit(lane.segments, scale, view);
  return (
    <button type="button" data-row class={`lane lane-${lane.kind}${chosen ? " chosen" : ""}`} aria-pressed={chosen} onClick={() => onChoose(lane)}>
      <span class={`lane-name outcome-${lane.outcome}`}>
        <Icon name={lane.outcome === "failed" ? "cross" : lane.outcome === "ok" && lane.kind === "step" ? "check" : lane.outcome === "running" ? "running" : LANE_ICON[lane.kind]} />
        <span class="cut" title={lane.name}>{sayStep(lane.name)}</span>
        {stepName(lane.name).key ? <span class="count" title={`key ${stepName(lane.name).key}`}><Icon name="keys" label="with a key" /></span> : null}
        {lane.kind === "group" ? <span class="count">×{sayCount(lane.steps)}</span> : lane.tries > 1 && lane.kind !== "run" ? <span class="count" title={`${lane.tries} tries`}>{lane.tries} tries</span> : null}
      </span>
      <span class="lane-bar">
        {pieces.map(({ left, width, segment, count }, i) => (
          <i key={i} class={`bar bar-${segment.kind}`} title={saySegment(segment, count)} style={{ left: `${left * 100}%`, width: `${width * 100}%` }} />
        ))}
      </span>
      <span class="lane-took num"><span class="off-screen">{sayOutcome(lane)}</span>{duration(lane.to - lane.from)}</span>
    </button>
  );
}

/** What the shapes and colours say, for those who do not see them. */
function sayOutcome(lane: Lane): string {
  const tries = lane.tries > 1 && lane.kind === "run" ? `, ${lane.tries} attempts` : "";
  return `${lane.outcome === "ok" ? "done" : lane.outcome}${tries}, in `;
}

const SAID: Record<Segment["kind"], string> = { delay: "delayed when it was started", queue: "queued", ok: "executing", failed: "failed try", backoff: "back-off", wait: "waiting", signal: "until the signal came", running: "running" };

function saySegment(segment: Segment, count: number): string {
  const said = `${SAID[segment.kind]} · ${duration(segment.to - segment.from)} · ${clock(segment.from)} – ${clock(segment.to)}`;
  return count > 1 ? `${count} pieces, such as: ${said}` : segment.tries > 1 ? `${said} · try ${segment.tries}` : said;
}
