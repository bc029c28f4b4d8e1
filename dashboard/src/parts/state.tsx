// The state of a run: always a shape and a word beside the colour.
import type { JSX } from "preact";
import type { RunRow, RunState } from "../api/types";
import { Icon, type IconName } from "./icon";

export const STATE_ICON: Record<RunState, IconName> = {
  queued: "queued", running: "running", waiting: "clock", completed: "check", failed: "cross", cancelled: "slash",
};

export function StateBadge({ state }: { state: RunState }): JSX.Element {
  return (
    <span class={`state state-${state}`}>
      <Icon name={STATE_ICON[state]} />
      <span class="state-text">{state}</span>
    </span>
  );
}

/** A run's state with its marks. */
export function RunStateBadge({ run }: { run: Pick<RunRow, "state" | "paused_at" | "cancel_at"> }): JSX.Element {
  const ended = run.state === "completed" || run.state === "failed" || run.state === "cancelled";
  return (
    <span class="row tight">
      <StateBadge state={run.state} />
      {run.paused_at && !ended ? <span class="mark"><Icon name="pause" />paused</span> : null}
      {run.cancel_at && !ended ? <span class="mark">ending</span> : null}
    </span>
  );
}
