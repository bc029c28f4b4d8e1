// The stage: a real store in a temporary folder, a real worker, a real server, a real browser.
import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";

const root = join(dirname(fileURLToPath(import.meta.url)), "../..");
const target = process.env.CARGO_TARGET_DIR ?? join(root, "target");
const program = process.env.ONWARD_STAGE ?? join(target, "debug/examples/stage");
export const shots = process.env.ONWARD_SHOTS ?? join(target, "dashboard-shots");

/** Longer than anything here takes on a slow machine. */
export const SOON = 30_000;

/** Waits until `look` gives something; fails with `what` if it never does. */
export async function until(what, look, deadline = SOON) {
  const end = Date.now() + deadline;
  for (;;) {
    const found = await look().catch(() => null);
    if (found) return found;
    if (Date.now() > end) throw new Error(`not within ${deadline} ms: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

async function freePort() {
  const server = createServer();
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

function start(args) {
  if (!existsSync(program)) throw new Error(`${program} is missing. Build it: cargo build -p onward-server --example stage`);
  const child = spawn(program, args, { stdio: ["ignore", "ignore", "inherit"] });
  const ended = new Promise((resolve) => child.on("exit", resolve));
  return { kill: () => (child.kill("SIGKILL"), ended) };
}

/** A store of its own, with what is asked for over it. */
export class Stage {
  processes = [];
  folder = mkdtempSync(join(tmpdir(), "onward-dashboard-"));
  store = `sqlite:${join(this.folder, "stage.db")}`;
  /** What calls of the API show, unless they say otherwise. */
  token = undefined;

  /** `kind`: `serve`, open to all; `hidden`, open and without payloads; `redacted`, open with a hook over payloads; or `tokens`. `mount`: the path below which it is. */
  static async open({ kind = "serve", mount = "", worker = true } = {}) {
    const stage = new Stage();
    stage.kind = kind;
    stage.mount = mount;
    stage.port = await freePort();
    stage.origin = `http://127.0.0.1:${stage.port}`;
    stage.url = `${stage.origin}${mount}/`;
    await stage.startServer();
    if (worker) stage.startWorker();
    return stage;
  }

  async startServer() {
    const args = [this.kind, this.store, String(this.port)];
    this.server = start(this.mount ? [...args, this.mount] : args);
    await until("the server answers", async () => (await fetch(`${this.url}livez`)).ok);
  }

  startWorker() {
    this.worker = start(["worker", this.store]);
  }

  /** The server, gone at once, without a word. */
  async killServer() {
    await this.server.kill();
    this.server = null;
  }

  async close() {
    await Promise.all([this.server?.kill(), this.worker?.kill()]);
    rmSync(this.folder, { recursive: true, force: true });
  }

  /** A call of the API; `body` may be JSON text, so that large integers survive. */
  async api(method, path, { body, key, token = this.token } = {}) {
    const headers = {};
    if (body !== undefined) headers["Content-Type"] = "application/json";
    if (key) headers["Idempotency-Key"] = `"${key}"`;
    if (token) headers["Authorization"] = `Bearer ${token}`;
    const text = body === undefined || typeof body === "string" ? body : JSON.stringify(body);
    const response = await fetch(`${this.url}api/v1/${path}`, { method, headers, body: text });
    const answer = await response.text();
    return { status: response.status, body: answer ? JSON.parse(answer) : null, text: answer };
  }

  /** Starts a run; gives its id. */
  async run(workflow, input = null, key) {
    const { status, body, text } = await this.api("POST", `workflows/${workflow}/runs`, { body: { input }, key });
    if (status >= 300) throw new Error(`start ${workflow}: ${status} ${text}`);
    return body.run.id;
  }

  /** Waits until a run is in one of these states. */
  reaches(id, ...states) {
    return until(`run ${id} is ${states.join(" or ")}`, async () => {
      const { body } = await this.api("GET", `runs/${id}`);
      return states.includes(body.run.state) && body.run;
    }, 4 * SOON);
  }
}

/** The browser: Debian's, or the one that CHROMIUM names. */
export function openBrowser() {
  return chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox"] });
}

/** A page that fails the test at an error in it: of a script, of the policy, of a file. */
export async function openPage(browser, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
  context.setDefaultTimeout(SOON);
  // While one works on the pages: a fresh build in place of the files inside the server.
  const fresh = process.env.ONWARD_DIST;
  if (fresh) await context.route(/\/(app\.js|app\.css|icons\.svg)$/, (route) => route.fulfill({ path: join(fresh, new URL(route.request().url()).pathname.split("/").pop()) }));
  return watch(await context.newPage());
}

export function watch(page) {
  page.troubles = [];
  page.on("pageerror", (error) => page.troubles.push(String(error)));
  page.on("console", (message) => {
    // The browser itself notes requests that were refused or did not get through.
    const ofRequest = message.text().startsWith("Failed to load resource") || message.text().includes("net::ERR_");
    if (message.type() === "error" && !ofRequest) page.troubles.push(message.text());
  });
  return page;
}

/** A text that can be seen: narrow screens have some of them a second time, hidden on wide ones. */
export const seen = (page, text) => page.getByText(text).locator("visible=true").first();

/** Waits until the page has asked the server nothing for a second. */
export async function quiet(page) {
  let last = Date.now();
  page.on("request", () => (last = Date.now()));
  await until("the page is quiet", async () => Date.now() - last > 1000);
}
