// What lies over the pages, and the page before them: dialogs, the bar of a selection, the login.
import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { after, before, test } from "node:test";
import { accessible, fits } from "./look.mjs";
import { live, openBrowser, openPage, seen, shots, Stage } from "./stage.mjs";
import { seed } from "./seed.mjs";

let stage, locked, browser, made;

before(async () => {
  [stage, locked, browser] = await Promise.all([Stage.open(), Stage.open({ kind: "tokens", worker: false }), openBrowser()]);
  made = await seed(stage);
  mkdirSync(shots, { recursive: true });
});

after(async () => {
  await browser?.close();
  await Promise.all([stage?.close(), locked?.close()]);
});

const dialog = (page) => page.getByRole("dialog");

/** Goes to a path and waits until it shows a text, and is live. */
async function go(page, path, text) {
  await page.goto(stage.url + path);
  await seen(page, text).waitFor();
  await live(page);
}

/** How each is opened; gives what lies over the page. */
const OVER = {
  async "start form"(page) {
    await go(page, "workflows/order", "charge card");
    await page.getByRole("button", { name: "Start a run" }).click();
    await dialog(page).getByLabel("Input, as JSON").fill(`{"note": "${"a long line without end ".repeat(20)}"}`);
    await dialog(page).getByRole("button", { name: "More options" }).click();
    await dialog(page).getByLabel("Tags").fill("customer=42");
    return dialog(page);
  },
  async fork(page) {
    await go(page, `runs/${made.order}`, "charge card");
    await page.getByRole("button", { name: "Fork…" }).click();
    await dialog(page).getByText("onward runs fork").waitFor();
    return dialog(page);
  },
  async question(page) {
    await go(page, `runs/${made.sleepy}`, "sleepy");
    await page.getByRole("button", { name: "Cancel", exact: true }).click();
    await dialog(page).getByText(`onward runs cancel ${made.sleepy}`).waitFor();
    return dialog(page);
  },
  async "typed confirmation"(page) {
    await go(page, "runs?workflow=order", "order-1841");
    // Shown when it has the focus.
    await page.getByRole("checkbox", { name: /Select all/ }).focus();
    await page.keyboard.press("Space");
    await page.getByRole("button", { name: "all that match instead" }).click();
    await page.getByRole("toolbar").getByRole("button", { name: "Delete" }).click();
    await dialog(page).getByLabel(/^Type delete/).fill("delet");
    assert.ok(await dialog(page).getByRole("button", { name: "Delete all that match" }).isDisabled());
    return dialog(page);
  },
  async answer(page) {
    await go(page, "waiting?for=signal", "approved");
    await page.getByRole("button", { name: "Answer…" }).first().click();
    await dialog(page).getByText("onward signals send").waitFor();
    return dialog(page);
  },
  async limits(page) {
    await go(page, "queues", "default");
    await page.getByRole("button", { name: "Limits" }).first().click();
    await dialog(page).getByLabel("Runs at once").fill("3");
    return dialog(page);
  },
  async palette(page) {
    await go(page, "", "Newest runs");
    await page.keyboard.press("Control+k");
    await page.locator("[role=combobox]:focus").fill("order");
    await page.getByRole("option", { name: /order-1841/ }).first().waitFor();
    return dialog(page);
  },
  async help(page) {
    await go(page, "", "Newest runs");
    await page.keyboard.press("?");
    return dialog(page);
  },
  async "bulk bar"(page) {
    await go(page, "runs", "order-1841");
    await page.getByRole("checkbox", { name: /Select run/ }).first().check();
    return page.getByRole("toolbar");
  },
};

for (const [scheme, width] of [["light", 1280], ["dark", 390]]) {
  test(`whatever lies over a page is within the screen and accessible, ${scheme}, ${width} px`, async (t) => {
    const page = await openPage(browser, { viewport: { width, height: 800 }, colorScheme: scheme, bypassCSP: true });
    for (const [name, open] of Object.entries(OVER)) {
      await t.test(name, async () => {
        const over = await open(page);
        await over.waitFor();
        await page.screenshot({ path: `${shots}/over-${name.replaceAll(" ", "-")}-${scheme}-${width}.png` });
        await fits(page, over);
        await accessible(page);
        if (name === "bulk bar") return;
        assert.ok(await over.evaluate((element) => element.contains(document.activeElement)), "it has the focus");
        await page.keyboard.press("Escape");
        await over.waitFor({ state: "detached" });
        assert.deepEqual(page.troubles, []);
      });
    }
    await page.context().close();
  });

  test(`the login is within the screen and accessible, ${scheme}, ${width} px`, async () => {
    const page = await openPage(browser, { viewport: { width, height: 800 }, colorScheme: scheme, bypassCSP: true });
    await page.goto(locked.url);
    await page.getByLabel("Token").fill("no-such-token");
    await page.getByRole("button", { name: "Log in" }).click();
    await page.getByText("The server does not know this token.").waitFor();
    await page.screenshot({ path: `${shots}/login-${scheme}-${width}.png` });
    await fits(page, page.getByRole("main"));
    await accessible(page);
    assert.deepEqual(page.troubles, []);
    await page.context().close();
  });
}

test("a step is opened, read and closed with the keyboard on a narrow screen", async () => {
  const page = await openPage(browser, { viewport: { width: 390, height: 800 } });
  await go(page, `runs/${made.order}`, "charge card");
  await page.getByRole("button", { name: /^charge card/ }).focus();
  await page.keyboard.press("Enter");
  const side = page.getByRole("complementary", { name: "Step charge card" });
  await side.getByText("receipt").waitFor();
  await fits(page);
  await side.getByRole("button", { name: "Close the step" }).focus();
  await page.keyboard.press("Enter");
  await side.waitFor({ state: "detached" });
  assert.deepEqual(page.troubles, []);
  await page.context().close();
});
