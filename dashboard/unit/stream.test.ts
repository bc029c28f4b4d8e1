import assert from "node:assert/strict";
import { beforeEach, test, type TestContext } from "node:test";
import { ALL, BEYOND_MS, SILENCE_MAX_MS, Stream } from "../src/live/stream";

/** The server's end of each connection, the latest last. */
let sources: FakeSource[] = [];

class FakeSource {
  onopen: () => void = () => undefined;
  onerror: () => void = () => undefined;
  closed = false;
  private readonly heard = new Map<string, (event: { data: string }) => void>();

  constructor(readonly url: string) {
    sources.push(this);
  }

  addEventListener(name: string, listener: (event: { data: string }) => void): void {
    this.heard.set(name, listener);
  }

  close(): void {
    this.closed = true;
  }

  says(...topics: string[]): void {
    this.heard.get("change")?.({ data: JSON.stringify({ topics }) });
  }
}

/** Longer than the pause before a second try. */
const PAUSE_MS = 1000;

beforeEach(() => {
  sources = [];
  (globalThis as { EventSource?: unknown }).EventSource = FakeSource;
});

/** A stream that is open, on a clock of the test's own. */
function open(t: TestContext, runs: string[] = []) {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const told = { topics: [] as string[], status: "" };
  const stream = new Stream("stream", { topics: (topics) => told.topics.push(...topics), status: (now) => (told.status = now) });
  stream.watch(runs);
  stream.open();
  sources[0]?.onopen();
  return { stream, told, pass: (ms: number) => t.mock.timers.tick(ms) };
}

test("a stream on which the server says something stays", (t) => {
  const { told, pass } = open(t);
  for (let i = 0; i < 10; i++) {
    pass(SILENCE_MAX_MS - 1);
    sources[0]?.says("workers");
  }
  assert.deepEqual([sources.length, sources[0]?.closed, told.status], [1, false, "live"]);
});

test("silence means that the connection is dead: it is shown, and another one is opened", (t) => {
  const { told, pass } = open(t);
  pass(SILENCE_MAX_MS);
  assert.deepEqual([sources[0]?.closed, told.status], [true, "down"]);
  pass(PAUSE_MS);
  assert.equal(sources.length, 2);
  // The second is silent, too, and does not even open.
  pass(SILENCE_MAX_MS);
  assert.deepEqual([sources[1]?.closed, told.status], [true, "down"]);
  pass(2 * PAUSE_MS);
  assert.equal(sources.length, 3);
  told.topics = [];
  sources[2]?.onopen();
  assert.deepEqual([told.status, told.topics], ["live", [ALL]], "what was missed is looked for");
});

test("a stream that was closed is not opened again by its silence", (t) => {
  const { stream, pass } = open(t);
  stream.close();
  pass(10 * SILENCE_MAX_MS);
  assert.equal(sources.length, 1);
});

test("a run beyond those that the server watches is looked at, too, and not too often", (t) => {
  const runs = Array.from({ length: 9 }, (_, i) => `r${i}`);
  const { stream, told, pass } = open(t, runs);
  assert.equal(sources[0]?.url, `stream?${runs.slice(0, 8).map((run) => `run=${run}`).join("&")}`);
  told.topics = [];
  for (let i = 0; i < 10; i++) sources[0]?.says("workers");
  assert.ok(!told.topics.includes("run:r8"));
  pass(BEYOND_MS);
  assert.equal(told.topics.filter((topic) => topic === "run:r8").length, 1);
  assert.ok(!told.topics.includes("run:r0"), "the server tells of that one itself");
  // One of the eight is closed: the ninth takes its place.
  stream.watch(runs.slice(1));
  assert.match(sources[1]?.url ?? "", /run=r8$/);
  sources[1]?.onopen();
  told.topics = [];
  sources[1]?.says("workers");
  pass(BEYOND_MS);
  assert.deepEqual(told.topics, ["workers"]);
});
