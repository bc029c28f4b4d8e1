//! Step keys in memory.
//!
//! Owns: the keys by name, each with those that came second, and the token of the last hold. Never
//! decides anything; the shared rules of `step_key` do.

use std::collections::{BTreeMap, VecDeque};

use super::*;
use crate::limits::{DUPLICATES_KEPT_MAX, KEY_PURGE_BATCH};
use crate::store::step_key::{
    Settling, Taking, after, importing, is_held, settling, taking, topic,
};

#[derive(Default)]
pub(super) struct StepKeys {
    keys: BTreeMap<String, KeyRow>,
    last_token: u64,
}

struct KeyRow {
    key: StepKey,
    /// By the holder that came second.
    duplicates: VecDeque<(String, Duplicate)>,
}

impl StepKeys {
    fn take(&mut self, take: &TakeKey, now: Timestamp) -> Result<KeyAnswer, Error> {
        let row = self.keys.get_mut(&take.key);
        match (taking(row.as_ref().map(|row| &row.key), take, now)?, row) {
            (Taking::Refused(answer, counts), Some(row)) => {
                if let Some(same_input) = counts {
                    row.count(&take.holder, same_input, now);
                }
                Ok(answer)
            }
            (Taking::Again, Some(row)) => {
                row.key.until = Some(after(now, take.lease_ms));
                Ok(KeyAnswer::Held(row.key.lease()))
            }
            _ => Ok(self.take_fresh(take, now)),
        }
    }

    fn take_fresh(&mut self, take: &TakeKey, now: Timestamp) -> KeyAnswer {
        let over = self.keys.values().filter(|row| row.key.is_over(now));
        let over: Vec<_> = over.take(KEY_PURGE_BATCH).map(|row| row.key.key.clone()).collect();
        over.iter().for_each(|key| drop(self.keys.remove(key)));
        self.last_token += 1;
        let key = take.fresh(self.last_token, now);
        let lease = key.lease();
        self.keys.insert(take.key.clone(), KeyRow { key, duplicates: VecDeque::new() });
        KeyAnswer::Held(lease)
    }

    fn live(&self, now: Timestamp) -> impl Iterator<Item = &StepKey> {
        self.keys.values().map(|row| &row.key).filter(move |key| key.is_live(now))
    }
}

impl KeyRow {
    fn count(&mut self, holder: &KeyHolder, same_input: bool, now: Timestamp) {
        if self.duplicates.iter().any(|(id, _)| *id == holder.id) {
            return;
        }
        self.key.duplicates += 1;
        let duplicate = Duplicate { at: now, caller: holder.caller.clone(), same_input };
        self.duplicates.push_back((holder.id.clone(), duplicate));
        if self.duplicates.len() > DUPLICATES_KEPT_MAX {
            self.duplicates.pop_front();
        }
    }
}

impl Keys for MemoryStore {
    fn take_key(&self, take: TakeKey) -> Answer<'_, KeyAnswer> {
        self.transact_quietly(|state, now| state.step_keys.take(&take, now))
    }

    fn renew_key(&self, lease: KeyLease, lease_ms: i64) -> Answer<'_, ()> {
        self.transact_quietly(|state, now| {
            let row = state.step_keys.keys.get_mut(&lease.key).map(|row| &mut row.key);
            let row = row.filter(|row| is_held(Some(row), &lease)).ok_or(Error::LeaseLost)?;
            row.until = Some(after(now, lease_ms));
            Ok(())
        })
    }

    fn settle_key(&self, lease: KeyLease, settle: SettleKey) -> Answer<'_, ()> {
        let answer = self.transact_quietly(|state, now| {
            let keys = &mut state.step_keys.keys;
            let row = keys.get(&lease.key).map(|row| row.key.clone());
            match settling(row, &lease, &settle, now)? {
                Settling::Already => {}
                Settling::Free => drop(keys.remove(&lease.key)),
                Settling::Keep(kept) => {
                    if let Some(row) = keys.get_mut(&lease.key) {
                        row.key = kept;
                    }
                }
            }
            Ok(())
        });
        self.hub.notify(Topic::Run(topic(&lease.key)));
        answer
    }

    fn release_key(&self, key: String) -> Answer<'_, bool> {
        let answer = self.transact_quietly(|state, now| {
            let row = state.step_keys.keys.remove(&key);
            Ok(row.is_some_and(|row| row.key.is_live(now)))
        });
        self.hub.notify(Topic::Run(topic(&key)));
        answer
    }

    fn step_key(&self, key: String) -> Answer<'_, Option<StepKey>> {
        let now = self.clock.now();
        self.read(|state| Ok(state.step_keys.live(now).find(|row| row.key == key).cloned()))
    }

    fn step_keys(&self, after: Option<String>, limit: usize) -> Answer<'_, StepKeyPage> {
        let now = self.clock.now();
        self.read(|state| {
            let limit = limit.clamp(1, PAGE_ROWS_MAX);
            let live = state.step_keys.live(now);
            let rest = live.filter(|row| after.as_ref().is_none_or(|after| row.key > *after));
            let mut keys: Vec<_> = rest.take(limit + 1).cloned().collect();
            let more = keys.len() > limit;
            keys.truncate(limit);
            Ok(StepKeyPage { keys, unreadable: Vec::new(), more })
        })
    }

    fn key_duplicates(&self, key: String) -> Answer<'_, Duplicates> {
        self.read(|state| {
            let Some(row) = state.step_keys.keys.get(&key) else {
                return Ok(Duplicates::default());
            };
            let latest = row.duplicates.iter().rev().map(|(_, kept)| kept.clone()).collect();
            Ok(Duplicates { count: row.key.duplicates, latest })
        })
    }

    fn import_key(&self, key: StepKey) -> Answer<'_, bool> {
        self.transact_quietly(|state, now| {
            let keys = &mut state.step_keys;
            let new = importing(keys.keys.get(&key.key).map(|row| &row.key), &key, now)?;
            if new {
                keys.last_token = keys.last_token.max(key.token) + 1;
                let key = StepKey { token: keys.last_token, ..key };
                let (name, duplicates) = (key.key.clone(), VecDeque::new());
                keys.keys.insert(name, KeyRow { key, duplicates });
            }
            Ok(new)
        })
    }

    fn wait_key(&self, key: &str) -> Option<Waiter> {
        Some(self.hub.wait(Topic::Run(topic(key))))
    }
}
