// A server with tokens: who may see, who may change, and what the page says about it.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { openBrowser, openPage, seen, Stage } from "./stage.mjs";
import { seed } from "./seed.mjs";

let stage, browser, id, made;

before(async () => {
  stage = await Stage.open({ kind: "tokens" });
  stage.token = "stage-admin";
  browser = await openBrowser();
  id = await stage.run("sleepy", null, "secret-run");
  made = await seed(stage);
  // One that goes on until it is aborted, since nobody executes it.
  await stage.api("POST", "queues/onward-operations/pause");
  const begun = await stage.api("POST", "operations", { body: { action: "cancel", filter: { workflow: "none-such" } } });
  assert.equal(begun.status, 202, begun.text);
});

after(async () => {
  await browser?.close();
  await stage?.close();
});

async function logIn(page, secret) {
  await page.getByLabel("Token").fill(secret);
  await page.getByRole("button", { name: "Log in" }).click();
}

test("without a token there is nothing but the login", async () => {
  const page = await openPage(browser);
  await page.goto(`${stage.url}runs`);
  await page.getByText("onward tokens create NAME --role read --file FILE").waitFor();
  await logIn(page, "no-such-token");
  await page.getByText("The server does not know this token.").waitFor();
  assert.equal(await page.getByText("secret-run").count(), 0);
  assert.deepEqual(page.troubles, []);
  await page.context().close();
});

test("the role read sees everything, changes nothing, and is told why", async () => {
  const page = await openPage(browser);
  await page.goto(`${stage.url}runs/${id}`);
  await logIn(page, "stage-read");
  await page.getByText("Your role is “read”").waitFor();
  await page.getByRole("heading", { name: "sleepy" }).waitFor();
  for (const name of ["Retry", "Pause", "Cancel", "Delete", "Fork…"]) {
    const button = page.getByRole("button", { name, exact: true });
    assert.ok(await button.isDisabled(), name);
    assert.match((await button.getAttribute("title")) ?? "", /this needs “(operate|admin)”/);
  }
  const refused = await page.evaluate(async (path) => (await fetch(path, { method: "POST", headers: { "X-Onward": "1" } })).status, `${stage.url}api/v1/runs/${id}/cancel`);
  assert.equal(refused, 403, "the server refuses it too");
  assert.deepEqual(page.troubles, []);
  await page.context().close();
});

/** The buttons with which nothing is changed, by what is on them. */
const HARMLESS = [
  /^(queued|running|waiting|completed|failed|cancelled)/, // switches of the filter
  /^(Everything|Signals|Timers|Retries|Children|Stuck)$/,
  /^(Timeline|Steps|Input and output|Attempts and errors|History|Log|Children|Key)\d*$/,
  /^(Keys of runs|Keys of steps|Most duplicated|Conflicts)$/,
  /^(Copy|Close|Clear|Show|Look further|Save this view|Take out|Try \d|Zoom|Text$|Tree$|all that match instead$)/,
];

/** What a page lets do, and whether it may be pressed, in the page itself. */
const buttonsOf = (page) => page.locator("main button:not(.lane):not(.json-toggle)").evaluateAll((all) => all.map((one) => ({ name: one.getAttribute("aria-label") ?? one.textContent.trim(), open: !one.disabled, why: one.title })));

test("the role read finds every action of every page, and none that may be pressed", async () => {
  const page = await openPage(browser);
  await page.goto(stage.url);
  await logIn(page, "stage-read");
  await page.getByText("Your role is “read”").waitFor();
  const pages = {
    [`runs/${made.broken}`]: ["card_declined", "Retry", "Pause", "Cancel", "Delete", "Fork…", "Start like this…"],
    [`runs/${made.order}?step=charge%20card`]: ["receipt", "Fork from here…"],
    "runs?state=failed": ["broken-1", "Retry", "Pause", "Resume", "Cancel", "Delete"],
    workflows: ["nobody-serves-this", "Start a run"],
    "workflows/order": ["charge card", "Start a run"],
    queues: ["default", "Pause", "Resume", "Limits"],
    waiting: ["approved", "Answer…"],
    schedules: ["nightly-report", "Trigger", "Pause"],
    "schedules/nightly-report": ["Next times", "Trigger", "Pause", "Backfill…", "Remove"],
    operations: ["none-such", "Abort"],
    errors: ["card_declined", "Retry all"],
    "keys/order/order-1841": ["Starts that came later"],
    "step-keys/welcome-ada": ["Steps that came later", "Release"],
  };
  for (const [path, [text, ...actions]] of Object.entries(pages)) {
    await page.goto(stage.url + path);
    await seen(page, text).waitFor();
    if (path.startsWith("runs?")) {
      await page.getByRole("checkbox", { name: /Select run/ }).first().check();
      await page.getByRole("toolbar").waitFor();
    }
    for (const name of actions) await page.getByRole("button", { name, exact: true, includeHidden: true }).first().waitFor({ state: "attached" });
    const buttons = await buttonsOf(page);
    const open = buttons.filter(({ name, open }) => open && !HARMLESS.some((known) => known.test(name)));
    assert.deepEqual(open, [], `${path} has an action that is not for this role`);
    for (const name of actions) assert.match(buttons.find((one) => one.name === name)?.why ?? "", /this needs “(operate|admin)”/, `${path}: ${name}`);
  }
  assert.deepEqual(page.troubles, []);
  await page.context().close();
});

test("the role read is told why by the keys of a run, too", async () => {
  const page = await openPage(browser);
  await page.goto(`${stage.url}runs/${made.broken}`);
  await logIn(page, "stage-read");
  await page.getByRole("heading", { name: "broken" }).waitFor();
  for (const key of ["r", "f"]) {
    await page.keyboard.press(key);
    const said = page.getByRole("status").getByText("this needs “operate”");
    await said.waitFor();
    assert.equal(await page.getByRole("dialog").count(), 0, key);
    await page.getByRole("button", { name: "Dismiss" }).click();
    await said.waitFor({ state: "detached" });
  }
  assert.deepEqual(page.troubles, []);
  await page.context().close();
});

test("the token is in no address and no storage, and logging out ends it", async () => {
  const page = await openPage(browser);
  await page.goto(stage.url);
  await logIn(page, "stage-admin");
  await page.getByRole("link", { name: "Audit" }).click();
  await page.getByRole("heading", { name: "Audit" }).waitFor();
  const kept = await page.evaluate(() => JSON.stringify([location.href, { ...localStorage }, { ...sessionStorage }, document.cookie]));
  assert.doesNotMatch(kept, /stage-admin/);
  await page.getByRole("button", { name: "Log out" }).click();
  await page.getByLabel("Token").waitFor();
  const after = await page.evaluate(async (path) => (await fetch(path)).status, `${stage.url}api/v1/runs`);
  assert.equal(after, 401);
  await page.context().close();
});

test("the role operate acts, and the audit says who did", async () => {
  const page = await openPage(browser);
  await page.goto(`${stage.url}runs/${id}`);
  await logIn(page, "stage-operate");
  await page.getByRole("button", { name: "Cancel" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Cancel", exact: true }).click();
  await page.locator(".page-head .state-cancelled").waitFor();
  await page.context().close();
  const { body } = await stage.api("GET", "audit");
  assert.ok(body.items.some((row) => row.who === "operator" && row.action === "cancel_run" && row.target.includes(id)), JSON.stringify(body.items));
});
