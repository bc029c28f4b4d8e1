// Where the user is: the address as signals, and links that change it without a reload.
import { computed, signal } from "@preact/signals";
import type { AnchorHTMLAttributes, ComponentChildren, JSX } from "preact";
import { BASE } from "../base";
import { match, type Route } from "./route";

function read(): { path: string; search: string } {
  const { pathname, search: query } = location;
  // The mount path alone, without the slash at its end, is home.
  const path = `${pathname}/` === BASE ? "" : pathname.startsWith(BASE) ? pathname.slice(BASE.length) : pathname.replace(/^\//, "");
  return { path, search: query.replace(/^\?/, "") };
}

const place = signal(read());
export const route = computed<Route>(() => match(place.value.path));
export const search = computed<string>(() => place.value.search);

addEventListener("popstate", () => (place.value = read()));

/** Goes to a path below the mount path. */
export function go(path: string): void {
  history.pushState(null, "", BASE + path.replace(/^\//, ""));
  place.value = read();
  scrollTo(0, 0);
  document.getElementById("main")?.focus({ preventScroll: true });
}

/** Changes the query in place: `push` where the way back should lead through it. */
export function setSearch(text: string, push = false): void {
  const address = location.pathname + (text ? `?${text}` : "");
  if (push) history.pushState(null, "", address);
  else history.replaceState(null, "", address);
  place.value = read();
}

/** Changes some parts of the query; an empty value takes the part out. */
export function patchSearch(parts: Record<string, string | null>, push = false): void {
  const query = new URLSearchParams(search.peek());
  for (const [name, value] of Object.entries(parts)) {
    if (value === null || value === "") query.delete(name);
    else query.set(name, value);
  }
  setSearch(query.toString().replaceAll("%2C", ",").replaceAll("%3A", ":"), push);
}

/** A part of the query, followed by the component that reads it. */
export const param = (name: string): string => new URLSearchParams(search.value).get(name) ?? "";

interface LinkProps extends Omit<AnchorHTMLAttributes<HTMLAnchorElement>, "href"> {
  href: string;
  children?: ComponentChildren;
  current?: boolean;
}

/** A link to a path below the mount path. */
export function Link({ href, current, children, ...rest }: LinkProps): JSX.Element {
  const follow = (event: MouseEvent): void => {
    if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    go(href);
  };
  return (
    <a href={BASE + href} onClick={follow} aria-current={current ? "page" : undefined} {...(rest as object)}>
      {children}
    </a>
  );
}
