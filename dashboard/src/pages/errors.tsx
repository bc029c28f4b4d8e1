// Failed runs, grouped by what they failed with.
import type { JSX } from "preact";
import { get, query } from "../api/client";
import { SLOW_MS, useResource } from "../api/resource";
import type { ErrorGroup, Page, RunRow } from "../api/types";
import { askBulk } from "../actions";
import { count, many } from "../format/number";
import { Action } from "../parts/button";
import { Empty, Loaded, PageFrame } from "../parts/page";
import { Table } from "../parts/table";
import { Ago } from "../parts/time";
import { toastError } from "../parts/toast";
import { Link, param, patchSearch } from "../route/place";
import { to } from "../route/route";
import { isOf, RETRY_MAX } from "./errors/alike";

const WINDOWS: [string, string][] = [["", "any time"], ["3600000", "last hour"], ["86400000", "last 24 hours"], ["604800000", "last 7 days"]];

export function ErrorsPage(): JSX.Element {
  const window_ms = param("window");
  const errors = useResource<{ items: ErrorGroup[]; sample?: number }>(`errors${query({ window_ms })}`, { topics: ["runs"], gap: SLOW_MS });
  return (
    <PageFrame title="Errors" about={errors.data?.sample !== undefined ? `Over the newest ${many(errors.data.sample, "failed run")}.` : "Failed runs, grouped by what they failed with."}
      head={<label class="row tight"><span class="off-screen">Window</span><select value={window_ms} onChange={(event) => patchSearch({ window: event.currentTarget.value })}>{WINDOWS.map(([value, name]) => <option key={value} value={value}>{name}</option>)}</select></label>}>
      <Loaded from={errors}>
        {({ items }) => items.length === 0 ? <Empty icon="check" title="No failed runs"><p>When runs fail, those that failed alike are one line here, with one button to retry them all.</p></Empty> : (
          <Table label="Errors" rows={items} rowKey={(group) => group.fingerprint} columns={[
            { name: "runs", number: true, cell: (group) => <b class="bad">{count(group.count)}</b> },
            { name: "failure", grow: true, cell: (group) => <span class="main-cell"><Link data-row class="two-lines" href={to("runs", group.sample_run)} title={group.message}>{group.message}</Link><span class="sub shown"><code>{group.code}</code> · <Link href={`runs?state=failed&workflow=${encodeURIComponent(group.workflow)}`}>{group.workflow}</Link></span></span> },
            { name: "first", number: true, weight: 2, cell: (group) => <Ago at={group.first_at} /> },
            { name: "last", number: true, cell: (group) => <Ago at={group.last_at} /> },
            { name: "actions", cell: (group) => <Action icon="retry" onClick={() => void retryAll(group)}>{group.count > RETRY_MAX ? `Retry the newest ${count(RETRY_MAX)}` : "Retry all"}</Action> },
          ]} />
        )}
      </Loaded>
    </PageFrame>
  );
}

/** Pages of 200 that are looked through: as many failed runs as the server groups. */
const PAGES_MAX = 10;

/** Finds the runs that the group counts, then asks. */
async function retryAll(group: ErrorGroup): Promise<void> {
  const ids: string[] = [];
  let cursor: string | null = "";
  try {
    for (let pages = 0; cursor !== null && pages < PAGES_MAX && ids.length < Math.min(group.count, RETRY_MAX); pages++) {
      const page: Page<RunRow> = await get(`runs${query({ state: "failed", workflow: group.workflow, limit: 200, cursor })}`);
      for (const run of page.items) if (isOf(group, run)) ids.push(run.id);
      cursor = page.next;
    }
    ids.length = Math.min(ids.length, RETRY_MAX);
  } catch (error) {
    return toastError(error);
  }
  const all = many(group.count, "failed run");
  const said = ids.length < group.count ? `the newest ${count(ids.length)} of ${all}` : all;
  await askBulk({ verb: "retry", ids, said: `${said} of ${group.workflow}` });
}
