// Saved views: the filter and the columns as they stand, under a name.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { Button } from "../../parts/button";
import { Dialog } from "../../parts/dialog";
import { Icon } from "../../parts/icon";
import { search, setSearch } from "../../route/place";
import { dropView, saveView, VIEW_NAME_MAX, views } from "../../views";

export function Views(): JSX.Element | null {
  const [naming, setNaming] = useState(false);
  const query = search.value.replace(/^\?/, "");
  const known = views.value;
  if (!known.length && !query) return null;
  return (
    <div class="row wrap tight views" role="group" aria-label="Saved views">
      {known.map((view) => (
        <span key={view.name} class="word">
          <button type="button" class="link" aria-pressed={view.query === query} onClick={() => setSearch(view.query, true)}>{view.name}</button>
          <button type="button" class="icon-button" aria-label={`Forget the view ${view.name}`} onClick={() => dropView(view.name)}><Icon name="close" /></button>
        </span>
      ))}
      {query && !known.some((view) => view.query === query) ? <Button kind="quiet" icon="plus" onClick={() => setNaming(true)}>Save this view</Button> : null}
      {naming ? <Naming query={query} onClose={() => setNaming(false)} /> : null}
    </div>
  );
}

function Naming({ query, onClose }: { query: string; onClose: () => void }): JSX.Element {
  const [name, setName] = useState("");
  const save = (event: Event): void => {
    event.preventDefault();
    saveView({ name, query });
    onClose();
  };
  return (
    <Dialog title="Save this view" onClose={onClose}>
      <form onSubmit={save}>
        <div class="dialog-body">
          <label class="field">Name<input value={name} maxLength={VIEW_NAME_MAX} autocomplete="off" onInput={(event) => setName(event.currentTarget.value)} /></label>
          <p class="faint">It is kept in this browser. To show it to others, send them the address of the page.</p>
        </div>
        <footer class="dialog-foot">
          <Button onClick={onClose}>Not now</Button>
          <Button type="submit" kind="primary" disabled={name.trim() ? null : "Give it a name first"}>Save</Button>
        </footer>
      </form>
    </Dialog>
  );
}
