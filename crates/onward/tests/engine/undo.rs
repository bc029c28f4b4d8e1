//! Runs that turn back: undos and `on_cancel`, through the public face.

mod crash;
mod ends;
mod way;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use onward::{Ctx, Failure, RunHandle, StepFuture, Undoing, Workflow};

/// The workflow of most tests.
const WORK: Workflow<(), ()> = Workflow::named("work");

/// What was executed, in order.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn add(&self, line: impl Into<String>) {
        self.0.lock().unwrap().push(line.into());
    }

    fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    /// A step that notes that it executes, gives a number, and notes that it is undone.
    fn step<'a>(&self, ctx: &Ctx, name: &'a str, number: u32) -> StepFuture<'a, u32> {
        let (doing, undoing, undone) = (self.clone(), self.clone(), name.to_owned());
        let step = ctx.step(name, move |_| {
            doing.add(name);
            std::future::ready(Ok::<_, Failure>(number))
        });
        step.undo(move |number: u32, _| {
            undoing.add(format!("undo {undone} {number}"));
            std::future::ready(Ok::<_, Failure>(()))
        })
    }

    /// Notes the line when what is returned is dropped.
    fn at_drop(&self, line: &str) -> AtDrop {
        AtDrop(self.clone(), line.to_owned())
    }

    async fn until(&self, line: &str) {
        let waiting = async {
            while !self.lines().iter().any(|found| found == line) {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(20), waiting).await;
        assert!(waited.is_ok(), "{line:?} never came: {:?}", self.lines());
    }
}

struct AtDrop(Log, String);

impl Drop for AtDrop {
    fn drop(&mut self) {
        self.0.add(self.1.as_str());
    }
}

async fn steps_of(run: &RunHandle<()>) -> Vec<String> {
    run.history().await.unwrap().into_iter().map(|record| record.step).collect()
}

async fn undoing(run: &RunHandle<()>) -> Undoing {
    Undoing::of(&run.history().await.unwrap()).expect("the run turned back")
}
