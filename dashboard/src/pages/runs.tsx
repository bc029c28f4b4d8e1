// The list of runs: filtered by the address, steered one by one, by selection or as a whole.
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { apiUrl } from "../api/client";
import { useResource } from "../api/resource";
import type { RunRow, Stats } from "../api/types";
import { askBulk, VERBS, type RunVerb } from "../actions";
import { minute } from "../clock";
import { many } from "../format/number";
import { paused } from "../live/live";
import { Action, Button } from "../parts/button";
import { Icon } from "../parts/icon";
import { Loaded, PageFrame } from "../parts/page";
import { usePages } from "../parts/pager";
import { Link, param, search, setSearch } from "../route/place";
import { apiFilter, apiQuery, filterTrouble, NONE, readFilter, sayFilter, writeFilter, type RunFilter } from "../route/filter";
import { ColumnPicker, columnsOf } from "./runs/columns";
import { FilterBar } from "./runs/filter-bar";
import { RunTable } from "./runs/table";
import { NoRuns } from "./runs/none";
import { Views } from "./runs/views";

export function RunsPage(): JSX.Element {
  const filter = readFilter(search.value);
  const said = writeFilter(filter);
  const moment = useMoment(said);
  // What cannot be read lists nothing: shown as all runs, it would be changed as all runs.
  const trouble = filterTrouble(filter);
  const path = trouble ? null : `runs${apiQuery(filter, moment, { limit: 50 })}`;
  const pages = usePages<RunRow>(path, ["runs"], (run) => run.id, { of: said });
  const since = trouble ? 0 : apiFilter(filter, moment).created_from ?? 0;
  const rows = pages.rows.filter((run) => run.created_at >= since);
  const stats = useResource<Stats>("stats", { topics: ["runs"] });
  const [picked, setPicked] = useState<Set<string>>(new Set());
  useEffect(() => setPicked(new Set()), [said]);
  const set = (next: RunFilter): void => {
    const columns = param("columns");
    setSearch([writeFilter(next), columns ? `columns=${columns}` : ""].filter(Boolean).join("&"), true);
  };
  return (
    <PageFrame title="Runs" head={<>{trouble ? null : <Export filter={filter} moment={moment} />}<Link class="button primary" href="workflows"><Icon name="plus" />Start a run</Link></>}>
      <Views />
      <FilterBar filter={filter} set={set} counts={stats.data?.runs ?? {}} trouble={trouble} />
      {trouble ? null : <Loaded from={pages.first}>
        {() => rows.length === 0 ? (
          said ? <NoMatch filter={filter} clear={() => set(NONE)} /> : <NoRuns />
        ) : (
          <>
            <div class="list-head">
              <span class="faint">{pages.more ? `the newest ${rows.length}` : many(rows.length, "run")}{said ? " in this filter" : ""}, newest first</span>
              <span class="spring" />
              <ColumnPicker />
            </div>
            <RunTable rows={rows} picked={picked} setPicked={setPicked} columns={columnsOf(param("columns"))} />
            {pages.more}
            <BulkBar picked={picked} rows={rows} filter={filter} moment={moment} all={!!pages.more || picked.size === rows.length} clear={() => setPicked(new Set())} />
          </>
        )}
      </Loaded>}
    </PageFrame>
  );
}

/** The moment that relative times in the filter are from: it moves once in each minute, unless updates are paused. */
function useMoment(filter: string): number {
  const held = useRef({ filter, at: minute.value });
  // Whoever asks for another filter asks for it as of now.
  if (!paused.value || held.current.filter !== filter) held.current = { filter, at: minute.value };
  return held.current.at;
}

function NoMatch({ filter, clear }: { filter: RunFilter; clear: () => void }): JSX.Element {
  return (
    <div class="empty">
      <Icon name="search" />
      <h2>Nothing matches</h2>
      <p>There are no {sayFilter(filter)}.</p>
      <Button onClick={clear}>Show all runs</Button>
    </div>
  );
}

function Export({ filter, moment }: { filter: RunFilter; moment: number }): JSX.Element {
  const query = apiQuery(filter, moment);
  return (
    <>
      <a class="button" href={apiUrl(`runs.csv${query}`)} download="runs.csv"><Icon name="download" />CSV</a>
      <a class="button" href={apiUrl(`runs.jsonl${query}`)} download="runs.jsonl"><Icon name="download" />JSON lines</a>
    </>
  );
}

interface BulkProps {
  picked: Set<string>;
  rows: RunRow[];
  filter: RunFilter;
  moment: number;
  /** Whether "all that match" is offered. */
  all: boolean;
  clear: () => void;
}

/** Actions on the selection, or on everything that matches. */
function BulkBar({ picked, rows, filter, moment, all, clear }: BulkProps): JSX.Element | null {
  const [whole, setWhole] = useState(false);
  useEffect(() => setWhole(false), [picked.size === 0]);
  if (picked.size === 0) return null;
  const chosen = rows.filter((run) => picked.has(run.id));
  const unfit = (verb: RunVerb): string | null => {
    const info = VERBS.find((one) => one.verb === verb);
    return whole || chosen.some((run) => info?.unfit(run) === null) ? null : "It applies to none of the selected runs.";
  };
  const act = (verb: RunVerb): void => {
    if (whole) void askBulk({ verb, filter: apiFilter(filter, moment), said: sayFilter(filter) });
    else void askBulk({ verb, ids: [...picked], said: many(picked.size, "run") });
  };
  return (
    <div class="bulk" role="toolbar" aria-label="Actions on the selection">
      <b class="num">{whole ? "Everything that matches" : `${picked.size} selected`}</b>
      {all ? <button type="button" class="link" onClick={() => setWhole(!whole)}>{whole ? "only the selection" : "all that match instead"}</button> : null}
      {VERBS.map((info) => <Action key={info.verb} need={info.need} icon={info.icon} disabled={unfit(info.verb)} onClick={() => act(info.verb)}>{info.title}</Action>)}
      <span class="spring" />
      <Button kind="quiet" icon="close" onClick={clear}>Clear</Button>
    </div>
  );
}
