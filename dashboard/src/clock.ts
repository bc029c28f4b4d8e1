// The time of the server, once a second. A hidden tab's clock stands still.
import { signal } from "@preact/signals";
import { clockOffset } from "./session";

export const serverNow = (): number => Date.now() + clockOffset.peek();

/** Changes every second. */
export const now = signal(Date.now());

const tick = (): void => {
  if (!document.hidden) now.value = serverNow();
};
setInterval(tick, 1000);
document.addEventListener("visibilitychange", tick);
