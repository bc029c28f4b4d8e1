// Runs that wait: for a signal, which can be answered here, for a time, or for another run.
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { get, query, RawJson, requestKey, send } from "../api/client";
import { SLOW_MS } from "../api/resource";
import type { RunAnswer, RunRow, Waits } from "../api/types";
import { cli, curl } from "../format/command";
import { many, shortId } from "../format/number";
import { sayStep } from "../format/step";
import { changedHere } from "../live/live";
import { Same } from "../parts/ask";
import { Action, Button } from "../parts/button";
import { Dialog } from "../parts/dialog";
import { useSending } from "../parts/form";
import { Icon, type IconName } from "../parts/icon";
import { JsonField, jsonText, jsonTrouble } from "../parts/json-field";
import { Empty, Loaded, PageFrame } from "../parts/page";
import { usePages } from "../parts/pager";
import { Table } from "../parts/table";
import { Ago } from "../parts/time";
import { toast } from "../parts/toast";
import { Link, param, patchSearch } from "../route/place";
import { to } from "../route/route";

const KINDS = [["", "Everything"], ["signal", "Signals"], ["timer", "Timers"], ["retry", "Retries"], ["child", "Children"], ["stuck", "Stuck"]] as const;
const WHAT: Record<string, string> = { signal: "a signal", timer: "a timer", retry: "the next try of a step", child: "the end of a child", stuck: "an operator" };
const ICON: Record<string, IconName> = { signal: "signal", timer: "clock", retry: "retry", child: "workflows", key: "keys", stuck: "warning", start: "clock", behind: "queues", backoff: "retry" };

export function WaitingPage(): JSX.Element {
  const kind = param("for");
  // What one kind is found among many runs for costs the server more than a page.
  const pages = usePages<RunRow>(`waiting${query({ for: kind, limit: 100 })}`, ["runs"], (run) => run.id, kind ? { gap: SLOW_MS, words: "Look further" } : {});
  const [answering, setAnswering] = useState<RunRow | null>(null);
  const wanted = param("run");
  useEffect(() => {
    if (wanted) void get<RunAnswer>(to("runs", wanted)).then((found) => found.run.waits_for?.for === "signal" && setAnswering(found.run)).catch(() => null);
  }, [wanted]);
  const { rows } = pages;
  return (
    <PageFrame title="Waiting" about="A waiting run costs a row and nothing else. A signal can be answered from here.">
      <div class="chips" role="group" aria-label="What is waited for">
        {KINDS.map(([value, name]) => <button key={value} type="button" class="chip" aria-pressed={kind === value} onClick={() => patchSearch({ for: value })}>{name}</button>)}
      </div>
      <Loaded from={pages.first}>
        {() => rows.length === 0 && pages.more ? (
          <Empty icon="search" title="Nothing so far"><p>None of the newest {many(pages.looked, "waiting run")} waits for {WHAT[kind] ?? kind}.</p>{pages.more}</Empty>
        ) : rows.length === 0 ? (
          <Empty icon="waiting" title={kind ? `Nothing waits for ${WHAT[kind] ?? kind}` : "Nothing waits"}><p>A workflow that waits for a person asks for a signal:</p><pre>{'let approved: bool = ctx.signal("approved").await?;'}</pre><p>It then shows up here, and costs nothing until somebody answers.</p></Empty>
        ) : (
          <>
            <Table label="Waiting runs" rows={rows} rowKey={(run) => run.id} columns={[
              { name: "waits for", cell: (run) => <WaitsFor waits={run.waits_for} /> },
              { name: "run", grow: true, cell: (run) => <span class="main-cell"><Link data-row href={to("runs", run.id)}>{run.workflow}</Link><span class="sub shown cut">{run.key ?? run.id}</span></span> },
              { name: "until", number: true, weight: 2, cell: (run) => (run.due_at ? <Ago at={run.due_at} /> : <span class="faint">no limit</span>) },
              { name: "created", number: true, weight: 2, cell: (run) => <Ago at={run.created_at} /> },
              { name: "actions", cell: (run) => (run.waits_for?.for === "signal" ? <Action icon="signal" onClick={() => setAnswering(run)}>Answer…</Action> : null) },
            ]} />
            {kind && pages.more ? <p class="faint pad">Found among the newest {many(pages.looked, "waiting run")}; there are more.</p> : null}
            {pages.more}
          </>
        )}
      </Loaded>
      {answering ? <AnswerForm run={answering} onClose={() => { setAnswering(null); patchSearch({ run: null }); }} /> : null}
    </PageFrame>
  );
}

function WaitsFor({ waits }: { waits: Waits | null }): JSX.Element {
  if (!waits) return <span class="faint">–</span>;
  const what = waits.name ?? (waits.step ? sayStep(waits.step) : undefined) ?? waits.key ?? waits.code ?? (waits.run ? shortId(waits.run) : "");
  return <span class={`state ${waits.for === "stuck" ? "state-failed" : "state-waiting"}`}><Icon name={ICON[waits.for] ?? "clock"} /><span class="main-cell">{waits.for}{what ? <span class="ink cut small">{what}</span> : null}</span></span>;
}

/** Answers a signal. The page makes the key, so that a second press of the button changes nothing. */
function AnswerForm({ run, onClose }: { run: RunRow; onClose: () => void }): JSX.Element {
  const name = run.waits_for?.name ?? "";
  const [value, setValue] = useState("true");
  const [key] = useState(requestKey);
  const path = `runs/${run.id}/signals`;
  const { act, busy, error } = useSending(async () => {
    await send("POST", path, { name, value: new RawJson(jsonText(value)), key });
    toast(`Sent ${name}.`, "info", to("runs", run.id));
    changedHere("runs", `run:${run.id}`);
    onClose();
  });
  return (
    <Dialog title={`Answer ${name}`} onClose={onClose}>
      <form onSubmit={act}>
        <div class="dialog-body">
          <p><b>{run.workflow}</b> <code>{run.key ?? run.id}</code> waits for the signal <b>{name}</b>, created <Ago at={run.created_at} />.</p>
          <div class="row tight">{["true", "false", "null"].map((quick) => <Button key={quick} onClick={() => setValue(quick)} pressed={value === quick}>{quick}</Button>)}</div>
          <JsonField label="Value, as JSON" value={value} onInput={setValue} rows={4} />
          {error ? <p class="problem" role="alert">{error}</p> : null}
          {jsonTrouble(value) ? null : <Same cli={cli("onward", "signals", "send", run.id, name, jsonText(value))} curl={curl("POST", path, `{"name":${JSON.stringify(name)},"value":${jsonText(value)}}`)} />}
        </div>
        <footer class="dialog-foot"><Button onClick={onClose}>Not now</Button><Action type="submit" kind="primary" disabled={busy ?? jsonTrouble(value)}>Send</Action></footer>
      </form>
    </Dialog>
  );
}
