// What the list of runs shows: in the address, in the API's query, and in words.
import { STATES, type RunState } from "../api/types";

export interface RunFilter {
  states: RunState[];
  workflow: string;
  queue: string;
  key: string;
  /** name:value */
  tags: string[];
  /** Milliseconds since 1970, or the last so many: `-24h`. */
  from: string;
  before: string;
}

export const NONE: RunFilter = { states: [], workflow: "", queue: "", key: "", tags: [], from: "", before: "" };

/** The filter of an address. */
export function readFilter(search: string): RunFilter {
  const query = new URLSearchParams(search);
  const one = (name: string): string => query.get(name) ?? "";
  const states = one("state").split(",").filter((state): state is RunState => (STATES as string[]).includes(state));
  return { states, workflow: one("workflow"), queue: one("queue"), key: one("key"), tags: query.getAll("tag"), from: one("from"), before: one("before") };
}

/** The address's query of a filter; empty where it lets everything through. */
export function writeFilter(filter: RunFilter): string {
  const query = new URLSearchParams();
  if (filter.states.length) query.set("state", filter.states.join(","));
  for (const name of ["workflow", "queue", "key", "from", "before"] as const) if (filter[name]) query.set(name, filter[name]);
  for (const tag of filter.tags) query.append("tag", tag);
  return query.toString().replaceAll("%2C", ",").replaceAll("%3A", ":");
}

const UNITS: Record<string, number> = { m: 60_000, h: 3_600_000, d: 86_400_000 };

/** A point in time: `-24h`, milliseconds, or what a date says. */
export function timeOf(text: string, now: number): number | null {
  const back = /^-([0-9]+)([mhd])$/.exec(text);
  if (back) return now - Number(back[1]) * (UNITS[back[2] as string] ?? 0);
  if (/^[0-9]{10,16}$/.test(text)) return Number(text);
  const date = text ? Date.parse(text) : NaN;
  return Number.isNaN(date) ? null : date;
}

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

/** The filter as the API takes it in the body of a bulk change. */
export function apiFilter(filter: RunFilter, now: number): ApiFilter {
  const parts: ApiFilter = {};
  if (filter.states.length) parts.state = filter.states;
  for (const name of ["workflow", "queue", "key"] as const) if (filter[name]) parts[name] = filter[name];
  if (filter.tags.length) parts.tags = Object.fromEntries(filter.tags.map((tag) => [tag.replace(/:.*/s, ""), tag.replace(/^[^:]*:/, "")]));
  const from = timeOf(filter.from, now);
  const before = timeOf(filter.before, now);
  if (from !== null) parts.created_from = from;
  if (before !== null) parts.created_before = before;
  return parts;
}

/** The API's query of a filter. */
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
    if (name === "state") next.states = value.split(",").filter((state): state is RunState => (STATES as string[]).includes(state));
    else if (name === "tag") next.tags = [...next.tags, value.replace("=", ":")];
    else if (name === "since" || name === "from") next.from = value;
    else if (name === "workflow" || name === "queue" || name === "before") next[name] = value;
    else next.key = value;
  }
  return next;
}
