// The stage: a real store in a temporary folder, a real worker, a real server, a real browser.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";

export const root = join(dirname(fileURLToPath(import.meta.url)), "../..");
export const target = process.env.CARGO_TARGET_DIR ?? join(root, "target");
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

/** Below the ports that systems hand out for outgoing connections: 32768 and up on Linux, 49152 and up elsewhere. */
const PORTS = { first: 20_000, pairs: 5_000 };
const PORT_TRIES = 100;

/** A server that listens at a port, or null where the port is taken. */
function listen(port) {
  const server = createServer();
  return new Promise((resolve) => {
    server.once("error", () => resolve(null));
    server.listen(port, "127.0.0.1", () => resolve(server));
  });
}

const closed = (server) => new Promise((resolve) => server.close(resolve));

/** A port that is nobody else's until `release`, even while the server at it is down: whoever listens at the odd port of a pair has the even one. */
async function claimPort() {
  for (let i = 0; i < PORT_TRIES; i++) {
    const port = PORTS.first + 2 * Math.floor(Math.random() * PORTS.pairs);
    const claim = await listen(port + 1);
    if (!claim) continue;
    const probe = await listen(port);
    if (probe) {
      await closed(probe);
      claim.unref();
      return { port, release: () => closed(claim) };
    }
    await closed(claim);
  }
  throw new Error(`no free port among ${PORT_TRIES} that were tried`);
}

function start(args) {
  if (!existsSync(program)) throw new Error(`${program} is missing. Build it: cargo build -p onward-server --example stage`);
  const child = spawn(program, args, { stdio: ["ignore", "ignore", "inherit"] });
  const ended = new Promise((resolve) => child.on("exit", resolve));
  // A test that failed before it closed its stage leaves no process behind, and waits for none.
  child.unref();
  process.on("exit", () => child.kill("SIGKILL"));
  const kill = () => {
    child.ref();
    child.kill("SIGKILL");
    return ended;
  };
  return { kill };
}

/** A store of its own, with what is asked for over it. */
export class Stage {
  processes = [];
  folder = mkdtempSync(join(tmpdir(), "onward-dashboard-"));
  store = `sqlite:${join(this.folder, "stage.db")}`;
  /** What calls of the API show, unless they say otherwise. */
  token = undefined;

  /** `kind`: `serve`, open to all; `hidden`, open and without payloads; `redacted`, open with a hook over payloads; or `tokens`. `mount`: the path below which it is. `store`: one that is there already. */
  static async open({ kind = "serve", mount = "", worker = true, store } = {}) {
    const stage = new Stage();
    if (store) stage.store = store;
    stage.kind = kind;
    stage.mount = mount;
    stage.claim = await claimPort();
    stage.port = stage.claim.port;
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
    await this.claim.release();
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
  return chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu", "--disable-software-rasterizer"] });
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

/**
 * Looks at a page, and at its end checks that nothing went wrong in it.
 *
 * A context and its first page take the browser longer than most looks, so both are kept: the next look is another page
 * beside the first, which stays blank, and finds nothing of what this one stored or was allowed.
 */
export async function lookAt(browser, url, look) {
  browser.kept ??= await openPage(browser);
  const context = browser.kept.context();
  const page = watch(await context.newPage());
  try {
    await page.goto(url);
    await look(page);
    assert.deepEqual(page.troubles, []);
  } finally {
    await page.evaluate(() => localStorage.clear());
    await Promise.all([context.clearCookies(), context.clearPermissions()]);
    await page.close();
  }
}

export function watch(page) {
  page.troubles = [];
  /** The calls of the API so far, but for the stream, which has no end; and those of them that have no answer yet. */
  page.calls = 0;
  page.unanswered = new Set();
  page.on("request", (request) => {
    if (!isCall(request)) return;
    page.calls++;
    page.unanswered.add(request);
  });
  for (const end of ["requestfinished", "requestfailed"]) page.on(end, (request) => page.unanswered.delete(request));
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

/** Waits until the page has its stream. Before that the bar at its top says "connecting", which is longer. */
export const live = (page) => page.locator(".live-live").waitFor();

export const isCall = (request) => request.url().includes("/api/v1/") && !request.url().includes("/api/v1/stream");

/** Waits until the page has the answer to each of its calls, shows it, and asks for nothing more because of it. */
export async function settled(page) {
  // Effects of what was drawn, and so the next calls, come one frame after it.
  const drawn = () => page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done)))));
  await until("the page has its answers", async () => {
    const before = page.calls;
    if (before === 0 || page.unanswered.size > 0) return false;
    await drawn();
    const loading = await page.locator("main .loading").count();
    return page.calls === before && page.unanswered.size === 0 && loading === 0;
  });
}

/** Waits until the page has asked the server nothing for a second: longer than a fetch that is planned already is put off. A page that updates itself may never be. */
export async function quiet(page) {
  let last = Date.now();
  const asked = () => (last = Date.now());
  page.on("request", asked);
  await until("the page is quiet", async () => Date.now() - last > 1000);
  page.off("request", asked);
}
