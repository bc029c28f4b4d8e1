// Starts a run: its input, and the options that a start takes.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { bodyText, RawJson, requestKey, send, type Body } from "../../api/client";
import type { Run } from "../../api/types";
import { cli, curl } from "../../format/command";
import { changedHere } from "../../live/live";
import { Same } from "../../parts/ask";
import { Action, Button } from "../../parts/button";
import { Dialog } from "../../parts/dialog";
import { useSending } from "../../parts/form";
import { Icon } from "../../parts/icon";
import { JsonField, jsonText, jsonTrouble } from "../../parts/json-field";
import { toast } from "../../parts/toast";
import { go } from "../../route/place";
import { to } from "../../route/route";

export interface Fields {
  workflow: string;
  input: string;
  key: string;
  queue: string;
  priority: string;
  delay: string;
  conflict: string;
  tags: string;
}

const FRESH: Fields = { workflow: "", input: "", key: "", queue: "", priority: "", delay: "", conflict: "", tags: "" };

function bodyOf(fields: Fields): Body {
  const tags: Record<string, string> = {};
  for (const [, name, value] of fields.tags.matchAll(/([^\s=:]+)[=:](\S+)/g)) tags[name as string] = value as string;
  return {
    input: new RawJson(jsonText(fields.input)),
    queue: fields.queue || undefined,
    priority: fields.priority ? Number(fields.priority) : undefined,
    delay_ms: fields.delay ? Math.round(Number(fields.delay) * 1000) : undefined,
    on_conflict: fields.conflict || undefined,
    tags: Object.keys(tags).length ? tags : undefined,
  };
}

function cliOf(fields: Fields): string {
  const words = ["onward", "start", fields.workflow, "--input", jsonText(fields.input)];
  if (fields.key) words.push("--key", fields.key);
  if (fields.queue) words.push("--queue", fields.queue);
  if (fields.priority) words.push("--priority", fields.priority);
  if (fields.delay) words.push("--delay", `${fields.delay}s`);
  if (fields.conflict) words.push("--on-conflict", fields.conflict.replace("_", "-"));
  for (const [, name, value] of fields.tags.matchAll(/([^\s=:]+)[=:](\S+)/g)) words.push("--tag", `${name}=${value}`);
  return cli(...words);
}

const keyHeader = (key: string): Record<string, string> => ({ "Idempotency-Key": `"${key.replace(/["\\]/g, "\\$&")}"` });

interface StartProps {
  /** Empty where it is still to be chosen. */
  workflow: string;
  known: string[];
  /** What is filled in at first. */
  like?: Partial<Fields>;
  /** Whether the input of the run that it is like is not shown, so that one must be typed. */
  hidden?: boolean;
  onClose: () => void;
}

export function StartForm({ workflow, known, like, hidden, onClose }: StartProps): JSX.Element {
  const [fields, setFields] = useState<Fields>({ ...FRESH, workflow, ...like });
  // Made with the form, so that a second press of the button starts nothing new.
  const [made] = useState(requestKey);
  const [more, setMore] = useState(!!like?.queue || !!like?.tags);
  const put = (name: keyof Fields) => (event: Event) => setFields({ ...fields, [name]: (event.currentTarget as HTMLInputElement).value });
  const path = `${to("workflows", fields.workflow)}/runs`;
  const headers = fields.key ? keyHeader(fields.key) : {};
  const { act, busy, error } = useSending(async () => {
    const { value, replayed } = await send<{ run: Run }>("POST", path, bodyOf(fields), keyHeader(fields.key || made));
    toast(replayed ? "That key has a run already: here it is." : "Started.");
    changedHere();
    onClose();
    go(to("runs", value.run.id));
  });
  const untyped = hidden && fields.input.trim() === "" ? "Type an input first" : null;
  return (
    <Dialog title={workflow ? `Start ${workflow}` : "Start a run"} onClose={onClose} wide>
      <form onSubmit={act}>
        <div class="dialog-body">
          {hidden ? <p class="notice"><Icon name="info" />This server does not show the input of that run as it was stored: type one.</p> : null}
          {workflow ? null : <label class="field">Workflow<input list="known-workflows" required value={fields.workflow} onInput={put("workflow")} /><datalist id="known-workflows">{known.map((name) => <option key={name} value={name} />)}</datalist></label>}
          <JsonField label="Input, as JSON" value={fields.input} onInput={(input) => setFields({ ...fields, input })} />
          <label class="field">Key <span class="faint">the same key again gives the same run; may be left out</span><input value={fields.key} onInput={put("key")} /></label>
          <button type="button" class="link" aria-expanded={more} onClick={() => setMore(!more)}>{more ? "Fewer options" : "More options"}</button>
          {more ? (
            <div class="fields">
              <label class="field">Queue<input value={fields.queue} placeholder="default" onInput={put("queue")} /></label>
              <label class="field">Priority<input type="number" step="1" value={fields.priority} placeholder="0" onInput={put("priority")} /></label>
              <label class="field">Begins after, in seconds<input type="number" min="0" value={fields.delay} placeholder="0" onInput={put("delay")} /></label>
              <label class="field">If the key is in use<select value={fields.conflict} onChange={put("conflict")}><option value="">take the run that has it</option><option value="reject">refuse</option><option value="retry_failed">retry it if it failed</option><option value="replace">cancel it, then this one</option></select></label>
              <label class="field wide">Tags<input value={fields.tags} placeholder="customer=42 region=eu" onInput={put("tags")} /></label>
            </div>
          ) : null}
          {error ? <p class="problem" role="alert">{error}</p> : null}
          {fields.workflow && !jsonTrouble(fields.input) ? <Same cli={cliOf(fields)} curl={curl("POST", path, bodyText(bodyOf(fields)), headers)} /> : null}
        </div>
        <footer class="dialog-foot">
          <Button onClick={onClose}>Close</Button>
          <Action type="submit" kind="primary" disabled={busy ?? jsonTrouble(fields.input) ?? untyped}>Start</Action>
        </footer>
      </form>
    </Dialog>
  );
}
