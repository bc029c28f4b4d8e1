//! What comes of a body: within its time, and as it is recorded.
//!
//! Owns: the limit of a try, the form of a result, and the chance in a pause. Never reports anything; the step does.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::at_most_once::{Mode, unreturned};
use crate::store::BoxFuture;
use crate::{Code, Failure, Json};

/// A result as it is recorded, and read back from that.
pub(crate) fn recordable<T>(value: &T) -> Result<(T, Json), Failure>
where
    T: Serialize + DeserializeOwned,
{
    let stored = Json::of(value).and_then(|json| Ok((json.read::<T>()?, json)));
    stored.map_err(|error| {
        let code = match error.code() {
            Code::TypeMismatch => Code::NotSerializable,
            code => code,
        };
        Failure::engine(code, format!("the step's result cannot be recorded: {error}"))
    })
}

/// What comes of a body within its time.
pub(super) async fn limited<T>(
    limit: Duration,
    body: BoxFuture<'_, Result<T, Failure>>,
    mode: Mode,
) -> Result<T, Failure> {
    match tokio::time::timeout(limit, body).await {
        Ok(result) => result,
        Err(_) => {
            let timeout = Failure::engine(Code::Timeout, format!("no answer within {limit:?}"));
            Err(unreturned(timeout, mode))
        }
    }
}

/// Where in its range a pause with jitter falls: anywhere, and in a check always at one place, so
/// that two executions differ only in what their crash did.
pub(super) fn chance() -> f64 {
    #[cfg(feature = "testing")]
    if crate::testing::observer::is_installed() {
        return 0.5;
    }
    RandomState::new().hash_one(()) as f64 / u64::MAX as f64
}
