// What an operator does from the page.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { lookAt, openBrowser, seen, Stage, until } from "./stage.mjs";
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

const at = (path, look) => lookAt(browser, stage.url + path, look);

test("integers above 2^53 survive the start form, the store, the viewer and a copy", () => at("workflows/echo", async (page) => {
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  await page.getByRole("button", { name: "Start a run" }).click();
  await page.getByLabel("Input, as JSON").fill('{"id": 9007199254740993, "most": 18446744073709551615, "price": 12.50}');
  await page.getByRole("textbox", { name: /^Key/ }).fill("large-integers");
  await page.getByRole("button", { name: "Start", exact: true }).click();
  await page.getByRole("tab", { name: "Input and output" }).click();
  for (const title of ["Input", "Output"]) {
    const payload = page.getByRole("region", { name: title, exact: true });
    for (const digits of ["9007199254740993", "18446744073709551615", "12.50"]) await payload.getByText(digits, { exact: true }).waitFor();
    await page.getByRole("button", { name: `Copy the ${title.toLowerCase()}` }).click();
    await until("it is copied whole", async () => (await page.evaluate(() => navigator.clipboard.readText())) === '{\n  "id": 9007199254740993,\n  "most": 18446744073709551615,\n  "price": 12.50\n}');
    await page.evaluate(() => navigator.clipboard.writeText("nothing"));
  }
}));

test("wrong JSON is refused in the form, with its place", () => at("workflows/echo", async (page) => {
  await page.getByRole("button", { name: "Start a run" }).click();
  await page.getByLabel("Input, as JSON").fill('{"a": oops}');
  await page.getByText("A value should be here, at line 1, column 7").waitFor();
  assert.ok(await page.getByRole("button", { name: "Start", exact: true }).isDisabled());
}));

test("a signal is answered from the page", () => at("waiting?for=signal", async (page) => {
  await page.getByRole("row", { name: /expense-7/ }).getByRole("button", { name: "Answer…" }).click();
  await page.getByLabel("Value, as JSON").fill("true");
  await page.getByRole("button", { name: "Send" }).click();
  await stage.reaches(made.approval, "completed");
  await seen(page, "expense-7").waitFor({ state: "detached" });
}));

