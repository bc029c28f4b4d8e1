// From times to places between 0 and 1, with long idle times drawn short. Pure.
import type { Timeline } from "./layout";

/** A stretch of time and the stretch of the drawing that shows it. */
interface Stretch {
  from: number;
  to: number;
  at: number;
  width: number;
  idle: boolean;
}

export interface Scale {
  place(time: number): number;
  time(place: number): number;
  /** The middle of each idle time that is drawn short. */
  breaks: { at: number; ms: number }[];
  hidden: number;
}

/** An idle time is drawn short if it is more than this share of what is not drawn short yet, … */
const IDLE_SHARE_MIN = 0.12;
/** … and longer than this, … */
const IDLE_MS_MIN = 2000;
/** … and gets at most this share of the drawing, all of them together twice that. */
const IDLE_DRAWN_MAX = 0.15;
/** Gaps that are drawn short at most; more would leave no room for the rest. */
const GAPS_MAX = 8;

/** A scale over the whole timeline. */
export function makeScale(timeline: Timeline, collapse: boolean): Scale {
  const whole: Stretch = { from: timeline.from, to: timeline.to, at: 0, width: 1, idle: false };
  const stretches = collapse ? collapsed(timeline) : [whole];
  const idle = stretches.filter((stretch) => stretch.idle);
  return {
    place: (time) => placeIn(stretches, time),
    time: (place) => timeIn(stretches, place),
    breaks: idle.map((stretch) => ({ at: stretch.at + stretch.width / 2, ms: stretch.to - stretch.from })),
    hidden: idle.reduce((sum, stretch) => sum + stretch.to - stretch.from, 0),
  };
}

/** Times in which a body executed or something was queued: the rest is idle. */
function busyTimes(timeline: Timeline): [number, number][] {
  const times: [number, number][] = [];
  for (const lane of timeline.lanes) {
    for (const { kind, from, to } of lane.segments) {
      const busy = lane.kind === "run" ? kind === "queue" : kind === "ok" || kind === "failed" || kind === "running";
      if (busy) times.push([from, to]);
      else times.push([from, from], [to, to]);
    }
  }
  return times.sort((a, b) => a[0] - b[0]);
}

/** The gaps that are worth drawing short, the longest first: each makes the rest look longer. */
function longest(all: [number, number][], span: number): [number, number][] {
  let rest = span;
  const chosen: [number, number][] = [];
  for (const gap of [...all].sort((a, b) => b[1] - b[0] - (a[1] - a[0])).slice(0, GAPS_MAX)) {
    const ms = gap[1] - gap[0];
    if (ms <= rest * IDLE_SHARE_MIN || ms < IDLE_MS_MIN) break;
    chosen.push(gap);
    rest -= ms;
  }
  return chosen.sort((a, b) => a[0] - b[0]);
}

function collapsed(timeline: Timeline): Stretch[] {
  const span = timeline.to - timeline.from;
  const all: [number, number][] = [];
  let end = timeline.from;
  for (const [from, to] of [...busyTimes(timeline), [timeline.to, timeline.to] as [number, number]]) {
    if (from > end) all.push([end, from]);
    end = Math.max(end, to);
  }
  const gaps = longest(all, span);
  const idle = gaps.reduce((sum, [from, to]) => sum + to - from, 0);
  const drawn = Math.min(IDLE_DRAWN_MAX, (2 * IDLE_DRAWN_MAX) / gaps.length);
  const room = 1 - gaps.length * (gaps.length ? drawn : 0);
  const stretches: Stretch[] = [];
  let [time, at] = [timeline.from, 0];
  const add = (to: number, width: number, isIdle: boolean): void => {
    if (to <= time) return;
    stretches.push({ from: time, to, at, width, idle: isIdle });
    [time, at] = [to, at + width];
  };
  const busy = Math.max(1e-9, span - idle);
  for (const [from, to] of gaps) {
    add(from, ((from - time) / busy) * room, false);
    add(to, drawn, true);
  }
  add(timeline.to, 1 - at, false);
  return stretches;
}

function placeIn(stretches: Stretch[], time: number): number {
  let [low, high] = [0, stretches.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((stretches[middle] as Stretch).to < time) low = middle + 1;
    else high = middle;
  }
  const { from, to, at, width } = stretches[low] as Stretch;
  return clamp(at + ((time - from) / (to - from)) * width);
}

function timeIn(stretches: Stretch[], place: number): number {
  const stretch = stretches.find(({ at, width }) => place <= at + width) ?? stretches[stretches.length - 1];
  const { from, to, at, width } = stretch as Stretch;
  return from + (width ? (place - at) / width : 0) * (to - from);
}

const clamp = (place: number): number => Math.min(1, Math.max(0, place));

/** Round steps for the marks of the axis. */
const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 1.5e4, 3e4, 6e4, 12e4, 3e5, 6e5, 9e5, 18e5, 36e5, 72e5, 108e5, 216e5, 432e5, 864e5, 1728e5, 6048e5];

/** Times for about `wanted` marks between two times, as distances from `zero`. */
export function ticks(from: number, to: number, zero: number, wanted: number): number[] {
  const rough = (to - from) / Math.max(1, wanted);
  const step = STEPS.find((one) => one >= rough) ?? Math.ceil(rough / 864e5) * 864e5;
  const marks: number[] = [];
  for (let mark = Math.ceil((from - zero) / step) * step; mark <= to - zero && marks.length < 50; mark += step) marks.push(mark);
  return marks;
}
