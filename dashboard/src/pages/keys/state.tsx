// The state of a step's key.
import type { JSX } from "preact";
import type { StepKey } from "../../api/types";
import { Icon } from "../../parts/icon";

export function KeyStateBadge({ state }: { state: StepKey["state"] }): JSX.Element {
  const css = state === "done" ? "completed" : state === "failed" ? "failed" : "running";
  return <span class={`state state-${css}`}><Icon name={state === "done" ? "check" : state === "failed" ? "cross" : "running"} />{state}</span>;
}
