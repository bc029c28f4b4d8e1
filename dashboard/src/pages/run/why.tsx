// The one sentence that says why a run is not running, and what went wrong if it failed.
import type { JSX } from "preact";
import { isEnded, type Run, type Why } from "../../api/types";
import { Icon } from "../../parts/icon";
import { Link } from "../../route/place";
import { to } from "../../route/route";

export function WhyLine({ run, why }: { run: Run; why: Why | null }): JSX.Element | null {
  if (run.failure && run.state === "failed") {
    const { code, message, child } = run.failure;
    return (
      <div class="notice failed" role="note">
        <Icon name="cross" />
        <div><b>{message}</b> <code>{code}</code>{child ? <> · failed in <Link href={to("runs", child)}>its child</Link></> : null}</div>
      </div>
    );
  }
  if (!why || isEnded(run.state)) return null;
  const stuck = run.waits_for?.for === "stuck" || /no_worker|worker_gone/.test(why.code);
  return (
    <div class={stuck ? "notice warning" : "notice"} role="note">
      <Icon name={stuck ? "warning" : "info"} />
      <div>
        {why.text}
        {run.waits_for?.for === "signal" ? <> <Link href={`waiting?run=${run.id}`}>Answer it</Link></> : null}
        {run.waits_for?.run ? <> <Link href={to("runs", run.waits_for.run)}>Look at that run</Link></> : null}
      </div>
    </div>
  );
}
