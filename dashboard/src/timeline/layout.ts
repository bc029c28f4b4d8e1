// From the columns of a timeline to lanes of segments. Pure; typed arrays are not needed below the
// limit of a history.
import type { RunRow, TimelineAnswer, Waits } from "../api/types";
import { stepName } from "../format/step";

/** What a piece of a bar shows. */
export type SegmentKind = "delay" | "queue" | "ok" | "failed" | "backoff" | "wait" | "signal" | "running";

export interface Segment {
  kind: SegmentKind;
  from: number;
  to: number;
  /** The record that it comes from; none for what is between records or still under way. */
  seq: number | null;
  attempt: number;
  tries: number;
}

export interface Lane {
  /** The step, or the name that several of them share. */
  name: string;
  kind: "run" | "step" | "timer" | "signal" | "group";
  from: number;
  to: number;
  tries: number;
  /** How many steps are in a group. */
  steps: number;
  outcome: "ok" | "failed" | "retrying" | "waiting" | "running";
  segments: Segment[];
}

export interface Timeline {
  lanes: Lane[];
  from: number;
  to: number;
  /** How many steps there are, grouped or not. */
  steps: number;
}

interface LayoutOptions {
  group: boolean;
  now: number;
}

/** Lays out a run: its own lane first, then its steps in the order in which they began. */
export function layOut(answer: TimelineAnswer, run: RunRow, options: LayoutOptions): Timeline {
  const lanes = stepLanes(answer);
  addWaits(lanes, run, options.now);
  const list = [...lanes.values()].sort((a, b) => a.from - b.from);
  const end = run.finished_at ?? Math.max(options.now, answer.now);
  const own = runLane(answer, run, list, end);
  const shown = options.group ? grouped(list) : list;
  const from = Math.min(own.from, ...(list[0] ? [list[0].from] : []));
  const to = list.reduce((last, lane) => Math.max(last, lane.to), Math.max(end, from + 1));
  return { lanes: [own, ...shown], from, to, steps: list.length };
}

function stepLanes(answer: TimelineAnswer): Map<string, Lane> {
  const { rows } = answer;
  const lanes = new Map<string, Lane>();
  let latest = rows.began_at[0] ?? 0;
  for (let i = 0; i < rows.seq.length; i++) {
    const name = answer.steps[rows.step[i] as number] ?? "?";
    const kind = rows.kind[i] as string;
    const to = rows.at[i] as number;
    // A signal has no beginning: what is shown is the time since anything else was recorded.
    const from = kind === "arrived" ? Math.min(latest, to) : (rows.began_at[i] as number);
    latest = to;
    let lane = lanes.get(name);
    if (!lane) lanes.set(name, (lane = freshLane(name, kind, from)));
    const tries = rows.try[i] as number;
    const before = lane.segments[lane.segments.length - 1];
    if (before && before.kind === "failed" && from > before.to) lane.segments.push(between(before, from));
    if (kind === "began") {
      lane.outcome = "running";
      continue;
    }
    lane.segments.push({ kind: segmentKind(kind), from, to, seq: rows.seq[i] as number, attempt: rows.attempt[i] as number, tries });
    lane.to = Math.max(lane.to, to);
    lane.from = Math.min(lane.from, from);
    lane.tries = Math.max(lane.tries, tries);
    lane.outcome = kind === "failed" ? "failed" : kind === "try_failed" ? "retrying" : "ok";
  }
  return lanes;
}

function freshLane(name: string, kind: string, from: number): Lane {
  const own = stepName(name).kind;
  const laneKind = kind === "fired" || own === "timer" ? "timer" : kind === "arrived" || own === "signal" ? "signal" : "step";
  return { name, kind: laneKind, from, to: from, tries: 1, steps: 1, outcome: "ok", segments: [] };
}

function between(before: Segment, to: number): Segment {
  return { kind: "backoff", from: before.to, to, seq: null, attempt: before.attempt, tries: before.tries };
}

