//! What the API names and this build cannot do.
//!
//! Owns: the sentence that says so. Never pretends to have done anything.

use crate::answer::Answer;
use crate::problem::Problem;

fn not_here(what: &str) -> Answer {
    Err(Problem::unsupported(&format!("{what} is not a part of this build")))
}

pub(crate) async fn log() -> Answer {
    not_here("the log of a run")
}

pub(crate) async fn pause() -> Answer {
    not_here("pausing a run")
}

pub(crate) async fn fork() -> Answer {
    not_here("forking a run")
}

pub(crate) async fn queues() -> Answer {
    not_here("steering a queue")
}
