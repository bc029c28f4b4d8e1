// Keys: what was kept from happening twice. Look one up, see who asks most, and who asks for other
// things under the same name.
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { query } from "../api/client";
import { SLOW_MS, useResource } from "../api/resource";
import type { ConflictRow, KeyRow, StepKey } from "../api/types";
import { now } from "../clock";
import { count, shortId } from "../format/number";
import { useKey } from "../keys";
import { Icon } from "../parts/icon";
import { Empty, Loaded, PageFrame, Panel } from "../parts/page";
import { usePages } from "../parts/pager";
import { StateBadge } from "../parts/state";
import { Table, type Column } from "../parts/table";
import { Ago, When } from "../parts/time";
import { Link, param, patchSearch } from "../route/place";
import { to } from "../route/route";
import { KeyStateBadge } from "./keys/state";

const TABS = [["runs", "Keys of runs"], ["steps", "Keys of steps"], ["top", "Most duplicated"], ["conflicts", "Conflicts"]] as const;

export function KeysPage(): JSX.Element {
  const tab = param("tab") || "runs";
  return (
    <PageFrame title="Keys" about="A key names a piece of work. Whoever comes a second time with it gets what is there, and nothing happens twice.">
      <LookUp tab={tab} />
      <nav class="tabs" aria-label="Kinds of keys">
        {TABS.map(([name, title]) => <button key={name} type="button" aria-current={tab === name ? "true" : undefined} onClick={() => patchSearch({ tab: name === "runs" ? null : name })}>{title}</button>)}
      </nav>
      {tab === "runs" ? <RunKeys /> : tab === "steps" ? <StepKeys /> : tab === "top" ? <TopKeys /> : <Conflicts />}
    </PageFrame>
  );
}

/** Looks up by the whole key or its beginning, as it is typed. */
function LookUp({ tab }: { tab: string }): JSX.Element {
  const [text, setText] = useState(param("prefix"));
  const [workflow, setWorkflow] = useState(param("workflow"));
  const input = useRef<HTMLInputElement>(null);
  useKey("/", () => input.current?.focus());
  useEffect(() => {
    const timer = setTimeout(() => {
      if (text !== param("prefix") || workflow !== param("workflow")) patchSearch({ prefix: text, workflow, ...(tab === "top" || tab === "conflicts" ? { tab: null } : {}) });
    }, 250);
    return () => clearTimeout(timer);
  }, [text, workflow]);
  return (
    <div class="filter-line">
      <label class="search-field grow big"><Icon name="keys" /><span class="off-screen">Key, or how it begins</span>
        <input ref={input} type="search" value={text} placeholder="A key, or how it begins: order-18" onInput={(event) => setText(event.currentTarget.value)} /><kbd>/</kbd></label>
      {tab === "runs" ? <label class="field-inline"><span class="off-screen">Workflow</span><input value={workflow} placeholder="of any workflow" onInput={(event) => setWorkflow(event.currentTarget.value)} /></label> : null}
    </div>
  );
}

const keyColumns: Column<KeyRow>[] = [
  { name: "key", cell: (row) => <span class="main-cell"><Link data-row class="cut" href={to("keys", row.workflow, row.key)}>{row.key}</Link><span class="sub">{row.workflow}</span></span>, grow: true },
  { name: "workflow", weight: 2, cell: (row) => <Link href={to("workflows", row.workflow)}>{row.workflow}</Link> },
  { name: "run", weight: 2, cell: (row) => <span class="row tight"><StateBadge state={row.state} /><Link class="mono" href={to("runs", row.run)}>{shortId(row.run)}</Link></span> },
  { name: "suppressed", number: true, cell: (row) => (row.duplicates ? <b>×{count(row.duplicates)}</b> : <span class="faint">0</span>) },
  { name: "other input", number: true, cell: (row) => (row.conflicts ? <b class="bad">{count(row.conflicts)}</b> : <span class="faint">0</span>) },
  { name: "first used", number: true, weight: 2, cell: (row) => <Ago at={row.created_at} /> },
  { name: "free again", number: true, weight: 2, cell: (row) => <Free row={row} /> },
];

function Free({ row }: { row: KeyRow }): JSX.Element {
  if (row.held === false || (row.expires_at && row.expires_at <= now.value)) return <span class="mark" title="A start with it now makes a new run">free</span>;
  return row.expires_at ? <Ago at={row.expires_at} /> : <span class="faint" title="As long as the run is kept">with the run</span>;
}

