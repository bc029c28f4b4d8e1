// Pages of a list: the first is live, more are added below it, and are fetched again after a change that
// was made on this page.
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { get } from "../api/client";
import { isAway, useResource, type Resource } from "../api/resource";
import type { Page } from "../api/types";
import { onChange } from "../live/live";
import { ALL } from "../live/stream";
import { Button } from "./button";
import { extended, lookedOf, refreshed, renewed, tailOf, type Tail } from "./rows";
import { toastError } from "./toast";

export interface Paged<T> {
  first: Resource<Page<T>>;
  rows: T[];
  /** How many were looked at for these rows. */
  looked: number;
  more: JSX.Element | null;
}

interface Options {
  /** What the list is of, where its path changes with the clock: rows stay while it is the same. */
  of?: string;
  /** Fetches are at least this far apart. */
  gap?: number;
  /** The words on the button. */
  words?: string;
}

const joined = (path: string, cursor: string): string => `${path}${path.includes("?") ? "&" : "?"}cursor=${encodeURIComponent(cursor)}`;

/** A list that grows by its next page. */
export function usePages<T>(path: string | null, topics: string[], rowKey: (row: T) => string, { of, gap, words = "Show more" }: Options = {}): Paged<T> {
  const same = of ?? path ?? "";
  const found = useResource<Page<T>>(path, { topics, ...(gap ? { gap } : {}) });
  const held = useRef<{ of: string; page: Page<T> } | null>(null);
  if (found.data) held.current = { of: same, page: found.data };
  const kept = held.current?.of === same && (!found.error || isAway(found.error)) ? held.current.page : undefined;
  const first = { ...found, data: found.data ?? kept };
  const [busy, setBusy] = useState(false);
  // The pages below the first, once there are any; made anew while drawing, so that no row is ever missing.
  const tail = useRef<{ of: string; now: Tail<T> } | null>(null);
  if (tail.current && tail.current.of !== same) tail.current = null;
  if (tail.current && first.data && tail.current.now.first !== first.data) {
    const now = renewed(tail.current.now, first.data, rowKey);
    tail.current = now && { of: same, now };
  }
  const [, redraw] = useState(0);
  useAgain(path, topics, () => tail.current?.now.cursors ?? [], (pages: Page<T>[]) => {
    // Meanwhile the list may be another one.
    if (tail.current?.of !== same) return;
    tail.current = { of: same, now: refreshed(tail.current.now, pages, rowKey) };
    redraw((times) => times + 1);
  });
  const cursor = (tail.current ? tail.current.now : first.data)?.next ?? null;
  const load = async (): Promise<void> => {
    if (!path || !cursor || !first.data) return;
    setBusy(true);
    // From here on, rows that leave the first page are kept.
    tail.current ??= { of: same, now: tailOf(first.data) };
    try {
      const page = await get<Page<T>>(joined(path, cursor));
      // Meanwhile the list may be another one, or begin anew.
      const { current } = tail;
      if (current?.of === same && current.now.next === cursor) tail.current = { of: same, now: extended(current.now, page, rowKey) };
    } catch (error) {
      toastError(error);
    }
    setBusy(false);
  };
  const rows = first.data ? tail.current?.now.rows ?? first.data.items : [];
  const looked = (first.data ? lookedOf(first.data) : 0) + (tail.current?.now.looked ?? 0);
  const more = cursor ? <div class="more"><Button onClick={() => void load()} disabled={busy ? "Loading" : null}>{words}</Button></div> : null;
  return { first, rows, looked, more };
}

/** Fetches the later pages again after a change that was made here: its row may be on one of them. */
function useAgain<T>(path: string | null, topics: string[], cursors: () => string[], then: (pages: Page<T>[]) => void): void {
  const now = useRef({ cursors, then });
  now.current = { cursors, then };
  const about = topics.join(" ");
  useEffect(() => {
    if (!path) return;
    return onChange((changed, own) => {
      if (!own || !changed.some((topic) => topic === ALL || about.split(" ").includes(topic))) return;
      const fetched = now.current.cursors().map((cursor) => get<Page<T>>(joined(path, cursor)));
      void Promise.all(fetched).then((pages) => now.current.then(pages), toastError);
    });
  }, [path, about]);
}
