import assert from "node:assert/strict";
import { test } from "node:test";
import type { RunRow, TimelineAnswer } from "../src/api/types";
import { fit } from "../src/timeline/fit";
import { baseName, layOut, type Lane } from "../src/timeline/layout";
import { makeScale, ticks } from "../src/timeline/scale";

type Row = [step: string, kind: string, tries: number, from: number, to: number];

function answerOf(rows: Row[], now = 10_000): TimelineAnswer {
  const steps = [...new Set(rows.map(([step]) => step))];
  return {
    steps, now, queue: [{ from: 0, to: 100 }],
    rows: { step: rows.map(([step]) => steps.indexOf(step)), kind: rows.map((row) => row[1]), try: rows.map((row) => row[2]), began_at: rows.map((row) => row[3]), at: rows.map((row) => row[4]), attempt: rows.map(() => 1), seq: rows.map((_, i) => i + 1) },
  };
}

const run = (more: Partial<RunRow> = {}): RunRow => ({ id: "r", workflow: "order", state: "completed", created_at: 0, started_at: 100, finished_at: 2000, attempt: 1, waits_for: null, ...more }) as RunRow;
const kinds = (lane: Lane | undefined): string[] => (lane?.segments ?? []).map((segment) => segment.kind);

test("tries, back-off and success are segments of one lane", () => {
  const { lanes } = layOut(answerOf([["charge", "try_failed", 1, 100, 200], ["charge", "try_failed", 2, 500, 600], ["charge", "done", 3, 1200, 1300]]), run(), { group: false, now: 2000 });
  const charge = lanes[1];
  assert.deepEqual(kinds(charge), ["failed", "backoff", "failed", "backoff", "ok"]);
  assert.deepEqual(charge?.segments.map(({ from, to }) => [from, to]), [[100, 200], [200, 500], [500, 600], [600, 1200], [1200, 1300]]);
  assert.equal(charge?.tries, 3);
  assert.equal(charge?.outcome, "ok");
});

test("a delay that was asked for is no time in the queue", () => {
  const answer = { ...answerOf([["a", "done", 1, 900, 1000]]), delay: { from: 0, to: 800 }, queue: [{ from: 800, to: 900 }] };
  const before = (lane: Lane | undefined): [string, number, number][] => (lane?.segments ?? []).filter(({ kind }) => kind === "delay" || kind === "queue").map(({ kind, from, to }) => [kind, from, to]);
  const { lanes } = layOut(answer, run({ started_at: 900 }), { group: false, now: 2000 });
  assert.deepEqual(before(lanes[0]), [["delay", 0, 800], ["queue", 800, 900]]);
  const waiting = run({ state: "waiting", started_at: null, finished_at: null, attempt: 0 });
  const ahead = layOut({ ...answerOf([], 300), delay: { from: 0, to: 800 }, queue: [] }, waiting, { group: false, now: 300 });
  assert.deepEqual(before(ahead.lanes[0]), [["delay", 0, 300]]);
});

test("the run's own lane shows when it was queued", () => {
  const { lanes, from, to } = layOut(answerOf([["a", "done", 1, 150, 300]]), run(), { group: false, now: 2000 });
  assert.deepEqual(lanes[0]?.segments.filter((segment) => segment.kind === "queue").map(({ from: a, to: b }) => [a, b]), [[0, 100]]);
  assert.deepEqual([from, to], [0, 2000]);
});

test("timers and signals are waits, not work", () => {
  const { lanes } = layOut(answerOf([["sleep", "fired", 1, 100, 900], ["paid", "arrived", 1, 900, 1500]]), run(), { group: false, now: 2000 });
  assert.deepEqual(lanes.slice(1).map((lane) => [lane.kind, ...kinds(lane)]), [["timer", "wait"], ["signal", "signal"]]);
});

test("a wait that goes on reaches until now", () => {
  const waiting = run({ state: "waiting", finished_at: null, waits_for: { for: "signal", name: "approved" } });
  const { lanes, to } = layOut(answerOf([["a", "done", 1, 100, 300]]), waiting, { group: false, now: 5000 });
  const approved = lanes.find((lane) => lane.name === "approved");
  assert.deepEqual(approved?.segments.map(({ kind, from, to: end }) => [kind, from, end]), [["wait", 300, 5000]]);
  assert.equal(approved?.outcome, "waiting");
  assert.equal(to, 10_000);
});

