// From an address to a page and back. Pure: no window, no history.

export interface Route {
  page: PageName;
  /** The run, workflow, schedule or key that the page is about. */
  id: string;
  /** The second part, where the page needs two: the key of a workflow. */
  more: string;
}

export type PageName =
  | "overview" | "runs" | "run" | "workflows" | "workflow" | "queues" | "workers" | "schedules" | "schedule"
  | "keys" | "key" | "step-key" | "errors" | "waiting" | "operations" | "audit" | "missing";

const LISTS = new Set<string>(["runs", "workflows", "queues", "workers", "schedules", "keys", "errors", "waiting", "operations", "audit"]);
const ONE: Record<string, PageName> = { runs: "run", workflows: "workflow", schedules: "schedule", "step-keys": "step-key" };

/** The page of a path below the mount path. */
export function match(path: string): Route {
  const parts = path.split("/").filter(Boolean).map(decode);
  const [first, id = "", more = ""] = parts;
  const at = (page: PageName): Route => ({ page, id, more });
  if (first === undefined) return at("overview");
  if (parts.length === 1 && LISTS.has(first)) return at(first as PageName);
  if (parts.length === 2 && ONE[first]) return at(ONE[first]);
  if (parts.length === 3 && first === "keys") return at("key");
  return at("missing");
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** A path of parts, each escaped. */
export function to(...parts: string[]): string {
  return parts.map(encodeURIComponent).join("/");
}
