// The filter: states as switches with counts, the rest as words that are typed or taken away.
import type { JSX } from "preact";
import { useRef, useState } from "preact/hooks";
import { STATES, type RunState } from "../../api/types";
import { short } from "../../format/number";
import { useKey } from "../../keys";
import { Icon } from "../../parts/icon";
import { STATE_ICON } from "../../parts/state";
import { NONE, readTyped, writeFilter, type RunFilter } from "../../route/filter";

interface FilterBarProps {
  filter: RunFilter;
  set: (filter: RunFilter) => void;
  counts: Partial<Record<RunState, number>>;
  /** Why the filter cannot be read. */
  trouble: string | null;
}

const SINCE: [string, string][] = [["", "any time"], ["-15m", "last 15 minutes"], ["-1h", "last hour"], ["-24h", "last 24 hours"], ["-7d", "last 7 days"]];

export function FilterBar({ filter, set, counts, trouble }: FilterBarProps): JSX.Element {
  const input = useRef<HTMLInputElement>(null);
  const [text, setText] = useState("");
  useKey("/", () => input.current?.focus());
  const toggle = (state: RunState): void => {
    const states = filter.states.includes(state) ? filter.states.filter((one) => one !== state) : [...filter.states, state];
    set({ ...filter, states });
  };
  const typed = (event: Event): void => {
    event.preventDefault();
    if (text.trim()) set(readTyped(text, filter));
    setText("");
  };
  return (
    <div class="filter">
      <div class="chips" role="group" aria-label="State; the numbers count all runs, whatever the filter">
        {STATES.map((state) => (
          <button key={state} type="button" class={`chip state-${state}`} aria-pressed={filter.states.includes(state)} onClick={() => toggle(state)}>
            <Icon name={STATE_ICON[state]} />{state}<span class="num chip-count" title="all runs in this state">{short(counts[state] ?? 0)}</span>
          </button>
        ))}
      </div>
      <form class="filter-line" onSubmit={typed}>
        <label class="search-field grow"><Icon name="search" /><span class="off-screen">Filter by key, or workflow:, queue:, tag:, since:, before:</span>
          <input ref={input} type="search" value={text} placeholder="key, or workflow:order  queue:mail  tag:customer:42" onInput={(event) => setText(event.currentTarget.value)} onKeyDown={(event) => event.key === "Escape" && event.currentTarget.blur()} />
          <kbd>/</kbd>
        </label>
        <label class="row tight"><span class="off-screen">Created</span>
          <select value={filter.from} onChange={(event) => set({ ...filter, from: event.currentTarget.value })}>
            {SINCE.map(([value, name]) => <option key={value} value={value}>{name}</option>)}
            {SINCE.some(([value]) => value === filter.from) ? null : <option value={filter.from}>since {filter.from}</option>}
          </select>
        </label>
      </form>
      <Words filter={filter} set={set} />
      {trouble ? <p class="problem" role="alert">{trouble} Nothing is listed until this is mended.</p> : null}
    </div>
  );
}

/** What is filtered by, each with a way to take it out. */
function Words({ filter, set }: Pick<FilterBarProps, "filter" | "set">): JSX.Element | null {
  const words: [string, string, RunFilter][] = [];
  // Those that are states have their switches.
  for (const state of filter.states) if (!(STATES as string[]).includes(state)) words.push(["state", state, { ...filter, states: filter.states.filter((one) => one !== state) }]);
  for (const name of ["workflow", "queue", "key", "before"] as const) if (filter[name]) words.push([name, filter[name], { ...filter, [name]: "" }]);
  for (const tag of filter.tags) words.push(["tag", tag, { ...filter, tags: filter.tags.filter((one) => one !== tag) }]);
  if (!writeFilter(filter)) return null;
  return (
    <div class="row wrap tight">
      {words.map(([name, value, without]) => (
        <span key={`${name}${value}`} class="word"><span class="faint">{name}</span> {value}
          <button type="button" class="icon-button" aria-label={`Take out ${name} ${value}`} onClick={() => set(without)}><Icon name="close" /></button>
        </span>
      ))}
      <button type="button" class="link" onClick={() => set(NONE)}>Clear the filter</button>
    </div>
  );
}
