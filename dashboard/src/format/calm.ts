// What is said where nothing needs attention: no more than was looked at.
import { count, many } from "./number";

export interface Looks {
  queues: { looked: number; more: boolean };
  /** The newest runs, by whose workflows it is known whether a worker is up for them. */
  sample: number;
  waiting: { looked: number; more: boolean };
}

export function sayCalm({ queues, sample, waiting }: Looks): string {
  const paused = queues.more ? `None of the first ${count(queues.looked)} queues is late or paused` : "No queue is late or paused";
  const served = `a worker is up for each queued one of the newest ${many(sample, "run")}`;
  const stuck = waiting.more ? `none of the newest ${count(waiting.looked)} waiting runs is stuck` : "no run is stuck";
  return `Nothing. ${paused}, ${served}, ${stuck}.`;
}
