// As a part of somebody's own application, and over an empty store without a worker.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { openBrowser, openPage, seen, Stage } from "./stage.mjs";

let stage, browser;

before(async () => {
  stage = await Stage.open({ mount: "/ops/workflows", worker: false });
  browser = await openBrowser();
});

after(async () => {
  await browser?.close();
  await stage?.close();
});

test("an empty store teaches what to do first", async () => {
  const page = await openPage(browser);
  const pages = { "": "No runs yet", runs: "No runs yet", workflows: "No workflows yet", workers: "No worker is up", schedules: "No schedules", keys: "No keys yet", "keys?tab=top": "No duplicates", "keys?tab=conflicts": "No conflicts", errors: "No failed runs", waiting: "Nothing waits", operations: "No bulk changes yet" };
  for (const [path, title] of Object.entries(pages)) {
    await page.goto(stage.url + path);
    await page.getByRole("heading", { name: title }).waitFor();
  }
  assert.deepEqual(page.troubles, []);
  await page.context().close();
});

test("it works below any path, in links, calls, reloads and the stream", async () => {
  const page = await openPage(browser);
  const outside = [];
  page.on("request", (request) => !new URL(request.url()).pathname.startsWith("/ops/workflows") && outside.push(request.url()));
  await page.goto(stage.url);
  await page.locator(".live-live").waitFor();
  await page.getByRole("link", { name: /^Runs/ }).click();
  await page.waitForURL(`${stage.url}runs`);
  const id = await stage.run("nobody-serves-this", null, "below-a-path");
  await seen(page, "below-a-path").waitFor();
  await page.getByRole("link", { name: "nobody-serves-this" }).click();
  await page.waitForURL(`${stage.url}runs/${id}`);
  await page.reload();
  await page.getByText("No live worker serves").waitFor();
  await page.getByRole("link", { name: "Onward, to the overview" }).click();
  await page.getByText("Newest runs").waitFor();
  await page.reload();
  await page.getByText("Newest runs").waitFor();
  assert.deepEqual(outside, []);
  assert.deepEqual(page.troubles, []);
  await page.context().close();
});