test("a retry that is due later is back-off of its own step", () => {
  const waiting = run({ state: "waiting", finished_at: null, waits_for: { for: "retry", step: "charge", try_number: 2 } });
  const { lanes } = layOut(answerOf([["charge", "try_failed", 1, 100, 300]], 400), waiting, { group: false, now: 5000 });
  assert.deepEqual(kinds(lanes[1]), ["failed", "backoff"]);
  assert.equal(lanes[1]?.outcome, "retrying");
});

test("steps of one name can be one lane", () => {
  const rows: Row[] = [["save", "done", 1, 100, 200], ["save#2", "failed", 1, 200, 300], ["save#3", "done", 1, 300, 400], ["ship", "done", 1, 400, 500]];
  const { lanes, steps } = layOut(answerOf(rows), run(), { group: true, now: 2000 });
  assert.equal(steps, 4);
  assert.deepEqual(lanes.slice(1).map((lane) => [lane.name, lane.steps, lane.outcome]), [["save", 3, "failed"], ["ship", 1, "ok"]]);
  assert.equal(baseName("save#12"), "save");
  assert.equal(baseName("save"), "save");
});

test("ten thousand steps are laid out in a moment", () => {
  const rows = Array.from({ length: 10_000 }, (_, i): Row => [`notify#${i}`, "done", 1, 100 + i, 150 + i]);
  const began = performance.now();
  const timeline = layOut(answerOf(rows), run({ finished_at: 20_000 }), { group: false, now: 20_000 });
  makeScale(timeline, true);
  assert.equal(timeline.lanes.length, 10_001);
  // Far above what it takes, far below what anything but a straight pass would take.
  assert.ok(performance.now() - began < 5000);
});

test("long idle times are drawn short, and places and times agree", () => {
  const day = 86_400_000;
  const timeline = layOut(answerOf([["a", "done", 1, 100, 1100], ["sleep", "fired", 1, 1100, day], ["b", "done", 1, day, day + 1000]]), run({ finished_at: day + 1000 }), { group: false, now: day });
  const scale = makeScale(timeline, true);
  assert.equal(scale.breaks.length, 1);
  assert.ok(scale.hidden > day * 0.99);
  assert.ok(scale.place(1100) > 0.4 && scale.place(day) < 0.6);
  for (const time of [0, 500, 1100, 40_000_000, day + 900]) assert.ok(Math.abs(scale.time(scale.place(time)) - time) < 1);
  assert.equal(makeScale(timeline, false).breaks.length, 0);
});

test("a lane with many tries draws few pieces, and keeps its failures", () => {
  const rows = Array.from({ length: 900 }, (_, i): Row => ["poll", i === 450 ? "try_failed" : "done", i, 100 + i * 2, 101 + i * 2]);
  const timeline = layOut(answerOf(rows), run(), { group: false, now: 2000 });
  const pieces = fit(timeline.lanes[1]?.segments ?? [], makeScale(timeline, false), [0, 1]);
  assert.ok(pieces.length <= 60, `${pieces.length}`);
  assert.ok(pieces.some((piece) => piece.segment.kind === "failed"));
  assert.ok(pieces.every((piece) => piece.left >= 0 && piece.left + piece.width <= 1.0001));
});

test("only what is in view is drawn", () => {
  const timeline = layOut(answerOf([["a", "done", 1, 0, 100], ["a", "done", 2, 1900, 2000]]), run(), { group: false, now: 2000 });
  assert.equal(fit(timeline.lanes[1]?.segments ?? [], makeScale(timeline, false), [0.5, 1]).length, 1);
});

test("marks of the axis are round", () => {
  assert.deepEqual(ticks(0, 10_000, 0, 5), [0, 2000, 4000, 6000, 8000, 10_000]);
  assert.deepEqual(ticks(1_000_000, 1_000_500, 1_000_000, 5), [0, 100, 200, 300, 400, 500]);
});
