// A server with tokens: who may see, who may change, and what the page says about it.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { openBrowser, openPage, Stage } from "./stage.mjs";

let stage, browser, id;
const token = "stage-operate";

before(async () => {
  stage = await Stage.open({ kind: "tokens" });
  browser = await openBrowser();
  const { body } = await stage.api("POST", "workflows/sleepy/runs", { body: { input: null }, key: "secret-run", token });
  id = body.run.id;
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
  for (const path of ["workflows", "queues", "waiting", "schedules", "operations", "errors"]) {
    await page.goto(stage.url + path);
    await page.locator("h1").waitFor();
    await page.locator("main .table, main .empty").first().waitFor();
    const open = await page.locator("main button.primary:enabled, main button.danger:enabled").count();
    assert.equal(open, 0, `${path} has an action that is not for this role`);
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
  const { body } = await stage.api("GET", "audit", { token: "stage-admin" });
  assert.ok(body.items.some((row) => row.who === "operator" && row.action === "cancel_run" && row.target.includes(id)), JSON.stringify(body.items));
});