test("a run is cancelled only after it was asked about", () => at(`runs/${made.sleepy}`, async (page) => {
  await page.getByRole("button", { name: "Cancel" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByText(`onward runs cancel ${made.sleepy}`).waitFor();
  await page.keyboard.press("Escape");
  assert.equal((await stage.api("GET", `runs/${made.sleepy}`)).body.run.state, "waiting");
  await page.getByRole("button", { name: "Cancel" }).click();
  await dialog.getByRole("button", { name: "Cancel", exact: true }).click();
  await stage.reaches(made.sleepy, "cancelled");
  await page.locator(".page-head .state-cancelled").waitFor();
  assert.ok(await page.getByRole("button", { name: "Cancel" }).isDisabled(), "it applies no more");
}));

test("runs that failed alike are retried with one button", () => at("errors", async (page) => {
  const row = page.getByRole("row", { name: /card_declined/ });
  await row.getByRole("button", { name: "Retry all" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Retry 4" }).click();
  // Each fails again, in a second attempt.
  await until("all were retried", async () => {
    const { body } = await stage.api("GET", "runs?workflow=broken");
    return body.items.every((run) => run.attempt >= 2 && run.state === "failed");
  });
}));

test("everything that matches is changed as one durable operation", async () => {
  for (let i = 0; i < 60; i++) await stage.run("sleepy", null, `bulk-${i}`);
  await at("runs?workflow=sleepy&state=waiting", async (page) => {
    await page.getByRole("checkbox", { name: /Select run/ }).first().check();
    await page.getByRole("button", { name: "all that match instead" }).click();
    await page.getByRole("toolbar").getByRole("button", { name: "Cancel" }).click();
    await page.getByRole("dialog").getByText(/60 runs match/).waitFor();
    await page.getByLabel("Reason").fill("a test");
    await page.getByRole("dialog").getByRole("button", { name: "Cancel all that match" }).click();
    // It closes with the server's answer; to leave the page before that would take the request back.
    await page.getByRole("dialog").waitFor({ state: "detached" });
    await page.goto(`${stage.url}operations`);
    const row = page.getByRole("row", { name: /cancel.*a test/s });
    await row.getByText("done", { exact: true }).waitFor();
    await row.getByText(/^60 of 60$/).waitFor();
  });
  const { body } = await stage.api("GET", "runs?workflow=sleepy&state=waiting");
  assert.equal(body.items.length, 0);
});

test("the filter is the address, and the way back keeps it", () => at("runs", async (page) => {
  await page.getByRole("button", { name: /^failed/ }).click();
  await page.getByLabel(/Filter by key/).fill("workflow:broken");
  await page.keyboard.press("Enter");
  await page.waitForURL(/state=failed&workflow=broken/);
  await page.getByRole("checkbox", { name: /Select run/ }).first().check();
  await page.getByText("1 selected").waitFor();
  await page.getByRole("link", { name: "broken", exact: true }).first().click();
  await page.waitForURL(/runs\/[0-9a-f-]{36}/);
  await page.goBack();
  await page.waitForURL(/state=failed&workflow=broken/);
  await page.getByRole("checkbox", { name: /Select run/ }).first().check();
  await page.getByRole("button", { name: /^completed/ }).click();
  await page.getByText("1 selected").waitFor({ state: "detached" });
}));

test("a filter that cannot be read lists, exports and changes nothing", () => at("runs", async (page) => {
  for (const [typed, said] of [["before:2026-13-01", /is not a time/], ["since:-2y", /is not a time/], ["state:stuck", /is not a state of a run/]]) {
    await page.goto(`${stage.url}runs`);
    await page.getByRole("checkbox", { name: /Select run/ }).first().check();
    await page.getByRole("toolbar").waitFor();
    await page.getByLabel(/Filter by key/).fill(typed);
    await page.keyboard.press("Enter");
    await page.getByRole("alert").getByText(said).waitFor();
    assert.equal(await page.getByRole("checkbox", { name: /Select/ }).count(), 0, `${typed}: no list`);
    assert.equal(await page.getByRole("toolbar").count(), 0, `${typed}: no bulk bar`);
    assert.equal(await page.getByRole("link", { name: /CSV|JSON lines/ }).count(), 0, `${typed}: no export`);
  }
  await page.getByRole("button", { name: "Take out state stuck" }).click();
  await page.getByRole("checkbox", { name: /Select run/ }).first().waitFor();
}));

test("a key shows who came later, when, and with what", () => at("keys", async (page) => {
  await page.getByPlaceholder(/A key, or how it begins/).fill("order-18");
  await page.waitForURL(/prefix=order-18/);
  await page.getByRole("link", { name: "order-1841" }).click();
  await page.getByRole("heading", { name: "order-1841" }).waitFor();
  const rows = page.getByRole("region", { name: "Duplicates, as a table" }).getByRole("row");
  await until("six later starts are listed", async () => (await rows.count()) === 7);
  assert.equal(await rows.getByText("same", { exact: true }).count(), 5);
  assert.equal(await rows.getByText("other", { exact: true }).count(), 1);
  assert.match(await rows.nth(1).innerText(), /http/);
  const [csv] = await Promise.all([page.waitForEvent("download"), page.getByRole("link", { name: "CSV" }).click()]);
  const lines = readFileSync(await csv.path(), "utf8").trim().split("\n");
  assert.deepEqual([lines.length, lines[0]], [7, "at,caller,input"]);
  assert.equal(lines.filter((line) => line.endsWith(",other")).length, 1);
}));

test("a list is exported whole", () => at("runs?workflow=order", async (page) => {
  const [csv] = await Promise.all([page.waitForEvent("download"), page.getByRole("link", { name: "CSV" }).click()]);
  const lines = readFileSync(await csv.path(), "utf8").trim().split("\n");
  assert.match(lines[0], /^id,workflow,state/);
  assert.equal(lines.length, 1 + 13);
  const [jsonl] = await Promise.all([page.waitForEvent("download"), page.getByRole("link", { name: "JSON lines" }).click()]);
  assert.equal(readFileSync(await jsonl.path(), "utf8").trim().split("\n").length, 13);
}));

test("a schedule is paused, resumed and triggered from its page", () => at("schedules/nightly-report", async (page) => {
  const confirm = async (name) => {
    await page.getByRole("button", { name, exact: true }).click();
    await page.getByRole("dialog").getByRole("button", { name, exact: true }).click();
  };
  await until("its next five times are shown", async () => (await page.locator(".times li").count()) === 5);
  await confirm("Pause");
  await page.getByText(": its times pass without a run.").waitFor();
  await confirm("Resume");
  await page.getByText(": its times pass without a run.").waitFor({ state: "detached" });
  await confirm("Trigger");
  await until("a run was started", async () => (await stage.api("GET", "runs?workflow=echo&tag=schedule:nightly-report")).body.items.length === 1);
}));

test("the keyboard alone is enough", () => at("", async (page) => {
  await page.getByText("Newest runs").waitFor();
  await page.keyboard.press("g");
  await page.keyboard.press("r");
  await page.getByRole("heading", { name: "Runs", exact: true }).waitFor();
  await page.getByRole("checkbox", { name: /Select run/ }).first().waitFor();
  await page.keyboard.press("j");
  await page.keyboard.press("x");
  await page.getByText("1 selected").waitFor();
  await page.keyboard.press("j");
  await page.keyboard.press("k");
  await page.keyboard.press("/");
  assert.equal(await page.evaluate(() => document.activeElement.tagName), "INPUT");
  await page.keyboard.press("Escape");
  await page.keyboard.press("?");
  await page.getByRole("dialog", { name: "Keyboard" }).waitFor();
  await page.keyboard.press("Escape");
  await page.keyboard.press("Control+k");
  await page.locator("[role=combobox]:focus").waitFor();
  await page.keyboard.type("expense");
  await page.getByRole("option", { name: /expense-7/ }).first().waitFor();
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "expense-7" }).waitFor();
  await page.keyboard.press("g");
  await page.keyboard.press("q");
  await page.getByRole("heading", { name: "Queues" }).waitFor();
}));

test("commands are copied as they are typed elsewhere", () => at(`runs/${made.order}`, async (page) => {
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  const copied = async (name) => {
    await page.getByText("More", { exact: true }).click();
    await page.getByRole("button", { name }).click();
    return page.evaluate(() => navigator.clipboard.readText());
  };
  assert.equal(await copied("Copy as CLI"), `onward runs show ${made.order}`);
  assert.match(await copied("Copy as curl"), new RegExp(`^curl -X GET ${stage.url}api/v1/runs/${made.order}`));
}));

test("a run is started like another, with an input that was changed", () => at(`runs/${made.order}`, async (page) => {
  await page.getByText("More", { exact: true }).click();
  await page.getByRole("button", { name: "Start like this…" }).click();
  const input = page.getByLabel("Input, as JSON");
  assert.match(await input.inputValue(), /"customer": "ada"/);
  await input.fill('{"customer": "grace"}');
  await page.getByRole("button", { name: "Start", exact: true }).click();
  await page.waitForURL((url) => url.pathname.startsWith("/runs/") && !url.pathname.includes(made.order));
  await page.getByRole("tab", { name: "Input and output" }).click();
  await page.getByText('"grace"').waitFor();
}));

test("a run's log and its children are shown", () => at(`runs/${made.family}`, async (page) => {
  await page.getByRole("tab", { name: "Log" }).click();
  const log = page.getByRole("region", { name: "Log, as a table" });
  await log.getByText("two children to start").waitFor();
  await log.getByText("count, try 1").waitFor();
  await page.getByRole("tab", { name: "Children" }).click();
  const children = page.getByRole("region", { name: "Children, as a table" });
  await children.getByRole("link", { name: "echo" }).first().waitFor();
  assert.equal(await children.getByRole("link", { name: "echo" }).count(), 2);
  await children.getByRole("link", { name: "echo" }).first().click();
  await page.getByRole("heading", { name: "echo", level: 1 }).waitFor();
}));

test("a view is saved, shown again after a reload, and forgotten", () => at("runs?state=failed&workflow=broken", async (page) => {
  await page.getByRole("button", { name: "Save this view" }).click();
  await page.getByLabel("Name").fill("what broke");
  await page.getByRole("button", { name: "Save", exact: true }).click();
  await page.goto(`${stage.url}runs`);
  await page.getByRole("button", { name: "what broke", exact: true }).click();
  await page.waitForURL(/state=failed&workflow=broken/);
  await page.getByRole("button", { name: "Forget the view what broke" }).click();
  await page.getByRole("button", { name: "Save this view" }).waitFor();
}));
