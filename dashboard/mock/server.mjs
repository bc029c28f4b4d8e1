// A stand-in for the server, with made-up data: for work on the looks and for screenshots without
// a store. It proves nothing about the real one; the tests drive that.
import { createServer } from "node:http";
import { readFile } from "node:fs/promises";
import { dirname, extname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { big, historyOf, id, NOW, random, runs } from "./data.mjs";

const dist = join(dirname(fileURLToPath(import.meta.url)), "../../crates/onward-server/dist");
const base = process.env.BASE ?? "/";
const port = Number(process.env.PORT ?? 7180);
const role = process.env.ROLE ?? "admin";
const empty = process.env.EMPTY === "1";
const types = { ".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml" };
if (empty) runs.length = 0;
else big(10_000);

const count = (list) => list.reduce((all, run) => ({ ...all, [run.state]: (all[run.state] ?? 0) + 1 }), {});
const queues = ["default", "mail", "ocr"];
const workers = empty ? [] : [1, 2, 3].map((n) => ({ id: id(NOW + n), build: "2026.11.2+4f1c", place: `worker-${n}.eu:41${n}2`, queues, workflows: ["order", "index-attachment", "fan-out", "refund"], lease_until: NOW + 8000, running: n * 4 }));
const page = (items, query) => {
  const from = Number(query.get("cursor") ?? 0);
  const limit = Number(query.get("limit") ?? 50);
  return { items: items.slice(from, from + limit), next: from + limit < items.length ? String(from + limit) : null };
};
const duplicates = (run) => ({ count: run.duplicates, latest: Array.from({ length: Math.min(run.duplicates, 20) }, (_, i) => ({ at: run.created_at + 3000 + i * i * 9000, caller: ["api-1.eu:3311", "api-2.eu:3311", "10.0.4.7 (operate-token)"][i % 3], same_input: i % 7 !== 3 })) });

function filtered(query) {
  const states = (query.get("state") ?? "").split(",").filter(Boolean);
  return runs.filter((run) => (!states.length || states.includes(run.state)) && (!query.get("workflow") || run.workflow === query.get("workflow")) && (!query.get("queue") || run.queue === query.get("queue")) && (!query.get("key") || run.key === query.get("key")) && query.getAll("tag").every((tag) => run.tags[tag.split(":")[0]] === tag.split(":")[1]));
}

function timeline(run) {
  const rows = historyOf(run);
  const steps = [...new Set(rows.map((row) => row.step))];
  const at = new Map(steps.map((step, i) => [step, i]));
  return { steps, rows: { step: rows.map((r) => at.get(r.step)), kind: rows.map((r) => r.kind), try: rows.map((r) => r.tries), began_at: rows.map((r) => r.from), at: rows.map((r) => r.to), attempt: rows.map(() => 1), seq: rows.map((_, i) => i + 1) }, queue: [{ from: run.created_at, to: run.started_at ?? Date.now() }], now: Date.now() };
}

function record(run, seq) {
  const row = historyOf(run)[seq - 1];
  const failure = { code: "card_declined", message: "the bank said no: insufficient funds on card 4242\n  caused by: HTTP 402 from https://bank.example/v1/charges", retryable: true };
  const value = row.kind === "done" ? '{"receipt":9007199254740993,"amount":12.50,"ok":true}' : row.kind === "failed" ? JSON.stringify(failure) : row.kind === "try_failed" ? JSON.stringify({ failure, next_at: row.to + 400 }) : row.kind === "arrived" ? '{"by":"ada"}' : "null";
  return `{"seq":${seq},"step":${JSON.stringify(row.step)},"entry":{"kind":"${row.kind}","value":${value}},"try_number":${row.tries},"attempt":1,"began_at":${row.from},"at":${row.to},"foreign":false,"voided_at":null}`;
}

const keyRow = (run) => ({ workflow: run.workflow, key: run.key, run: run.id, state: run.state, duplicates: run.duplicates, conflicts: duplicates(run).latest.filter((one) => !one.same_input).length, created_at: run.created_at, expires_at: run.priority ? NOW + 86400000 : null });
const schedules = empty ? [] : [["nightly-report", { cron: { cron: "0 3 * * *", time_zone: "Europe/Berlin" } }, 86400000], ["invoice-run", { cron: { cron: "30 8 * * 1-5", time_zone: "UTC" } }, 86400000], ["poll-inbox", { every: { every_ms: 300000, anchor: 0 } }, 300000]].map(([name, spec, step], i) => ({ name, spec, workflow: "monthly-report", input: { since: "yesterday" }, queue: "default", priority: 0, timeout_ms: null, tags: {}, overlap: i ? "skip" : "buffer_one", catch_up: "one", generation: 1, created_at: NOW - 9e8, changed_at: NOW - 9e8, paused_at: i === 1 ? NOW - 4e6 : null, next_at: NOW + step / 3, latest: { at: NOW - step, workflow: "monthly-report", key: `schedule/${name}/1/x` }, next: [0, 1, 2, 3, 4].map((n) => NOW + step / 3 + n * step) }));

function answer(path, query) {
  const one = /^runs\/([0-9a-f-]{36})(?:\/(.*))?$/.exec(path);
  if (one) return oneRun(one[1], one[2], query);
  switch (path) {
    case "meta": return { version: "0.1.0", role, store: "sqlite", now: Date.now(), hide_payloads: false, read_only: false, login: role !== "admin", features: [] };
    case "stats": return { runs: count(runs), queued: { default: 2, mail: 1 }, workers, series: empty ? null : Array.from({ length: 60 }, (_, i) => ({ at: NOW - (60 - i) * 60000, started: Math.round(20 + 14 * Math.sin(i / 6) + random() * 6), ended: Math.round(18 + 13 * Math.sin((i - 1) / 6) + random() * 6), failed: i > 40 && i < 47 ? Math.round(random() * 12) : Math.round(random() * 2) })) };
    case "runs": return page(filtered(query), query);
    case "waiting": {
      const all = runs.filter((run) => run.state === "waiting");
      return { ...page(all.filter((run) => !query.get("for") || run.waits_for?.for === query.get("for")), query), looked: all.length };
    }
    case "workflows": return { sample: 300, items: [...new Set(runs.map((run) => run.workflow))].map((name) => ({ name, runs: count(runs.filter((run) => run.workflow === name)), served_by: workers.filter((w) => w.workflows.includes(name)).length, last_started_at: runs.find((run) => run.workflow === name).created_at })) };
    case "queues": return { items: empty ? [] : queues.map((name, i) => ({ name, queued: 3 - i, running: i, paused_at: i === 1 ? NOW - 3600000 : null, limits: i === 2 ? { concurrency: 4, rate: { n: 10, period_ms: 1000 } } : null, oldest_due_at: i === 0 ? NOW - 130000 : null })) };
    case "workers": return { items: workers.map((w) => ({ ...w, lease_until: Date.now() + 8000 })) };
    case "schedules": return page(schedules, query);
    case "keys": return page(runs.filter((run) => run.key?.startsWith(query.get("prefix") ?? "") && (!query.get("workflow") || run.workflow === query.get("workflow"))).map(keyRow), query);
    case "keys/top": return { items: runs.filter((run) => run.key && run.duplicates).sort((a, b) => b.duplicates - a.duplicates).slice(0, 20).map(keyRow), next: null };
    case "keys/conflicts": return { items: runs.filter((run) => run.key && run.duplicates > 4).slice(0, 12).map((run, i) => ({ no: i, at: NOW - i * 340000, caller: "api-2.eu:3311", workflow: run.workflow, key: run.key, run: run.id, state: run.state })), next: null };
    case "step-keys": return { items: empty ? [] : ["welcome-user-123", "welcome-user-124", "index/doc-9"].map((key, i) => ({ key, state: ["done", "held", "failed"][i], holder: { id: `${runs[i].id}/welcome mail`, attempt: 1 }, taken_at: NOW - i * 1e6, settled_at: i === 1 ? null : NOW, until: NOW + 86400000, duplicates: 3 - i })), next: null };
    case "errors": return { sample: 40, items: [...new Map(runs.filter((run) => run.failure).map((run) => [run.workflow + run.failure.code, run])).values()].map((run, i) => ({ fingerprint: String(i), workflow: run.workflow, code: run.failure.code, message: run.failure.message, count: 12 - (i % 9), first_at: NOW - 9e7, last_at: run.created_at, sample_run: run.id })) };
    case "operations": return { items: empty ? [] : [["retry", "running", 120], ["cancel", "done", 40], ["pause", "aborted", 9]].map(([action, state, done], i) => ({ id: String(i), action, filter: { state: "failed", workflow: "order" }, state, matched: done, expected: 400, done, skipped: 2, failed: i, created_at: NOW - i * 5e6, by: "ada", reason: i ? null : "bank is back" })), next: null };
    case "audit": return page(empty ? [] : runs.slice(0, 60).map((run, i) => ({ id: String(i), at: NOW - i * 600000, who: ["ada", "ops-token"][i % 2], role: "operate", action: ["cancel", "retry", "start", "signal"][i % 4], target: `run ${run.id}`, detail: i % 4 === 3 ? 'signal "approved"' : null, outcome: i % 9 === 8 ? "409 run_ended" : "200" })), query);
  }
  if (/^workflows\/.*\/steps$/.test(path)) return { sample: 200, items: [["find customer", 80, 210, 420, 0], ["reserve inventory", 300, 900, 2100, 3], ["charge card", 210, 4100, 12000, 41], ["ship", 700, 1500, 1900, 1], ["notify", 40, 90, 300, 0]].map(([step, p50_ms, p95_ms, p99_ms, failures]) => ({ step, count: 200, p50_ms, p95_ms, p99_ms, failures })) };
  const key = /^keys\/([^/]+)\/([^/]+)$/.exec(path);
  const run = key && runs.find((one) => one.key === decodeURIComponent(key[2]));
  if (run) return { run, duplicates: duplicates(run), conflicts: 0, expires_at: run.priority ? NOW + 86400000 : null, held: true };
  if (path.startsWith("schedules/")) return schedules.find((one) => one.name === decodeURIComponent(path.slice(10)));
  return undefined;
}

function oneRun(runId, rest, query) {
  const run = runs.find((one) => one.id === runId);
  if (!run) return undefined;
  historyOf(run);
  if (!rest) {
    const output = run.state === "completed" ? `,"output":{"order":9223372036854775807,"total":99.90,"shipped":true}` : "";
    const why = run.why ? { code: run.waits_for?.for ?? "next_in_line", text: run.why } : null;
    const text = JSON.stringify(run).slice(0, -1);
    return `{"run":${text},"input":{"id":9007199254740993,"customer":{"name":"Ada","plan":"premium","tags":["eu","b2b"]},"items":[{"sku":"A-1","n":2,"price":12.50},{"sku":"B-9","n":1,"price":1e2}],"note":null}${output}},"why":${JSON.stringify(why)},"duplicates":${JSON.stringify(duplicates(run))}}`;
  }
  if (rest === "timeline") return timeline(run);
  if (rest.startsWith("records/")) return record(run, Number(rest.slice(8)));
  if (rest === "history") {
    const limit = Number(query.get("limit") ?? 50);
    const from = Number(query.get("cursor") ?? 0);
    const all = historyOf(run);
    return `{"items":[${all.slice(from, from + limit).map((_, i) => record(run, from + i + 1)).join(",")}],"next":${from + limit < all.length ? `"${from + limit}"` : "null"}}`;
  }
  return undefined;
}

createServer(async (request, response) => {
  const url = new URL(request.url, "http://mock");
  if (!url.pathname.startsWith(base)) return response.writeHead(404).end();
  const path = url.pathname.slice(base.length);
  response.setHeader("Content-Security-Policy", "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'self'; form-action 'self'");
  if (path === "api/v1/stream") {
    response.writeHead(200, { "Content-Type": "text/event-stream" });
    response.write(": open\n\n");
    const timer = setInterval(() => response.write('event: change\ndata: {"topics":["workers"]}\n\n'), 5000);
    return request.on("close", () => clearInterval(timer));
  }
  if (path.startsWith("api/v1/")) {
    const found = request.method === "GET" ? answer(path.slice(7), url.searchParams) : undefined;
    const status = found === undefined ? (request.method === "GET" ? 404 : 501) : 200;
    response.writeHead(status, { "Content-Type": status === 200 ? "application/json" : "application/problem+json" });
    return response.end(typeof found === "string" ? found : JSON.stringify(found ?? { title: "no", detail: "The stand-in does not do that.", code: "unsupported" }));
  }
  const name = extname(path) ? path : "index.html";
  try {
    const text = await readFile(join(dist, name));
    response.writeHead(200, { "Content-Type": types[extname(name)] });
    response.end(name === "index.html" ? String(text).replace("/__base__/", base) : text);
  } catch {
    response.writeHead(404).end();
  }
}).listen(port, "127.0.0.1", () => console.log(`http://127.0.0.1:${port}${base}`));
