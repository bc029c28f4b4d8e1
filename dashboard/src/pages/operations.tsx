// Bulk changes: how far each has come, and a way to stop it.
import type { JSX } from "preact";
import { send } from "../api/client";
import type { Operation } from "../api/types";
import { cli, curl } from "../format/command";
import { count } from "../format/number";
import { progressOf, sayOperation } from "../format/operation";
import { changedHere } from "../live/live";
import { ask } from "../parts/ask";
import { Action } from "../parts/button";
import { Icon, type IconName } from "../parts/icon";
import { Empty, Loaded, PageFrame } from "../parts/page";
import { usePages } from "../parts/pager";
import { Table } from "../parts/table";
import { Ago } from "../parts/time";
import { toast } from "../parts/toast";
import { to } from "../route/route";

export function OperationsPage(): JSX.Element {
  const pages = usePages<Operation>("operations?limit=50", ["runs", "operations"], (row) => row.id);
  return (
    <PageFrame title="Operations" about="Changes of many runs at once. They are durable: they go on after this page is closed or the server is restarted.">
      <Loaded from={pages.first}>
        {() => pages.rows.length === 0 ? (
          <Empty icon="operations" title="No bulk changes yet"><p>On the page Runs, filter what you want to change, select a row, and choose “all that match instead”.</p></Empty>
        ) : (
          <><Table label="Operations" rows={pages.rows} rowKey={(row) => row.id} columns={[
            { name: "what", grow: true, cell: (row) => <span class="main-cell"><b data-row tabIndex={-1}>{row.action}</b><span class="sub shown cut">{sayWhich(row)}{row.reason ? ` · ${row.reason}` : ""}</span>{row.cut ? <span class="sub shown bad">{sayOperation(row)}</span> : null}</span> },
            { name: "state", weight: 2, cell: (row) => <OperationState row={row} /> },
            { name: "progress", cell: (row) => <Progress row={row} /> },
            { name: "skipped", number: true, weight: 2, cell: (row) => count(row.skipped) },
            { name: "failed", number: true, weight: 2, cell: (row) => (row.failed ? <b class="bad">{count(row.failed)}</b> : "0") },
            { name: "by", weight: 2, cell: (row) => row.by ?? "–" },
            { name: "begun", number: true, weight: 2, cell: (row) => <Ago at={row.created_at} /> },
            { name: "actions", cell: (row) => (row.state === "running" ? <Action kind="danger" icon="slash" onClick={() => abort(row)}>Abort</Action> : null) },
          ]} />{pages.more}</>
        )}
      </Loaded>
    </PageFrame>
  );
}

function sayWhich(row: Operation): string {
  const parts = Object.entries(row.filter ?? {}).filter(([, value]) => value !== null && value !== "" && !(Array.isArray(value) && value.length === 0));
  return parts.length ? parts.map(([name, value]) => `${name}: ${typeof value === "object" ? JSON.stringify(value) : value}`).join(", ") : "a selection of runs";
}

function OperationState({ row: { state, cut } }: { row: Operation }): JSX.Element {
  const looks: Record<string, [string, IconName]> = { running: ["running", "running"], done: ["completed", "check"], aborted: ["cancelled", "slash"], failed: ["failed", "cross"] };
  const [css, icon] = cut ? ["waiting", "warning"] as const : looks[state] ?? ["queued", "queued"];
  return <span class={`state state-${css}`}><Icon name={icon} />{cut ? `${state}, cut` : state}</span>;
}

function Progress({ row }: { row: Operation }): JSX.Element {
  const { gone, all, text } = progressOf(row);
  return (
    <span class="row tight">
      <progress {...(all === null ? {} : { value: gone, max: all || 1 })} aria-label={`${row.action}: ${text}`} />
      <span class="num">{text}</span>
    </span>
  );
}

function abort(row: Operation): void {
  const path = `${to("operations", row.id)}/abort`;
  ask({
    title: `Abort “${row.action}”?`,
    text: <p>What is done stays done; the rest is left as it is.</p>,
    act: "Abort",
    danger: true,
    cli: cli("onward", "ops", "abort", row.id),
    curl: curl("POST", path),
    onAct: async () => {
      await send("POST", path);
      toast("Asked to stop.");
      changedHere();
    },
  });
}