function segmentKind(kind: string): SegmentKind {
  if (kind === "failed" || kind === "try_failed") return "failed";
  if (kind === "fired") return "wait";
  if (kind === "arrived") return "signal";
  return "ok";
}

/** What the run waits for is not in its history yet: it is shown from the last record until now. */
function addWaits(lanes: Map<string, Lane>, run: RunRow, now: number): void {
  const waits = run.state === "waiting" ? run.waits_for : null;
  const name = waits && waitsOn(waits);
  if (!waits || !name) return;
  let lane = lanes.get(name);
  let since = run.started_at ?? run.created_at;
  for (const other of lanes.values()) since = Math.max(since, other.to);
  if (!lane) {
    lane = { ...freshLane(name, waits.for === "timer" ? "fired" : waits.for === "signal" || waits.for === "child" ? "arrived" : "done", since), tries: 0 };
    lanes.set(name, lane);
  }
  const kind: SegmentKind = waits.for === "retry" ? "backoff" : "wait";
  const from = waits.for === "retry" ? lane.to : since;
  lane.segments.push({ kind, from, to: Math.max(from, now), seq: null, attempt: run.attempt, tries: lane.tries });
  lane.to = Math.max(lane.to, now);
  lane.outcome = waits.for === "retry" ? "retrying" : "waiting";
}

function waitsOn(waits: Waits): string | null {
  if (waits.for === "signal") return waits.name ?? null;
  if (waits.for === "child") return "its child";
  return waits.step ?? null;
}

/** The run's own lane: until when it was put off, when it was queued, when it was worked on, and when it waited. */
function runLane(answer: TimelineAnswer, run: RunRow, lanes: Lane[], end: number): Lane {
  const from = run.created_at;
  const segments: Segment[] = [];
  const plain = (kind: SegmentKind, a: number, b: number): Segment => ({ kind, from: a, to: b, seq: null, attempt: 0, tries: 0 });
  const queued = answer.queue.map(({ from: a, to: b }) => plain("queue", a, b ?? end));
  const started = run.started_at;
  if (started !== null) {
    segments.push(plain(run.state === "failed" ? "failed" : run.state === "running" ? "running" : "ok", started, end));
    for (const lane of lanes) {
      if (lane.kind === "step" && lane.outcome !== "waiting") continue;
      for (const piece of lane.segments) if (piece.kind === "wait" || piece.kind === "signal") segments.push(plain("wait", piece.from, piece.to));
    }
  }
  const { delay } = answer;
  if (delay && delay.from < end) segments.push(plain("delay", delay.from, Math.min(delay.to, end)));
  segments.push(...queued);
  const outcome = run.state === "failed" ? "failed" : run.state === "running" ? "running" : run.state === "completed" ? "ok" : "waiting";
  return { name: run.workflow, kind: "run", from, to: end, tries: run.attempt, steps: lanes.length, outcome, segments };
}

/** The name without the number that tells steps of one name apart. */
export const baseName = (step: string): string => step.replace(/#[^#]*$/, "");

const RANK = { failed: 4, running: 3, retrying: 2, waiting: 1, ok: 0 };

/** One lane for all steps of a name. */
function grouped(lanes: Lane[]): Lane[] {
  const groups = new Map<string, Lane>();
  for (const lane of lanes) {
    const name = baseName(lane.name);
    const group = groups.get(name);
    if (!group) {
      groups.set(name, { ...lane, segments: [...lane.segments] });
      continue;
    }
    group.name = name;
    group.kind = "group";
    group.steps++;
    group.from = Math.min(group.from, lane.from);
    group.to = Math.max(group.to, lane.to);
    group.tries = Math.max(group.tries, lane.tries);
    if (RANK[lane.outcome] > RANK[group.outcome]) group.outcome = lane.outcome;
    group.segments.push(...lane.segments);
  }
  return [...groups.values()];
}
