// What went in and what came out.
import type { JSX } from "preact";
import type { Run } from "../../api/types";
import { Payload } from "../../parts/json-view";
import { FailureView } from "./step";

export function PayloadTab({ run }: { run: Run }): JSX.Element {
  return (
    <div class="two">
      <Payload title="Input" value={run.input} />
      {run.failure && run.state === "failed" ? <div class="payload"><h2>Failure</h2><FailureView failure={run.failure} /></div> : <Payload title="Output" value={run.state === "completed" ? run.output : undefined} />}
    </div>
  );
}
