// The timeline with the chosen step beside it.
import type { JSX } from "preact";
import type { Run, TimelineAnswer } from "../../api/types";
import { isEnded } from "../../api/types";
import { now } from "../../clock";
import { Empty } from "../../parts/page";
import { Timeline } from "../../parts/timeline";
import { param, patchSearch } from "../../route/place";
import { StepPanel } from "./step";

/** Above this many records, a run under way is laid out again every five seconds, not every one. */
const MANY = 5000;

export function TimelineTab({ run, answer }: { run: Run; answer: TimelineAnswer }): JSX.Element {
  const chosen = param("step");
  const moment = isEnded(run.state) ? answer.now : answer.rows.seq.length > MANY ? Math.floor(now.value / 5000) * 5000 : now.value;
  if (answer.rows.seq.length === 0 && isEnded(run.state)) {
    return <Empty icon="runs" title="No steps"><p>The workflow ended without a step. Its output, if any, is under “Input and output”.</p></Empty>;
  }
  return (
    <div class={chosen ? "split with-side" : "split"}>
      <Timeline answer={answer} run={run} now={moment} chosen={chosen} onChoose={(lane) => patchSearch({ step: lane.kind === "run" || lane.name === chosen ? null : lane.name })} />
      {chosen ? <StepPanel run={run} answer={answer} step={chosen} onClose={() => patchSearch({ step: null })} /> : null}
    </div>
  );
}
