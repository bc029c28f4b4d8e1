// The attempts of a run, and every error on the way.
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { getExact } from "../../api/client";
import type { HistoryRecord, Run, TimelineAnswer } from "../../api/types";
import { many } from "../../format/number";
import { sayStep } from "../../format/step";
import { clock, duration } from "../../format/time";
import { Empty, Panel } from "../../parts/page";
import { Table } from "../../parts/table";
import { patchSearch } from "../../route/place";
import { failureOf, FailureView, Outcome } from "./step";

/** Errors whose text is fetched; the newest of them. */
const ERRORS_SHOWN = 30;

interface Attempt {
  number: number;
  from: number;
  to: number;
  records: number;
  failures: number;
}

function attemptsOf({ rows }: TimelineAnswer): Attempt[] {
  const attempts = new Map<number, Attempt>();
  for (let i = 0; i < rows.seq.length; i++) {
    const number = rows.attempt[i] as number;
    const [from, to] = [rows.began_at[i] as number, rows.at[i] as number];
    const one = attempts.get(number) ?? { number, from, to, records: 0, failures: 0 };
    one.from = Math.min(one.from, from);
    one.to = Math.max(one.to, to);
    one.records++;
    if (rows.kind[i] === "failed" || rows.kind[i] === "try_failed") one.failures++;
    attempts.set(number, one);
  }
  return [...attempts.values()].sort((a, b) => a.number - b.number);
}

export function AttemptsTab({ run, answer }: { run: Run; answer: TimelineAnswer }): JSX.Element {
  const attempts = attemptsOf(answer);
  const failed = answer.rows.seq.filter((_, i) => answer.rows.kind[i] === "failed" || answer.rows.kind[i] === "try_failed");
  return (
    <div class="stack">
      <Panel title="Attempts" flush head={<span class="faint">{many(run.attempt, "claim")} in all; those that recorded something are listed</span>}>
        <Table label="Attempts" rows={attempts} rowKey={(one) => String(one.number)} columns={[
          { name: "attempt", number: true, cell: (one) => one.number },
          { name: "first record began", number: true, cell: (one) => clock(one.from) },
          { name: "worked", number: true, cell: (one) => duration(one.to - one.from) },
          { name: "records", number: true, cell: (one) => one.records },
          { name: "failed tries", number: true, cell: (one) => (one.failures ? <b class="bad">{one.failures}</b> : "0") },
        ]} />
      </Panel>
      <Errors run={run} seqs={failed} />
    </div>
  );
}

function Errors({ run, seqs }: { run: Run; seqs: number[] }): JSX.Element {
  const [records, setRecords] = useState<HistoryRecord[]>([]);
  const newest = seqs.slice(-ERRORS_SHOWN).reverse();
  const wanted = newest.join(",");
  useEffect(() => {
    const abort = new AbortController();
    const all = newest.map((seq) => getExact<HistoryRecord>(`runs/${run.id}/records/${seq}`, abort.signal).catch(() => null));
    void Promise.all(all).then((found) => !abort.signal.aborted && setRecords(found.filter((one): one is HistoryRecord => one !== null)));
    return () => abort.abort();
  }, [run.id, wanted]);
  if (seqs.length === 0) return <Empty icon="check" title="No try failed" />;
  return (
    <Panel title="Errors" head={<span class="faint">{seqs.length > ERRORS_SHOWN ? `the newest ${ERRORS_SHOWN} of ${seqs.length}` : many(seqs.length, "failed try", "failed tries")}</span>}>
      <ul class="plain stack">
        {records.map((record) => {
          const failure = failureOf(record.entry.kind, record.entry.value);
          return (
            <li key={record.seq}>
              <div class="row wrap"><button type="button" class="link" onClick={() => patchSearch({ tab: null, step: record.step }, true)}>{sayStep(record.step)}</button><span class="faint num">try {record.try_number} · attempt {record.attempt} · {clock(record.at)}</span><Outcome kind={record.entry.kind} /></div>
              {failure ? <FailureView failure={failure} /> : null}
            </li>
          );
        })}
      </ul>
    </Panel>
  );
}
