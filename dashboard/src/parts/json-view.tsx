// A payload as a tree that opens. Every number is shown as it was stored.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { Exact, isLarge, write, type Json } from "../api/json";
import { meta } from "../session";
import { CopyButton } from "./copy";
import { Icon } from "./icon";

/** Children of one value that are shown before the user asks for more. */
const SHOWN = 100;
/** Characters of a text that are shown before the user asks for more. */
const TEXT_SHOWN = 400;
/** Values below this depth begin closed. */
const OPEN_DEPTH = 2;

/** A payload with its title. */
export function Payload({ title, value }: { title: string; value: Json | undefined }): JSX.Element {
  const [raw, setRaw] = useState(false);
  // A hidden payload comes as null, which a payload may also be.
  const hidden = meta.value?.hide_payloads === true;
  if (value === undefined || (hidden && value === null)) {
    return <div class="payload"><h2>{title}</h2><p class="faint">{hidden ? "Payloads are hidden on this server." : "None."}</p></div>;
  }
  const text = write(value, 2);
  return (
    <div class="payload">
      <header>
        <h2>{title}</h2>
        <span class="faint num">{size(text)}</span>
        <span class="spring" />
        <button type="button" class="button quiet" aria-pressed={raw} onClick={() => setRaw(!raw)}>{raw ? "Tree" : "Text"}</button>
        <CopyButton text={text} what={`the ${title.toLowerCase()}`} />
      </header>
      <div class="json" tabIndex={0} role="region" aria-label={title}>{raw ? <pre>{text}</pre> : <Node value={value} depth={0} />}</div>
    </div>
  );
}

function size(text: string): string {
  const bytes = new TextEncoder().encode(text).length;
  return bytes < 1024 ? `${bytes} B` : bytes < 1024 * 1024 ? `${(bytes / 1024).toFixed(1)} KiB` : `${(bytes / 1024 / 1024).toFixed(1)} MiB`;
}

function Node({ value, name, depth }: { value: Json; name?: string; depth: number }): JSX.Element {
  const label = name === undefined ? null : <span class="json-name">{name}: </span>;
  if (value !== null && typeof value === "object" && !(value instanceof Exact)) return <Branch value={value} label={label} depth={depth} />;
  return <div class="json-leaf">{label}<Leaf value={value} /></div>;
}

function Branch({ value, label, depth }: { value: Json[] | { [name: string]: Json }; label: JSX.Element | null; depth: number }): JSX.Element {
  const list = Array.isArray(value);
  const entries: [string, Json][] = list ? value.map((item, i) => [String(i), item]) : Object.entries(value);
  const [open, setOpen] = useState(depth < OPEN_DEPTH && entries.length <= SHOWN);
  const [shown, setShown] = useState(SHOWN);
  if (entries.length === 0) return <div class="json-leaf">{label}{list ? "[]" : "{}"}</div>;
  const said = list ? `[ ${entries.length} ]` : `{ ${entries.slice(0, 4).map(([name]) => name).join(", ")}${entries.length > 4 ? ", …" : ""} }`;
  return (
    <div class="json-branch">
      <button type="button" class="json-toggle" aria-expanded={open} onClick={() => setOpen(!open)}>
        <Icon name={open ? "down" : "right"} />{label}{open ? <span class="faint">{list ? "[" : "{"}</span> : <span class="faint">{said}</span>}
      </button>
      {open ? (
        <div class="json-in">
          {entries.slice(0, shown).map(([key, item]) => <Node key={key} name={key} value={item} depth={depth + 1} />)}
          {entries.length > shown ? <button type="button" class="button quiet" onClick={() => setShown(shown + 10 * SHOWN)}>{entries.length - shown} more</button> : null}
        </div>
      ) : null}
    </div>
  );
}

function Leaf({ value }: { value: null | boolean | number | string | Exact }): JSX.Element {
  if (value instanceof Exact) return <span class="json-number" title={isLarge(value) ? "Beyond 2^53: kept digit for digit" : undefined}>{value.text}</span>;
  if (typeof value === "string") return <Text text={value} />;
  const kind = value === null ? "null" : typeof value;
  return <span class={`json-${kind}`}>{String(value)}</span>;
}

function Text({ text }: { text: string }): JSX.Element {
  const [whole, setWhole] = useState(text.length <= TEXT_SHOWN);
  return (
    <span class="json-string">
      {JSON.stringify(whole ? text : text.slice(0, TEXT_SHOWN)).slice(0, whole ? undefined : -1)}
      {whole ? null : <button type="button" class="button quiet" onClick={() => setWhole(true)}>… {text.length - TEXT_SHOWN} more</button>}
    </span>
  );
}
