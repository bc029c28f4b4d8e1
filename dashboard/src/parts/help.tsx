// What the keys do.
import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { Dialog } from "./dialog";
import { NAV } from "./nav";

export const helpOpen = signal(false);

const KEYS: [string, string][] = [
  ["⌘K", "go to a run, key, workflow or page (Ctrl+K elsewhere)"],
  ["/", "filter or look up"],
  ["j  k", "next, previous row"],
  ["Enter", "open the row"],
  ["x", "select the row"],
  ["r  f  c", "on a run: retry, fork, copy as CLI"],
  ["p", "pause or resume live updates"],
  ["t", "light or dark"],
  ["?", "this help"],
];

export function HelpHost(): JSX.Element | null {
  if (!helpOpen.value) return null;
  return (
    <Dialog title="Keyboard" onClose={() => (helpOpen.value = false)} wide>
      <div class="two help">
        <dl>{KEYS.map(([keys, what]) => <div key={keys}><dt><kbd>{keys}</kbd></dt><dd>{what}</dd></div>)}</dl>
        <dl>{NAV.map((item) => <div key={item.key}><dt><kbd>g {item.key}</kbd></dt><dd>{item.title}</dd></div>)}</dl>
      </div>
    </Dialog>
  );
}
