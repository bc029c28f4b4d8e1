// Live updates as a tab sees them: topics that changed, how the stream stands, and "pause".
import { effect, signal } from "@preact/signals";
import { loginNeeded } from "../api/client";
import { absolute } from "../base";
import { ALL, Stream, type Status } from "./stream";
import type { FromTab, ToTab } from "./worker";

export const status = signal<Status>("connecting");
export const paused = signal(readPaused());

/** How the stream is had: shared by all tabs, for this tab alone, or not at all. */
export const way = signal<"shared" | "tab" | "polling">("shared");

const PAUSED_KEY = "onward.live.paused";
const SIGN_OF_LIFE_MS = 30_000;
const POLL_MIN_MS = 3_000;
const POLL_MAX_MS = 30_000;

/** `own`: changed from this tab, and so shown even while updates are paused. */
type Listener = (topics: string[], own: boolean) => void;
const listeners = new Set<Listener>();

function readPaused(): boolean {
  try {
    return localStorage.getItem("onward.live.paused") === "1";
  } catch {
    return false;
  }
}

/** Calls `listener` with what changed; returns the way to stop that. */
export function onChange(listener: Listener): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function tell(topics: string[], own = false): void {
  for (const listener of [...listeners]) listener(topics, own);
}

/** Says that this tab changed something itself. */
export const changedHere = (...topics: string[]): void => tell(topics.length ? topics : [ALL], true);

/** Stops or resumes updates. What was missed meanwhile is fetched at once on resuming. */
export function setPaused(now: boolean): void {
  paused.value = now;
  try {
    localStorage.setItem(PAUSED_KEY, now ? "1" : "0");
  } catch {
    // A browser without storage forgets it on reload.
  }
  if (!now) tell([ALL]);
}

/** The runs that this tab shows; set by the pages, told to whoever has the stream. */
const watched = signal<string[]>([]);

/** Wants to know of every record of a run; returns the way to stop that. */
export function watchRun(id: string): () => void {
  watched.value = [...watched.peek(), id];
  return () => {
    const at = watched.peek().indexOf(id);
    watched.value = watched.peek().filter((_, i) => i !== at);
  };
}

const url = (): string => absolute("api/v1/stream");

/** Begins to listen; called once, when the page starts. */
export function start(): void {
  if (typeof EventSource === "undefined") way.value = "polling";
  else if (typeof SharedWorker === "undefined" || !shared()) own();
  poll();
}

function shared(): boolean {
  try {
    const worker = new SharedWorker(absolute("live.js"), { name: `onward ${absolute("")}` });
    const port = worker.port;
    const say = (message: FromTab): void => port.postMessage(message);
    port.onmessage = (event: MessageEvent<ToTab>) => {
      const message = event.data;
      if (message.kind === "topics") tell(message.topics);
      else status.value = message.status;
    };
    worker.onerror = () => own();
    const open = (): void => say({ kind: "open", url: url() });
    effect(() => say({ kind: "watch", runs: watched.value }));
    effect(() => {
      if (!loginNeeded.value) open();
    });
    setInterval(() => say({ kind: "here" }), SIGN_OF_LIFE_MS);
    addEventListener("pagehide", () => say({ kind: "bye" }));
    addEventListener("pageshow", (event) => event.persisted && open());
    return true;
  } catch {
    return false;
  }
}

/** A stream of this tab alone, closed while nobody looks at it. */
function own(): void {
  way.value = "tab";
  const stream = new Stream(url(), { topics: (topics) => tell(topics), status: (now) => (status.value = now) });
  const follow = (): void => {
    if (document.hidden || loginNeeded.peek()) stream.close();
    else stream.open();
  };
  document.addEventListener("visibilitychange", follow);
  effect(() => stream.watch(watched.value));
  effect(() => {
    void loginNeeded.value;
    follow();
  });
}

/** While there is no stream, everything on the page is asked for again, less and less often. */
function poll(): void {
  let pause = POLL_MIN_MS;
  const look = (): void => {
    const needed = way.peek() === "polling" || status.peek() === "down";
    if (needed && !document.hidden) tell([ALL]);
    pause = needed ? Math.min(POLL_MAX_MS, pause * 1.5) : POLL_MIN_MS;
    setTimeout(look, pause);
  };
  setTimeout(look, pause);
}
