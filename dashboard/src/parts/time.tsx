// Times on the page: short where they stand, whole when pointed at.
import type { JSX } from "preact";
import { now } from "../clock";
import { duration, isTime, local, NEVER, relative, utc } from "../format/time";

/** How long ago or ahead; the whole time in the title. */
export function Ago({ at }: { at: number | null | undefined }): JSX.Element {
  if (at === null || at === undefined) return <span class="faint">–</span>;
  if (!isTime(at)) return <Never />;
  return <time dateTime={utc(at)} title={`${local(at)} local · ${utc(at)}`}>{relative(at, now.value)}</time>;
}

/** The local date and time. */
export function When({ at }: { at: number | null | undefined }): JSX.Element {
  if (at === null || at === undefined) return <span class="faint">–</span>;
  if (!isTime(at)) return <Never />;
  return <time dateTime={utc(at)} title={utc(at)} class="num">{local(at)}</time>;
}

const Never = (): JSX.Element => <span title="No calendar goes that far">{NEVER}</span>;

/** How long something took, or has taken until now. */
export function Took({ from, to }: { from: number | null; to: number | null }): JSX.Element {
  if (from === null) return <span class="faint">–</span>;
  return to === null ? <span class="num running-time">{duration(now.value - from)}</span> : <span class="num">{duration(to - from)}</span>;
}
