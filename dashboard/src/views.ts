// Views of the list of runs that somebody keeps under a name, in this browser. A view is an address, so
// that a link to it shows others the same.
import { signal } from "@preact/signals";

export interface View {
  name: string;
  /** The query of the address: filter and columns. */
  query: string;
}

const NAME = "onward.views";
/** Views that are kept: more than fit a line are no help. */
export const VIEWS_MAX = 20;
/** Characters of a name. */
export const VIEW_NAME_MAX = 40;

/** The views of a stored text; nothing of what is not one. */
export function readViews(text: string | null): View[] {
  try {
    const found: unknown = JSON.parse(text ?? "[]");
    if (!Array.isArray(found)) return [];
    const one = (view: unknown): view is View => typeof (view as View)?.name === "string" && typeof (view as View)?.query === "string";
    return found.filter(one).slice(0, VIEWS_MAX);
  } catch {
    return [];
  }
}

/** With this view last, in place of one of the same name; without the oldest where there are too many. */
export function withView(views: View[], view: View): View[] {
  const name = view.name.trim().slice(0, VIEW_NAME_MAX);
  if (!name) return views;
  return [...views.filter((one) => one.name !== name), { name, query: view.query }].slice(-VIEWS_MAX);
}

function stored(): View[] {
  try {
    return readViews(localStorage.getItem(NAME));
  } catch {
    return [];
  }
}

export const views = signal<View[]>(stored());

/** Keeps these from here on. */
function keep(next: View[]): void {
  views.value = next;
  try {
    localStorage.setItem(NAME, JSON.stringify(next));
  } catch {
    // A browser without storage forgets them on reload.
  }
}

export const saveView = (view: View): void => keep(withView(views.peek(), view));
export const dropView = (name: string): void => keep(views.peek().filter((view) => view.name !== name));
