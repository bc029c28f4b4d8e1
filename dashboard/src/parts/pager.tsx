// Pages of a list: the first is live, more are added below it.
import type { JSX } from "preact";
import { useRef, useState } from "preact/hooks";
import { get } from "../api/client";
import { isAway, useResource, type Resource } from "../api/resource";
import type { Page } from "../api/types";
import { Button } from "./button";
import { extended, lookedOf, renewed, tailOf, type Tail } from "./rows";
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
