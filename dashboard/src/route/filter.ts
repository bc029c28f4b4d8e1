// What the list of runs shows: in the address, in the API's query, and in words.
import { STATES } from "../api/types";
import { isTime } from "../format/time";

export interface RunFilter {
  /** As they were written: a name that is no state is kept, so that the filter is refused and not widened. */
  states: string[];
  workflow: string;
  queue: string;
  key: string;
  /** name:value */
  tags: string[];
  /** A date, milliseconds since 1970, or the last so long: `-24h`. */
  from: string;
  before: string;
}

export const NONE: RunFilter = { states: [], workflow: "", queue: "", key: "", tags: [], from: "", before: "" };

/** The filter of an address. */
export function readFilter(search: string): RunFilter {
  const query = new URLSearchParams(search);
  const one = (name: string): string => query.get(name) ?? "";
  return { states: names(one("state")), workflow: one("workflow"), queue: one("queue"), key: one("key"), tags: query.getAll("tag"), from: one("from"), before: one("before") };
}

const names = (list: string): string[] => [...new Set(list.split(",").map((name) => name.trim()).filter(Boolean))];

/** The address's query of a filter; empty where it lets everything through. */
export function writeFilter(filter: RunFilter): string {
  const query = new URLSearchParams();
  if (filter.states.length) query.set("state", filter.states.join(","));
  for (const name of ["workflow", "queue", "key", "from", "before"] as const) if (filter[name]) query.set(name, filter[name]);
  for (const tag of filter.tags) query.append("tag", tag);
  return query.toString().replaceAll("%2C", ",").replaceAll("%3A", ":");
}

const UNITS: Record<string, number> = { s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 };

/** A date, or a date with a time, with or without its zone. Others a browser would guess at. */
const DATE = /^(\d{4})-(\d{2})-(\d{2})(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,3})?)?(?:Z|[+-]\d{2}:?\d{2})?)?$/;

/** A point in time: `-24h`, milliseconds, or what a date says; `null` where the text is none of these. */
export function timeOf(text: string, now: number): number | null {
  const back = /^-([0-9]+)([smhdw])$/.exec(text);
  const at = back ? now - Number(back[1]) * (UNITS[back[2] as string] ?? NaN) : /^[0-9]{12,16}$/.test(text) ? Number(text) : dateOf(text);
  return isTime(at) ? at : null;
}

/** Not a number where the text is no date, or one of a day that its month has not. */
function dateOf(text: string): number {
  const [, year, month, day] = DATE.exec(text) ?? [];
  const last = new Date(Date.UTC(Number(year), Number(month), 0)).getUTCDate();
  return Number(day) <= last ? Date.parse(text.replace(" ", "T")) : NaN;
}

const TIMES = "Write -90s, -15m, -24h, -7d or -2w for the last so long, or a date such as 2026-11-15 or 2026-11-15T18:00Z.";

/** What is not among the states of a run, and where runs like that are shown. */
const ELSEWHERE: Record<string, string> = {
  stuck: " Stuck runs are on the page Waiting, or: onward runs list --state stuck.",
  paused: " A paused run keeps its state; to list them: onward runs list --state paused.",
};

/** Why a filter cannot be read, or `null`. Such a filter is never taken for a wider one. */
export function filterTrouble(filter: RunFilter): string | null {
  const state = filter.states.find((name) => !(STATES as string[]).includes(name));
  if (state !== undefined) return `“${state}” is not a state of a run: those are ${STATES.join(", ")}.${ELSEWHERE[state] ?? ""}`;
  for (const [name, text] of [["since", filter.from], ["before", filter.before]] as const) {
    if (text && timeOf(text, Date.now()) === null) return `“${name}:${text}” is not a time. ${TIMES}`;
  }
  const odd = filter.tags.find((tag) => !/^[^:]+:/.test(tag));
  if (odd !== undefined) return `“tag:${odd}” has no value. Write tag:name:value.`;
  const given = filter.tags.map(tagName);
  const twice = given.find((name, at) => given.indexOf(name) < at);
  return twice === undefined ? null : `The tag “${twice}” is there twice, and a run has one value of it.`;
}

const tagName = (tag: string): string => tag.replace(/:.*/s, "");

/** The filter of a bulk change. */
export interface ApiFilter {
  [name: string]: string | string[] | number | Record<string, string> | undefined;
  state?: string[];
  workflow?: string;
  queue?: string;
  key?: string;
  tags?: Record<string, string>;
  created_from?: number;
  created_before?: number;
}

/** The filter as the API takes it in the body of a bulk change. Throws where it cannot be read. */
export function apiFilter(filter: RunFilter, now: number): ApiFilter {
  const trouble = filterTrouble(filter);
  if (trouble) throw new Error(trouble);
  const parts: ApiFilter = {};
  if (filter.states.length) parts.state = filter.states;
  for (const name of ["workflow", "queue", "key"] as const) if (filter[name]) parts[name] = filter[name];
  if (filter.tags.length) parts.tags = Object.fromEntries(filter.tags.map((tag) => [tagName(tag), tag.replace(/^[^:]*:/, "")]));
  const from = timeOf(filter.from, now);
  const before = timeOf(filter.before, now);
  if (from !== null) parts.created_from = from;
  if (before !== null) parts.created_before = before;
  return parts;
}

/** The API's query of a filter. Throws where it cannot be read. */
export function apiQuery(filter: RunFilter, now: number, rest: Record<string, string | number | null> = {}): string {
  const query = new URLSearchParams();
  const { state, tags: _, ...plain } = apiFilter(filter, now);
  if (state) query.set("state", state.join(","));
  for (const tag of filter.tags) query.append("tag", tag);
  for (const [name, value] of Object.entries({ ...plain, ...rest })) if (value !== null && value !== undefined && value !== "") query.append(name, String(value));
  const text = query.toString();
  return text ? `?${text}` : "";
}

/** The filter in words: what a bulk change says before it is done. */
export function sayFilter(filter: RunFilter): string {
  const said: string[] = [];
  if (filter.states.length) said.push(filter.states.join(" or "));
  if (filter.workflow) said.push(`of workflow ${filter.workflow}`);
  if (filter.queue) said.push(`on queue ${filter.queue}`);
  if (filter.key) said.push(`with key ${filter.key}`);
  for (const tag of filter.tags) said.push(`tagged ${tag}`);
  if (filter.from) said.push(`created since ${filter.from}`);
  if (filter.before) said.push(`created before ${filter.before}`);
  return said.length ? `runs ${said.join(", ")}` : "all runs";
}

/** Reads what was typed into the filter bar: `state:failed workflow:order ord_18`. */
export function readTyped(text: string, filter: RunFilter): RunFilter {
  const next: RunFilter = { ...filter, states: [...filter.states], tags: [...filter.tags] };
  for (const [, name, quoted, bare] of text.matchAll(/(?:(state|workflow|queue|key|tag|from|since|before):)?(?:"([^"]*)"|(\S+))/g)) {
    const value = quoted ?? bare ?? "";
    if (name === "state") next.states = names(value);
    else if (name === "tag") next.tags = [...next.tags, value.replace("=", ":")];
    else if (name === "since" || name === "from") next.from = value;
    else if (name === "workflow" || name === "queue" || name === "before") next[name] = value;
    else next.key = value;
  }
  return next;
}
