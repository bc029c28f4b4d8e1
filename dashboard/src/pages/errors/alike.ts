// Which runs a group of errors is about.
import type { ErrorGroup, RunRow } from "../../api/types";

/** Runs of one group that are retried at once: the most that an operation names. */
export const RETRY_MAX = 1000;

/** Whether a failed run is one of those that the group counts: the same failure, in the same time. */
export function isOf(group: Pick<ErrorGroup, "fingerprint" | "first_at" | "last_at">, run: Pick<RunRow, "failure" | "finished_at" | "created_at">): boolean {
  const at = run.finished_at ?? run.created_at;
  return run.failure?.fingerprint === group.fingerprint && at >= group.first_at && at <= group.last_at;
}
