//! What comes of a body: within its time, and as it is recorded.
//!
//! Owns: the limit of a try, and the form of a result. Never reports anything; the step does.

use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

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
) -> Result<T, Failure> {
    match tokio::time::timeout(limit, body).await {
        Ok(result) => result,
        Err(_) => Err(Failure::engine(Code::Timeout, format!("no answer within {limit:?}"))),
    }
}
