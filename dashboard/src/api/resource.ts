// Data on a page: fetched once however many parts show it, kept for the way back, and fetched again
// when the server says that it changed.
import { signal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { onChange, paused } from "../live/live";
import { ALL } from "../live/stream";
import { ApiError, get, getExact, loginNeeded } from "./client";

export interface Resource<T> {
  data: T | undefined;
  error: ApiError | undefined;
  /** Whether nothing has come yet. */
  loading: boolean;
  refetch: () => void;
}

interface Options {
  /** What must change for the data to be fetched again. */
  topics?: string[];
  /** Whether the answer holds payloads. */
  exact?: boolean;
  /** Fetches are at least this far apart: more for what costs the server much. */
  gap?: number;
}

/** Two fetches of the same thing are this far apart at least. */
const GAP_MS = 800;
/** For answers that the server computes over many runs. */
export const SLOW_MS = 5000;

/** Answers kept for the way back, so that a page does not begin empty. */
const KEPT_MAX = 60;
const kept = new Map<string, Entry>();

/** The data at an API path; `null` asks for nothing. */
export function useResource<T>(path: string | null, options: Options = {}): Resource<T> {
  const { exact = false, gap = GAP_MS } = options;
  const login = loginNeeded.value;
  const entry = useMemo(() => (path === null ? null : entryFor(path, exact)), [path, exact, login]);
  const topics = (options.topics ?? []).join(" ");
  useEffect(() => entry?.follow(topics.split(" "), gap), [entry, topics, gap]);
  const now = entry?.held.value;
  return {
    data: now?.data as T | undefined,
    error: now?.error,
    loading: !!entry && now?.data === undefined && now?.error === undefined,
    refetch: () => void entry?.fetch(),
  };
}

/** Whether a call failed because the server cannot answer now, which says nothing about what it knows. */
export const isAway = ({ status }: ApiError): boolean => status === 0 || status === 503 || status === 429;

/** Forgets everything: after a login or a logout, and where something of it cannot be drawn. */
export function forgetAll(): void {
  kept.clear();
}

function entryFor(path: string, exact: boolean): Entry {
  const found = kept.get(path) ?? new Entry(path, exact);
  kept.delete(path);
  kept.set(path, found);
  if (kept.size > KEPT_MAX) {
    for (const [old, entry] of kept) {
      if (entry.users > 0 || old === path) continue;
      kept.delete(old);
      break;
    }
  }
  return found;
}

interface Held {
  data: unknown;
  error: ApiError | undefined;
}

/** Who wants a fetch: this tab, after a change of its own, or only the server, whom a pause silences. */
type Wanted = "nobody" | "server" | "tab";

const more = (one: Wanted, own: boolean): Wanted => (own || one === "tab" ? "tab" : "server");

/** One path, and all parts of the page that show what is there. */
export class Entry {
  readonly held = signal<Held>({ data: undefined, error: undefined });
  users = 0;
  private at = 0;
  private running = false;
  /** Who waits for the timer, and who for the end of the fetch that is under way. */
  private next: Wanted = "nobody";
  private again: Wanted = "nobody";
  private stale = false;
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(private readonly path: string, private readonly exact: boolean) {}

  /** Fetches now, and whenever one of the topics changes, until the answer is called. */
  follow(topics: string[], gap: number): () => void {
    this.users++;
    if (!this.running) void this.fetch();
    const stop = onChange((changed, own) => {
      if (changed.includes(ALL) || changed.some((topic) => topics.includes(topic))) this.soon(gap, own);
    });
    const seen = (): void => {
      if (!document.hidden && this.stale) this.soon(gap, false);
    };
    document.addEventListener("visibilitychange", seen);
    return () => {
      stop();
      document.removeEventListener("visibilitychange", seen);
      if (--this.users > 0) return;
      clearTimeout(this.timer);
      this.timer = undefined;
    };
  }

  /** Fetches again, unless updates are paused; a hidden tab waits until it is seen. */
  private soon(gap: number, own: boolean): void {
    if (paused.peek() && !own) return;
    if (document.hidden) {
      this.stale = true;
      return;
    }
    this.next = more(this.next, own);
    if (this.timer) return;
    const wait = own ? 0 : Math.max(0, this.at + gap - Date.now());
    this.timer = setTimeout(() => {
      const wanted = this.next;
      this.timer = undefined;
      this.next = "nobody";
      // Updates may have been paused since; on resuming, everything is fetched.
      if (wanted === "tab" || !paused.peek()) void this.fetch(wanted === "tab");
    }, wait);
  }

  async fetch(own = true): Promise<void> {
    if (this.running) {
      this.again = more(this.again, own);
      return;
    }
    this.running = true;
    this.stale = false;
    try {
      const data = await (this.exact ? getExact(this.path) : get(this.path));
      this.held.value = { data, error: undefined };
    } catch (error) {
      this.failed(error);
    }
    this.running = false;
    this.at = Date.now();
    const { again } = this;
    this.again = "nobody";
    if (again !== "nobody" && this.users > 0) this.soon(GAP_MS, again === "tab");
  }

  /** What is on the page stays while the server is away; the shell says that it is. */
  private failed(error: unknown): void {
    const problem = error instanceof ApiError ? error : new ApiError(0, { detail: String(error) });
    this.held.value = { data: isAway(problem) ? this.held.peek().data : undefined, error: problem };
  }
}
