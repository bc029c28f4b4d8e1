// Pages of a list: the first is live, more are added below it.
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { get } from "../api/client";
import { useResource, type Resource } from "../api/resource";
import type { Page } from "../api/types";
import { Button } from "./button";
import { toastError } from "./toast";

export interface Paged<T> {
  first: Resource<Page<T>>;
  rows: T[];
  more: JSX.Element | null;
}

const joined = (path: string, cursor: string): string => `${path}${path.includes("?") ? "&" : "?"}cursor=${encodeURIComponent(cursor)}`;

/** A list that grows by its next page. */
export function usePages<T>(path: string | null, topics: string[], rowKey: (row: T) => string): Paged<T> {
  const first = useResource<Page<T>>(path, { topics });
  const [later, setLater] = useState<T[]>([]);
  const [next, setNext] = useState<string | null | undefined>(undefined);
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    setLater([]);
    setNext(undefined);
  }, [path]);
  const cursor = next === undefined ? first.data?.next ?? null : next;
  const load = async (): Promise<void> => {
    if (!path || !cursor) return;
    setBusy(true);
    try {
      const page = await get<Page<T>>(joined(path, cursor));
      setLater((before) => [...before, ...page.items]);
      setNext(page.next);
    } catch (error) {
      toastError(error);
    }
    setBusy(false);
  };
  const seen = new Set<string>();
  const rows = [...(first.data?.items ?? []), ...later].filter((row) => {
    const key = rowKey(row);
    return !seen.has(key) && seen.add(key);
  });
  const more = cursor ? <div class="more"><Button onClick={() => void load()} disabled={busy ? "Loading" : null}>Show more</Button></div> : null;
  return { first, rows, more };
}
