// Runs of a schedule for times that have passed. A time that has a run already keeps it, by its key.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { send } from "../../api/client";
import type { Backfilled, Schedule } from "../../api/types";
import { cli, curl } from "../../format/command";
import { sayBackfilled, sumBackfilled } from "../../format/schedule";
import { utc } from "../../format/time";
import { changedHere } from "../../live/live";
import { Same } from "../../parts/ask";
import { Action, Button } from "../../parts/button";
import { Dialog } from "../../parts/dialog";
import { useSending } from "../../parts/form";
import { toast } from "../../parts/toast";
import { to } from "../../route/route";

export function Backfill({ schedule, onClose }: { schedule: Schedule; onClose: () => void }): JSX.Element {
  const [from, setFrom] = useState("");
  const [before, setBefore] = useState("");
  const [done, setDone] = useState<Backfilled | null>(null);
  const path = `${to("schedules", schedule.name)}/backfill`;
  const range = { from: Date.parse(from), before: Date.parse(before) };
  const ready = Number.isFinite(range.from) && Number.isFinite(range.before) && range.from < range.before;
  const put = (set: (text: string) => void) => (event: Event) => {
    set((event.currentTarget as HTMLInputElement).value);
    setDone(null);
  };
  const { act, busy, error } = useSending(async () => {
    const { value } = await send<Backfilled>("POST", path, range);
    const all = sumBackfilled(done, value);
    changedHere("runs", "schedules");
    if (all.more) return setDone(all);
    toast(sayBackfilled(all), "info", `runs?tag=${encodeURIComponent(`schedule:${schedule.name}`)}`);
    onClose();
  });
  return (
    <Dialog title={`Backfill ${schedule.name}`} onClose={onClose}>
      <form onSubmit={act}>
        <div class="dialog-body">
          <p>Starts a run for each of its times in this range. A time that has a run already keeps it: its key sees to that.</p>
          <div class="fields">
            <label class="field">From (local)<input type="datetime-local" required value={from} onInput={put(setFrom)} /></label>
            <label class="field">Before (local)<input type="datetime-local" required value={before} onInput={put(setBefore)} /></label>
          </div>
          {done ? <p class="notice" role="status">{sayBackfilled(done)}</p> : null}
          {error ? <p class="problem" role="alert">{error}</p> : null}
          {ready ? <Same cli={cli("onward", "schedules", "backfill", schedule.name, "--from", utc(range.from), "--before", utc(range.before))} curl={curl("POST", path, JSON.stringify(range))} /> : null}
        </div>
        <footer class="dialog-foot"><Button onClick={onClose}>Close</Button><Action type="submit" kind="primary" disabled={busy ?? (ready ? null : "Choose a range first")}>{done ? "Go on" : "Backfill"}</Action></footer>
      </form>
    </Dialog>
  );
}
