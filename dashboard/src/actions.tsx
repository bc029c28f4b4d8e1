// What can be done to a run: when it applies, what it asks, and what it sends.
import { ApiError, requestKey, send, type Body } from "./api/client";
import type { Json } from "./api/json";
import { isEnded, type Role, type RunRow } from "./api/types";
import { cli, curl } from "./format/command";
import { many } from "./format/number";
import { utc } from "./format/time";
import { changedHere } from "./live/live";
import { ask } from "./parts/ask";
import type { IconName } from "./parts/icon";
import { toast } from "./parts/toast";
import { go } from "./route/place";
import type { ApiFilter } from "./route/filter";
import { to } from "./route/route";
import { denied } from "./session";

export type RunVerb = "retry" | "cancel" | "pause" | "resume" | "delete";

export interface VerbInfo {
  verb: RunVerb;
  title: string;
  icon: IconName;
  need: Role;
  danger: boolean;
  about: string;
  /** Why it does not apply, or `null`. */
  unfit: (run: RunRow) => string | null;
}

const isStuck = (run: RunRow): boolean => run.state === "waiting" && run.waits_for?.for === "stuck";

export const VERBS: VerbInfo[] = [
  {
    verb: "retry", title: "Retry", icon: "retry", need: "operate", danger: false,
    about: "It goes on from the step that failed. Steps that are done stay done.",
    unfit: (run) => (run.state === "failed" || isStuck(run) ? null : "Only a failed or stuck run can be retried."),
  },
  {
    verb: "pause", title: "Pause", icon: "pause", need: "operate", danger: false,
    about: "Its steps that execute now end first; then it rests until it is resumed.",
    unfit: (run) => (isEnded(run.state) ? "It has ended." : run.paused_at ? "It is paused already." : null),
  },
  {
    verb: "resume", title: "Resume", icon: "play", need: "operate", danger: false,
    about: "It goes on from where it was paused.",
    unfit: (run) => (isEnded(run.state) ? "It has ended." : run.paused_at ? null : "It is not paused."),
  },
  {
    verb: "cancel", title: "Cancel", icon: "slash", need: "operate", danger: true,
    about: "A body that executes is told within a second; then its undo steps execute. This cannot be taken back.",
    unfit: (run) => (isEnded(run.state) ? "It has ended." : run.cancel_at ? "It is asked to end already." : null),
  },
  {
    verb: "delete", title: "Delete", icon: "trash", need: "admin", danger: true,
    about: "The run, its history and its key are removed. This cannot be taken back.",
    unfit: (run) => (isEnded(run.state) ? null : "Only a run that has ended can be deleted."),
  },
];

export const verbInfo = (verb: RunVerb): VerbInfo => VERBS.find((one) => one.verb === verb) as VerbInfo;

/** Whether something is not this user's to do, by a key as by a button; says why. */
export function refused(need: Role): boolean {
  const why = denied(need);
  if (why) toast(why, "error");
  return why !== null;
}

/** Asks, and does it to one run. */
export function askVerb(verb: RunVerb, run: RunRow): void {
  const info = verbInfo(verb);
  if (refused(info.need)) return;
  const [method, path] = verb === "delete" ? ["DELETE", `runs/${run.id}`] : ["POST", `runs/${run.id}/${verb}`];
  ask({
    title: `${info.title} this run?`,
    text: <><p><b>{run.workflow}</b> <code>{run.id}</code></p><p>{info.about}</p></>,
    act: info.title,
    danger: info.danger,
    need: info.need,
    cli: cli("onward", "runs", verb, run.id),
    curl: curl(method, path),
    onAct: async () => {
      await send(method, path);
      toast(`${info.title}: asked for.`);
      changedHere();
      if (verb === "delete") go("runs");
    },
  });
}

/** Done to many: `ids`, or everything that a filter lets through. */
export interface Bulk {
  verb: RunVerb;
  ids?: string[];
  filter?: ApiFilter;
  /** Which runs, in words. */
  said: string;
}

/** Asks, and begins a bulk change, which goes on by itself and shows its progress. */
export async function askBulk({ verb, ids, filter, said }: Bulk): Promise<void> {
  const info = verbInfo(verb);
  const body = { action: verb, ...(ids ? { ids } : { filter: (filter ?? {}) as Json }) };
  // Made once for the dialog, so that a second press of the button begins nothing new.
  const key = requestKey();
  const matched = ids ? null : await countOf(body);
  ask({
    title: `${info.title} ${said}?`,
    text: <>{matched ? <p><b>{matched}</b> now.</p> : null}<p>{info.about}</p><p>Runs to which it does not apply are left out. Progress is on the page Operations, where it can be aborted.</p></>,
    act: `${info.title} ${ids ? `${ids.length}` : "all that match"}`,
    danger: info.danger,
    need: info.need,
    reason: true,
    ...(ids || verb !== "delete" ? {} : { typed: "delete" }),
    cli: ids ? `printf '%s\\n' ${ids.join(" ")} | onward runs ${verb} -` : `${listed(filter ?? {})} -o ids | onward runs ${verb} -`,
    curl: curl("POST", "operations", JSON.stringify(body)),
    onAct: async (reason) => {
      try {
        await send("POST", "operations", reason ? { ...body, reason } : body, { "Idempotency-Key": key });
        toast(`${info.title}: begun.`, "info", "operations");
      } catch (error) {
        if (!(error instanceof ApiError && error.status === 501 && ids)) throw error;
        await oneByOne(info, ids);
      }
      changedHere();
    },
  });
}

/** How many runs a bulk change would look at, in words; `null` where the server cannot say. */
async function countOf(body: Body): Promise<string | null> {
  try {
    const { value } = await send<{ matched: number; more?: boolean }>("POST", "operations", { ...body, dry_run: true });
    return `${many(value.matched, "run matches", "runs match")}${value.more ? " at least" : ""}`;
  } catch {
    return null;
  }
}

/** A server without bulk changes still takes them one by one, as long as the page is open. */
async function oneByOne(info: VerbInfo, ids: string[]): Promise<void> {
  let [done, refused] = [0, 0];
  for (const id of ids) {
    const [method, path] = info.verb === "delete" ? ["DELETE", to("runs", id)] : ["POST", `${to("runs", id)}/${info.verb}`];
    try {
      await send(method, path);
      done++;
    } catch (error) {
      if (error instanceof ApiError && error.status !== 409 && error.status !== 404) throw error;
      refused++;
    }
  }
  toast(`${info.title}: ${many(done, "run")}${refused ? `; it did not apply to ${refused}` : ""}.`);
}

function listed(filter: ApiFilter): string {
  const words = ["onward", "runs", "list"];
  for (const state of filter.state ?? []) words.push("--state", state);
  for (const name of ["workflow", "queue", "key"] as const) if (filter[name]) words.push(`--${name}`, filter[name]);
  for (const [name, value] of Object.entries(filter.tags ?? {})) words.push("--tag", `${name}=${value}`);
  if (filter.created_from) words.push("--created-from", utc(filter.created_from));
  if (filter.created_before) words.push("--created-before", utc(filter.created_before));
  return cli(...words);
}
