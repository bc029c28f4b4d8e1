// The frame of a page: its title, what belongs to it, and what is shown while there is no data.
import type { ComponentChildren, JSX } from "preact";
import { useEffect } from "preact/hooks";
import type { ApiError } from "../api/client";
import type { Resource } from "../api/resource";
import { Button } from "./button";
import { Icon, type IconName } from "./icon";

interface PageProps {
  title: string;
  head?: ComponentChildren;
  about?: ComponentChildren;
  children: ComponentChildren;
}

export function PageFrame({ title, head, about, children }: PageProps): JSX.Element {
  useEffect(() => {
    document.title = `${title} · Onward`;
  }, [title]);
  return (
    <div class="page">
      <div class="page-head">
        <div>
          <h1>{title}</h1>
          {about ? <p class="about">{about}</p> : null}
        </div>
        {head ? <div class="row wrap">{head}</div> : null}
      </div>
      {children}
    </div>
  );
}

/** The data, or why there is none yet. */
export function Loaded<T>({ from, children }: { from: Resource<T>; children: (data: T) => ComponentChildren }): JSX.Element {
  if (from.data !== undefined) return <>{children(from.data)}</>;
  if (from.error) return <Trouble error={from.error} again={from.refetch} />;
  return <div class="loading" role="status" aria-label="Loading"><i /><i /><i /></div>;
}

export function Trouble({ error, again }: { error: ApiError; again?: () => void }): JSX.Element {
  const unsupported = error.status === 501;
  return (
    <div class="empty" role="alert">
      <Icon name={unsupported ? "info" : "warning"} />
      <h2>{unsupported ? "Not a part of this server" : error.status === 404 ? "Not found" : error.status === 403 ? "Not with this role" : "That did not work"}</h2>
      <p>{error.message}{error.code ? <> <code>{error.code}</code></> : null}</p>
      {again && !unsupported ? <Button icon="retry" onClick={again}>Try again</Button> : null}
    </div>
  );
}

/** Nothing to show, and what to do about it. */
export function Empty({ icon, title, children }: { icon: IconName; title: string; children?: ComponentChildren }): JSX.Element {
  return (
    <div class="empty">
      <Icon name={icon} />
      <h2>{title}</h2>
      {children}
    </div>
  );
}

/** A panel with a heading. */
export function Panel({ title, head, children, flush }: { title: string; head?: ComponentChildren; children: ComponentChildren; flush?: boolean }): JSX.Element {
  return (
    <section class={flush ? "panel flush" : "panel"} aria-label={title}>
      <header class="panel-head"><h2>{title}</h2>{head}</header>
      <div class="panel-body">{children}</div>
    </section>
  );
}

/** A name and its value, in a list of them. */
export function Fact({ name, children }: { name: string; children: ComponentChildren }): JSX.Element {
  return <div class="fact"><dt>{name}</dt><dd>{children}</dd></div>;
}
