import "./page";
import assert from "node:assert/strict";
import { afterEach, beforeEach, test, type TestContext } from "node:test";
import { Entry } from "../src/api/resource";
import { changedHere, setPaused } from "../src/live/live";

const GAP_MS = 800;
const LONG_MS = 60_000;

/** The server's answers that are still to come: called, one comes. */
let asked: (() => void)[] = [];
let leave: () => void;

beforeEach((t) => {
  asked = [];
  globalThis.fetch = () => new Promise((answer) => asked.push(() => answer(Response.json({}))));
  (t as TestContext).mock.timers.enable({ apis: ["setTimeout", "Date"] });
  leave = new Entry("runs", false).follow([], GAP_MS);
});

afterEach(() => {
  leave();
  setPaused(false);
});

/** Lets the latest fetch end. */
async function answered(): Promise<void> {
  asked.at(-1)?.();
  await new Promise((done) => setImmediate(done));
}

/** Says that the server told of a change: whoever resumes takes everything for changed. */
const changedThere = (): void => setPaused(false);

test("a change is fetched once, some time after the fetch before it", async (t) => {
  await answered();
  changedThere();
  changedThere();
  t.mock.timers.tick(GAP_MS - 1);
  assert.equal(asked.length, 1);
  t.mock.timers.tick(1);
  assert.equal(asked.length, 2);
});

test("what was to be fetched when updates were paused is not", async (t) => {
  await answered();
  changedThere();
  setPaused(true);
  t.mock.timers.tick(LONG_MS);
  assert.equal(asked.length, 1);
  setPaused(false);
  t.mock.timers.tick(LONG_MS);
  assert.equal(asked.length, 2, "on resuming");
});

test("what changed during a fetch, and was to be fetched after it, is not fetched in a pause", async (t) => {
  changedThere();
  t.mock.timers.tick(GAP_MS);
  setPaused(true);
  await answered();
  t.mock.timers.tick(LONG_MS);
  assert.equal(asked.length, 1);
});

test("a change of this tab is fetched in a pause, also where one of the server waits", async (t) => {
  await answered();
  changedThere();
  setPaused(true);
  changedHere();
  t.mock.timers.tick(GAP_MS);
  assert.equal(asked.length, 2);
});

test("a change of this tab during a fetch is fetched after it, in a pause too", async (t) => {
  setPaused(true);
  changedHere();
  t.mock.timers.tick(0);
  await answered();
  t.mock.timers.tick(GAP_MS);
  assert.equal(asked.length, 2);
});
