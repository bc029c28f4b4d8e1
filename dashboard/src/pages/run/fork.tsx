// A new run from a step of this one, with the records before it, and perhaps another input.
import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { RawJson, requestKey, send } from "../../api/client";
import { write } from "../../api/json";
import { refused } from "../../actions";
import type { Run } from "../../api/types";
import { cli, curl } from "../../format/command";
import { changedHere } from "../../live/live";
import { Same } from "../../parts/ask";
import { Action, Button } from "../../parts/button";
import { Dialog } from "../../parts/dialog";
import { useSending } from "../../parts/form";
import { JsonField, jsonText, jsonTrouble } from "../../parts/json-field";
import { toast } from "../../parts/toast";
import { go } from "../../route/place";
import { to } from "../../route/route";
import { asStored } from "../../session";

const asked = signal<{ run: Run; steps: string[]; step: string } | null>(null);

export function askFork(run: Run, steps: string[], step = ""): void {
  if (refused("operate")) return;
  asked.value = { run, steps, step };
}

export function ForkHost(): JSX.Element | null {
  const now = asked.value;
  return now ? <Fork {...now} onClose={() => (asked.value = null)} /> : null;
}

function Fork({ run, steps, step, onClose }: { run: Run; steps: string[]; step: string; onClose: () => void }): JSX.Element {
  // What is not shown as it was stored is not sent: left empty, it stays that of this run.
  const before = run.input === undefined || !asStored.value ? "" : write(run.input, 2);
  const [from, setFrom] = useState(step || steps[0] || "");
  const [input, setInput] = useState(before);
  const [key, setKey] = useState("");
  const [made] = useState(requestKey);
  const changed = input.trim() !== before;
  const body = { from_step: from, ...(changed ? { input: new RawJson(jsonText(input)) } : {}), ...(key ? { key } : {}) };
  const shown = `{"from_step":${JSON.stringify(from)}${changed ? `,"input":${jsonText(input)}` : ""}${key ? `,"key":${JSON.stringify(key)}` : ""}}`;
  const { act, busy, error } = useSending(async () => {
    // One that was typed is refused where it is in use; the other only names the request.
    const { value } = await send<{ run: Run }>("POST", `runs/${run.id}/fork`, body, key ? {} : { "Idempotency-Key": made });
    onClose();
    toast("Forked.", "info");
    changedHere();
    go(to("runs", value.run.id));
  });
  return (
    <Dialog title="Fork this run" onClose={onClose} wide>
      <form onSubmit={act}>
        <div class="dialog-body">
          <p>A new run begins with what this one recorded before the step, and executes from the step on. This run stays as it is.</p>
          <label class="field">From step
            <input list="fork-steps" value={from} required onInput={(event) => setFrom(event.currentTarget.value)} />
            <datalist id="fork-steps">{steps.slice(0, 500).map((name) => <option key={name} value={name} />)}</datalist>
          </label>
          <JsonField label={asStored.value ? "Input" : "Input; that of this run, which this server does not show, where it is left empty"} value={input} onInput={setInput} rows={8} />
          <label class="field">Key <span class="faint">(may be left out)</span><input value={key} onInput={(event) => setKey(event.currentTarget.value)} /></label>
          {error ? <p class="problem" role="alert">{error}</p> : null}
          {jsonTrouble(input) ? null : <Same cli={cli("onward", "runs", "fork", run.id, "--from", from, ...(changed ? ["--input", jsonText(input)] : []), ...(key ? ["--key", key] : []))} curl={curl("POST", `runs/${run.id}/fork`, shown)} />}
        </div>
        <footer class="dialog-foot">
          <Button onClick={onClose}>Keep as it is</Button>
          <Action type="submit" kind="primary" disabled={busy ?? jsonTrouble(input)}>Fork</Action>
        </footer>
      </form>
    </Dialog>
  );
}
