// The pages, in the order of the menu, with the key that follows g.
import type { PageName } from "../route/route";
import type { IconName } from "./icon";

export interface NavItem {
  href: string;
  title: string;
  icon: IconName;
  key: string;
  pages: PageName[];
  part: "work" | "system" | "record";
}

export const NAV: NavItem[] = [
  { href: "", title: "Overview", icon: "overview", key: "o", pages: ["overview"], part: "work" },
  { href: "runs", title: "Runs", icon: "runs", key: "r", pages: ["runs", "run"], part: "work" },
  { href: "errors", title: "Errors", icon: "errors", key: "e", pages: ["errors"], part: "work" },
  { href: "waiting", title: "Waiting", icon: "waiting", key: "t", pages: ["waiting"], part: "work" },
  { href: "keys", title: "Keys", icon: "keys", key: "k", pages: ["keys", "key", "step-key"], part: "work" },
  { href: "workflows", title: "Workflows", icon: "workflows", key: "f", pages: ["workflows", "workflow"], part: "system" },
  { href: "schedules", title: "Schedules", icon: "schedules", key: "s", pages: ["schedules", "schedule"], part: "system" },
  { href: "queues", title: "Queues", icon: "queues", key: "q", pages: ["queues"], part: "system" },
  { href: "workers", title: "Workers", icon: "workers", key: "w", pages: ["workers"], part: "system" },
  { href: "operations", title: "Operations", icon: "operations", key: "b", pages: ["operations"], part: "record" },
  { href: "audit", title: "Audit", icon: "audit", key: "a", pages: ["audit"], part: "record" },
];
