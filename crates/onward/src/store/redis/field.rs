//! The fields of a key's hash, and back.
//!
//! Owns: the form of what Redis keeps. Never decides anything.

use std::collections::HashMap;
use std::error::Error as StdError;

use crate::Timestamp;
use crate::json::Fingerprint;
use crate::store::{Duplicate, Error, KeyHolder, StepKey, column};

/// A key as it was read, and when.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) key: String,
    pub(super) now: Timestamp,
    /// What a write compares: nothing for a key that is not there.
    pub(super) version: String,
    /// How often the hold was written.
    pub(super) changes: u64,
    pub(super) row: Option<StepKey>,
    /// Those that came second, newest first.
    pub(super) audit: Vec<Duplicate>,
    micros: u64,
}

impl Read {
    /// Reads the fields; `micros`: the server's time.
    pub(super) fn of(
        key: &str,
        now: Timestamp,
        micros: u64,
        stored: Vec<(String, String)>,
    ) -> Result<Self, Error> {
        let mut fields = Fields(stored.into_iter().collect());
        let none = fields.0.is_empty();
        let version = fields.0.remove("version").unwrap_or_default();
        let (_, changes) = version.split_once(':').unwrap_or_default();
        let changes = changes.parse().unwrap_or(0);
        let audit = fields.0.remove("audit").unwrap_or_default();
        let mut audit = audit.lines().map(duplicate).collect::<Result<Vec<_>, _>>()?;
        audit.reverse();
        let row = if none { None } else { Some(fields.row(key)?) };
        Ok(Self { key: key.to_owned(), now, version, changes, row, audit, micros })
    }

    /// A token that no hold before had.
    pub(super) fn next_token(&self) -> u64 {
        let last = self.row.as_ref().map_or(0, |row| row.token);
        self.micros.max(last + 1)
    }
}

/// The fields that a key is written as.
pub(super) fn fields(row: &StepKey, change: u64) -> Result<Vec<(&'static str, String)>, Error> {
    let time =
        |time: Option<Timestamp>| time.map_or(String::new(), |at| at.as_millis().to_string());
    let body = column::of_key_body(row).map_err(unreadable)?;
    Ok(vec![
        ("version", format!("{}:{change}", row.token)),
        ("state", row.state.as_str().to_owned()),
        ("holder", row.holder.id.clone()),
        ("attempt", row.holder.attempt.to_string()),
        ("caller", row.holder.caller.clone()),
        ("token", row.token.to_string()),
        ("fingerprint", row.fingerprint.map_or(String::new(), |print| print.to_string())),
        ("body", body.map_or(String::new(), |body| body.into_owned())),
        ("taken_at", row.taken_at.as_millis().to_string()),
        ("settled_at", time(row.settled_at)),
        ("until", time(row.until)),
    ])
}

/// What is kept of one that came second.
pub(super) fn line(duplicate: &Duplicate) -> Result<String, Error> {
    let Duplicate { at, caller, same_input } = duplicate;
    serde_json::to_string(&(at, caller, same_input)).map_err(unreadable)
}

fn duplicate(line: &str) -> Result<Duplicate, Error> {
    let (_, kept) = line.split_once('\t').unwrap_or_default();
    let (at, caller, same_input) = serde_json::from_str(kept).map_err(unreadable)?;
    Ok(Duplicate { at, caller, same_input })
}

struct Fields(HashMap<String, String>);

impl Fields {
    fn row(mut self, key: &str) -> Result<StepKey, Error> {
        let state = self.text("state")?;
        let body = self.0.remove("body").filter(|body| !body.is_empty());
        let (state, result, failure) = column::key_body(&state, body).map_err(unreadable)?;
        Ok(StepKey {
            key: key.to_owned(),
            state,
            holder: KeyHolder {
                id: self.text("holder")?,
                attempt: self.number("attempt")?,
                caller: self.text("caller")?,
            },
            token: self.number("token")?,
            fingerprint: self.fingerprint()?,
            result,
            failure,
            taken_at: Timestamp::from_millis(self.number("taken_at")?),
            settled_at: self.time("settled_at")?,
            until: self.time("until")?,
            duplicates: self.number("duplicates")?,
        })
    }

    fn text(&mut self, name: &str) -> Result<String, Error> {
        self.0.remove(name).ok_or_else(|| unreadable(format!("the field {name} is missing")))
    }

    fn number<T: std::str::FromStr>(&mut self, name: &str) -> Result<T, Error>
    where
        T::Err: Into<Box<dyn StdError + Send + Sync>>,
    {
        self.text(name)?.parse().map_err(unreadable)
    }

    fn time(&mut self, name: &str) -> Result<Option<Timestamp>, Error> {
        match self.text(name)?.as_str() {
            "" => Ok(None),
            text => text.parse().map(Timestamp::from_millis).map(Some).map_err(unreadable),
        }
    }

    fn fingerprint(&mut self) -> Result<Option<Fingerprint>, Error> {
        let text = self.text("fingerprint")?;
        if text.is_empty() {
            return Ok(None);
        }
        let digits: Option<Vec<u8>> = (0..text.len() / 2)
            .map(|at| u8::from_str_radix(text.get(at * 2..at * 2 + 2)?, 16).ok())
            .collect();
        let bytes = digits.and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
        let bytes = bytes.ok_or_else(|| unreadable("a fingerprint of another form"))?;
        Ok(Some(Fingerprint(bytes)))
    }
}

fn unreadable(why: impl Into<Box<dyn StdError + Send + Sync>>) -> Error {
    Error::Corrupt(why.into())
}
