// What came of a time of a schedule, in words.
import type { Backfilled, Occurred } from "../api/types";
import { count, many } from "./number";

/** What a trigger did, and the run to look at. */
export function sayOccurred({ how, run, live, holder }: Occurred): { text: string; run: string | undefined } {
  switch (how) {
    case "started": return { text: "Started a run.", run };
    case "buffered": return { text: "Started a run, which waits for the end of the one before.", run };
    case "replaced": return { text: "Asked the run before to end, and started one behind it.", run };
    case "existing": return { text: "Its run was there already.", run };
    case "skipped": return { text: "Nothing was started: the run before has not ended.", run: live };
    case "refused": return { text: "Nothing was started: a run with another input has its key.", run: holder };
    default: return { text: `It answered: ${how}.`, run };
  }
}

/** What a backfill did, and whether it is done. */
export function sayBackfilled({ started, existing, refused, more }: Backfilled): string {
  const parts = [`Started ${many(started, "run")}`];
  if (existing) parts.push(`${count(existing)} had one already`);
  if (refused) parts.push(`${count(refused)} ${refused === 1 ? "was" : "were"} refused, because a run with another input has the key`);
  return `${parts.join("; ")}.${more ? " The time was over before the last of them: go on for the rest." : ""}`;
}

/** The sum of a backfill that went on: a time that the part before started is existing to the next. */
export function sumBackfilled(before: Backfilled | null, { started, existing, refused, more }: Backfilled): Backfilled {
  const passed = before?.started ?? 0;
  return { started: passed + started, existing: Math.max(0, existing - passed), refused, more };
}
