// The key of a run, and the starts that came with it later.
import type { JSX } from "preact";
import type { Duplicates, Run } from "../../api/types";
import { DuplicateList } from "../../parts/duplicates";
import { Empty } from "../../parts/page";
import { Link } from "../../route/place";
import { to } from "../../route/route";

export function KeyTab({ run, duplicates }: { run: Run; duplicates: Duplicates | null }): JSX.Element {
  if (!run.key) {
    return <Empty icon="keys" title="Started without a key"><p>With a key, the same start twice gives this one run:</p><pre>onward start {run.workflow} --key order-7</pre></Empty>;
  }
  return (
    <div class="stack">
      <p><Link href={to("keys", run.workflow, run.key)}>{run.key}</Link> is the key that this run of <b>{run.workflow}</b> was started with.</p>
      <DuplicateList duplicates={duplicates ?? { count: run.duplicates, latest: [] }} first={run.created_at} />
    </div>
  );
}
