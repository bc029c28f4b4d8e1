// Every page, over a real store, in light and dark, wide and narrow.
import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { after, before, test } from "node:test";
import { accessible, fits } from "./look.mjs";
import { live, openBrowser, openPage, seen, shots, Stage } from "./stage.mjs";
import { seed } from "./seed.mjs";

let stage, browser, pages;

before(async () => {
  stage = await Stage.open();
  browser = await openBrowser();
  const made = await seed(stage);
  mkdirSync(shots, { recursive: true });
  pages = {
    overview: ["", "Newest runs"],
    runs: ["runs", "order-1841"],
    "runs-filtered": ["runs?state=failed&workflow=broken", "broken-1"],
    run: [`runs/${made.order}`, "charge card"],
    "run-step": [`runs/${made.order}?step=charge%20card`, "receipt"],
    "run-failed": [`runs/${made.broken}`, "the bank refused order"],
    "run-waiting": [`runs/${made.approval}`, 'It waits for the signal "approved"'],
    "run-unserved": [`runs/${made.unserved}`, "No live worker serves"],
    "run-steps": [`runs/${made.order}?tab=steps`, "welcome mail"],
    "run-data": [`runs/${made.order}?tab=data`, "customer"],
    "run-attempts": [`runs/${made.order}?tab=attempts`, "bank_busy"],
    "run-history": [`runs/${made.order}?tab=history`, "find customer"],
    "run-log": [`runs/${made.family}?tab=log`, "two children to start"],
    "run-children": [`runs/${made.family}?tab=children`, "echo"],
    "run-key": [`runs/${made.order}?tab=key`, "with another input"],
    workflows: ["workflows", "nobody-serves-this"],
    workflow: ["workflows/order", "charge card"],
    queues: ["queues", "default"],
    workers: ["workers", "holds"],
    schedules: ["schedules", "Every day at 03:00"],
    schedule: ["schedules/nightly-report", "Next times"],
    keys: ["keys", "order-1841"],
    "keys-prefix": ["keys?prefix=expense", "expense-7"],
    "keys-steps": ["keys?tab=steps", "welcome-ada"],
    "keys-top": ["keys?tab=top", "order-1841"],
    "keys-conflicts": ["keys?tab=conflicts", "order-1841"],
    key: ["keys/order/order-1841", "Starts that came later"],
    "step-key": ["step-keys/welcome-ada", "Steps that came later"],
    errors: ["errors", "Retry all"],
    waiting: ["waiting", "approved"],
    operations: ["operations", "Operations"],
    audit: ["audit", "start run"],
    missing: ["no/such/page", "nothing at this address"],
  };
});

after(async () => {
  await browser?.close();
  await stage?.close();
});

for (const scheme of ["light", "dark"]) {
  for (const width of [1280, 390]) {
    test(`every page is whole and accessible, ${scheme}, ${width} px`, async (t) => {
      // Colours are those of the theme and shapes those of the width, so two of the four see all. The other
      // two have the server's own policy.
      const looked = (scheme === "light") === (width === 1280);
      const page = await openPage(browser, { viewport: { width, height: 800 }, colorScheme: scheme, bypassCSP: looked });
      for (const [name, [path, text]] of Object.entries(pages)) {
        await t.test(name, async () => {
          await page.goto(stage.url + path);
          await seen(page, text).waitFor();
          await live(page);
          await page.locator("main .loading").first().waitFor({ state: "detached" });
          await page.screenshot({ path: `${shots}/${name}-${scheme}-${width}.png` });
          assert.deepEqual(page.troubles, []);
          await fits(page);
          if (looked) await accessible(page);
        });
      }
      const dark = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
      assert.equal(dark === "rgb(14, 16, 20)", scheme === "dark");
      await page.context().close();
    });
  }
}

test("the pages hold under the server's own policy", async () => {
  const answer = await fetch(stage.url, { headers: { Accept: "text/html" } });
  const policy = answer.headers.get("content-security-policy") ?? "";
  assert.match(policy, /default-src '(self|none)'/);
  assert.match(policy, /script-src 'self'/);
  assert.doesNotMatch(policy, /unsafe/);
  const page = await openPage(browser);
  await page.goto(`${stage.url}runs`);
  await seen(page, "order-1841").waitFor();
  await page.goto(`${stage.url}${pages.run[0]}`);
  await seen(page, "charge card").waitFor();
  assert.deepEqual(page.troubles, []);
  await page.context().close();
});

test("nothing is fetched from elsewhere", async () => {
  const page = await openPage(browser);
  const hosts = new Set();
  page.on("request", (request) => hosts.add(new URL(request.url()).origin));
  await page.goto(stage.url);
  await page.getByText("Newest runs").waitFor();
  assert.deepEqual([...hosts], [stage.origin]);
  await page.context().close();
});

test("the theme can be chosen, and is remembered", async () => {
  const page = await openPage(browser, { colorScheme: "light" });
  await page.goto(stage.url);
  const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  assert.equal(await ground(), "rgb(246, 247, 249)");
  await page.getByRole("button", { name: "Light or dark" }).click();
  assert.equal(await ground(), "rgb(14, 16, 20)");
  await page.reload();
  assert.equal(await ground(), "rgb(14, 16, 20)");
  await page.context().close();
});

test("a run that is never due is shown as such, and breaks no page", async () => {
  const page = await openPage(browser);
  // As an answer of the server, whatever times its starts take.
  for (const path of ["waiting?limit=100", pages["run-waiting"][0]]) {
    const { text } = await stage.api("GET", path);
    const body = text.replace(/"(due_at|deadline_at)":(null|\d+)/g, '"$1":9223372036854775807');
    await page.route(`${stage.url}api/v1/${path}`, (route) => route.fulfill({ contentType: "application/json", body }));
  }
  await page.goto(`${stage.url}waiting`);
  await page.getByRole("row", { name: /expense-7/ }).getByText("never").waitFor();
  await page.goto(`${stage.url}${pages["run-waiting"][0]}`);
  await page.locator(".fact", { hasText: "deadline" }).getByText("never").waitFor();
  assert.deepEqual(page.troubles, []);
  await page.context().close();
});

test("a page that cannot be drawn says so, and the others go on", async () => {
  const page = await openPage(browser);
  await page.route(/\/api\/v1\/workers$/, (route) => route.fulfill({ json: { items: null } }));
  await page.goto(`${stage.url}workers`);
  await page.getByRole("alert").getByText("This page cannot be shown").waitFor();
  assert.notDeepEqual(page.troubles, [], "it is in the console, too");
  await page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: "Runs" }).click();
  await seen(page, "order-1841").waitFor();
  await page.goBack();
  await page.getByRole("alert").getByText("This page cannot be shown").waitFor();
  await page.unroute(/\/api\/v1\/workers$/);
  await page.getByRole("button", { name: "Try again" }).click();
  await seen(page, "holds").waitFor();
  await page.context().close();
});
