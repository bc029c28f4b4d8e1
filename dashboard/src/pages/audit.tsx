// Who changed what, and the result.
import type { JSX } from "preact";
import type { AuditRow } from "../api/types";
import { Icon } from "../parts/icon";
import { Empty, Loaded, PageFrame } from "../parts/page";
import { usePages } from "../parts/pager";
import { Table } from "../parts/table";
import { Ago, When } from "../parts/time";
import { Link } from "../route/place";
import { to } from "../route/route";
import { denied } from "../session";

const ID = /[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/;

export function AuditPage(): JSX.Element {
  const why = denied("admin");
  const pages = usePages<AuditRow>(why && !/read-only/.test(why) ? null : "audit?limit=100", ["runs", "queues", "schedules", "audit"], (row) => String(row.id));
  if (why && !/read-only/.test(why)) return <PageFrame title="Audit"><Empty icon="audit" title="Not with this role"><p>{why}</p></Empty></PageFrame>;
  return (
    <PageFrame title="Audit" about="Every change through this server, allowed or refused.">
      <Loaded from={pages.first}>
        {() => pages.rows.length === 0 ? <Empty icon="audit" title="Nothing was changed yet"><p>Each start, signal, cancel and change of a limit through this server leaves a line here.</p></Empty> : (
          <>
            <Table label="Audit" rows={pages.rows} rowKey={(row) => String(row.id)} columns={[
              { name: "when", number: true, cell: (row) => <When at={row.at} /> },
              { name: "age", weight: 3, cell: (row) => <Ago at={row.at} /> },
              { name: "who", weight: 2, cell: (row) => <span class="main-cell"><span class="cut">{row.who}</span><span class="sub shown">{row.role}</span></span> },
              { name: "did", cell: (row) => <b>{row.action.replaceAll("_", " ")}</b> },
              { name: "to", grow: true, weight: 2, cell: (row) => <Target text={row.target} detail={row.detail} /> },
              { name: "result", cell: (row) => <Came outcome={row.outcome} /> },
            ]} />
            {pages.more}
          </>
        )}
      </Loaded>
    </PageFrame>
  );
}

function Target({ text, detail }: { text: string; detail: unknown }): JSX.Element {
  const more = detail === null || detail === undefined || detail === "" ? "" : typeof detail === "string" ? detail : JSON.stringify(detail);
  const run = ID.exec(`${text} ${more}`)?.[0];
  return <span class="main-cell">{run ? <Link class="cut mono" href={to("runs", run)}>{text}</Link> : <span class="cut">{text}</span>}{more ? <span class="sub shown cut" title={more}>{more}</span> : null}</span>;
}

function Came({ outcome }: { outcome: string | null }): JSX.Element {
  if (outcome === null) return <span class="state state-queued" title="The server stopped before the change was answered"><Icon name="queued" />unknown</span>;
  const good = /^(ok|counted|done|2\d\d|allowed|success)/.test(String(outcome));
  return <span class={`state ${good ? "state-completed" : "state-failed"}`}><Icon name={good ? "check" : "cross"} />{outcome}</span>;
}
