// What the HTTP API answers, as far as the dashboard reads it.
import type { Json } from "./json";

export type RunState = "queued" | "running" | "waiting" | "completed" | "failed" | "cancelled";
export const STATES: RunState[] = ["queued", "running", "waiting", "completed", "failed", "cancelled"];
export const isEnded = (state: RunState): boolean => state === "completed" || state === "failed" || state === "cancelled";

export type Role = "read" | "operate" | "admin";

export interface Meta {
  version: string;
  role: Role | null;
  store: string;
  now: number;
  who?: string;
  /** Whether one logs in with a token. */
  login?: boolean;
  hide_payloads?: boolean;
  /** Whether payloads are shown otherwise than they were stored. */
  redacts_payloads?: boolean;
  read_only?: boolean;
  features?: string[];
}

export interface Page<T> {
  items: T[];
  next: string | null;
  /** How many were looked at for them, where not all that were are here. */
  looked?: number;
}

export interface Failure {
  code: string;
  message: string;
  details?: Json;
  retryable: boolean;
  child?: string;
  /** The group of errors that it belongs to, in lists. */
  fingerprint?: string;
}

export interface Waits {
  for: string;
  step?: string;
  name?: string;
  key?: string;
  run?: string;
  code?: string;
  detail?: string;
  try_number?: number;
  crashes?: number;
}

export interface Why {
  code: string;
  text: string;
  until?: number | null;
}

export interface RunRow {
  id: string;
  workflow: string;
  state: RunState;
  queue: string;
  priority: number;
  key: string | null;
  failure: Failure | null;
  attempt: number;
  worker: string | null;
  build: string | null;
  created_at: number;
  due_at: number | null;
  started_at: number | null;
  finished_at: number | null;
  deadline_at: number | null;
  cancel_at: number | null;
  paused_at: number | null;
  waits_for: Waits | null;
  crashes: number;
  duplicates: number;
  tags: Record<string, string>;
  continued_from: string | null;
  continued_as: string | null;
  successor: string | null;
  parent: { run: string; step: string; detached: boolean } | null;
  signals: number;
  lane?: string | null;
  why?: string | Why | null;
}

export interface Run extends RunRow {
  input?: Json;
  output?: Json;
  code_change?: { build: string; unasked: string[]; at: number } | null;
  stuck_builds?: string[];
}

export interface Duplicate {
  at: number;
  caller: string;
  same_input: boolean;
}

export interface Duplicates {
  count: number;
  latest: Duplicate[];
}

export interface RunAnswer {
  run: Run;
  why: Why | null;
  children?: number;
  duplicates?: Duplicates | null;
}

export type RecordKind = "done" | "failed" | "try_failed" | "began" | "fired" | "arrived" | string;

export interface HistoryRecord {
  seq: number;
  step: string;
  entry: { kind: RecordKind; value?: Json };
  try_number: number;
  attempt: number;
  began_at: number;
  at: number;
  foreign?: boolean;
  undoable?: boolean;
  voided_at?: number | null;
}

/** A line of a run's log. */
/** A signal that nothing in its run has taken yet. */
export interface Untaken {
  no: number;
  name: string;
  at: number;
  value: Json;
}

export interface LogLine {
  no: number;
  at: number;
  /** The step that wrote it; `null` where the workflow function did. */
  step: string | null;
  try_number: number | null;
  text: string;
}

export interface TimelineAnswer {
  steps: string[];
  rows: {
    step: number[];
    kind: RecordKind[];
    try: number[];
    began_at: number[];
    at: number[];
    attempt: number[];
    seq: number[];
    voided?: boolean[];
  };
  /** Whether the history goes on beyond what is here. */
  cut?: boolean;
  /** Until when the run was put off when it was started, which may lie ahead. */
  delay?: { from: number; to: number } | null;
  queue: { from: number; to: number | null }[];
  now: number;
}

export interface Workflows {
  /** How many of the newest runs were counted. */
  sample: number;
  items: WorkflowRow[];
}

export interface WorkflowRow {
  name: string;
  runs: Partial<Record<RunState, number>>;
  served_by: number;
  last_started_at?: number | null;
}

export interface StepStat {
  step: string;
  /** Tries, those that failed among them. */
  count: number;
  p50_ms: number;
  p95_ms: number;
  p99_ms: number;
  failures: number;
}

export interface QueueRow {
  name: string;
  queued: number;
  running: number;
  paused_at?: number | null;
  limits?: QueueLimits | null;
  oldest_due_at?: number | null;
  served_by?: number;
}

export interface QueueLimits {
  concurrency?: number | null;
  per_worker?: number | null;
  rate?: { count: number; period_ms: number } | null;
  per_lane?: number | null;
}

export interface Worker {
  id: string;
  build: string;
  place: string;
  queues: string[];
  workflows: string[];
  lease_until: number;
  running: number;
}

export interface Schedule {
  name: string;
  spec: { cron?: { cron: string; time_zone: string }; every?: { every_ms: number; anchor: number } };
  workflow: string;
  input?: Json;
  queue: string;
  priority: number;
  timeout_ms: number | null;
  tags: Record<string, string>;
  overlap: string;
  catch_up: string | { all: { max: number } };
  created_at: number;
  changed_at: number;
  paused_at: number | null;
  next_at: number | null;
  latest: { at: number; workflow: string; key: string } | null;
  next?: number[];
}

/** What became of one time of a schedule. */
export interface Occurred {
  how: "started" | "buffered" | "replaced" | "existing" | "skipped" | "refused" | string;
  run?: string;
  /** The run that has not ended, because of which nothing was started. */
  live?: string;
  /** The run that has the key, with another input. */
  holder?: string;
}

export interface Backfilled {
  started: number;
  existing: number;
  refused: number;
  /** Whether the time was over before the last of them. */
  more: boolean;
}

export interface Stats {
  runs: Partial<Record<RunState, number>>;
  queued: Record<string, number>;
  workers: Worker[];
  series?: SeriesPoint[] | null;
}

export interface SeriesPoint {
  at: number;
  started: number;
  ended: number;
  failed: number;
}

export interface KeyRow {
  workflow: string;
  key: string;
  run: string;
  state: RunState;
  duplicates: number;
  conflicts?: number;
  created_at: number;
  expires_at?: number | null;
  /** Whether the key is still this run's. */
  held?: boolean;
}

export interface ConflictRow {
  no: number;
  state: RunState;
  workflow: string;
  key: string;
  run: string;
  at: number;
  caller: string;
}

export interface StepKey {
  key: string;
  state: "held" | "done" | "failed";
  holder: { id: string; attempt?: number; [name: string]: unknown };
  result?: Json;
  failure?: Failure | null;
  taken_at: number;
  settled_at: number | null;
  until: number | null;
  duplicates: number;
}

export interface ErrorGroup {
  fingerprint: string;
  workflow: string;
  code: string;
  message: string;
  count: number;
  first_at: number;
  last_at: number;
  sample_run: string;
}

export interface Operation {
  id: string;
  action: string;
  filter: Record<string, unknown> | null;
  state: "running" | "done" | "aborted" | string;
  matched: number | null;
  /** How many runs fitted when it was begun, as far as they were counted. */
  expected?: number | null;
  /** Whether more fitted than were counted. */
  expected_more?: boolean;
  done: number;
  skipped: number;
  failed: number;
  /** Whether there were more runs than one change goes through. */
  cut?: boolean;
  created_at: number;
  by?: string | null;
  reason?: string | null;
}

export interface AuditRow {
  id: string | number;
  at: number;
  who: string;
  role: string;
  action: string;
  target: string;
  detail?: unknown;
  outcome: string | null;
}
