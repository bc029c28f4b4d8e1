// Each action of the pages once, and what it says came of it.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { lookAt, openBrowser, openPage, seen, Stage, until } from "./stage.mjs";
import { seed } from "./seed.mjs";

let stage, browser, made;

before(async () => {
  stage = await Stage.open();
  browser = await openBrowser();
  made = await seed(stage);
});

after(async () => {
  await browser?.close();
  await stage?.close();
});

const at = (path, look, over = stage) => lookAt(browser, over.url + path, look);

/** Presses a button, and the one of that name in the dialog that asks. */
async function confirm(page, name, within = page) {
  await within.getByRole("button", { name, exact: true }).click();
  await page.getByRole("dialog").getByRole("button", { name, exact: true }).click();
  await page.getByRole("dialog").waitFor({ state: "detached" });
}

const runOf = async (id) => (await stage.api("GET", `runs/${id}`)).body.run;

test("a failed run is retried", () => at(`runs/${made.broken}`, async (page) => {
  await confirm(page, "Retry");
  await until("it failed again", async () => (await runOf(made.broken)).attempt === 2);
}));

test("a run is paused and resumed", () => at(`runs/${made.sleepy}`, async (page) => {
  await confirm(page, "Pause");
  await until("it is paused", async () => (await runOf(made.sleepy)).paused_at);
  await confirm(page, "Resume");
  await until("it goes on", async () => !(await runOf(made.sleepy)).paused_at);
}));

test("a run that has ended is deleted", async () => {
  const id = await stage.run("echo", 1, "to-delete");
  await stage.reaches(id, "completed");
  await at(`runs/${id}`, async (page) => {
    await confirm(page, "Delete");
    await page.getByRole("heading", { name: "Runs", exact: true }).waitFor();
  });
  assert.equal((await stage.api("GET", `runs/${id}`)).status, 404);
});

