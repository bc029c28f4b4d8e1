// The time of the server, once a second. A hidden tab's clock stands still.
import { computed, signal } from "@preact/signals";
import { clockOffset } from "./session";

export const serverNow = (): number => Date.now() + clockOffset.peek();

/** Changes every second. */
export const now = signal(Date.now());

const MINUTE_MS = 60_000;

/** The end of this minute; changes once in each. */
export const minute = computed(() => Math.ceil(now.value / MINUTE_MS) * MINUTE_MS);

const tick = (): void => {
  if (!document.hidden) now.value = serverNow();
};
setInterval(tick, 1000);
document.addEventListener("visibilitychange", tick);
