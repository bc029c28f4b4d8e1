//! The victim's own tables, in the store's file: accounts, what was moved between them, and orders.
//!
//! Owns: the money. A transfer moves it and leaves a row, in a transactional step; an order is
//! written and its run started in a transaction of the victim's own. Nothing in the schema keeps a
//! transfer from being applied twice: the checker must find it.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::path::Path;
use std::time::Duration;

use onward::rusqlite::{self, Connection, TransactionBehavior};
use onward::{Entry, Failure, Onward, Run, Step};

use crate::check::{Breach, Snapshot};
use crate::flow::{Input, TRANSFER};
use crate::saga::{self, SAGA};

/// How many accounts there are, and what each begins with.
const ACCOUNTS: i64 = 4;
const CENTS: i64 = 100_000;

/// The steps that are transfers.
pub const TRANSFERS: [&str; 3] = ["pay", "fee", "instalment"];

/// What the tables hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Each account's money.
    pub accounts: BTreeMap<i64, i64>,
    /// Every transfer that was applied: the step's id, from, to and cents.
    pub transfers: Vec<(String, i64, i64, i64)>,
    /// Every payment that was paid back: the undo's id, from, to and cents.
    pub refunds: Vec<(String, i64, i64, i64)>,
    /// The keys of the orders.
    pub orders: BTreeSet<String>,
}

/// Opens the tables, and makes them.
///
/// # Errors
/// When the file does not take them.
pub fn open(path: &Path) -> rusqlite::Result<Connection> {
    let mut db = Connection::open(path)?;
    db.busy_timeout(Duration::from_secs(10))?;
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    tx.execute_batch(
        "create table if not exists accounts (id integer primary key, cents integer not null);
         create table if not exists transfers (
             step text not null, payer integer not null, payee integer not null,
             cents integer not null
         );
         create table if not exists orders (key text primary key)",
    )?;
    saga::open(&tx)?;
    for id in 0..ACCOUNTS {
        tx.execute("insert or ignore into accounts values (?1, ?2)", (id, CENTS))?;
    }
    tx.commit()?;
    Ok(db)
}

/// Writes an order and starts its run, both or neither.
///
/// # Errors
/// When the store or the file refuses it.
pub fn order(onward: &Onward, db: &mut Connection, input: &Input) -> Result<(), Box<dyn Error>> {
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    tx.execute("insert or ignore into orders values (?1)", [&input.key])?;
    onward.start(TRANSFER, input).key(input.key.as_str()).in_sqlite(&tx)?;
    Ok(tx.commit()?)
}

/// Moves money between two accounts that depend on `number`.
///
/// # Errors
/// When the file refuses it.
pub fn transfer(db: &Connection, step: &Step, number: u64) -> Result<(), Failure> {
    let (payer, payee, cents) = of_number(number);
    let add = "update accounts set cents = cents + ?1 where id = ?2";
    db.execute(add, (-cents, payer))?;
    db.execute("insert into transfers values (?1, ?2, ?3, ?4)", (step.id(), payer, payee, cents))?;
    db.execute(add, (cents, payee))?;
    Ok(())
}

/// Who pays whom, and how much.
pub fn of_number(number: u64) -> (i64, i64, i64) {
    let number = number.cast_signed();
    (number.rem_euclid(ACCOUNTS), (number + 1).rem_euclid(ACCOUNTS), 1 + number % 7)
}

impl Ledger {
    /// Reads the tables; nothing where there are none yet.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn read(path: &Path) -> rusqlite::Result<Self> {
        let db = Connection::open(path)?;
        if !db.table_exists(None, "orders")? {
            return Ok(Self::default());
        }
        let mut accounts = db.prepare("select id, cents from accounts")?;
        let accounts = accounts.query_map((), |row| Ok((row.get(0)?, row.get(1)?)))?;
        let mut transfers = db.prepare("select step, payer, payee, cents from transfers")?;
        let transfers = transfers
            .query_map((), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))?;
        let mut refunds = db.prepare("select step, payer, payee, cents from refunds")?;
        let refunds = refunds
            .query_map((), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))?;
        let mut orders = db.prepare("select key from orders")?;
        let orders = orders.query_map((), |row| row.get(0))?;
        Ok(Self {
            accounts: accounts.collect::<Result<_, _>>()?,
            transfers: transfers.collect::<Result<_, _>>()?,
            refunds: refunds.collect::<Result<_, _>>()?,
            orders: orders.collect::<Result<_, _>>()?,
        })
    }
}

