//! What a server is sent for runs: starts, signals, answers to callbacks.
//!
//! Owns: the bodies of these calls. A store is given the same by the library's own builders.

use std::collections::BTreeMap;

use onward::limits::QUEUE_DEFAULT;
use onward::{Json, OnConflict, Run, RunId, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Call, Place, segment};
use crate::problem::Problem;

/// A start, as a server is asked for it.
#[derive(Debug, Serialize)]
pub(crate) struct NewStart<'a> {
    pub(crate) input: &'a RawValue,
    /// Left out where nobody chose one, so that a repeat does not name another than its run has.
    #[serde(skip_serializing_if = "is_default_queue")]
    pub(crate) queue: &'a str,
    #[serde(skip_serializing_if = "is_default_priority")]
    pub(crate) priority: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lane: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) delay_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) timeout_ms: Option<u64>,
    pub(crate) tags: BTreeMap<&'a str, &'a str>,
    pub(crate) on_conflict: OnConflict,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key_ttl_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) debounce_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) debounce_max_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) throttle_ms: Option<u64>,
}

fn is_default_queue(queue: &&str) -> bool {
    *queue == QUEUE_DEFAULT
}

fn is_default_priority(priority: &i32) -> bool {
    *priority == 0
}

#[derive(Deserialize)]
struct Started {
    run: Run,
    replayed: bool,
}

#[derive(Serialize)]
struct NewSignal<'a> {
    name: &'a str,
    value: &'a Json,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
}

#[derive(Serialize)]
struct Answered<'a> {
    token: &'a str,
    value: &'a Json,
}

impl Place {
    /// Has the API start a run; says whether it was there.
    pub(crate) async fn start(
        &self,
        workflow: &str,
        new: &NewStart<'_>,
        key: Option<&str>,
    ) -> Result<(Run, bool), Problem> {
        let call = Call::post(format!("/workflows/{}/runs", segment(workflow)));
        let started: Started = self.ask(&call.key(key).body(new)?).await?;
        Ok((started.run, started.replayed))
    }

    /// Sends a run a signal.
    pub(crate) async fn signal(
        &self,
        run: RunId,
        name: &str,
        value: &Json,
        key: Option<&str>,
    ) -> Result<(), Problem> {
        match self {
            Place::Store(onward) => {
                let mut signal = onward.run(run).signal(name, value);
                if let Some(key) = key {
                    signal = signal.key(key);
                }
                Ok(signal.await?)
            }
            Place::Server(_) => {
                let call = Call::post(format!("/runs/{run}/signals"));
                let call = call.body(&NewSignal { name, value, key })?;
                self.ask::<Box<RawValue>>(&call).await.map(drop)
            }
        }
    }

    /// Answers a callback.
    pub(crate) async fn resolve(&self, token: &str, value: &Json) -> Result<(), Problem> {
        match self {
            Place::Store(onward) => Ok(onward.resolve(token, value).await?),
            Place::Server(_) => {
                let call =
                    Call::post("/callbacks").body(&Answered { token: token.trim(), value })?;
                self.ask::<Box<RawValue>>(&call).await.map(drop)
            }
        }
    }
}
