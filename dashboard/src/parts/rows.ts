// The rows of a list that is shown beyond its live first page. Pure.
import type { Page } from "../api/types";

/** Rows that may come in front before the list begins anew: a tab that is left open must not grow without end. */
const CAME_MAX = 1000;

/** A list with more than its first page. */
export interface Tail<T> {
  /** All that is shown, the first page among it. */
  rows: T[];
  /** The first page that is in it. */
  first: Page<T>;
  /** Where the next page begins. */
  next: string | null;
  /** How many were looked at for the pages after the first. */
  looked: number;
  /** How many rows came in front since the first page was the only one. */
  came: number;
  /** Where the pages after the first began, and the keys of their rows. */
  cursors: string[];
  below: Set<string>;
}

export const tailOf = <T>(first: Page<T>): Tail<T> => ({ rows: first.items, first, next: first.next, looked: 0, came: 0, cursors: [], below: new Set() });

/** How many were looked at for a page. */
export const lookedOf = <T>(page: Page<T>): number => page.looked ?? page.items.length;

/** With the next page below. */
export function extended<T>(tail: Tail<T>, page: Page<T>, rowKey: (row: T) => string): Tail<T> {
  const known = new Set(tail.rows.map(rowKey));
  const added = page.items.filter((row) => !known.has(rowKey(row)));
  const cursors = tail.next === null ? tail.cursors : [...tail.cursors, tail.next];
  const below = new Set([...tail.below, ...added.map(rowKey)]);
  return { ...tail, rows: [...tail.rows, ...added], next: page.next, looked: tail.looked + lookedOf(page), cursors, below };
}

/** With the pages after the first as they are now. What was on one of them and is not any more is gone. */
export function refreshed<T>(tail: Tail<T>, pages: Page<T>[], rowKey: (row: T) => string): Tail<T> {
  const now = new Map(pages.flatMap((page) => page.items).map((row) => [rowKey(row), row]));
  const rows = tail.rows.flatMap((row) => now.get(rowKey(row)) ?? (tail.below.has(rowKey(row)) ? [] : [row]));
  return { ...tail, rows };
}

/**
 * With another first page on top. What the new rows pushed out of it stays below it; what is not in it
 * any more is gone. `null` where the list begins anew: it is one page, or has nothing in common with
 * what is shown, so that there would be a hole.
 */
export function renewed<T>(tail: Tail<T>, first: Page<T>, rowKey: (row: T) => string): Tail<T> | null {
  const known = new Set(tail.rows.map(rowKey));
  const fresh = new Set(first.items.map(rowKey));
  const came = tail.came + first.items.filter((row) => !known.has(rowKey(row))).length;
  if (first.next === null || came > CAME_MAX) return null;
  const { next } = first;
  // Of what is found among many runs, a first page may have no row. Its cursor is the last run that was
  // looked at and its rows are runs, newest first: so whatever is above the cursor was looked at.
  const below = first.looked === undefined ? pushed(tail, fresh, rowKey) : tail.rows.filter((row) => rowKey(row) < next);
  if (!below) return null;
  return { ...tail, rows: [...first.items, ...below], first, came };
}

/** What is below the last row that the first page still has. */
function pushed<T>(tail: Tail<T>, fresh: Set<string>, rowKey: (row: T) => string): T[] | null {
  const last = tail.rows.findLastIndex((row) => fresh.has(rowKey(row)));
  return last < 0 ? null : tail.rows.slice(last + 1);
}
