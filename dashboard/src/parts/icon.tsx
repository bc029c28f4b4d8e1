// Icons from the one file that holds them all.
import type { JSX } from "preact";
import { absolute } from "../base";

export type IconName =
  | "overview" | "runs" | "workflows" | "queues" | "workers" | "schedules" | "keys" | "errors" | "waiting" | "operations" | "audit"
  | "queued" | "running" | "clock" | "check" | "cross" | "slash" | "pause" | "play" | "retry" | "fork" | "trash" | "copy" | "search"
  | "menu" | "sun" | "download" | "plus" | "close" | "right" | "down" | "signal" | "step" | "link" | "warning" | "info" | "keyboard" | "out" | "logo";

const FILE = absolute("icons.svg");

/** An icon beside its words, or alone with a label. */
export function Icon({ name, label }: { name: IconName; label?: string }): JSX.Element {
  return (
    <svg class={`icon icon-${name}`} aria-hidden={label ? undefined : "true"} role={label ? "img" : undefined} aria-label={label}>
      <use href={`${FILE}#${name}`} />
    </svg>
  );
}
