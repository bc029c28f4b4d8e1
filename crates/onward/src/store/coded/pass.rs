//! The way in and the way out: what is done to each payload.
//!
//! Owns: [`Sealing`] and [`Opening`], and the form in which a failure and a child's end are hidden.
//! Never stops at a payload that cannot be read: it is left as it is stored, and the first is noted.

use serde::{Deserialize, Serialize};

use super::visit::Visit;
use crate::codec::{self, CodecError, Coding, PayloadPlace, Unreadable, is_envelope};
use crate::store::signal::Outcome;
use crate::store::{Error, Outage};
use crate::{Failure, Fingerprint, Json, Run, RunId};

/// What is hidden of a failure.
#[derive(Serialize, Deserialize)]
struct Hidden {
    message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    details: Option<Json>,
}

/// Encodes every payload that it is shown.
pub(super) struct Sealing<'a> {
    coding: &'a Coding,
    error: Option<CodecError>,
}

impl<'a> Sealing<'a> {
    pub(super) fn new(coding: &'a Coding) -> Self {
        Self { coding, error: None }
    }

    /// What stopped a codec, as when a store does not answer: the write can be repeated.
    pub(super) fn done(self) -> Result<(), Error> {
        match self.error {
            None => Ok(()),
            Some(error) => Err(Error::Unavailable(Outage::NoAnswer, error)),
        }
    }

    fn encode(&mut self, place: &PayloadPlace<'_>, plain: &str) -> Option<Json> {
        let stored = self.coding.encode(place, plain);
        self.note(stored).flatten().map(Json::stored)
    }

    fn note<T>(&mut self, encoded: Result<T, CodecError>) -> Option<T> {
        encoded.map_err(|error| self.error.get_or_insert(error)).ok()
    }
}

impl Visit for Sealing<'_> {
    fn json(&mut self, place: PayloadPlace<'_>, json: &mut Json) {
        if let Some(stored) = self.encode(&place, json.as_str()) {
            *json = stored;
        }
    }

    fn input(
        &mut self,
        place: PayloadPlace<'_>,
        _debounced: Option<PayloadPlace<'_>>,
        input: &mut Json,
    ) {
        self.json(place, input);
    }

    fn failure(&mut self, place: PayloadPlace<'_>, failure: &mut Failure) {
        let hidden = Hidden { message: failure.message.clone(), details: failure.details.clone() };
        let Ok(plain) = serde_json::to_string(&hidden) else { return };
        // Details that only look like an envelope are put into one.
        let lookalike = hidden.details.is_some_and(|details| is_envelope(details.as_str()));
        let stored = match lookalike {
            true => {
                let wrapped = self.coding.wrap(&place, &plain);
                self.note(wrapped).map(Json::stored)
            }
            false => self.encode(&place, &plain),
        };
        if let Some(stored) = stored {
            failure.replace(codec::describe(&stored).unwrap_or_default(), Some(stored));
        }
    }

    fn text(&mut self, place: PayloadPlace<'_>, text: &mut String) {
        let Ok(plain) = serde_json::to_string(text) else { return };
        if let Some(stored) = self.encode(&place, &plain) {
            *text = stored.as_str().to_owned();
        }
    }

    fn fingerprint(&mut self, fingerprint: &mut Fingerprint) {
        *fingerprint = self.coding.fingerprint(*fingerprint);
    }

    fn signal(&mut self, place: PayloadPlace<'_>, _child: Option<RunId>, body: &mut Json) {
        self.json(place, body);
    }
}

/// Decodes every payload that it is shown.
pub(super) struct Opening<'a> {
    coding: &'a Coding,
    /// Whether the run goes on for another, whose signals it may have.
    continued: bool,
    unreadable: Option<Unreadable>,
}

impl<'a> Opening<'a> {
    pub(super) fn new(coding: &'a Coding) -> Self {
        Self { coding, continued: false, unreadable: None }
    }

    /// As for what belongs to this run.
    pub(super) fn of_run(coding: &'a Coding, run: &Run) -> Self {
        Self { continued: run.continued_from.is_some(), ..Self::new(coding) }
    }

    /// The first payload that could not be read.
    pub(super) fn unreadable(self) -> Option<Unreadable> {
        self.unreadable
    }

    /// An error if there is a payload that could not be read.
    pub(super) fn done(self) -> Result<(), Error> {
        match self.unreadable {
            None => Ok(()),
            Some(unreadable) => Err(Error::Unreadable(Box::new(unreadable))),
        }
    }

