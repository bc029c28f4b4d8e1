// One step of a run: its tries, and what each of them gave.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { useResource } from "../../api/resource";
import type { Failure, HistoryRecord, Run, TimelineAnswer } from "../../api/types";
import type { Json } from "../../api/json";
import { sayStep, stepName } from "../../format/step";
import { clock, duration } from "../../format/time";
import { Action } from "../../parts/button";
import { CopyButton } from "../../parts/copy";
import { Icon } from "../../parts/icon";
import { Payload } from "../../parts/json-view";
import { Loaded } from "../../parts/page";
import { Link } from "../../route/place";
import { to } from "../../route/route";
import { baseName } from "../../timeline/layout";
import { askFork } from "./fork";

/** Tries that are listed; a step that needs more has told its story. */
const TRIES_SHOWN = 200;

interface Row {
  seq: number;
  kind: string;
  tries: number;
  attempt: number;
  from: number;
  to: number;
}

function rowsOf(answer: TimelineAnswer, step: string): Row[] {
  const { rows } = answer;
  const exact = answer.steps.indexOf(step);
  const wanted = new Set(exact >= 0 ? [exact] : answer.steps.flatMap((name, i) => (baseName(name) === step ? [i] : [])));
  const found: Row[] = [];
  for (let i = 0; i < rows.seq.length && found.length < TRIES_SHOWN; i++) {
    if (!wanted.has(rows.step[i] as number)) continue;
    found.push({ seq: rows.seq[i] as number, kind: rows.kind[i] as string, tries: rows.try[i] as number, attempt: rows.attempt[i] as number, from: rows.began_at[i] as number, to: rows.at[i] as number });
  }
  return found;
}

export function StepPanel({ run, answer, step, onClose }: { run: Run; answer: TimelineAnswer; step: string; onClose: () => void }): JSX.Element {
  const rows = rowsOf(answer, step);
  const [open, setOpen] = useState<number | null>(null);
  const shown = open !== null && rows.some((row) => row.seq === open) ? open : rows[rows.length - 1]?.seq ?? null;
  const { key } = stepName(step);
  const id = key ? `key/${key}` : `${run.id}/${step}`;
  return (
    <aside class="side" aria-label={`Step ${sayStep(step)}`}>
      <header class="side-head">
        <h2 class="cut" title={step}>{sayStep(step)}</h2>
        <button type="button" class="icon-button" aria-label="Close the step" onClick={onClose}><Icon name="close" /></button>
      </header>
      <p class="faint small row tight"><span class="cut" title="The idempotency key that the step hands to others">{id}</span><CopyButton text={id} what="the step's id" /></p>
      {stepName(step).key ? <p>Once over all runs, by the key <Link href={to("step-keys", stepName(step).key)}>{stepName(step).key}</Link></p> : null}
      {rows.length === 0 ? <p class="faint">Nothing is recorded for it yet.</p> : (
        <table class="table tight">
          <thead><tr><th scope="col">try</th><th scope="col">result</th><th scope="col" class="num">began</th><th scope="col" class="num">took</th></tr></thead>
          <tbody>
            {rows.map((row) => (
              <tr key={row.seq} class={row.seq === shown ? "chosen" : ""}>
                <td class="num"><button type="button" class="link" aria-label={`Try ${row.tries}`} onClick={() => setOpen(row.seq)}>{row.tries}</button></td>
                <td><Outcome kind={row.kind} /></td>
                <td class="num">{clock(row.from)}</td>
                <td class="num">{duration(row.to - row.from)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {shown !== null ? <RecordView run={run.id} seq={shown} /> : null}
      <Action icon="fork" onClick={() => askFork(run, answer.steps, step)}>Fork from here…</Action>
    </aside>
  );
}

export function Outcome({ kind }: { kind: string }): JSX.Element {
  const failed = kind === "failed" || kind === "try_failed";
  const words: Record<string, string> = { done: "done", failed: "failed for good", try_failed: "failed", began: "began", fired: "timer fired", arrived: "signal came" };
  return <span class={`state ${failed ? "state-failed" : kind === "done" ? "state-completed" : "state-waiting"}`}><Icon name={failed ? "cross" : kind === "done" ? "check" : "clock"} />{words[kind] ?? kind}</span>;
}

function RecordView({ run, seq }: { run: string; seq: number }): JSX.Element {
  const record = useResource<HistoryRecord>(`runs/${run}/records/${seq}`, { exact: true });
  return <Loaded from={record}>{(data) => <EntryView record={data} />}</Loaded>;
}

export function EntryView({ record }: { record: HistoryRecord }): JSX.Element | null {
  const { kind, value } = record.entry;
  if (kind === "done" || kind === "arrived") return <Payload title={kind === "done" ? "Result" : "Value"} value={value} />;
  const failure = failureOf(kind, value);
  return failure ? <FailureView failure={failure} /> : null;
}

export function failureOf(kind: string, value: Json | undefined): Failure | null {
  const inner = kind === "try_failed" ? (value as { failure?: unknown } | undefined)?.failure : kind === "failed" ? value : null;
  return (inner as Failure | null | undefined) ?? null;
}

export function FailureView({ failure }: { failure: Failure }): JSX.Element {
  return (
    <div class="failure">
      <p class="row tight wrap"><code>{failure.code}</code>{failure.retryable ? <span class="faint">worth another try</span> : <span class="faint">not worth another try</span>}<span class="spring" /><CopyButton text={failure.message} what="the message" /></p>
      <pre tabIndex={0} aria-label="Message">{failure.message}</pre>
      {failure.details !== undefined ? <Payload title="Details" value={failure.details} /> : null}
    </div>
  );
}
