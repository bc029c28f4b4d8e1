// Made-up data in the shape of the HTTP API, the same at every start.
let seed = 7;
export const random = () => ((seed = (seed * 1103515245 + 12345) & 0x7fffffff) / 0x7fffffff);
const pick = (list) => list[Math.floor(random() * list.length)];
const hex = (n) => Array.from({ length: n }, () => Math.floor(random() * 16).toString(16)).join("");
export const NOW = Date.now();

export const id = (at) => {
  const t = Math.floor(at).toString(16).padStart(12, "0");
  return `${t.slice(0, 8)}-${t.slice(8)}-7${hex(3)}-8${hex(3)}-${hex(12)}`;
};

const WORKFLOWS = ["order", "index-attachment", "monthly-report", "welcome-mail", "refund"];
const MESSAGES = [
  ["card_declined", "the bank said no: insufficient funds on card 4242"],
  ["failed", "connection reset by peer: while posting to https://mail.internal/v2/send"],
  ["timeout", "step \"ocr\" took longer than 30 s"],
];

export function makeRun(i) {
  const created = NOW - i * 41_000 - Math.floor(random() * 30_000);
  const state = i < 3 ? "running" : i < 6 ? "queued" : i < 14 ? "waiting" : pick(["completed", "completed", "completed", "completed", "completed", "failed", "cancelled"]);
  const workflow = WORKFLOWS[i % WORKFLOWS.length];
  const ended = ["completed", "failed", "cancelled"].includes(state);
  const started = state === "queued" ? null : created + 80 + Math.floor(random() * 900);
  const took = 400 + Math.floor(random() * 9000);
  const waits = state === "waiting" ? pick([
    { for: "signal", name: "approved" }, { for: "timer", step: "sleep a day" }, { for: "retry", step: "charge card", try_number: 3 },
    { for: "stuck", code: "history_mismatch", detail: "step \"ship\" was recorded and nobody asked for it" },
  ]) : null;
  const [code, message] = pick(MESSAGES);
  return {
    id: id(created), workflow, state, queue: pick(["default", "default", "mail", "ocr"]), priority: 0, key: i % 4 === 3 ? null : `${workflow}-${18000 - i}`,
    failure: state === "failed" ? { code, message, retryable: code !== "card_declined" } : null,
    attempt: state === "queued" ? 0 : 1 + Math.floor(random() * 2.4), worker: null, build: state === "queued" ? null : "2026.11.2+4f1c",
    created_at: created, due_at: state === "queued" ? created : waits && waits.for !== "stuck" && waits.for !== "signal" ? NOW + 7_200_000 : null,
    started_at: started, finished_at: ended ? started + took : null, deadline_at: null, cancel_at: null, paused_at: i === 5 ? NOW - 60000 : null,
    waits_for: waits, crashes: 0, duplicates: random() < 0.2 ? Math.ceil(random() * 40) : 0, tags: i % 3 ? {} : { customer: String(40 + (i % 5)) },
    continued_from: null, continued_as: null, successor: null, parent: null, signals: 0,
    why: sayWhy(state, waits),
  };
}

function sayWhy(state, waits) {
  if (state === "queued") return "It is due; a worker that serves it is up.";
  if (!waits) return null;
  if (waits.for === "signal") return 'It waits for the signal "approved".';
  if (waits.for === "timer") return 'It waits for the timer "sleep a day", until 2026-11-16T03:00:00.000Z (in 2h).';
  if (waits.for === "retry") return 'It waits for try 3 of step "charge card", until 2026-11-15T22:00:00.000Z (in 2h).';
  return "It is stuck (history_mismatch): step \"ship\" was recorded and nobody asked for it. It waits for a retry, or a worker of another build.";
}

export const runs = Array.from({ length: 320 }, (_, i) => makeRun(i));

export function big(count) {
  const run = { ...makeRun(40), workflow: "fan-out", state: "completed", failure: null, key: "fan-out-10k", attempt: 3, duplicates: 2 };
  run.id = "00000000-0000-7000-8000-000000010000";
  run.created_at = NOW - 900_000;
  run.started_at = run.created_at + 500;
  run.finished_at = run.started_at + 400_000;
  runs.push(run);
  histories.set(run.id, fanOut(run, count));
}

export const histories = new Map();

function fanOut(run, count) {
  const rows = [];
  for (let i = 0; i < count; i++) {
    const from = run.started_at + i * 38 + Math.floor(random() * 300);
    if (i % 97 === 5) rows.push({ step: i ? `notify#${i + 1}` : "notify", kind: "try_failed", tries: 1, from, to: from + 40 });
    rows.push({ step: i ? `notify#${i + 1}` : "notify", kind: i % 1900 === 1200 ? "failed" : "done", tries: i % 97 === 5 ? 2 : 1, from: i % 97 === 5 ? from + 1500 : from, to: from + (i % 97 === 5 ? 1600 : 20 + Math.floor(random() * 400)) });
  }
  return rows.sort((a, b) => a.to - b.to);
}

export function historyOf(run) {
  const found = histories.get(run.id);
  if (found) return found;
  const rows = [];
  let at = run.started_at ?? run.created_at;
  const add = (step, kind, ms, tries = 1, gap = 4) => {
    const from = at + gap;
    at = from + ms;
    rows.push({ step, kind, tries, from, to: at });
  };
  if (run.state === "queued") return rows;
  add("find customer", "done", 130);
  add("reserve inventory", "done", 320);
  add("charge card", "try_failed", 210, 1);
  add("charge card", "try_failed", 190, 2, 400);
  if (run.state === "failed") add("charge card", "failed", 240, 3, 900);
  else if (run.state !== "waiting") {
    add("charge card", "done", 240, 3, 900);
    add("wait an hour", "fired", 3_600_000);
    add("ship", "done", 800);
    add("approved", "arrived", 90_000);
    add("notify", "done", 60);
    run.finished_at = run.finished_at ? at + 20 : null;
  }
  histories.set(run.id, rows);
  return rows;
}
