// Short messages about what just happened.
import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { Link } from "../route/place";
import { Icon } from "./icon";

interface Toast {
  id: number;
  text: string;
  kind: "info" | "error";
  href: string | undefined;
}

const toasts = signal<Toast[]>([]);
const SHOWN_MS = 6000;
const SHOWN_MAX = 4;
let last = 0;

export function toast(text: string, kind: "info" | "error" = "info", href?: string): void {
  const id = ++last;
  toasts.value = [...toasts.value, { id, text, kind, href }].slice(-SHOWN_MAX);
  setTimeout(() => remove(id), kind === "error" ? SHOWN_MS * 2 : SHOWN_MS);
}

const remove = (id: number): void => {
  toasts.value = toasts.value.filter((one) => one.id !== id);
};

export const toastError = (error: unknown): void => toast(error instanceof Error ? error.message : String(error), "error");

export function Toasts(): JSX.Element {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {toasts.value.map((one) => (
        <div key={one.id} class={`toast ${one.kind}`}>
          <Icon name={one.kind === "error" ? "cross" : "info"} />
          <span>{one.text}</span>
          {one.href ? <Link href={one.href}>Show</Link> : null}
          <button type="button" class="icon-button" aria-label="Dismiss" onClick={() => remove(one.id)}><Icon name="close" /></button>
        </div>
      ))}
    </div>
  );
}
