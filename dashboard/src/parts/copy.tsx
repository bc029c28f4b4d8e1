// Copying to the clipboard, also where the page came over plain HTTP.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { Icon } from "./icon";
import { toast } from "./toast";

export async function copy(text: string): Promise<boolean> {
  try {
    if (navigator.clipboard && isSecureContext) {
      await navigator.clipboard.writeText(text);
      return true;
    }
  } catch {
    // The old way below works without a permission.
  }
  const area = document.createElement("textarea");
  area.value = text;
  area.setAttribute("aria-hidden", "true");
  area.className = "off-screen";
  const open = document.querySelector("dialog[open]") ?? document.body;
  open.appendChild(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  return done;
}

/** Copies, and says that it did. */
export async function copyAndSay(text: string, what: string): Promise<void> {
  toast((await copy(text)) ? `Copied ${what}.` : `The browser did not let the page copy ${what}.`);
}

export function CopyButton({ text, what, words }: { text: string; what: string; words?: string }): JSX.Element {
  const [done, setDone] = useState(false);
  const act = async (event: Event): Promise<void> => {
    event.stopPropagation();
    if (!(await copy(text))) return toast(`The browser did not let the page copy ${what}.`);
    setDone(true);
    setTimeout(() => setDone(false), 1200);
  };
  return (
    <button type="button" class={words ? "button quiet" : "icon-button"} onClick={(event) => void act(event)} title={`Copy ${what}`} aria-label={words ? undefined : `Copy ${what}`}>
      <Icon name={done ? "check" : "copy"} />
      {words ? (done ? "Copied" : words) : null}
    </button>
  );
}
