// The signals of a run that nothing in it has taken yet, in the order in which it will.
import type { JSX } from "preact";
import type { Run, Untaken } from "../../api/types";
import { clock } from "../../format/time";
import { Payload } from "../../parts/json-view";
import { Empty, Loaded } from "../../parts/page";
import { usePages } from "../../parts/pager";

export function SignalsTab({ run }: { run: Run }): JSX.Element {
  const pages = usePages<Untaken>(`runs/${run.id}/signals?limit=50`, [`run:${run.id}`, "runs"], (signal) => String(signal.no));
  return (
    <Loaded from={pages.first}>
      {() => pages.rows.length === 0 ? (
        <Empty icon="info" title="No signal waits"><p>What was sent to this run, it has taken. Those that were taken are in its history.</p></Empty>
      ) : (
        <div class="stack">
          {pages.rows.map((signal) => <Payload key={signal.no} title={`${signal.name}, sent ${clock(signal.at)}`} value={signal.value} />)}
          {pages.more}
        </div>
      )}
    </Loaded>
  );
}
