// The records of a run, in order.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { HistoryRecord, Run } from "../../api/types";
import { sayStep } from "../../format/step";
import { clock, duration } from "../../format/time";
import { Loaded } from "../../parts/page";
import { usePages } from "../../parts/pager";
import { useResource } from "../../api/resource";
import { EntryView, Outcome } from "./step";

export function HistoryTab({ run }: { run: Run }): JSX.Element {
  const pages = usePages<HistoryRecord>(`runs/${run.id}/history?limit=100`, [`run:${run.id}`], (record) => String(record.seq));
  const [open, setOpen] = useState<number | null>(null);
  return (
    <Loaded from={pages.first}>
      {() => (
        <>
          <div class="table-wrap" role="region" aria-label="History" tabIndex={0}>
            <table class="table">
              <thead><tr><th scope="col" class="num">seq</th><th scope="col">step</th><th scope="col">what</th><th scope="col" class="num">try</th><th scope="col" class="num w2">attempt</th><th scope="col" class="num w2">at</th><th scope="col" class="num">took</th></tr></thead>
              <tbody>
                {pages.rows.map((record) => (
                  <Row key={record.seq} run={run.id} record={record} open={open === record.seq} toggle={() => setOpen(open === record.seq ? null : record.seq)} />
                ))}
              </tbody>
            </table>
          </div>
          {pages.rows.length === 0 ? <p class="faint pad">Nothing is recorded yet.</p> : null}
          {pages.more}
        </>
      )}
    </Loaded>
  );
}

function Row({ run, record, open, toggle }: { run: string; record: HistoryRecord; open: boolean; toggle: () => void }): JSX.Element {
  return (
    <>
      <tr class={record.voided_at ? "voided" : ""}>
        <td class="num">{record.seq}</td>
        <td class="grow"><button type="button" data-row class="link" aria-expanded={open} onClick={toggle}>{sayStep(record.step)}</button>{record.voided_at ? <span class="mark" title="A retry of the run took it out of the history">voided</span> : null}</td>
        <td><Outcome kind={record.entry.kind} /></td>
        <td class="num">{record.try_number}</td>
        <td class="num w2">{record.attempt}</td>
        <td class="num w2">{clock(record.at)}</td>
        <td class="num">{duration(record.at - record.began_at)}</td>
      </tr>
      {open ? <tr><td colSpan={7}><Whole run={run} seq={record.seq} /></td></tr> : null}
    </>
  );
}

function Whole({ run, seq }: { run: string; seq: number }): JSX.Element {
  const record = useResource<HistoryRecord>(`runs/${run}/records/${seq}`, { exact: true });
  return <Loaded from={record}>{(data) => <EntryView record={data} />}</Loaded>;
}
