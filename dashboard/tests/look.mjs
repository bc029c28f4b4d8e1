// What every page and whatever lies over it must be: within the screen, and accessible.
import assert from "node:assert/strict";
import AxeBuilder from "@axe-core/playwright";

/** Nothing is wider than the screen; `box`: what lies over the page is within it, and scrolls downwards only. */
export async function fits(page, box) {
  const sideways = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  assert.ok(sideways <= 0, `${sideways} px wider than the screen`);
  if (!box) return;
  const beyond = await box.evaluate((element) => {
    const { left, right, top, bottom } = element.getBoundingClientRect();
    return { left: Math.min(0, left), right: Math.max(0, right - innerWidth), top: Math.min(0, top), bottom: Math.max(0, bottom - innerHeight), inside: element.scrollWidth - element.clientWidth };
  });
  assert.deepEqual(Object.entries(beyond).filter(([, px]) => Math.abs(px) >= 1), [], "beyond the screen, in px");
}

/**
 * Nothing that axe calls serious or critical. The page must let it in: `bypassCSP`.
 *
 * A page has one frame, so axe's "legacy mode" sees all of it. The other mode carries what it found to a new tab,
 * and without `resultTypes` it writes down each element that passed; both take longer than the rules.
 */
export async function accessible(page) {
  assert.equal(page.frames().length, 1, "frames within the page would not be looked at");
  const axe = new AxeBuilder({ page }).setLegacyMode().options({ resultTypes: ["violations"] });
  const { violations } = await axe.analyze();
  const grave = violations.filter(({ impact }) => impact === "serious" || impact === "critical");
  assert.deepEqual(grave.map(({ id, nodes }) => `${id}: ${nodes[0].html}`), []);
}