    fn decode(&mut self, place: &PayloadPlace<'_>, stored: &str) -> Opened {
        match self.coding.decode(place, stored) {
            Ok(Some(plain)) => Opened::Decoded(plain),
            Ok(None) => Opened::Plain,
            Err(unreadable) => {
                self.unreadable.get_or_insert(unreadable);
                Opened::Unreadable
            }
        }
    }

    /// Opens what the store wrote itself when a child ended: its end, with what is hidden of it.
    fn child_end(&mut self, child: RunId, body: &mut Json) -> Option<()> {
        let mut outcome: Outcome = serde_json::from_str(body.as_str()).ok()?;
        let Outcome { state: _, output, failure } = &mut outcome;
        if let Some(output) = output {
            self.json(PayloadPlace::Output { run: child }, output);
        }
        if let Some(failure) = failure {
            self.failure(PayloadPlace::Failure { run: child }, failure);
        }
        *body = Json::stored(serde_json::to_string(&outcome).ok()?);
        Some(())
    }
}

/// What came of a payload.
enum Opened {
    Decoded(String),
    Plain,
    Unreadable,
}

/// What is shown in the place of a payload that cannot be read: itself, as it is stored. One that is
/// plain, where that is refused, must not be taken for a value, and is shown as if it were encoded.
fn shown(json: Json) -> Json {
    match is_envelope(json.as_str()) {
        true => json,
        false => Json::stored(codec::stored_plainly(json.as_str())),
    }
}

impl Visit for Opening<'_> {
    fn json(&mut self, place: PayloadPlace<'_>, json: &mut Json) {
        match self.decode(&place, json.as_str()) {
            Opened::Decoded(plain) => *json = Json::stored(plain),
            Opened::Plain => {}
            Opened::Unreadable => *json = shown(json.clone()),
        }
    }

    fn input(
        &mut self,
        place: PayloadPlace<'_>,
        debounced: Option<PayloadPlace<'_>>,
        input: &mut Json,
    ) {
        let decoded = match (self.coding.decode(&place, input.as_str()), debounced) {
            (Err(unreadable), Some(debounced)) => {
                let decoded = self.coding.decode(&debounced, input.as_str());
                decoded.ok().flatten().map(Some).ok_or(unreadable)
            }
            (decoded, _) => decoded,
        };
        match decoded {
            Ok(Some(plain)) => *input = Json::stored(plain),
            Ok(None) => {}
            Err(unreadable) => {
                self.unreadable.get_or_insert(unreadable);
                *input = shown(input.clone());
            }
        }
    }

    fn failure(&mut self, place: PayloadPlace<'_>, failure: &mut Failure) {
        let stored = failure.details.clone().unwrap_or_else(|| Json::stored("null"));
        match self.decode(&place, stored.as_str()) {
            Opened::Decoded(plain) => {
                if let Ok(Hidden { message, details }) = serde_json::from_str(&plain) {
                    failure.replace(message, details);
                }
            }
            Opened::Plain => {}
            Opened::Unreadable => {
                let stored = shown(stored);
                failure.replace(codec::describe(&stored).unwrap_or_default(), Some(stored));
            }
        }
    }

    fn text(&mut self, place: PayloadPlace<'_>, text: &mut String) {
        if !is_envelope(text) {
            return;
        }
        let plain = self.coding.decode(&place, text).ok().flatten();
        let read = plain.and_then(|plain| serde_json::from_str(&plain).ok());
        // It is for people, who are told what they cannot read; no run depends on it.
        *text = read.or_else(|| codec::describe(&Json::stored(text.as_str()))).unwrap_or_default();
    }

    fn fingerprint(&mut self, _fingerprint: &mut Fingerprint) {}

    fn signal(&mut self, place: PayloadPlace<'_>, child: Option<RunId>, body: &mut Json) {
        let child = child.filter(|_| !is_envelope(body.as_str()));
        if child.and_then(|child| self.child_end(child, body)).is_some() {
            return;
        }
        let sent_to = Coding::sent_to(body.as_str()).filter(|_| self.continued);
        let place = match (place, sent_to) {
            (PayloadPlace::Signal { name, key, .. }, Some(run)) => {
                PayloadPlace::Signal { run, name, key }
            }
            (place, _) => place,
        };
        self.json(place, body);
    }
}
