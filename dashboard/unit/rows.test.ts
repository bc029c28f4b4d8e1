import assert from "node:assert/strict";
import { test } from "node:test";
import type { Page } from "../src/api/types";
import { extended, refreshed, renewed, tailOf } from "../src/parts/rows";

/** A page of rows that are their own keys; `more`: there are others after it. */
const page = (rows: string, more = true, looked?: number): Page<string> => ({ items: [...rows], next: more ? `after ${rows.slice(-1)}` : null, ...(looked === undefined ? {} : { looked }) });
const key = (row: string): string => row;
const shown = (tail: { rows: string[] } | null): string | null => tail && tail.rows.join("");
const two = extended(tailOf(page("fed")), page("cba"), key);

test("rows that new ones push out of the first page stay", () => {
  const later = renewed(two, page("hgf"), key);
  assert.equal(shown(later), "hgfedcba");
  assert.equal(later?.next, "after a", "it goes on from its end");
  assert.equal(shown(renewed(later!, page("kjh"), key)), "kjhgfedcba");
});

test("rows that left the list do not stay", () => {
  assert.equal(shown(renewed(two, page("fdc"), key)), "fdcba");
  assert.equal(shown(renewed(two, page("gfd"), key)), "gfdcba");
});

test("a list is never shown with a hole in it", () => {
  assert.equal(renewed(two, page("zyx"), key), null, "nobody knows what is between them");
  assert.equal(renewed(two, page("fe", false), key), null, "the first page is all there is");
});

test("a row is there once, and a page that is shown twice adds nothing", () => {
  assert.equal(shown(extended(two, page("bax"), key)), "fedcbax");
});

test("what was found among many stays, and what was answered does not", () => {
  /** Runs down to `until` were looked at, and some of them fit. */
  const look = (rows: string, until: string): Page<string> => ({ items: [...rows], next: until, looked: 1000 });
  const sparse = extended(tailOf(look("", "m")), look("cb", "a"), key);
  assert.equal(shown(renewed(sparse, look("", "n"), key)), "cb", "the first page has none");
  const came = renewed(sparse, look("zp", "n"), key);
  assert.equal(shown(came), "zpcb");
  assert.equal(shown(renewed(came!, look("z", "n"), key)), "zcb", "p was answered");
  assert.equal(shown(renewed(came!, look("z", "q"), key)), "zpcb", "p is further down than was looked");
});

test("a list that is left open does not grow without end", () => {
  let tail = extended(tailOf(page("fed")), page("cba"), key);
  for (let i = 0; i < 1000; i++) tail = renewed(tail, { items: [`n${i}`, tail.rows[0] as string], next: "more" }, key) ?? assert.fail(`${i}`);
  assert.equal(renewed(tail, { items: ["one more", tail.rows[0] as string], next: "more" }, key), null);
});

test("pages below the first are put in place as they are now", () => {
  const tail = renewed(two, page("gfe"), key);
  assert.deepEqual(tail?.cursors, ["after d"]);
  assert.equal(shown(refreshed(tail!, [page("ca")], key)), "gfedca", "b is gone; d was pushed out of the first page and stays");
});
