import assert from "node:assert/strict";
import { test } from "node:test";
import { cronWords } from "../src/format/cron";
import { count, many, percent, short, shortId } from "../src/format/number";
import { sayStep, stepName } from "../src/format/step";
import { clock, day, duration, inWords, local, relative, utc } from "../src/format/time";

test("durations have at most two units", () => {
  const said: [number, string][] = [[0, "0 ms"], [84, "84 ms"], [2000, "2 s"], [3250, "3.25 s"], [12_300, "12.3 s"], [252_000, "4 m 12 s"], [7_200_000, "2 h"], [7_500_000, "2 h 5 m"], [273_600_000, "3 d 4 h"]];
  for (const [ms, text] of said) assert.equal(duration(ms), text);
});

test("times near and far are told from now", () => {
  assert.equal(relative(1000, 1500), "now");
  assert.equal(relative(0, 12_000), "12 s ago");
  assert.equal(relative(240_000, 0), "in 4 m");
  assert.equal(relative(0, 3 * 86_400_000), "3 d ago");
});

test("a time that no calendar has is never", () => {
  const most = JSON.parse("9223372036854775807") as number;
  for (const at of [most, -most, 8.64e15 + 1]) {
    for (const say of [utc, local, day, clock]) assert.equal(say(at), "never", say.name);
    assert.deepEqual([relative(at, 0), inWords(at, 0)], ["never", "never"]);
  }
  assert.equal(utc(8.64e15), "+275760-09-13T00:00:00.000Z");
});

test("a time to come is told in words", () => {
  const now = new Date(2026, 10, 15, 19, 0).getTime();
  assert.equal(inWords(new Date(2026, 10, 15, 22, 30).getTime(), now), "today at 22:30");
  assert.equal(inWords(new Date(2026, 10, 16, 3, 0).getTime(), now), "tomorrow at 03:00");
  assert.equal(inWords(new Date(2026, 10, 23, 3, 0, 5).getTime(), now), "Monday 23 November at 03:00:05");
  assert.equal(inWords(new Date(2027, 0, 1, 0, 0).getTime(), now), "Friday 1 January 2027 at 00:00");
});

test("cron patterns that people write have words, others have none", () => {
  const said: [string, string | null][] = [
    ["0 3 * * *", "Every day at 03:00"], ["30 8 * * 1-5", "Monday to Friday at 08:30"], ["*/5 * * * *", "Every 5 minutes"], ["0 * * * *", "Every hour"],
    ["0 0 1 * *", "On day 1 of the month at 00:00"], ["0 9,17 * * mon", "Every Monday at 09:00, 17:00"], ["0 0 3 * * *", "Every day at 03:00"],
    ["0 3 * 2 *", null], ["*/10 8-18 * * *", null], ["nonsense", null],
  ];
  for (const [cron, words] of said) assert.equal(cronWords(cron), words, cron);
});

test("numbers are short and aligned", () => {
  assert.equal(count(1234567), "1\u202f234\u202f567");
  assert.equal(short(12_400), "12.4k");
  assert.equal(short(3_100_000), "3.1M");
  assert.equal(many(1, "run"), "1 run");
  assert.equal(percent(1, 500), "<1 %");
  assert.equal(shortId("01a1e0b7-fd5f-7a3f-882c-005bc2998275"), "c2998275");
});

test("a step is called what its author called it", () => {
  const said: [string, string][] = [
    ["ocr", "ocr"], ["notify#7777", "notify #7777"], ["save#=item-9", "save #item-9"], ["welcome mail#@welcome-ada", "welcome mail"],
    ["100%25 done", "100% done"], ["caf%C3%A9", "café"], ["$sleep", "sleep"], ["$sleep#2", "sleep #2"], ["$signal/approved#1", "approved"],
    ["$signal/%24child/ship#1", "child ship"], ["$child/ship started", "child ship started"], ["$timeout/approved", "time limit of approved"], ["$callback/3", "callback 3"], ["%24odd", "$odd"],
  ];
  for (const [id, text] of said) assert.equal(sayStep(id), text, id);
  assert.deepEqual(stepName("welcome mail#2@x"), { kind: "step", name: "welcome mail", number: "2@x", key: "" });
  assert.equal(stepName("welcome mail#@welcome-ada").key, "welcome-ada");
});
