// The shell: menu, top bar, the page of the address, and what lies over all of them.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { loginNeeded } from "./api/client";
import { useResource } from "./api/resource";
import type { Stats } from "./api/types";
import { short } from "./format/number";
import { moveRow, pickRow, useKey } from "./keys";
import { paused, setPaused, status, way } from "./live/live";
import { AuditPage } from "./pages/audit";
import { ErrorsPage } from "./pages/errors";
import { KeysPage } from "./pages/keys";
import { KeyPage, StepKeyPage } from "./pages/keys/one";
import { LoginPage } from "./pages/login";
import { OperationsPage } from "./pages/operations";
import { OverviewPage } from "./pages/overview";
import { QueuesPage } from "./pages/queues";
import { RunPage } from "./pages/run";
import { ForkHost } from "./pages/run/fork";
import { RunsPage } from "./pages/runs";
import { SchedulePage, SchedulesPage } from "./pages/schedules";
import { WaitingPage } from "./pages/waiting";
import { WorkersPage } from "./pages/workers";
import { WorkflowPage, WorkflowsPage } from "./pages/workflows";
import { AskHost } from "./parts/ask";
import { Guard } from "./parts/guard";
import { helpOpen, HelpHost } from "./parts/help";
import { Icon } from "./parts/icon";
import { NAV, type NavItem } from "./parts/nav";
import { Empty, PageFrame } from "./parts/page";
import { paletteOpen, PaletteHost } from "./parts/palette";
import { Toasts } from "./parts/toast";
import { go, Link, route } from "./route/place";
import type { Route } from "./route/route";
import { logOut, meta, readOnly } from "./session";
import { toggleTheme } from "./theme";

export function App(): JSX.Element {
  if (loginNeeded.value) return <><LoginPage /><Toasts /></>;
  return <Guard><Shell /></Guard>;
}

function Shell(): JSX.Element {
  const [open, setOpen] = useState(false);
  useKey("mod+k", () => (paletteOpen.value = true));
  useKey("?", () => (helpOpen.value = true));
  useKey("j", () => moveRow(1));
  useKey("k", () => moveRow(-1));
  useKey("x", pickRow);
  useKey("t", toggleTheme);
  useKey("p", () => setPaused(!paused.peek()));
  return (
    <div class={open ? "shell menu-open" : "shell"}>
      <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); document.getElementById("main")?.focus(); }}>To the content</a>
      <TopBar open={open} toggle={() => setOpen(!open)} />
      <Menu close={() => setOpen(false)} />
      <main id="main" tabIndex={-1} onClick={() => open && setOpen(false)}>
        <Banner />
        <Guard key={addressOf(route.value)}><Routed at={route.value} /></Guard>
      </main>
      <AskHost /><ForkHost /><PaletteHost /><HelpHost /><Toasts />
    </div>
  );
}

/** Another address is another page, whatever went wrong on the one before. */
const addressOf = ({ page, id, more }: Route): string => JSON.stringify([page, id, more]);

function Routed({ at }: { at: Route }): JSX.Element {
  switch (at.page) {
    case "overview": return <OverviewPage />;
    case "runs": return <RunsPage />;
    case "run": return <RunPage key={at.id} id={at.id} />;
    case "workflows": return <WorkflowsPage />;
    case "workflow": return <WorkflowPage key={at.id} name={at.id} />;
    case "queues": return <QueuesPage />;
    case "workers": return <WorkersPage />;
    case "schedules": return <SchedulesPage />;
    case "schedule": return <SchedulePage key={at.id} name={at.id} />;
    case "keys": return <KeysPage />;
    case "key": return <KeyPage key={`${at.id}/${at.more}`} workflow={at.id} name={at.more} />;
    case "step-key": return <StepKeyPage key={at.id} name={at.id} />;
    case "errors": return <ErrorsPage />;
    case "waiting": return <WaitingPage />;
    case "operations": return <OperationsPage />;
    case "audit": return <AuditPage />;
    case "missing": return <PageFrame title="No such page"><Empty icon="search" title="There is nothing at this address"><p><Link href="">To the overview</Link></p></Empty></PageFrame>;
  }
}

