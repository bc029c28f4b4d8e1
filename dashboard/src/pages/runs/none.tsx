// No run at all: what to type to have one.
import type { JSX } from "preact";
import { meta } from "../../session";
import { CopyButton } from "../../parts/copy";
import { Empty } from "../../parts/page";

const CODE = `use onward::{Ctx, Failure, Onward, Workflow};

const GREET: Workflow<String, String> = Workflow::named("greet");

async fn greet(ctx: Ctx, name: String) -> Result<String, Failure> {
    let text = ctx.step("compose", async |_| Ok::<_, Failure>(format!("Hello, {name}!"))).await?;
    ctx.step("send", async |step| deliver(step.id(), &text).await).await?;
    Ok(text)
}

let onward = Onward::open("sqlite:onward.db").await?;
let worker = onward.worker().serve(GREET, greet).start().await?;
let run = onward.start(GREET, &"Ada".to_owned()).key("greet-ada").await?;
println!("{}", run.result().await?);`;

export function NoRuns(): JSX.Element {
  return (
    <Empty icon="runs" title="No runs yet">
      <p>A run is one durable go of a workflow. Start one from a shell:</p>
      <div class="code-block"><pre tabIndex={0} aria-label="Commands">{"onward demo\nonward start greet --input '\"Ada\"' --key greet-ada\nonward runs list"}</pre><CopyButton text="onward demo" what="the command" /></div>
      <p>Or from your own program:</p>
      <div class="code-block"><pre tabIndex={0} aria-label="A first program">{CODE}</pre><CopyButton text={CODE} what="the program" /></div>
      {meta.value?.store === "memory" ? <p class="faint">This server's store is in memory: another process cannot see it.</p> : null}
    </Empty>
  );
}
