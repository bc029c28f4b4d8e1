//! Keys of a place: of runs, and of steps.
//!
//! Owns: each look in both ways. Never lists keys of runs by itself; the API does.

use onward::{Duplicates, Run, RunId, StepKey, Workflow};
use serde::Deserialize;
use serde_json::Value;

use super::run::Row;
use super::{Call, Place, segment};
use crate::problem::Problem;

#[derive(Deserialize)]
struct ShownKey {
    run: Row,
    duplicates: Duplicates,
}

#[derive(Deserialize)]
struct ShownStepKey {
    key: StepKey,
    duplicates: Duplicates,
}

#[derive(Deserialize)]
struct Released {
    released: bool,
}

impl Place {
    /// The run that has a key, and what came with it later.
    pub(crate) async fn by_key(
        &self,
        workflow: &str,
        key: &str,
    ) -> Result<(Run, Duplicates), Problem> {
        match self {
            Place::Store(onward) => {
                let wanted = Workflow::<Value, Value>::of_name(workflow);
                let handle = onward.by_key(wanted, key).await?;
                Ok((handle.status().await?, handle.duplicates().await?))
            }
            Place::Server(_) => {
                let path = format!("/keys/{}/{}", segment(workflow), segment(key));
                let shown: ShownKey = self.ask(&Call::get(path)).await?;
                Ok((shown.run.read()?, shown.duplicates))
            }
        }
    }

    /// A page of step keys after this one, by name; and whether more follow.
    pub(crate) async fn step_keys(
        &self,
        after: Option<String>,
        limit: usize,
    ) -> Result<(Vec<StepKey>, bool), Problem> {
        match self {
            Place::Store(onward) => {
                let page = onward.step_keys(after, limit).await?;
                for key in page.unreadable {
                    anstream::eprintln!(
                        "the step key {key:?} cannot be read; nobody can take it until it is released"
                    );
                }
                Ok((page.keys, page.more))
            }
            Place::Server(_) => {
                let (keys, next) = self.rows(Call::get("/step-keys"), after, limit).await?;
                Ok((keys, next.is_some()))
            }
        }
    }

    /// A step key, and what came with it later; nothing where it is free.
    pub(crate) async fn step_key(
        &self,
        key: &str,
    ) -> Result<Option<(StepKey, Duplicates)>, Problem> {
        match self {
            Place::Store(onward) => match onward.step_key(key).await? {
                Some(found) => Ok(Some((found, onward.key_duplicates(key).await?))),
                None => Ok(None),
            },
            Place::Server(_) => {
                let call = Call::get(format!("/step-keys/{}", segment(key)));
                match self.ask::<ShownStepKey>(&call).await {
                    Ok(shown) => Ok(Some((shown.key, shown.duplicates))),
                    Err(Problem::Refused { code: Some(onward::Code::KeyNotFound), .. }) => Ok(None),
                    Err(problem) => Err(problem),
                }
            }
        }
    }

    /// Forgets a step key; says whether somebody had it.
    pub(crate) async fn release_key(&self, key: &str) -> Result<bool, Problem> {
        match self {
            Place::Store(onward) => Ok(onward.release_key(key).await?),
            Place::Server(_) => {
                let call = Call::delete(format!("/step-keys/{}", segment(key)));
                Ok(self.ask::<Released>(&call).await?.released)
            }
        }
    }

    /// Frees the key of a run; says whether the run had it.
    pub(crate) async fn release_run_key(&self, run: RunId) -> Result<bool, Problem> {
        match self {
            Place::Store(onward) => Ok(onward.run(run).release_key().await?),
            Place::Server(_) => {
                let call = Call::delete(format!("/runs/{run}/key"));
                Ok(self.ask::<Released>(&call).await?.released)
            }
        }
    }
}
