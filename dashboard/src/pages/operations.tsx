// Bulk changes: how far each has come, and a way to stop it.
import type { JSX } from "preact";
import { send } from "../api/client";
import { useResource } from "../api/resource";
import type { Operation, Page } from "../api/types";
import { curl } from "../format/command";
import { count } from "../format/number";
import { changedHere } from "../live/live";
import { ask } from "../parts/ask";
import { Action } from "../parts/button";
import { Icon, type IconName } from "../parts/icon";
import { Empty, Loaded, PageFrame } from "../parts/page";
import { Table } from "../parts/table";
import { Ago } from "../parts/time";
import { toast } from "../parts/toast";
import { to } from "../route/route";

export function OperationsPage(): JSX.Element {
  const list = useResource<Page<Operation>>("operations", { topics: ["runs", "operations"] });
  return (
    <PageFrame title="Operations" about="Changes of many runs at once. They are durable: they go on after this page is closed or the server is restarted.">
      <Loaded from={list}>
        {({ items }) => items.length === 0 ? (
          <Empty icon="operations" title="No bulk changes yet"><p>On the page Runs, filter what you want to change, select a row, and choose “all that match instead”.</p></Empty>
        ) : (
          <Table label="Operations" rows={items} rowKey={(row) => row.id} columns={[
            { name: "what", grow: true, cell: (row) => <span class="main-cell"><b data-row tabIndex={-1}>{row.action}</b><span class="sub shown cut">{sayWhich(row)}{row.reason ? ` · ${row.reason}` : ""}</span></span> },
            { name: "state", weight: 2, cell: (row) => <OperationState state={row.state} /> },
            { name: "progress", cell: (row) => <Progress row={row} /> },
            { name: "skipped", number: true, weight: 2, cell: (row) => count(row.skipped) },
            { name: "failed", number: true, weight: 2, cell: (row) => (row.failed ? <b class="bad">{count(row.failed)}</b> : "0") },
            { name: "by", weight: 2, cell: (row) => row.by ?? "–" },
            { name: "begun", number: true, weight: 2, cell: (row) => <Ago at={row.created_at} /> },
            { name: "actions", cell: (row) => (row.state === "running" ? <Action kind="danger" icon="slash" onClick={() => abort(row)}>Abort</Action> : null) },
          ]} />
        )}
      </Loaded>
    </PageFrame>
  );
}

function sayWhich(row: Operation): string {
  const parts = Object.entries(row.filter ?? {}).filter(([, value]) => value !== null && value !== "" && !(Array.isArray(value) && value.length === 0));
  return parts.length ? parts.map(([name, value]) => `${name}: ${typeof value === "object" ? JSON.stringify(value) : value}`).join(", ") : "a selection of runs";
}

function OperationState({ state }: { state: string }): JSX.Element {
  const looks: Record<string, [string, IconName]> = { running: ["running", "running"], done: ["completed", "check"], aborted: ["cancelled", "slash"], failed: ["failed", "cross"] };
  const [css, icon] = looks[state] ?? ["queued", "queued"];
  return <span class={`state state-${css}`}><Icon name={icon} />{state}</span>;
}

function Progress({ row }: { row: Operation }): JSX.Element {
  const done = row.done + row.skipped + row.failed;
  const all = Math.max(row.matched ?? 0, done);
  return (
    <span class="row tight">
      <progress value={done} max={all || 1} aria-label={`${row.action}: ${done} of ${all}`} />
      <span class="num">{count(row.done)}{row.matched !== null ? ` of ${count(row.matched)}` : ""}</span>
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
    curl: curl("POST", path),
    onAct: async () => {
      await send("POST", path);
      toast("Asked to stop.");
      changedHere();
    },
  });
}
