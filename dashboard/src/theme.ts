// Light or dark: as the system says, unless the user chose.
import { effect, signal } from "@preact/signals";

export type Theme = "auto" | "light" | "dark";
const NAME = "onward.theme";

function stored(): Theme {
  try {
    const theme = localStorage.getItem(NAME);
    return theme === "light" || theme === "dark" ? theme : "auto";
  } catch {
    return "auto";
  }
}

export const theme = signal<Theme>(stored());

effect(() => {
  document.documentElement.dataset["theme"] = theme.value;
  try {
    localStorage.setItem(NAME, theme.value);
  } catch {
    // A browser without storage forgets it on reload.
  }
});

const isDark = (): boolean => theme.peek() === "dark" || (theme.peek() === "auto" && matchMedia("(prefers-color-scheme: dark)").matches);

/** To the other one. */
export function toggleTheme(): void {
  theme.value = isDark() ? "light" : "dark";
}
