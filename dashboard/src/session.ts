// Who is looking: what the server says about itself and about this user's role.
import { computed, signal } from "@preact/signals";
import { ApiError, get, loginNeeded, send } from "./api/client";
import { forgetAll } from "./api/resource";
import type { Meta, Role } from "./api/types";
import { changedHere } from "./live/live";

export const meta = signal<Meta | null>(null);
/** How far the server's clock is ahead of this one. */
export const clockOffset = signal(0);

const RANK: Record<Role, number> = { read: 0, operate: 1, admin: 2 };
export const role = computed<Role>(() => meta.value?.role ?? "admin");
/** Whether payloads are shown as they were stored, so that one may be sent again. */
export const asStored = computed(() => !meta.value?.hide_payloads && !meta.value?.redacts_payloads);
export const readOnly = computed(() => meta.value?.read_only === true || role.value === "read");

/** Why an action is not this user's to take, or `null` where it is. */
export function denied(need: Role): string | null {
  if (meta.value?.read_only) return "This server is read-only: it was started so that nothing can be changed through it.";
  if (RANK[role.value] >= RANK[need]) return null;
  return `Your role is “${role.value}”; this needs “${need}”. Log in with a token of that role.`;
}

/** Asks the server about itself; tries again until it answers. */
export async function loadMeta(): Promise<void> {
  try {
    const before = Date.now();
    const found = await get<Meta>("meta");
    clockOffset.value = found.now - (before + Date.now()) / 2;
    meta.value = found;
    loginNeeded.value = false;
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) return;
    setTimeout(() => void loadMeta(), 2000);
  }
}

export async function logIn(token: string): Promise<void> {
  await send("POST", "session", { token });
  forgetAll();
  await loadMeta();
  changedHere();
}

export async function logOut(): Promise<void> {
  await send("DELETE", "session");
  forgetAll();
  meta.value = null;
  loginNeeded.value = true;
}
