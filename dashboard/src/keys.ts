// The keyboard: single keys, and pairs that begin with g.
import { useEffect } from "preact/hooks";

type Act = () => void;

const bound = new Map<string, Act[]>();
let first = "";
let timer: ReturnType<typeof setTimeout> | undefined;

const PAIR_MS = 900;

/** Whether the user is typing text. */
function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName)) && (target as HTMLInputElement).type !== "checkbox";
}

addEventListener("keydown", (event) => {
  if ((event.metaKey || event.ctrlKey) && event.key.toLowerCase() === "k") {
    event.preventDefault();
    act("mod+k");
    return;
  }
  if (event.metaKey || event.ctrlKey || event.altKey || isTyping(event.target) || document.querySelector("dialog[open]")) return;
  const keys = first ? `${first} ${event.key}` : event.key;
  clearTimeout(timer);
  first = "";
  if (event.key === "g" && keys === "g") {
    first = "g";
    timer = setTimeout(() => (first = ""), PAIR_MS);
  } else if (act(keys)) {
    event.preventDefault();
  }
});

function act(keys: string): boolean {
  const acts = bound.get(keys);
  const latest = acts?.[acts.length - 1];
  latest?.();
  return !!latest;
}

/** Binds a key; the latest binding is the one that acts. Returns the way to undo it. */
export function bind(keys: string, action: Act): Act {
  bound.set(keys, [...(bound.get(keys) ?? []), action]);
  return () => bound.set(keys, (bound.get(keys) ?? []).filter((one) => one !== action));
}

/** Binds a key while the component is shown. */
export function useKey(keys: string, action: Act): void {
  useEffect(() => bind(keys, action));
}

/** Moves the focus among the rows of the page. */
export function moveRow(step: 1 | -1): void {
  const rows = [...document.querySelectorAll<HTMLElement>("main [data-row]")].filter((row) => row.offsetParent !== null);
  const at = rows.findIndex((row) => row === document.activeElement);
  const next = rows[at < 0 ? (step > 0 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, at + step))];
  next?.focus();
  next?.scrollIntoView({ block: "nearest" });
}

/** Ticks or unticks the row that has the focus. */
export function pickRow(): void {
  document.activeElement?.closest("tr")?.querySelector<HTMLInputElement>("input[type=checkbox]")?.click();
}
