// How far a change of many runs is, in numbers and words.
import type { Operation } from "../api/types";
import { count } from "./number";

export interface Progress {
  gone: number;
  /** Of how many; `null` where nobody knows. */
  all: number | null;
  text: string;
}

type Counted = Pick<Operation, "state" | "done" | "skipped" | "failed" | "matched" | "expected" | "expected_more" | "cut">;

/** Its state, and what is left to do about it. */
export function sayOperation({ state, matched, done, skipped, failed, cut }: Counted): string {
  return cut ? `${state}, cut after ${count(matched ?? done + skipped + failed)}: begin it again for the rest` : state;
}

/** What matched grows with what is gone through, so it is the whole only at the end. */
export function progressOf({ state, done, skipped, failed, matched, expected, expected_more, cut }: Counted): Progress {
  const gone = done + skipped + failed;
  // Nobody knows how many there are; more than it went through.
  if (cut) return { gone, all: Math.max(expected ?? 0, gone + 1), text: `${count(done)} of more than ${count(matched ?? gone)}` };
  if (state !== "running") return { gone, all: Math.max(matched ?? 0, gone), text: `${count(done)} of ${count(matched ?? gone)}` };
  if (expected === null || expected === undefined) return { gone, all: null, text: `${count(gone)} so far` };
  const all = Math.max(expected, gone);
  return { gone, all, text: `${count(gone)} of ${expected_more ? "more than" : "about"} ${count(all)}` };
}
