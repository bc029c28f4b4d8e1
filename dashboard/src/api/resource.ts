// Data on a page: fetched, kept for the way back, and fetched again when the server says that it
// changed.
import { signal, type Signal } from "@preact/signals";
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

interface Held {
  data: unknown;
  error: ApiError | undefined;
  at: number;
}

/** Answers kept for the way back, so that a page does not begin empty. */
const KEPT_MAX = 60;
const kept = new Map<string, Signal<Held>>();

/** Two fetches of the same thing are this far apart at least. */
const GAP_MS = 800;
/** For answers that the server computes over many runs. */
export const SLOW_MS = 5000;

function heldFor(path: string): Signal<Held> {
  const found = kept.get(path);
  if (found) {
    kept.delete(path);
    kept.set(path, found);
    return found;
  }
  const made = signal<Held>({ data: undefined, error: undefined, at: 0 });
  kept.set(path, made);
  if (kept.size > KEPT_MAX) kept.delete(kept.keys().next().value as string);
  return made;
}

/** Forgets everything: after a login or a logout. */
export function forgetAll(): void {
  kept.clear();
}

/** The data at an API path; `null` asks for nothing. */
export function useResource<T>(path: string | null, options: Options = {}): Resource<T> {
  const held = useMemo(() => (path === null ? null : heldFor(path)), [path, loginNeeded.value]);
  const topics = (options.topics ?? []).join(" ");
  const fetcher = useMemo(() => (path && held ? new Fetcher(path, held, options.exact ?? false, options.gap ?? GAP_MS) : null), [path, held]);
  useEffect(() => fetcher?.follow(topics ? topics.split(" ") : []), [fetcher, topics]);
  const now = held?.value;
  return {
    data: now?.data as T | undefined,
    error: now?.error,
    loading: !!path && now?.data === undefined && now?.error === undefined,
    refetch: () => void fetcher?.fetch(),
  };
}

class Fetcher {
  private running = false;
  private again = false;
  private stale = false;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private abort = new AbortController();

  constructor(private readonly path: string, private readonly held: Signal<Held>, private readonly exact: boolean, private readonly gap: number) {}

  follow(topics: string[]): () => void {
    this.abort = new AbortController();
    void this.fetch();
    const stop = onChange((changed, own) => {
      if (changed.includes(ALL) || changed.some((topic) => topics.includes(topic))) this.soon(own);
    });
    const seen = (): void => {
      if (!document.hidden && this.stale) this.soon();
    };
    document.addEventListener("visibilitychange", seen);
    return () => {
      stop();
      document.removeEventListener("visibilitychange", seen);
      clearTimeout(this.timer);
      this.timer = undefined;
      this.abort.abort();
    };
  }

  /** Fetches again, unless updates are paused; a hidden tab waits until it is seen. */
  private soon(own = false): void {
    if (paused.peek() && !own) return;
    if (document.hidden) {
      this.stale = true;
      return;
    }
    if (this.timer) return;
    const wait = Math.max(0, this.held.peek().at + (own ? 0 : this.gap) - Date.now());
    this.timer = setTimeout(() => {
      this.timer = undefined;
      void this.fetch();
    }, wait);
  }

  async fetch(): Promise<void> {
    if (this.running) {
      this.again = true;
      return;
    }
    this.running = true;
    this.stale = false;
    const { signal: abort } = this.abort;
    try {
      const data = await (this.exact ? getExact(this.path, abort) : get(this.path, abort));
      this.held.value = { data, error: undefined, at: Date.now() };
    } catch (error) {
      if (!abort.aborted) this.failed(error);
    } finally {
      this.running = false;
    }
    if (this.again && !this.abort.signal.aborted) {
      this.again = false;
      this.soon(true);
    }
  }

  /** What is on the page stays while the server is away; the shell says that it is. */
  private failed(error: unknown): void {
    const problem = error instanceof ApiError ? error : new ApiError(0, { detail: String(error) });
    const before = this.held.peek();
    const away = problem.status === 0 || problem.status === 503;
    this.held.value = { data: away ? before.data : undefined, error: problem, at: Date.now() };
  }
}