function RunKeys(): JSX.Element {
  const [prefix, workflow] = [param("prefix"), param("workflow")];
  const pages = usePages<KeyRow>(`keys${query({ prefix, workflow, limit: 50 })}`, ["runs"], (row) => `${row.workflow}/${row.run}`);
  return (
    <Loaded from={pages.first}>
      {() => pages.rows.length === 0 ? (prefix || workflow ? <NoKey prefix={prefix} /> : <NoKeys />) : (
        <><Table label="Keys of runs" rows={pages.rows} rowKey={(row) => `${row.workflow}/${row.run}`} columns={keyColumns} />{pages.more}</>
      )}
    </Loaded>
  );
}

function NoKey({ prefix }: { prefix: string }): JSX.Element {
  return <Empty icon="search" title="No such key"><p>No key begins with <code>{prefix}</code>. It was never used, or its run is no longer kept: a start with it now makes a new run.</p></Empty>;
}

function NoKeys(): JSX.Element {
  return (
    <Empty icon="keys" title="No keys yet">
      <p>Give a start a key, and the same start again gives the same run, from any number of callers:</p>
      <pre>{'onward.start(ORDER, &order).key("order-1842").await?'}</pre>
      <p>Over HTTP it is the header <code>Idempotency-Key</code>; on the command line:</p>
      <pre>onward start order --key order-1842</pre>
      <p class="faint">A second start with other input is refused and shows under “Conflicts”.</p>
    </Empty>
  );
}

function StepKeys(): JSX.Element {
  const prefix = param("prefix");
  const pages = usePages<StepKey>(`step-keys${query({ prefix, limit: 50 })}`, ["runs"], (row) => row.key);
  return (
    <Loaded from={pages.first}>
      {() => pages.rows.length === 0 ? (
        prefix ? <NoKey prefix={prefix} /> : <Empty icon="keys" title="No step has a key"><p>A step with a key executes once over all runs:</p><pre>{'ctx.step("welcome mail", send).key("welcome-user-123").await?'}</pre></Empty>
      ) : (
        <>
          <Table label="Keys of steps" rows={pages.rows} rowKey={(row) => row.key} columns={[
            { name: "key", grow: true, cell: (row) => <Link data-row class="cut" href={to("step-keys", row.key)}>{row.key}</Link> },
            { name: "state", cell: (row) => <KeyStateBadge state={row.state} /> },
            { name: "suppressed", number: true, cell: (row) => (row.duplicates ? <b>×{count(row.duplicates)}</b> : <span class="faint">0</span>) },
            { name: "taken", number: true, weight: 2, cell: (row) => <Ago at={row.taken_at} /> },
            { name: "until", number: true, weight: 2, cell: (row) => <Ago at={row.until} /> },
          ]} />
          {pages.more}
        </>
      )}
    </Loaded>
  );
}

function TopKeys(): JSX.Element {
  const top = useResource<{ items: KeyRow[] }>("keys/top", { topics: ["runs"], gap: SLOW_MS });
  return (
    <Loaded from={top}>
      {({ items }) => {
        const most = Math.max(1, ...items.map((row) => row.duplicates));
        return items.length === 0 ? <Empty icon="check" title="No duplicates"><p>No start came a second time with the same key.</p></Empty> : (
          <Table label="Most duplicated keys" rows={items} rowKey={(row) => `${row.workflow}/${row.run}`} columns={[
            ...keyColumns.slice(0, 2),
            { name: "suppressed", weight: 2, cell: (row: KeyRow) => <span class="meter" aria-hidden="true"><i style={{ width: `${(row.duplicates / most) * 100}%` }} /></span> },
            ...keyColumns.slice(3).map((column) => (column.name === "suppressed" ? { ...column, name: "times" } : column)),
          ]} />
        );
      }}
    </Loaded>
  );
}

function Conflicts(): JSX.Element {
  const pages = usePages<ConflictRow>("keys/conflicts?limit=50", ["runs"], (row) => String(row.no), { gap: SLOW_MS });
  return (
    <Loaded from={pages.first}>
      {() => pages.rows.length === 0 ? (
        <Empty icon="check" title="No conflicts"><p>No start came with a key that was in use and asked for something else.</p></Empty>
      ) : (
        <Panel title="Same key, other input" flush head={<span class="faint">refused with key_conflict, newest first</span>}>
          <Table label="Conflicts" rows={pages.rows} rowKey={(row) => String(row.no)} columns={[
            { name: "when", number: true, cell: (row) => <When at={row.at} /> },
            { name: "key", grow: true, cell: (row) => <span class="main-cell"><Link data-row class="cut" href={to("keys", row.workflow, row.key)}>{row.key}</Link><span class="sub shown">{row.workflow}</span></span> },
            { name: "from", cell: (row) => <code class="cut">{row.caller || "unknown"}</code> },
            { name: "run that has it", weight: 2, cell: (row) => <Link class="mono" href={to("runs", row.run)}>{shortId(row.run)}</Link> },
          ]} />
          {pages.more}
        </Panel>
      )}
    </Loaded>
  );
}
