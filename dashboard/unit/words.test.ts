import assert from "node:assert/strict";
import { test } from "node:test";
import { sayCalm } from "../src/format/calm";
import { csv } from "../src/format/csv";
import { progressOf, sayOperation } from "../src/format/operation";
import { sayBackfilled, sayOccurred, sumBackfilled } from "../src/format/schedule";
import { isOf } from "../src/pages/errors/alike";

test("a trigger says what it did, and leads to the run that it is about", () => {
  assert.deepEqual(sayOccurred({ how: "started", run: "r1" }), { text: "Started a run.", run: "r1" });
  assert.equal(sayOccurred({ how: "buffered", run: "r2" }).run, "r2");
  assert.deepEqual(sayOccurred({ how: "skipped", live: "r3" }), { text: "Nothing was started: the run before has not ended.", run: "r3" });
  assert.match(sayOccurred({ how: "refused", holder: "r4" }).text, /^Nothing was started/);
  assert.equal(sayOccurred({ how: "refused", holder: "r4" }).run, "r4");
});

test("a backfill says what it left out, and whether there is a rest", () => {
  assert.equal(sayBackfilled({ started: 1, existing: 0, refused: 0, more: false }), "Started 1 run.");
  assert.match(sayBackfilled({ started: 3, existing: 2, refused: 1, more: false }), /^Started 3 runs; 2 had one already; 1 was refused/);
  assert.match(sayBackfilled({ started: 3, existing: 0, refused: 0, more: true }), /go on for the rest/);
  // The second part meets the runs that the first one started.
  const first = sumBackfilled(null, { started: 100, existing: 4, refused: 1, more: true });
  assert.deepEqual(sumBackfilled(first, { started: 20, existing: 104, refused: 2, more: false }), { started: 120, existing: 4, refused: 2, more: false });
});

test("a change that is under way is no full bar", () => {
  const none = { done: 0, skipped: 0, failed: 0 };
  assert.deepEqual(progressOf({ ...none, state: "running", done: 400, matched: 400 }), { gone: 400, all: null, text: "400 so far" });
  assert.equal(progressOf({ ...none, state: "running", done: 390, skipped: 10, matched: 400, expected: 12_000 }).text, "400 of about 12\u202f000");
  assert.equal(progressOf({ ...none, state: "running", done: 400, matched: 400, expected: 10_000, expected_more: true }).text, "400 of more than 10\u202f000");
  assert.equal(progressOf({ ...none, state: "running", done: 60, matched: 60, expected: 50 }).all, 60, "more came than were counted");
  assert.deepEqual(progressOf({ state: "done", done: 58, skipped: 2, failed: 0, matched: 60, expected: 70 }), { gone: 60, all: 60, text: "58 of 60" });
});

test("a change that was cut says so, and is no full bar", () => {
  const cut = { state: "done", done: 999_990, skipped: 10, failed: 0, matched: 1_000_000, expected: 10_000, expected_more: true, cut: true };
  assert.equal(sayOperation(cut), "done, cut after 1\u202f000\u202f000: begin it again for the rest");
  assert.equal(sayOperation({ ...cut, cut: false }), "done");
  const { gone, all, text } = progressOf(cut);
  assert.equal(text, "999\u202f990 of more than 1\u202f000\u202f000");
  assert.ok(all !== null && gone < all);
});

test("that nothing needs attention is said of what was looked at", () => {
  const all = { looked: 3, more: false };
  assert.equal(sayCalm({ queues: all, sample: 12, waiting: all }), "Nothing. No queue is late or paused, a worker is up for each queued one of the newest 12 runs, no run is stuck.");
  const part = sayCalm({ queues: { looked: 200, more: true }, sample: 500, waiting: { looked: 1000, more: true } });
  assert.match(part, /None of the first 200 queues/);
  assert.match(part, /none of the newest 1\u202f000 waiting runs is stuck/);
});

test("a cell of comma-separated values cannot leave its place", () => {
  assert.equal(csv([["plain", 'a,"b"\n'], ["=1+1", "-2"]]), 'plain,"a,""b""\n"\n\'=1+1,\'-2\n');
  assert.equal(csv([["priority", -1, 0.5]]), "priority,-1,0.5\n", "a number is no formula");
});

test("the runs of a group of errors are those that it counts", () => {
  const group = { fingerprint: "f", first_at: 100, last_at: 200 };
  const run = (fingerprint: string, finished_at: number) => ({ failure: { code: "c", message: "m", retryable: false, fingerprint }, finished_at, created_at: 0 });
  assert.ok(isOf(group, run("f", 100)) && isOf(group, run("f", 200)));
  assert.ok(!isOf(group, run("f", 99)), "older than the window that was chosen");
  assert.ok(!isOf(group, run("f", 201)) && !isOf(group, run("g", 150)));
});
