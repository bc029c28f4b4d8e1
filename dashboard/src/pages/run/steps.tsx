// The steps of a run as a list: what came of each, how often it was tried, how long it took.
import type { JSX } from "preact";
import { useMemo, useState } from "preact/hooks";
import type { Run, TimelineAnswer } from "../../api/types";
import { isEnded } from "../../api/types";
import { serverNow } from "../../clock";
import { sayStep } from "../../format/step";
import { clock, duration } from "../../format/time";
import { Icon } from "../../parts/icon";
import { VirtualList } from "../../parts/virtual";
import { patchSearch } from "../../route/place";
import { layOut, type Lane } from "../../timeline/layout";

type Sort = "began" | "took" | "tries";

const ORDER: Record<Sort, (a: Lane, b: Lane) => number> = {
  began: (a, b) => a.from - b.from,
  took: (a, b) => b.to - b.from - (a.to - a.from),
  tries: (a, b) => b.tries - a.tries,
};

export function StepsTab({ run, answer }: { run: Run; answer: TimelineAnswer }): JSX.Element {
  const [sort, setSort] = useState<Sort>("began");
  const moment = isEnded(run.state) ? answer.now : serverNow();
  const lanes = useMemo(() => layOut(answer, run, { group: false, now: moment }).lanes.slice(1).sort(ORDER[sort]), [answer, run, sort]);
  return (
    <div class="timeline">
      <div class="timeline-tools">
        <label class="row tight">Order <select value={sort} onChange={(event) => setSort(event.currentTarget.value as Sort)}><option value="began">as they began</option><option value="took">slowest first</option><option value="tries">most tries first</option></select></label>
      </div>
      <div class="steps-head" aria-hidden="true"><span>step</span><span class="num">tries</span><span class="num">began</span><span class="num">took</span></div>
      <VirtualList label="Steps" count={lanes.length} rowHeight={30} row={(i) => <StepRow lane={lanes[i] as Lane} />} />
    </div>
  );
}

function StepRow({ lane }: { lane: Lane }): JSX.Element {
  const icon = lane.outcome === "failed" ? "cross" : lane.outcome === "ok" ? "check" : "clock";
  return (
    <button type="button" data-row class="steps-row" onClick={() => patchSearch({ tab: null, step: lane.name }, true)}>
      <span class={`lane-name outcome-${lane.outcome}`}><Icon name={icon} /><span class="cut" title={lane.name}>{sayStep(lane.name)}</span></span>
      <span class="num">{lane.tries}</span>
      <span class="num">{clock(lane.from)}</span>
      <span class="num">{duration(lane.to - lane.from)}</span>
    </button>
  );
}
