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

/** A page after the first, and where it begins. */
interface Later<T> {
  cursor: string;
  page: Page<T>;
}

const joined = (path: string, cursor: string): string => `${path}${path.includes("?") ? "&" : "?"}cursor=${encodeURIComponent(cursor)}`;

/** A list that grows by its next page. */
export function usePages<T>(path: string | null, topics: string[], rowKey: (row: T) => string, { of, gap, words = "Show more" }: Options = {}): Paged<T> {
  const same = of ?? path ?? "";
  const shown = useRef(same);
  shown.current = same;
  const found = useResource<Page<T>>(path, { topics, ...(gap ? { gap } : {}) });
  const held = useRef<{ of: string; page: Page<T> } | null>(null);
  if (found.data) held.current = { of: same, page: found.data };
  const kept = held.current?.of === same && (!found.error || isAway(found.error)) ? held.current.page : undefined;
  const first = { ...found, data: found.data ?? kept };
  const [later, setLater] = useState<Later<T>[]>([]);
  const [busy, setBusy] = useState(false);
  useEffect(() => setLater([]), [same]);
  useAgain(path, topics, later, (pages) => {
    // Meanwhile the list may be another one, or longer.
    if (shown.current === same) setLater((before) => [...pages, ...before.slice(pages.length)]);
  });
  const cursor = (later.length ? later[later.length - 1]?.page : first.data)?.next ?? null;
  const load = async (): Promise<void> => {
    if (!path || !cursor) return;
    setBusy(true);
    try {
      const page = await get<Page<T>>(joined(path, cursor));
      // Meanwhile the list may be another one.
      if (shown.current === same) setLater((before) => [...before, { cursor, page }]);
    } catch (error) {
      toastError(error);
    }
    setBusy(false);
  };
  const seen = new Set<string>();
  const pages = [...(first.data ? [first.data] : []), ...later.map(({ page }) => page)];
  const rows = pages.flatMap((page) => page.items).filter((row) => {
    const key = rowKey(row);
    return !seen.has(key) && seen.add(key);
  });
  const looked = pages.reduce((sum, page) => sum + (page.looked ?? page.items.length), 0);
  const more = cursor ? <div class="more"><Button onClick={() => void load()} disabled={busy ? "Loading" : null}>{words}</Button></div> : null;
  return { first, rows, looked, more };
}

/** Fetches the later pages again after a change that was made here: its row may be on one of them. */
function useAgain<T>(path: string | null, topics: string[], later: Later<T>[], then: (pages: Later<T>[]) => void): void {
  const now = useRef({ later, then });
  now.current = { later, then };
  const about = topics.join(" ");
  useEffect(() => {
    if (!path) return;
    return onChange((changed, own) => {
      if (!own || !changed.some((topic) => topic === ALL || about.split(" ").includes(topic))) return;
      const fetched = now.current.later.map(async ({ cursor }) => ({ cursor, page: await get<Page<T>>(joined(path, cursor)) }));
      void Promise.all(fetched).then((pages) => now.current.then(pages), toastError);
    });
  }, [path, about]);
}
