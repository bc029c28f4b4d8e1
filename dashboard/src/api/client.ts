// Calls the HTTP API: one function per verb, and one error for whatever goes wrong.
import { signal } from "@preact/signals";
import { parse, write, type Json } from "./json";
import { absolute } from "../base";

/** A call that did not succeed, with what the server said about it. */
export class ApiError extends Error {
  readonly status: number;
  readonly code: string;
  readonly run: string | undefined;
  readonly hints: { pointer: string; detail: string }[];
  constructor(status: number, problem: Problem) {
    super(problem.detail || problem.title || `The server answered ${status}.`);
    this.status = status;
    this.code = problem.code ?? "";
    this.run = problem.run_id;
    this.hints = problem.errors ?? [];
  }
}

interface Problem {
  title?: string;
  detail?: string;
  code?: string;
  run_id?: string;
  errors?: { pointer: string; detail: string }[];
}

/** Whether the server wants a token before it says more. */
export const loginNeeded = signal(false);

/** JSON that is sent as it was typed. */
export class RawJson {
  constructor(readonly text: string) {}
}

export type Body = { [name: string]: Json | RawJson | undefined };

export interface Answer<T> {
  value: T;
  status: number;
  replayed: boolean;
}

/** The address of an API path, with a query. */
export const apiUrl = (path: string): string => absolute(`api/v1/${path}`);

/** Reads with the browser's own parser: fast, for answers without payloads. */
export async function get<T>(path: string, abort?: AbortSignal): Promise<T> {
  const response = await call("GET", path, undefined, {}, abort);
  return (await response.json()) as T;
}

/** Reads with the exact parser: for answers that hold payloads. */
export async function getExact<T>(path: string, abort?: AbortSignal): Promise<T> {
  const response = await call("GET", path, undefined, {}, abort);
  return parse(await response.text()) as T;
}

/** Changes something. */
export async function send<T>(method: string, path: string, body?: Body, headers: Record<string, string> = {}): Promise<Answer<T>> {
  const response = await call(method, path, body, headers);
  const text = await response.text();
  const value = (text ? parse(text) : null) as T;
  return { value, status: response.status, replayed: response.headers.get("Idempotent-Replayed") === "true" };
}

async function call(method: string, path: string, body: Body | undefined, headers: Record<string, string>, abort?: AbortSignal): Promise<Response> {
  const sent: Record<string, string> = { Accept: "application/json", ...headers };
  if (method !== "GET") sent["X-Onward"] = "1";
  if (body) sent["Content-Type"] = "application/json";
  let response: Response;
  try {
    response = await fetch(apiUrl(path), { method, headers: sent, body: body ? bodyText(body) : null, credentials: "same-origin", cache: "no-store", signal: abort ?? null });
  } catch (error) {
    if (abort?.aborted) throw error;
    throw new ApiError(0, { code: "unreachable", detail: "The server cannot be reached." });
  }
  if (response.ok) return response;
  if (response.status === 401 && path !== "session") loginNeeded.value = true;
  throw new ApiError(response.status, await problemOf(response));
}

async function problemOf(response: Response): Promise<Problem> {
  try {
    return (await response.json()) as Problem;
  } catch {
    return {};
  }
}

/** A body as text; what was typed as JSON goes in unchanged. */
export function bodyText(body: Body): string {
  const parts: string[] = [];
  for (const [name, value] of Object.entries(body)) {
    if (value === undefined) continue;
    parts.push(`${JSON.stringify(name)}:${value instanceof RawJson ? value.text : write(value)}`);
  }
  return `{${parts.join(",")}}`;
}

/** A name for one request, made before it is sent, so that whoever repeats it changes nothing. */
export const requestKey = (): string => `dashboard-${Date.now().toString(36)}-${Math.random().toString(36).slice(2, 10)}`;

/** A query without the parts that are empty. */
export function query(parts: Record<string, string | number | null | undefined>): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(parts)) {
    if (value !== undefined && value !== null && value !== "") search.set(name, String(value));
  }
  const text = search.toString();
  return text ? `?${text}` : "";
}
