// Screenshots of every page of a running server: node mock/shots.mjs URL FOLDER [page…]
import { chromium } from "playwright-core";
import { mkdirSync } from "node:fs";

const [, , url = "http://127.0.0.1:7180/", folder = "shots", ...only] = process.argv;
mkdirSync(folder, { recursive: true });
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox"] });
const first = await (await fetch(new URL("api/v1/runs?limit=50", url))).json();
const by = (state) => first.items.find((run) => run.state === state)?.id;
const pages = {
  overview: "", runs: "runs", "runs-filter": "runs?state=failed,waiting&workflow=order", run: `runs/${by("completed")}`, "run-failed": `runs/${by("failed")}?step=charge%20card`, "run-data": `runs/${by("completed")}?tab=data`,
  "run-attempts": `runs/${by("failed")}?tab=attempts`, "run-waiting": `runs/${by("waiting")}`, big: "runs/00000000-0000-7000-8000-000000010000",
  workflows: "workflows", workflow: "workflows/order", queues: "queues", workers: "workers", schedules: "schedules", schedule: "schedules/nightly-report",
  keys: "keys", "keys-top": "keys?tab=top", "keys-conflicts": "keys?tab=conflicts", errors: "errors", waiting: "waiting", operations: "operations", audit: "audit",
};
for (const [name, path] of Object.entries(pages)) {
  if (only.length && !only.includes(name)) continue;
  for (const scheme of ["light", "dark"]) {
    for (const width of [1280, 390]) {
      if (process.env.ONE && `${scheme}${width}` !== process.env.ONE) continue;
      const page = await browser.newPage({ viewport: { width, height: 800 }, colorScheme: scheme });
      page.on("pageerror", (error) => console.log(name, "pageerror", error.message));
      page.on("console", (message) => ["error", "warning"].includes(message.type()) && console.log(name, message.text()));
      await page.goto(new URL(path, url).href);
      await page.waitForTimeout(700);
      await page.screenshot({ path: `${folder}/${name}-${scheme}-${width}.png` });
      await page.close();
    }
  }
}
await browser.close();
