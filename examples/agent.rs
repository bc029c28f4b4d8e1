//! An AI agent whose calls are paid for once, although its process dies in the middle.
//!
//! `cargo run -p onward --example agent`
//!
//! Each answer of the model and each call of a tool is a step. The example starts itself as a second
//! process, which dies inside a tool; then it goes on with the same run. What the model had said is in
//! the run's history, and is not asked for again.

use std::path::Path;
use std::process::Command;

use onward::{Ctx, Failure, Onward, Workflow};
use serde::{Deserialize, Serialize};

const AGENT: Workflow<String, String> = Workflow::named("agent");

/// A loop without a limit is a bill without a limit.
const TURNS_MAX: usize = 10;

#[derive(Clone, Serialize, Deserialize)]
struct Message {
    role: String,
    text: String,
}

/// What the model says: what it wants to know, or the answer.
#[derive(Serialize, Deserialize)]
enum Reply {
    Call { tool: String, argument: String },
    Answer(String),
}

async fn agent(ctx: Ctx, question: String) -> Result<String, Failure> {
    let mut talk = vec![Message { role: "user".to_owned(), text: question }];
    for turn in 1..=TURNS_MAX {
        // The conversation is made of recorded results, so a replay asks the same questions. The id
        // of the step names the turn.
        let reply = ctx.step("model", async |_| model(&talk).await).id(turn).await?;
        match reply {
            Reply::Answer(answer) => return Ok(answer),
            Reply::Call { tool, argument } => {
                // A tool that changes something gets the step's id as its idempotency key.
                let call = ctx.step("tool", async |step| call(step.id(), &tool, &argument).await);
                let text = match call.id(turn).await {
                    Ok(result) => result,
                    // The model may find another way.
                    Err(failure) => format!("the tool failed: {failure}"),
                };
                talk.push(Message { role: format!("tool {tool}"), text });
            }
        }
    }
    Err(Failure::fatal("no answer within the limit").code("too_many_turns"))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    if let Some(dir) = arguments.next() {
        return serve(Path::new(&dir)).await;
    }
    let dir = tempfile::tempdir()?;
    println!("the first process:");
    let myself = std::env::current_exe()?;
    let ended = Command::new(myself).arg(dir.path()).env("DIE_IN", "weather").status()?;
    println!("it died: {ended}. The next process:");
    serve(dir.path()).await?;
    let paid = std::fs::read_to_string(dir.path().join("bill"))?;
    println!("calls of the model that were paid: {}", paid.lines().count());
    Ok(())
}

/// What every process does: open the store, serve, and ask. The key makes it one question.
async fn serve(dir: &Path) -> Result<(), Box<dyn std::error::Error>> {
    std::env::set_current_dir(dir)?;
    let onward = Onward::open("sqlite:onward.db").await?;
    let worker = onward.worker().serve(AGENT, agent).start().await?;
    let question = "Do I need an umbrella at Ada's party?".to_owned();
    let run = onward.start(AGENT, &question).key("question-1").await?;
    println!("answer: {}", run.result().await?);
    worker.shutdown().await?;
    Ok(())
}

/// Stands for a model that is paid for each call: the bill is a file that outlives the process.
async fn model(talk: &[Message]) -> Result<Reply, Failure> {
    let bill = std::fs::read_to_string("bill").unwrap_or_default();
    std::fs::write("bill", bill + "1 call\n")?;
    println!("→ model, with {} messages (this costs money)", talk.len());
    let call = |tool: &str, argument: &str| {
        let (tool, argument) = (tool.to_owned(), argument.to_owned());
        Ok(Reply::Call { tool, argument })
    };
    match talk {
        [_question] => call("calendar", "Ada's party"),
        [_, party] => call("weather", &party.text),
        [_, _, weather] => Ok(Reply::Answer(format!("Yes: {}.", weather.text))),
        _ => Err(Failure::fatal("the model is confused")),
    }
}

async fn call(key: &str, tool: &str, argument: &str) -> Result<String, Failure> {
    println!("→ tool {tool}({argument:?}) under key {key:?}");
    if std::env::var("DIE_IN").is_ok_and(|place| place == tool) {
        std::process::exit(137); // as from a kill -9: nothing is told to anybody
    }
    match tool {
        "calendar" => Ok("Saturday in Hamburg".to_owned()),
        "weather" => Ok(format!("it rains on {argument}")),
        _ => Err(Failure::fatal("there is no such tool").code("unknown_tool")),
    }
}