test("a run is forked with another input, and the command says so", () => at(`runs/${made.order}`, async (page) => {
  await page.getByRole("button", { name: "Fork…" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("From step").fill("charge card");
  await dialog.getByLabel("Input", { exact: true }).fill('{"customer": "grace"}');
  await dialog.getByLabel(/^Key/).fill("forked-1");
  await dialog.getByText(`onward runs fork ${made.order} --from 'charge card' --input '{"customer": "grace"}' --key forked-1`).waitFor();
  await dialog.getByRole("button", { name: "Fork", exact: true }).click();
  await page.waitForURL((url) => url.pathname.startsWith("/runs/") && !url.pathname.includes(made.order));
  const forked = await runOf(page.url().split("/").pop());
  assert.deepEqual([forked.key, forked.input], ["forked-1", { customer: "grace" }]);
}));

test("a start that is pressed twice starts one run", () => at("workflows/echo", async (page) => {
  const count = async () => (await stage.api("GET", "runs?workflow=echo&limit=200")).body.items.length;
  const before = await count();
  await page.getByRole("button", { name: "Start a run" }).click();
  await page.getByLabel("Input, as JSON").fill("12");
  // Held back, so that both presses come before the answer.
  await page.route(/\/workflows\/echo\/runs$/, async (route) => {
    await new Promise((resolve) => setTimeout(resolve, 300));
    await route.continue();
  });
  await page.locator("dialog form").evaluate((form) => {
    form.requestSubmit();
    form.requestSubmit();
  });
  await page.getByRole("heading", { name: "echo", level: 1 }).waitFor();
  await page.waitForURL(/\/runs\/[0-9a-f-]{36}/);
  assert.equal(await count(), before + 1);
  const run = await runOf(page.url().split("/").pop());
  assert.match(run.key, /^dashboard-/, "a repeated request would meet the same run");
}));

test("a step's key is released after the word was typed", () => at("step-keys/welcome-ada", async (page) => {
  await page.getByRole("button", { name: "Release" }).click();
  const dialog = page.getByRole("dialog");
  assert.ok(await dialog.getByRole("button", { name: "Release" }).isDisabled());
  await dialog.getByRole("textbox").fill("release");
  await dialog.getByRole("button", { name: "Release" }).click();
  await page.waitForURL(/keys\?tab=steps/);
  assert.equal((await stage.api("GET", "step-keys/welcome-ada")).status, 404);
}));

test("the key of a run that has ended is released", async () => {
  const started = await stage.api("POST", "workflows/echo/runs", { body: { input: 1 }, key: "once-more" });
  const run = started.body.run.id;
  await until("it ended", async () => (await runOf(run)).state === "completed");
  await at("keys/echo/once-more", async (page) => {
    await page.getByRole("button", { name: "Release" }).click();
    const dialog = page.getByRole("dialog");
    assert.ok(await dialog.getByRole("button", { name: "Release" }).isDisabled());
    await dialog.getByRole("textbox").fill("release");
    await dialog.getByRole("button", { name: "Release" }).click();
    await page.getByText("The run that had it").waitFor();
    assert.equal(await page.getByRole("button", { name: "Release" }).count(), 0);
  });
  const again = await stage.api("POST", "workflows/echo/runs", { body: { input: 1 }, key: "once-more" });
  assert.notEqual(again.body.run.id, run);
});

test("a signal that nothing has taken is shown", async () => {
  const started = await stage.api("POST", "workflows/echo/runs", { body: { input: 1, delay_ms: 600_000 } });
  const run = started.body.run.id;
  await at(`runs/${run}?tab=signals`, async (page) => {
    await page.getByText("No signal waits").waitFor();
    await stage.api("POST", `runs/${run}/signals`, { body: { name: "approved", value: { by: "ada" } } });
    await page.getByRole("heading", { name: /^approved/ }).waitFor();
    await page.getByText("ada").waitFor();
  });
  await stage.api("POST", `runs/${run}/cancel`);
});

test("a queue is paused, resumed and limited", async () => {
  await stage.api("POST", "workflows/echo/runs", { body: { input: 1, queue: "side" } });
  const side = async () => (await stage.api("GET", "queues")).body.items.find((queue) => queue.name === "side");
  await at("queues", async (page) => {
    const row = page.getByRole("row", { name: /^side/ });
    await confirm(page, "Pause", row);
    await until("it is paused", async () => (await side()).paused_at);
    await confirm(page, "Resume", row);
    await until("it goes on", async () => !(await side()).paused_at);
    await row.getByRole("button", { name: "Limits" }).click();
    await page.getByLabel("Runs at once").fill("3");
    await page.getByLabel("Starts").fill("10");
    await page.getByRole("dialog").getByText("onward queues set side --concurrency 3 --rate 10/1000ms").waitFor();
    await page.getByRole("button", { name: "Set the limits" }).click();
    await row.getByText("3 at once, 10 per 1 s").waitFor();
  });
  assert.equal((await side()).limits.concurrency, 3);
});

test("an operation is aborted", async () => {
  await stage.api("POST", "queues/onward-operations/pause");
  const { body } = await stage.api("POST", "operations", { body: { action: "cancel", filter: { workflow: "none-such" }, reason: "to be aborted" } });
  await at("operations", async (page) => {
    const row = page.getByRole("row", { name: /to be aborted/ });
    await row.getByRole("button", { name: "Abort" }).click();
    await page.getByRole("dialog").getByText(`onward ops abort ${body.operation.id}`).waitFor();
    await page.getByRole("dialog").getByRole("button", { name: "Abort" }).click();
    await row.getByText("aborted", { exact: true }).waitFor();
  });
  await stage.api("POST", "queues/onward-operations/resume");
});

test("a schedule is backfilled, and a part of it is not called all", () => at("schedules/nightly-report", async (page) => {
  const local = (days) => page.evaluate((ms) => new Date(Date.now() - ms - new Date().getTimezoneOffset() * 60_000).toISOString().slice(0, 16), days * 86_400_000);
  const body = (more) => ({ json: { started: 2, existing: 0, refused: 1, more } });
  let asked = 0;
  await page.route(/\/backfill$/, (route) => (asked++ === 0 ? route.fulfill(body(true)) : route.continue()));
  await page.getByRole("button", { name: "Backfill…" }).click();
  await page.getByLabel("From (local)").fill(await local(3));
  await page.getByLabel("Before (local)").fill(await local(0));
  const dialog = page.getByRole("dialog");
  await dialog.getByText(/onward schedules backfill nightly-report --from /).waitFor();
  await dialog.getByRole("button", { name: "Backfill", exact: true }).click();
  await dialog.getByText(/^Started 2 runs; 1 was refused.*go on for the rest/).waitFor();
  await dialog.getByRole("button", { name: "Go on" }).click();
  await page.getByText(/^Started 5 runs\./).waitFor();
  const { body: runs } = await stage.api("GET", "runs?tag=schedule:nightly-report");
  assert.equal(runs.items.length, 3);
}));

test("a trigger leads to the run that it started", () => at("schedules/nightly-report", async (page) => {
  await confirm(page, "Trigger");
  await page.getByText("Started a run.").waitFor();
  await page.getByRole("status").getByRole("link", { name: "Show" }).click();
  await page.getByRole("heading", { name: "echo", level: 1 }).waitFor();
  await page.waitForURL(/\/runs\/[0-9a-f-]{36}/);
}));

test("columns are chosen, and are a part of the address", () => at("runs", async (page) => {
  await page.getByText("Columns", { exact: true }).click();
  await page.getByRole("checkbox", { name: "queue" }).check();
  await page.waitForURL(/columns=[^&]*queue/);
  await page.getByRole("columnheader", { name: "queue" }).waitFor();
}));

test("the overview says what needs attention", async () => {
  // Its input is no number, so no build that there is can execute it.
  const stuck = await stage.run("fan-out", "not a number", "stuck-1");
  await until("it is stuck", async () => (await runOf(stuck)).waits_for?.for === "stuck");
  for (let i = 0; i < 110; i++) await stage.run("sleepy", null, `newer-${i}`);
  await until("they wait", async () => (await stage.api("GET", "waiting?for=timer&limit=200")).body.items.length > 110);
  await stage.api("POST", "queues/side/pause");
  await at("", async (page) => {
    const lines = page.getByRole("region", { name: "Needs attention" });
    await lines.getByText(/No worker serves nobody-serves-this/).waitFor();
    await lines.getByText(/Queue side is paused/).waitFor();
    await lines.getByText(/is stuck:/).waitFor();
  });
  await stage.api("POST", "queues/side/resume");
});

test("a wait is found behind many newer ones, and a look that was cut says so", () => at("waiting", async (page) => {
  await page.route(/\/waiting\?for=signal&limit=100$/, (route) => route.fulfill({ json: { items: [], next: "ffffffff-ffff-7fff-bfff-ffffffffffff", looked: 1000 } }));
  await seen(page, "newer-").waitFor();
  await page.getByRole("button", { name: "Signals" }).click();
  await page.getByText("None of the newest 1\u202f000 waiting runs waits for a signal.").waitFor();
  await page.getByRole("button", { name: "Look further" }).click();
  await seen(page, "expense-7").waitFor();
  await page.goto(`${stage.url}waiting?for=stuck`);
  await seen(page, "stuck-1").waitFor();
  await page.goto(`${stage.url}waiting?for=child`);
  await page.getByText("Nothing waits for the end of a child").waitFor();
}));

test("shares of failed tries are of all tries", () => at("workflows/order", async (page) => {
  const row = page.getByRole("row", { name: /^charge card/ });
  await row.getByText("67 %").waitFor();
  await page.getByText(/among the newest \d+ runs of all workflows/).waitFor();
  assert.equal(await page.getByRole("row", { name: /welcome mail/ }).count(), 1, "one row, whatever its keys");
}));

test("a key with a time of its own says when it is free, and is shown after that", async () => {
  const start = (key, key_ttl_ms) => stage.api("POST", "workflows/echo/runs", { body: { input: 1, key_ttl_ms }, key });
  await start("kept-an-hour", 3_600_000);
  await start("kept-a-moment", 1);
  await until("its time is over", async () => (await stage.api("GET", "keys/echo/kept-a-moment")).status === 404);
  await at("keys/echo/kept-an-hour", async (page) => {
    await page.getByText(/^in (59|60) m$/).waitFor();
  });
  await at("keys?prefix=kept-a-moment", async (page) => {
    await page.getByRole("link", { name: "kept-a-moment" }).first().click();
    await page.getByText("The run that had it").waitFor();
    await page.getByText("a start with it now makes a new run").waitFor();
  });
});

test("conflicts, operations and queues go on past their first page", async () => {
  for (let i = 0; i < 52; i++) for (const input of [1, 2]) await stage.api("POST", "workflows/echo/runs", { body: { input }, key: `torn-${i}` });
  await stage.api("POST", "queues/onward-operations/pause");
  for (let i = 0; i < 52; i++) await stage.api("POST", "operations", { body: { action: "pause", ids: [made.order] } });
  for (const [path, label] of [["keys?tab=conflicts", "Conflicts"], ["operations", "Operations"]]) {
    await at(path, async (page) => {
      const rows = page.getByRole("region", { name: `${label}, as a table` }).getByRole("row");
      await until("a page of rows", async () => (await rows.count()) === 51);
      await page.getByRole("button", { name: "Show more" }).click();
      await until("more rows", async () => (await rows.count()) > 51);
    });
  }
  await at("queues", async (page) => {
    const [first] = (await stage.api("GET", "queues")).body.items;
    await page.route(/api\/v1\/queues$/, (route) => route.fulfill({ json: { items: [{ ...first, name: "a-first-one" }], next: "a-first-one" } }));
    await page.reload();
    await page.getByText("a-first-one").waitFor();
    await page.getByRole("button", { name: "Show more" }).click();
    await page.getByRole("row", { name: /^side/ }).waitFor();
  });
  await stage.api("POST", "queues/onward-operations/resume");
});

test("no row is lost when new ones come after more were shown", async () => {
  const before = [];
  for (let i = 0; i < 60; i++) before.push(await stage.run("paged", i));
  await at("runs?workflow=paged", async (page) => {
    const shown = () => page.getByRole("checkbox", { name: /^Select run/ }).evaluateAll((boxes) => boxes.map((box) => box.getAttribute("aria-label").split(" ").pop()));
    await until("the first page", async () => (await shown()).length === 50);
    await page.getByRole("button", { name: "Show more" }).click();
    await until("all of them", async () => (await shown()).length === 60);
    const later = [];
    for (let i = 0; i < 3; i++) later.push(await stage.run("paged", 60 + i));
    await until("the new ones", async () => (await shown())[0] === later[2]);
    assert.deepEqual(await shown(), [...before, ...later].reverse());
  });
});

test("schedules go on past their first page, and one of those below is paused there", async () => {
  const spec = { every: { every_ms: 3_600_000, anchor: 0 } };
  for (let i = 0; i < 101; i++) await stage.api("PUT", `schedules/s-${String(i).padStart(3, "0")}`, { body: { workflow: "echo", spec } });
  await at("schedules", async (page) => {
    await page.getByRole("row", { name: /^s-000/ }).waitFor();
    assert.equal(await page.getByText("s-100").count(), 0, "it is on the second page");
    await page.getByRole("button", { name: "Show more" }).click();
    const last = page.getByRole("row", { name: /^s-100/ });
    await confirm(page, "Pause", last);
    await last.getByRole("button", { name: "Resume" }).waitFor();
    await last.getByText("paused").waitFor();
  });
  for (let i = 0; i < 101; i++) await stage.api("DELETE", `schedules/s-${String(i).padStart(3, "0")}`);
});

test("a change that is under way says of how many, as far as that is known", () => at("operations", async (page) => {
  const row = { id: made.order, action: "cancel", filter: {}, ids: [], state: "running", matched: 400, done: 400, skipped: 0, failed: 0, created_at: Date.now(), by: "ada", reason: null };
  let expected = {};
  await page.route(/\/operations\?limit=50$/, (route) => route.fulfill({ json: { items: [{ ...row, ...expected }], next: null } }));
  await page.reload();
  await page.getByText("400 so far").waitFor();
  assert.equal(await page.getByRole("progressbar").getAttribute("value"), null, "nobody knows how far it is");
  expected = { expected: 12_000, expected_more: false };
  await page.reload();
  await page.getByText("400 of about 12\u202f000").waitFor();
  assert.equal(await page.getByRole("progressbar").getAttribute("max"), "12000");
}));

test("what was cut says so, and what to do about it", async () => {
  await at("operations", async (page) => {
    const row = { id: made.order, action: "delete", filter: {}, ids: [], state: "done", matched: 1_000_000, done: 1_000_000, skipped: 0, failed: 0, cut: true, expected: null, expected_more: false, created_at: Date.now(), by: "ada", reason: null };
    await page.route(/\/operations\?limit=50$/, (route) => route.fulfill({ json: { items: [row], next: null } }));
    await page.reload();
    await page.getByText("done, cut after 1\u202f000\u202f000: begin it again").waitFor();
    await page.getByText("1\u202f000\u202f000 of more than 1\u202f000\u202f000").waitFor();
  });
  await at(`runs/${made.order}`, async (page) => {
    const { body } = await stage.api("GET", `runs/${made.order}/timeline`);
    await page.route(/\/timeline$/, (route) => route.fulfill({ json: { ...body, cut: true } }));
    await page.reload();
    await page.getByText(/^Cut after \d+ records/).waitFor();
    await page.getByRole("link", { name: "The history has all of them" }).click();
    await page.getByText(/^Cut after/).waitFor({ state: "detached" });
    assert.equal(await page.getByRole("tab", { name: "History" }).getAttribute("aria-selected"), "true");
  });
});

test("the last minutes of a list move with the clock", async () => {
  const page = await openPage(browser);
  await page.clock.install();
  const froms = [];
  page.on("request", (request) => {
    const from = new URL(request.url()).searchParams.get("created_from");
    if (from && /\/api\/v1\/runs$/.test(new URL(request.url()).pathname)) froms.push(Number(from));
  });
  await page.goto(`${stage.url}runs?from=-15m`);
  await page.getByRole("checkbox", { name: /Select run/ }).first().waitFor();
  await page.clock.fastForward("05:00");
  await until("it is asked for anew", async () => froms.length > 1 && froms.at(-1) - froms[0] >= 240_000);
  const csv = await page.getByRole("link", { name: "CSV" }).getAttribute("href");
  assert.equal(Number(new URL(csv, stage.url).searchParams.get("created_from")), froms.at(-1), "the export is of the same time");
  assert.deepEqual(page.troubles, []);
  await page.context().close();
});

test("while updates are paused, the last minutes stand still", async () => {
  await stage.run("echo", 1, "young");
  const page = await openPage(browser);
  await page.clock.install();
  const froms = [];
  page.on("request", (request) => {
    const url = new URL(request.url());
    if (/\/api\/v1\/runs$/.test(url.pathname)) froms.push(Number(url.searchParams.get("created_from")));
  });
  await page.goto(`${stage.url}runs?from=-1h&key=young`);
  await page.getByRole("checkbox", { name: /Select run/ }).waitFor();
  await page.keyboard.press("p");
  await page.locator(".live-paused").waitFor();
  const before = froms.length;
  await page.clock.fastForward("09:00");
  await page.getByRole("row", { name: /young/ }).getByText(/^(9|1\d) m ago$/).waitFor();
  await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done)))));
  assert.equal(froms.length, before, "nobody asked for it");
  await page.keyboard.press("p");
  await until("it is asked for anew", async () => froms.at(-1) - froms[0] >= 480_000);
  await page.context().close();
});

test("an input that is hidden is not sent as if it were null", async () => {
  const hidden = await Stage.open({ kind: "hidden" });
  const id = await hidden.run("order", { customer: "ada" }, "order-1");
  await hidden.reaches(id, "completed");
  await at(`runs/${id}`, async (page) => {
    await page.getByText("More", { exact: true }).click();
    await page.getByRole("button", { name: "Start like this…" }).click();
    await page.getByText(/does not show the input of that run/).waitFor();
    assert.equal(await page.getByLabel("Input, as JSON").inputValue(), "");
    const start = page.getByRole("button", { name: "Start", exact: true });
    assert.ok(await start.isDisabled(), "before anything was typed");
    await page.getByLabel("Input, as JSON").fill("7");
    assert.ok(await start.isEnabled());
    await page.keyboard.press("Escape");
    await page.getByRole("button", { name: "Fork…" }).click();
    const sent = page.waitForRequest(/\/fork$/);
    await page.getByRole("dialog").getByRole("button", { name: "Fork", exact: true }).click();
    assert.deepEqual(Object.keys((await sent).postDataJSON()), ["from_step"], "the input stays that of the run");
  }, hidden);
  await hidden.close();
});