function TopBar({ open, toggle }: { open: boolean; toggle: () => void }): JSX.Element {
  return (
    <header class="top">
      <button type="button" class="icon-button menu-button" aria-label="Menu" aria-expanded={open} onClick={toggle}><Icon name={open ? "close" : "menu"} /></button>
      <Link href="" class="brand" aria-label="Onward, to the overview"><Icon name="logo" /><b>Onward</b></Link>
      <button type="button" class="jump" onClick={() => (paletteOpen.value = true)}><Icon name="search" /><span>Run id, key, workflow…</span><kbd>⌘K</kbd></button>
      <span class="spring" />
      {readOnly.value ? <span class="mark" title={meta.value?.read_only ? "This server is read-only." : "Your role is “read”: actions are off."}>read only</span> : null}
      <LiveButton />
      <button type="button" class="icon-button" aria-label="Light or dark" title="Light or dark (t)" onClick={toggleTheme}><Icon name="sun" /></button>
      <button type="button" class="icon-button wide-only" aria-label="Keyboard help" title="Keyboard (?)" onClick={() => (helpOpen.value = true)}><Icon name="keyboard" /></button>
      {meta.value?.login ? <button type="button" class="icon-button" aria-label="Log out" title="Log out" onClick={() => void logOut()}><Icon name="out" /></button> : null}
    </header>
  );
}

/** How live updates stand; pressing it pauses or resumes them. */
function LiveButton(): JSX.Element {
  const state = paused.value ? "paused" : status.value === "live" ? "live" : way.value === "polling" ? "polling" : "connecting";
  const words = { paused: "paused", live: "live", polling: "polling", connecting: status.value === "down" ? "reconnecting" : "connecting" }[state];
  return (
    <button type="button" class={`live live-${state}`} aria-pressed={paused.value} title={paused.value ? "Live updates are paused: nothing is fetched by itself. Press to resume (p)." : "Press to pause live updates (p)"} onClick={() => setPaused(!paused.peek())}>
      <i aria-hidden="true" /><span>{words}</span>
    </button>
  );
}

function Banner(): JSX.Element | null {
  if (status.value === "down") {
    return <div class="notice warning banner" role="status"><Icon name="warning" /><div>The server does not answer. What you see may be old; the page reconnects by itself.</div></div>;
  }
  if (readOnly.value) {
    const why = meta.value?.read_only ? "This server is read-only: it was started so that nothing can be changed through it." : "Your role is “read”: you can see everything here and change nothing. Actions need a token with the role “operate”.";
    return <div class="notice banner" role="note"><Icon name="info" /><div>{why}</div></div>;
  }
  return null;
}

const PARTS = [["work", "Work"], ["system", "Set-up"], ["record", "Record"]] as const;

function Menu({ close }: { close: () => void }): JSX.Element {
  const stats = useResource<Stats>("stats", { topics: ["runs", "workers"] });
  for (const item of NAV) useKey(`g ${item.key}`, () => go(item.href));
  const counts: Record<string, number | undefined> = { Errors: stats.data?.runs.failed, Waiting: stats.data?.runs.waiting, Runs: stats.data?.runs.running };
  return (
    <nav class="menu-bar" aria-label="Pages" onClick={close}>
      {PARTS.map(([part, title]) => (
        <div key={part} class="menu-part">
          <p id={`part-${part}`}>{title}</p>
          <ul aria-labelledby={`part-${part}`}>{NAV.filter((item) => item.part === part).map((item) => <Entry key={item.href} item={item} number={counts[item.title]} />)}</ul>
        </div>
      ))}
      {meta.value ? <p class="menu-foot faint">{meta.value.store} · {meta.value.version}</p> : null}
    </nav>
  );
}

const COUNTED: Record<string, string> = { Errors: "failed", Waiting: "waiting", Runs: "running" };

function Entry({ item, number }: { item: NavItem; number: number | undefined }): JSX.Element {
  return (
    <li>
      <Link href={item.href} current={item.pages.includes(route.value.page)}>
        <Icon name={item.icon} />{item.title}
        {number ? <span class={`count${item.title === "Errors" ? " bad" : ""}`} title={`${number} ${COUNTED[item.title]}`}>{short(number)}<span class="off-screen"> {COUNTED[item.title]}</span></span> : null}
      </Link>
    </li>
  );
}
