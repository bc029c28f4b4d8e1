// The name of a step as its author wrote it, from the id under which it is recorded.

export interface StepName {
  kind: "step" | "timer" | "signal" | "child" | "engine";
  /** What people call it. */
  name: string;
  /** Its number among those of its name, or its explicit id; empty for the first. */
  number: string;
  /** Its key over all runs, if it has one. */
  key: string;
}

/** The engine's own steps, by how they begin. */
const OWN: [start: string, kind: StepName["kind"], say: (rest: string) => string][] = [
  ["$signal/", "signal", (rest) => rest],
  ["$timeout/", "timer", (rest) => `time limit of ${rest}`],
  ["$child/", "child", (rest) => rest],
  ["$callback", "signal", (rest) => `callback ${rest.replace("/", "")}`],
  ["$sleep", "timer", () => "sleep"],
  ["$continue", "engine", () => "continue"],
];

/** Reads a step's id. */
export function stepName(id: string): StepName {
  const [base = "", key = ""] = split(id, "#@");
  const [raw = "", number = ""] = split(base, "#");
  const shown = { number: unescape(number.replace(/^=/, "")), key: unescape(key) };
  if (!raw.startsWith("$")) return { kind: "step", name: unescape(raw), ...shown };
  for (const [start, kind, say] of OWN) {
    if (!raw.startsWith(start)) continue;
    const rest = unescape(raw.slice(start.length));
    // The end of a child or a callback comes as a signal of the engine's own name.
    return rest.startsWith("$") ? { ...stepName(rest), ...shown } : { kind, name: say(rest).trim(), ...shown };
  }
  return { kind: "engine", name: raw.slice(1), ...shown };
}

/** The name with its number, in one line. */
export function sayStep(id: string): string {
  const { kind, name, number } = stepName(id);
  const said = kind === "child" ? `child ${name}` : name;
  return number && number !== "1" ? `${said} #${number}` : said;
}

function split(text: string, mark: string): string[] {
  const at = text.indexOf(mark);
  return at < 0 ? [text] : [text.slice(0, at), text.slice(at + mark.length)];
}

function unescape(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
