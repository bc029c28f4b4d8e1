import assert from "node:assert/strict";
import { test } from "node:test";
import { match, to } from "../src/route/route";
import { apiFilter, apiQuery, filterTrouble, NONE, readFilter, readTyped, sayFilter, timeOf, writeFilter } from "../src/route/filter";

test("every page has its address", () => {
  assert.equal(match("").page, "overview");
  for (const page of ["runs", "workflows", "queues", "workers", "schedules", "keys", "errors", "waiting", "operations", "audit"]) assert.equal(match(page).page, page);
  assert.deepEqual(match("runs/abc"), { page: "run", id: "abc", more: "" });
  assert.equal(match("workflows/order").page, "workflow");
  assert.equal(match("step-keys/k").page, "step-key");
  assert.equal(match("no/such/page").page, "missing");
});

test("names with slashes and signs come back whole", () => {
  const key = "schedule/nightly report/1/2026-11-15T03:00:00.000Z?#%";
  assert.deepEqual(match(to("keys", "a/b", key)), { page: "key", id: "a/b", more: key });
  assert.equal(match("runs/%E0%A4%A").id, "%E0%A4%A");
});

test("a filter survives the address", () => {
  const filter = { ...NONE, states: ["failed", "waiting"] as const, workflow: "order", key: "ord 1&2", tags: ["customer:42", "region:eu"], from: "-24h" };
  const text = writeFilter({ ...filter, states: [...filter.states] });
  assert.deepEqual(readFilter(text), { ...filter, states: [...filter.states] });
  assert.equal(writeFilter(NONE), "");
  assert.equal(writeFilter(readFilter("state=failed,nonsense")), "state=failed,nonsense", "what is no state is not left out");
});

test("relative times are times for the API", () => {
  const now = 1_800_000_000_000;
  assert.equal(timeOf("-24h", now), now - 86_400_000);
  assert.equal(timeOf("-15m", now), now - 900_000);
  assert.equal(timeOf("1700000000000", now), 1_700_000_000_000);
  assert.deepEqual([timeOf("-90s", now), timeOf("-2w", now)], [now - 90_000, now - 1_209_600_000]);
  assert.equal(timeOf("2026-11-15", now), Date.UTC(2026, 10, 15));
  assert.equal(timeOf("2026-11-15T18:00Z", now), Date.UTC(2026, 10, 15, 18));
  assert.equal(timeOf("2026-11-15 18:00:05+02:00", now), Date.UTC(2026, 10, 15, 16, 0, 5));
  assert.deepEqual(apiFilter({ ...NONE, from: "-1h", states: ["failed"] }, now), { state: ["failed"], created_from: now - 3_600_000 });
  assert.deepEqual(apiFilter({ ...NONE, tags: ["url:http://x"] }, now), { tags: { url: "http://x" } });
  assert.equal(apiQuery({ ...NONE, states: ["failed", "waiting"] }, now), "?state=failed%2Cwaiting");
  assert.equal(apiQuery({ ...NONE, tags: ["a:1", "b:2"] }, now, { limit: 50 }), "?tag=a%3A1&tag=b%3A2&limit=50");
});

test("a filter that cannot be read is refused, and never a wider one", () => {
  const times = ["soon", "yesterday", "-2y", "-h", "2026-13-01", "2026-02-30", "last-7", "17", "9999999999999999", "-99999999999999d"];
  for (const time of times) {
    for (const filter of [{ ...NONE, from: time }, { ...NONE, before: time }]) {
      assert.match(filterTrouble(filter) ?? "", /is not a time/, time);
      assert.throws(() => apiFilter(filter, 0), /is not a time/);
      assert.throws(() => apiQuery(filter, 0), /is not a time/);
    }
  }
  assert.match(filterTrouble(readTyped("state:stuck", NONE)) ?? "", /not a state of a run.*page Waiting/);
  assert.match(filterTrouble(readFilter("state=failed,paused")) ?? "", /not a state of a run.*--state paused/);
  assert.throws(() => apiFilter(readFilter("state=nonsense"), 0), /not a state/);
  assert.throws(() => apiFilter(readTyped("tag:customer", NONE), 0), /has no value/);
  assert.throws(() => apiFilter(readTyped("tag:a=1 tag:a=2", NONE), 0), /there twice/);
  assert.equal(filterTrouble(readTyped("state:failed,queued since:-2w before:2026-11-15 tag:a=1 tag:b=2", NONE)), null);
});

test("what is typed is understood", () => {
  const filter = readTyped('state:failed workflow:order tag:customer=42 since:-7d "ord 18"', NONE);
  assert.deepEqual(filter, { ...NONE, states: ["failed"], workflow: "order", tags: ["customer:42"], from: "-7d", key: "ord 18" });
  assert.equal(sayFilter(filter), "runs failed, of workflow order, with key ord 18, tagged customer:42, created since -7d");
  assert.equal(sayFilter(NONE), "all runs");
});
