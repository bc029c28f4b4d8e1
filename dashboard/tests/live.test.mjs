// What changes is seen without a reload: in one tab, in eight, and after the server was killed.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { live, openBrowser, openPage, quiet, seen, Stage, until, watch } from "./stage.mjs";

let stage, browser;

before(async () => {
  stage = await Stage.open();
  browser = await openBrowser();
});

after(async () => {
  await browser?.close();
  await stage?.close();
});

test("a run that finishes while watched is shown finished", async () => {
  const id = await stage.run("approval", null, "watched-1");
  await stage.reaches(id, "waiting");
  const page = await openPage(browser);
  await page.goto(`${stage.url}runs/${id}`);
  await live(page);
  await page.getByText('It waits for the signal "approved"').waitFor();
  await page.evaluate(() => (window.untouched = true));
  await stage.api("POST", `runs/${id}/signals`, { body: { name: "approved", value: true } });
  await page.locator(".page-head .state-completed").waitFor();
  await page.getByText("note answer").waitFor();
  assert.equal(await page.evaluate(() => window.untouched), true, "the page was loaded again");
  assert.deepEqual(page.troubles, []);
  await page.context().close();
});

test("the server is killed, the page says so, and goes on by itself", async () => {
  await stage.run("echo", 1, "before-the-kill");
  const page = await openPage(browser);
  await page.goto(`${stage.url}runs`);
  await seen(page, "before-the-kill").waitFor();
  await live(page);
  await page.evaluate(() => (window.untouched = true));
  await stage.killServer();
  await page.getByText("The server does not answer").waitFor();
  assert.ok(await seen(page, "before-the-kill").isVisible(), "what was known is still shown");
  await stage.startServer();
  await live(page);
  await page.getByText("The server does not answer").waitFor({ state: "detached" });
  await stage.run("echo", 2, "after-the-kill");
  await seen(page, "after-the-kill").waitFor();
  assert.equal(await page.evaluate(() => window.untouched), true, "the page was loaded again");
  await page.context().close();
});

test("eight tabs share one stream, and all of them see a new run", async () => {
  const first = await openPage(browser);
  const context = first.context();
  const tabs = [first];
  while (tabs.length < 8) tabs.push(watch(await context.newPage()));
  for (const tab of tabs) {
    await tab.goto(`${stage.url}runs`);
    await live(tab);
  }
  await until("the server has one stream open", async () => /^onward_streams 1$/m.test(await (await fetch(`${stage.url}metrics`)).text()));
  await stage.run("echo", 3, "seen-by-eight");
  for (const tab of tabs) {
    await tab.bringToFront();
    await seen(tab, "seen-by-eight").waitFor();
    assert.deepEqual(tab.troubles, []);
  }
  await context.close();
});

test("a browser without shared workers has a stream per tab", async () => {
  const page = await openPage(browser);
  await page.addInitScript(() => delete window.SharedWorker);
  await page.goto(`${stage.url}runs`);
  await live(page);
  await stage.run("echo", 4, "without-a-shared-worker");
  await seen(page, "without-a-shared-worker").waitFor();
  await page.context().close();
});

test("a browser without streams polls", async () => {
  const page = await openPage(browser);
  await page.addInitScript(() => {
    delete window.SharedWorker;
    delete window.EventSource;
  });
  await page.goto(`${stage.url}runs`);
  await page.locator(".live-polling").waitFor();
  await stage.run("echo", 5, "by-polling");
  await seen(page, "by-polling").waitFor();
  await page.context().close();
});

test("paused means paused: not on a change, and not on focus", async () => {
  const page = await openPage(browser);
  await page.goto(`${stage.url}runs`);
  await live(page);
  await page.keyboard.press("p");
  await page.locator(".live-paused").waitFor();
  await quiet(page);
  let asked = 0;
  page.on("request", (request) => (asked += request.url().includes("/api/v1/") ? 1 : 0));
  const id = await stage.run("echo", 6, "while-paused");
  await stage.reaches(id, "completed");
  const elsewhere = await page.context().newPage();
  await elsewhere.goto("about:blank");
  await elsewhere.bringToFront();
  await page.bringToFront();
  await page.evaluate(() => document.dispatchEvent(new Event("visibilitychange")));
  // Longer than any update takes while they are not paused: two gaps between fetches.
  await new Promise((resolve) => setTimeout(resolve, 2000));
  assert.equal(asked, 0);
  assert.equal(await page.getByText("while-paused").count(), 0);
  await page.keyboard.press("p");
  await seen(page, "while-paused").waitFor();
  await until("it asks again", async () => asked > 0);
  await page.context().close();
});