/// Transfers that were applied otherwise than once for each record, accounts that do not add up,
/// and orders without a run or runs without an order.
pub fn check(snapshot: &Snapshot) -> Vec<Breach> {
    let ledger = &snapshot.ledger;
    let mut breaches = Vec::new();
    let mut applied: BTreeMap<&str, usize> = BTreeMap::new();
    let mut expected: BTreeMap<i64, i64> = ledger.accounts.keys().map(|id| (*id, CENTS)).collect();
    for (step, payer, payee, cents) in &ledger.transfers {
        *applied.entry(step).or_default() += 1;
        *expected.entry(*payer).or_default() -= cents;
        *expected.entry(*payee).or_default() += cents;
    }
    for (_, payer, payee, cents) in &ledger.refunds {
        *expected.entry(*payer).or_default() -= cents;
        *expected.entry(*payee).or_default() += cents;
    }
    let recorded = recorded(snapshot);
    for step in applied.keys().copied().chain(recorded.iter().map(String::as_str)) {
        let times = applied.get(step).copied().unwrap_or_default();
        if times != usize::from(recorded.contains(step)) {
            breaches.push(Breach::Applied(step.to_owned(), times));
        }
    }
    let wrong = expected.iter().filter(|(id, cents)| ledger.accounts.get(id) != Some(cents));
    breaches.extend(wrong.map(|(id, _)| Breach::Unbalanced(*id)));
    let keys = snapshot.runs.iter().filter(|(run, _)| run.workflow == TRANSFER.name());
    let keys: BTreeSet<String> = keys.filter_map(|(run, _)| run.key.clone()).collect();
    breaches.extend(keys.symmetric_difference(&ledger.orders).cloned().map(Breach::Alone));
    breaches
}

/// The ids of the transfers that are recorded as done.
fn recorded(snapshot: &Snapshot) -> BTreeSet<String> {
    let pays = |run: &Run| run.workflow == TRANSFER.name() || run.workflow == SAGA.name();
    let runs = snapshot.runs.iter().filter(|(run, _)| pays(run));
    let ids = runs.flat_map(|(run, history)| {
        let done = history.iter().filter(|record| matches!(record.entry, Entry::Done(_)));
        let done = done.filter(|record| is_transfer(&record.step));
        done.map(move |record| format!("{}/{}", run.id, record.step))
    });
    ids.collect()
}

/// Whether a step, the second or third of its name too, is a transfer.
fn is_transfer(step: &str) -> bool {
    step.split('#').next().is_some_and(|name| TRANSFERS.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use onward::{Json, Record, RunId, Timestamp};

    const KEY: &str = "transfer-0-1";

    fn good() -> Snapshot {
        let at = Timestamp::from_millis(0);
        let id = RunId::from_u128(7);
        let mut run = Run::fresh(id, TRANSFER.name().to_owned(), Json::stored("{}"), at);
        run.key = Some(KEY.to_owned());
        let history = vec![Record::new(1, "pay", Entry::Done(Json::stored("1")), at)];
        let ledger = Ledger {
            accounts: BTreeMap::from([(0, CENTS - 3), (1, CENTS + 3)]),
            transfers: vec![(format!("{id}/pay"), 0, 1, 3)],
            refunds: Vec::new(),
            orders: BTreeSet::from([KEY.to_owned()]),
        };
        Snapshot { runs: vec![(run, history)], ledger, ..Snapshot::default() }
    }

    fn finds(tamper: impl FnOnce(&mut Snapshot), wanted: fn(&Breach) -> bool) {
        let mut snapshot = good();
        tamper(&mut snapshot);
        let breaches = check(&snapshot);
        assert!(breaches.iter().any(wanted), "found only {breaches:?}");
    }

    #[test]
    fn good_ledger_breaks_nothing() {
        assert_eq!(check(&good()), []);
        assert_eq!(check(&Snapshot::default()), []);
    }

    #[test]
    fn transfer_that_was_applied_twice_is_found() {
        let again = |snapshot: &mut Snapshot| {
            let transfers = &mut snapshot.ledger.transfers;
            transfers.push(transfers[0].clone());
        };
        finds(again, |breach| matches!(breach, Breach::Applied(_, 2)));
    }

    #[test]
    fn record_without_its_transfer_is_found() {
        let lost = |snapshot: &mut Snapshot| snapshot.ledger.transfers.clear();
        finds(lost, |breach| matches!(breach, Breach::Applied(_, 0)));
    }

    #[test]
    fn transfer_without_its_record_is_found() {
        let lost = |snapshot: &mut Snapshot| snapshot.runs[0].1.clear();
        finds(lost, |breach| matches!(breach, Breach::Applied(_, 1)));
    }

    #[test]
    fn lost_money_is_found() {
        let lose =
            |snapshot: &mut Snapshot| snapshot.ledger.accounts = BTreeMap::from([(0, CENTS)]);
        finds(lose, |breach| matches!(breach, Breach::Unbalanced(0)));
    }

    #[test]
    fn order_without_a_run_is_found() {
        let lose = |snapshot: &mut Snapshot| snapshot.runs.clear();
        finds(lose, |breach| matches!(breach, Breach::Alone(_)));
    }

    #[test]
    fn run_without_an_order_is_found() {
        let lose = |snapshot: &mut Snapshot| snapshot.ledger.orders.clear();
        finds(lose, |breach| matches!(breach, Breach::Alone(_)));
    }
}
