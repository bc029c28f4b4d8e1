// The palette: go to a page, or to a run by id or a key.
import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { query } from "../api/client";
import { useResource } from "../api/resource";
import type { KeyRow, Page, WorkflowRow } from "../api/types";
import { go } from "../route/place";
import { to } from "../route/route";
import { toggleTheme } from "../theme";
import { Dialog } from "./dialog";
import { helpOpen } from "./help";
import { Icon, type IconName } from "./icon";
import { NAV } from "./nav";

export const paletteOpen = signal(false);

interface Choice {
  icon: IconName;
  title: string;
  about: string;
  act: () => void;
}

const ID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;
const SHOWN_MAX = 12;

export function PaletteHost(): JSX.Element | null {
  return paletteOpen.value ? <Palette onClose={() => (paletteOpen.value = false)} /> : null;
}

function Palette({ onClose }: { onClose: () => void }): JSX.Element {
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const choices = useChoices(text.trim()).slice(0, SHOWN_MAX);
  const chosen = Math.min(at, choices.length - 1);
  const act = (choice: Choice | undefined): void => {
    if (!choice) return;
    onClose();
    choice.act();
  };
  const key = (event: KeyboardEvent): void => {
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (step) {
      event.preventDefault();
      setAt((chosen + step + choices.length) % Math.max(1, choices.length));
    } else if (event.key === "Enter") {
      event.preventDefault();
      act(choices[chosen]);
    }
  };
  return (
    <Dialog title="Go to" onClose={onClose}>
      <label class="search-field big"><Icon name="search" /><span class="off-screen">Run id, key, workflow or page</span>
        <input type="text" role="combobox" aria-expanded="true" aria-controls="palette-list" aria-activedescendant={`choice-${chosen}`} autocomplete="off" placeholder="Run id, key, workflow or page" value={text} onInput={(event) => { setText(event.currentTarget.value); setAt(0); }} onKeyDown={key} />
      </label>
      <ul id="palette-list" class="palette" role="listbox" aria-label="Where to">
        {choices.map((choice, i) => (
          <li key={`${choice.title}${i}`} id={`choice-${i}`} role="option" aria-selected={i === chosen} class={i === chosen ? "chosen" : ""} onClick={() => act(choice)} onPointerMove={() => setAt(i)}>
            <Icon name={choice.icon} /><span class="cut">{choice.title}</span><span class="faint cut">{choice.about}</span>
          </li>
        ))}
        {choices.length === 0 ? <li role="option" aria-selected="false" aria-disabled="true" class="faint">Nothing begins with that.</li> : null}
      </ul>
    </Dialog>
  );
}

function useChoices(text: string): Choice[] {
  const workflows = useResource<{ items: WorkflowRow[] }>("workflows");
  const keys = useResource<Page<KeyRow>>(text.length >= 2 && !ID.test(text) ? `keys${query({ prefix: text, limit: 8 })}` : null);
  const low = text.toLowerCase();
  const choices: Choice[] = [];
  if (ID.test(text)) choices.push({ icon: "runs", title: text, about: "run", act: () => go(to("runs", low)) });
  for (const row of keys.data?.items ?? []) choices.push({ icon: "keys", title: row.key, about: `key of ${row.workflow}`, act: () => go(to("keys", row.workflow, row.key)) });
  for (const item of NAV) if (item.title.toLowerCase().includes(low)) choices.push({ icon: item.icon, title: item.title, about: `g ${item.key}`, act: () => go(item.href) });
  for (const row of workflows.data?.items ?? []) if (low && row.name.toLowerCase().includes(low)) choices.push({ icon: "workflows", title: row.name, about: "workflow", act: () => go(to("workflows", row.name)) });
  for (const [title, icon, act] of [["Light or dark", "sun", toggleTheme], ["Keyboard help", "keyboard", () => (helpOpen.value = true)]] as [string, IconName, () => void][]) if (title.toLowerCase().includes(low)) choices.push({ icon, title, about: "", act });
  if (text && !ID.test(text)) choices.push({ icon: "search", title: `Runs with key ${text}`, about: "filter", act: () => go(`runs?key=${encodeURIComponent(text)}`) });
  return choices;
}
