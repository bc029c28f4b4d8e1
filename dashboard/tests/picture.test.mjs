// The picture in the README: a run of the demo that two workers had a hand in, since the first was killed.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { live, openBrowser, openPage, root, settled, shots, Stage, target } from "./stage.mjs";

/** Wide enough for the step beside the timeline, and no higher than what is on the page. */
const VIEWPORT = { width: 1280, height: 600 };
/** A page that loads in a moment, also over a slow line. */
const BYTES_MAX = 200_000;
const COMMITTED = join(root, "docs/dashboard.png");
const HOW = "Take it anew: ONWARD_PICTURE=write dashboard/test browser";

/** Where the kill falls is not up to the seed, so the run that is wanted may be missing once. */
const SEEDS = [7, 8, 9, 10, 11];

const folder = mkdtempSync(join(tmpdir(), "onward-picture-"));
let browser, stage, run, rows;

before(async () => {
  for (const seed of SEEDS) {
    stage = await Stage.open({ store: await demo(seed), worker: false });
    [run, rows] = await bestRun();
    if (run) break;
    await stage.close();
  }
  assert.ok(run, `no seed of ${SEEDS} left a run with a failed try that both workers had a hand in`);
  browser = await openBrowser();
});

after(async () => {
  await browser?.close();
  await stage?.close();
  rmSync(folder, { recursive: true, force: true });
});

/** Executes the demo, with its SIGKILL; gives the store that it leaves. */
async function demo(seed) {
  const kept = join(folder, String(seed));
  const program = process.env.ONWARD_DEMO ?? join(target, "debug/onward-demo");
  const child = spawn(program, ["--keep", kept, "--seed", String(seed)], { stdio: ["ignore", "pipe", "pipe"] });
  let said = "";
  for (const output of [child.stdout, child.stderr]) output.on("data", (data) => (said += data));
  const code = await new Promise((resolve, reject) => child.on("error", reject).on("close", resolve));
  assert.equal(code, 0, said);
  return `sqlite:${join(kept, "onward.db")}`;
}

/** The run that shows most, and its records: a failed try, and records of both workers, best within its OCR. */
async function bestRun() {
  const { body } = await stage.api("GET", "runs?limit=200");
  const found = [];
  for (const one of body.items.filter(({ attempt }) => attempt === 2)) {
    const { steps, rows } = (await stage.api("GET", `runs/${one.id}/timeline`)).body;
    const records = rows.step.map((step, i) => ({ step: steps[step], kind: rows.kind[i], attempt: rows.attempt[i] }));
    if (!records.some(({ kind }) => kind === "try_failed") || !records.some(({ attempt }) => attempt === 1)) continue;
    const within = new Set(records.filter(({ step }) => step === "ocr").map(({ attempt }) => attempt)).size;
    found.push([within * 100 + records.length, one, records]);
  }
  const [[, best, records] = []] = found.sort(([a], [b]) => b - a);
  return [best, records];
}

/** The width and the height that a PNG says it has. */
function sizeOf(png) {
  assert.equal(png.toString("latin1", 0, 8), "\x89PNG\r\n\x1a\n", "it is a PNG");
  return { width: png.readUInt32BE(16), height: png.readUInt32BE(20) };
}

test("a run that outlived its worker is shown whole, and the README has its picture", async () => {
  const page = await openPage(browser, { viewport: VIEWPORT, deviceScaleFactor: 1, colorScheme: "light" });
  await page.goto(`${stage.url}runs/${run.id}?step=ocr`);
  await page.getByRole("heading", { name: "index-attachment", level: 1 }).waitFor();
  await live(page);
  await page.locator(".page-head .state-completed").waitFor();
  await page.locator(".fact", { hasText: "attempts" }).getByText("2", { exact: true }).waitFor();
  for (const step of ["find customer", "ocr", "update index"]) await page.getByRole("button", { name: new RegExp(`^${step}`) }).waitFor();
  const side = page.getByRole("complementary", { name: "Step ocr" });
  const failed = rows.filter(({ step, kind }) => step === "ocr" && kind === "try_failed").length;
  await side.locator(".state-completed").getByText("done").waitFor();
  assert.equal(await side.locator(".state-failed").getByText("failed", { exact: true }).count(), failed, "its failed tries");
  await side.getByText(/^"invoice \d+, scan \d+"$/).waitFor();
  await settled(page);
  assert.deepEqual(page.troubles, []);

  mkdirSync(shots, { recursive: true });
  const picture = await page.screenshot({ path: join(shots, "readme.png") });
  assert.deepEqual(sizeOf(picture), VIEWPORT);
  assert.ok(picture.length <= BYTES_MAX, `${picture.length} bytes`);
  await page.context().close();
  if (process.env.ONWARD_PICTURE === "write") writeFileSync(COMMITTED, picture);

  assert.ok(existsSync(COMMITTED), `${COMMITTED} is missing. ${HOW}`);
  const committed = readFileSync(COMMITTED);
  assert.deepEqual(sizeOf(committed), VIEWPORT, HOW);
  assert.ok(committed.length <= BYTES_MAX, `${committed.length} bytes. ${HOW}`);
});
