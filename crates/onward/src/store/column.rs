//! The form of what the databases keep in a column, alike in each.
//!
//! Owns: how an entry, what came of a step key and an answered settle are written, and read back.
//! Never knows a database.
#![cfg_attr(
    not(any(feature = "sqlite", feature = "postgres")),
    allow(dead_code, reason = "keys alone need a part of it")
)]

use std::borrow::Cow;
use std::error::Error as StdError;

use super::{KeyState, Settled, StepKey};
use crate::{Entry, Failure, Json, Record, RecordKind, Timestamp};

/// Why a stored value cannot be read.
type Unreadable = Box<dyn StdError + Send + Sync>;

/// The kind under which a step is kept that is done and can be undone.
const UNDOABLE: &str = "undoable";

/// The column `kind` of a record.
pub(super) fn of_kind(record: &Record) -> &'static str {
    let kind = record.entry.kind();
    if record.undoable && kind == RecordKind::Done { UNDOABLE } else { kind.as_str() }
}

/// Whether a record of this kind can be undone.
pub(super) fn is_undoable(kind: &str) -> bool {
    kind == UNDOABLE
}

/// The columns `body` and `next_at` of an entry.
pub(super) type EntryColumns<'a> = (Option<Cow<'a, str>>, Option<i64>);

/// Writes an entry. What is text already is not copied: a step's result is the hot case.
pub(super) fn of_entry(entry: &Entry) -> Result<EntryColumns<'_>, serde_json::Error> {
    let text = |failure: &Failure| serde_json::to_string(failure).map(Cow::Owned).map(Some);
    Ok(match entry {
        Entry::Done(json) | Entry::Arrived(json) => (Some(Cow::Borrowed(json.as_str())), None),
        Entry::Failed(failure) => (text(failure)?, None),
        Entry::TryFailed { failure, next_at } => (text(failure)?, Some(next_at.as_millis())),
        Entry::Began | Entry::Fired => (None, None),
    })
}

/// Reads an entry of this kind.
pub(super) fn entry(
    kind: &str,
    body: Option<String>,
    next_at: Option<Timestamp>,
) -> Result<Entry, Unreadable> {
    let missing = || format!("a record of kind {kind:?} lacks a value");
    let failure = |body: Option<String>| -> Result<Failure, Unreadable> {
        Ok(serde_json::from_str(&body.ok_or_else(missing)?)?)
    };
    match kind {
        "done" | UNDOABLE => Ok(Entry::Done(Json::stored(body.ok_or_else(missing)?))),
        "failed" => Ok(Entry::Failed(failure(body)?)),
        "try_failed" => {
            let next_at = next_at.ok_or_else(missing)?;
            Ok(Entry::TryFailed { failure: failure(body)?, next_at })
        }
        "began" => Ok(Entry::Began),
        "fired" => Ok(Entry::Fired),
        "arrived" => Ok(Entry::Arrived(Json::stored(body.ok_or_else(missing)?))),
        _ => Err(format!("no record is of kind {kind:?}").into()),
    }
}

/// Writes what came of a step key.
pub(super) fn of_key_body(key: &StepKey) -> Result<Option<Cow<'_, str>>, serde_json::Error> {
    Ok(match (&key.result, &key.failure) {
        (Some(json), _) => Some(Cow::Borrowed(json.as_str())),
        (None, Some(failure)) => Some(Cow::Owned(serde_json::to_string(failure)?)),
        (None, None) => None,
    })
}

/// A step key's state, and what came of it.
pub(super) type KeyBody = (KeyState, Option<Json>, Option<Failure>);

/// Reads what came of a step key in this state.
pub(super) fn key_body(state: &str, body: Option<String>) -> Result<KeyBody, Unreadable> {
    let known = KeyState::of(state).ok_or_else(|| format!("no key is {state:?}"))?;
    let missing = || format!("a key that is {state:?} lacks its value");
    Ok(match known {
        KeyState::Held => (known, None, None),
        KeyState::Done => (known, Some(Json::stored(body.ok_or_else(missing)?)), None),
        KeyState::Failed => (known, None, Some(serde_json::from_str(&body.ok_or_else(missing)?)?)),
    })
}

/// How an answered settle is kept.
pub(super) fn of_settled(settled: Settled) -> &'static str {
    match settled {
        Settled::AsSaid => "as_said",
        Settled::Queued => "queued",
    }
}

/// What a settle answered, as it was kept.
pub(super) fn settled(text: &str) -> Result<Settled, Unreadable> {
    match text {
        "as_said" => Ok(Settled::AsSaid),
        "queued" => Ok(Settled::Queued),
        _ => Err(format!("no settle answers {text:?}").into()),
    }
}
