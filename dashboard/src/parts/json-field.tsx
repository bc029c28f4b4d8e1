// A field for JSON that says at once where it is wrong, and hands on exactly what was typed.
import type { JSX } from "preact";
import { JsonError, parse } from "../api/json";

/** What is wrong with the text, or `null`. Nothing typed stands for null. */
export function jsonTrouble(text: string): string | null {
  if (text.trim() === "") return null;
  try {
    parse(text);
    return null;
  } catch (error) {
    return error instanceof JsonError ? error.message : String(error);
  }
}

export const jsonText = (text: string): string => (text.trim() === "" ? "null" : text.trim());

export function JsonField({ label, value, onInput, rows = 6 }: { label: string; value: string; onInput: (text: string) => void; rows?: number }): JSX.Element {
  const trouble = jsonTrouble(value);
  return (
    <label class="field">
      {label}
      <textarea class="code" rows={rows} spellcheck={false} value={value} aria-invalid={!!trouble} onInput={(event) => onInput(event.currentTarget.value)} placeholder="null" />
      {trouble ? <span class="problem">{trouble}</span> : null}
    </label>
  );
}
