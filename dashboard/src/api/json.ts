// Reads and writes JSON without changing a number. A number that JavaScript cannot hold exactly,
// or would write differently, is kept as its own text.

/** A number as it stands in the text. */
export class Exact {
  readonly text: string;
  constructor(text: string) {
    this.text = text;
  }
  toString(): string {
    return this.text;
  }
  valueOf(): number {
    return Number(this.text);
  }
}

export type Json = null | boolean | number | string | Exact | Json[] | { [key: string]: Json };

/** Text that is no JSON, with the place where that shows. */
export class JsonError extends Error {
  readonly at: number;
  readonly line: number;
  readonly column: number;
  constructor(what: string, text: string, at: number) {
    const before = text.slice(0, at).split("\n");
    const line = before.length;
    const column = (before[before.length - 1] ?? "").length + 1;
    super(`${what}, at line ${line}, column ${column}`);
    this.at = at;
    this.line = line;
    this.column = column;
  }
}

/** Deeper values are refused, so that a hostile payload cannot exhaust the stack. */
const DEPTH_MAX = 1000;

const NUMBER = /-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?/y;
const SPACE = /[ \t\n\r]*/y;
const PLAIN = /[^"\\\u0000-\u001f]*/y;
const ESCAPES: Record<string, string> = {
  '"': '"', "\\": "\\", "/": "/", b: "\b", f: "\f", n: "\n", r: "\r", t: "\t",
};

class Reader {
  private at = 0;
  private depth = 0;
  constructor(private readonly text: string) {}

  whole(): Json {
    const value = this.value();
    this.space();
    if (this.at < this.text.length) this.fail("There is more after the value");
    return value;
  }

  private value(): Json {
    this.space();
    const c = this.text[this.at];
    if (c === "{") return this.deeper(() => this.object());
    if (c === "[") return this.deeper(() => this.array());
    if (c === '"') return this.string();
    if (c === "t") return this.word("true", true);
    if (c === "f") return this.word("false", false);
    if (c === "n") return this.word("null", null);
    if (c === undefined) this.fail("The text ends where a value should be");
    return this.number();
  }

  private deeper<T>(read: () => T): T {
    if (++this.depth > DEPTH_MAX) this.fail(`The value is nested deeper than ${DEPTH_MAX}`);
    const value = read();
    this.depth--;
    return value;
  }

  private object(): Json {
    const object: { [key: string]: Json } = {};
    this.at++;
    this.space();
    if (this.take("}")) return object;
    for (;;) {
      this.space();
      if (this.text[this.at] !== '"') this.fail("A name in quotes should be here");
      const name = this.string();
      this.space();
      if (!this.take(":")) this.fail("A colon should be here");
      const value = this.value();
      // Not by assignment: that would change the prototype for the name __proto__.
      Object.defineProperty(object, name, { value, writable: true, enumerable: true, configurable: true });
      this.space();
      if (this.take("}")) return object;
      if (!this.take(",")) this.fail("A comma or } should be here");
    }
  }

  private array(): Json {
    const array: Json[] = [];
    this.at++;
    this.space();
    if (this.take("]")) return array;
    for (;;) {
      array.push(this.value());
      this.space();
      if (this.take("]")) return array;
      if (!this.take(",")) this.fail("A comma or ] should be here");
    }
  }

  private string(): string {
    let text = "";
    this.at++;
    for (;;) {
      text += this.match(PLAIN);
      const c = this.text[this.at];
      if (c === '"') {
        this.at++;
        return text;
      }
      if (c !== "\\") this.fail(c === undefined ? "The text ends inside a string" : "A control character must be escaped");
      text += this.escape();
    }
  }

  private escape(): string {
    const c = this.text[this.at + 1] ?? "";
    if (c === "u") {
      const hex = this.text.slice(this.at + 2, this.at + 6);
      if (!/^[0-9a-fA-F]{4}$/.test(hex)) this.fail("Four hexadecimal digits should follow \\u");
      this.at += 6;
      return String.fromCharCode(parseInt(hex, 16));
    }
    const known = ESCAPES[c];
    if (known === undefined) this.fail("There is no such escape");
    this.at += 2;
    return known as string;
  }

  private number(): number | Exact {
    const text = this.match(NUMBER);
    if (text === "") this.fail("A value should be here");
    return numberOf(text);
  }

  private word<T>(word: string, value: T): T {
    if (!this.text.startsWith(word, this.at)) this.fail("A value should be here");
    this.at += word.length;
    return value;
  }

  private take(c: string): boolean {
    if (this.text[this.at] !== c) return false;
    this.at++;
    return true;
  }

  private space(): void {
    this.match(SPACE);
  }

  private match(pattern: RegExp): string {
    pattern.lastIndex = this.at;
    const found = pattern.exec(this.text)?.[0] ?? "";
    this.at += found.length;
    return found;
  }

  private fail(what: string): never {
    throw new JsonError(what, this.text, this.at);
  }
}

/** The number, where JavaScript would write it back as it was; else its text. */
export function numberOf(text: string): number | Exact {
  const number = Number(text);
  return String(number) === text ? number : new Exact(text);
}

/** Reads JSON; throws a `JsonError` that says where it is wrong. */
export function parse(text: string): Json {
  return new Reader(text).whole();
}

/** Writes JSON: every number as it was read. */
export function write(value: Json, indent = 0): string {
  return writeAt(value, indent, "");
}

function writeAt(value: Json, indent: number, before: string): string {
  if (value instanceof Exact) return value.text;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  const list = Array.isArray(value);
  const inner = before + " ".repeat(indent);
  const parts = list
    ? value.map((item) => writeAt(item, indent, inner))
    : Object.entries(value).map(([name, item]) => `${JSON.stringify(name)}:${indent ? " " : ""}${writeAt(item, indent, inner)}`);
  const [open, close] = list ? "[]" : "{}";
  if (parts.length === 0) return `${open}${close}`;
  if (!indent) return `${open}${parts.join(",")}${close}`;
  return `${open}\n${parts.map((part) => inner + part).join(",\n")}\n${before}${close}`;
}

/** Whether a number in the text would lose digits in JavaScript: a fraction or an integer. */
export function isLarge(value: Exact): boolean {
  return /^-?[0-9]+$/.test(value.text) && !Number.isSafeInteger(Number(value.text));
}
