//! A run that fails and turns back: what it did is undone, and the money is where it was.
//!
//! Owns: the saga, its refunds in the victim's own tables, and what must hold of them. A refund is
//! made in a step that may be executed again, so it looks for its own id first, as a bank does; that it
//! was made for each payment, and once, the checker must find out by itself.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use onward::rusqlite::{self, Connection, TransactionBehavior};
use onward::{Ctx, Entry, Failure, Record, Retry, Run, RunState, Step, Undoing, Workflow};

use crate::bank::{self, TRANSFERS};
use crate::check::{Breach, Snapshot};
use crate::effect::Times;
use crate::flow::{Input, LINGER, Output, Scene};

/// Steps with undos, one of which is a payment in a transaction; then it fails.
pub const SAGA: Workflow<Input, Output> = Workflow::named("saga");

/// What a saga fails with.
const TURNED: &str = "turned";

/// The step that pays.
const PAY: &str = TRANSFERS[0];

/// The step that pays back.
const REFUND: &str = "$undo/pay";

/// Makes the table of refunds.
///
/// # Errors
/// When the file does not take it.
pub fn open(db: &Connection) -> rusqlite::Result<()> {
    db.execute_batch(
        "create table if not exists refunds (
             step text not null, payer integer not null, payee integer not null,
             cents integer not null
         )",
    )
}

/// The function of the saga, which pays and pays back in this file.
pub fn saga(
    scene: &Scene,
    database: PathBuf,
) -> impl Fn(Ctx, Input) -> onward::store::BoxFuture<'static, Result<Output, Failure>> + use<> {
    let scene = scene.clone();
    move |ctx, input| Box::pin(play(ctx, scene.clone(), database.clone(), input))
}

async fn play(ctx: Ctx, scene: Scene, database: PathBuf, input: Input) -> Result<Output, Failure> {
    let noted = |step: Step, input: Input| {
        let scene = scene.clone();
        async move {
            scene.pen.write(&input.key, &step, Times::AtLeastOnce)?;
            tokio::time::sleep(Duration::from_millis(1)).await;
            Ok::<_, Failure>(input)
        }
    };
    // Each undo fails at its first try, so that the run parks on its way back.
    let undo = || {
        let scene = scene.clone();
        move |input: Input, step: Step| {
            let scene = scene.clone();
            async move {
                scene.pen.write(&input.key, &step, Times::AtLeastOnce)?;
                match step.try_number() {
                    1 => Err(Failure::new("not yet")),
                    _ => Ok(()),
                }
            }
        }
    };
    let again = Retry::fixed(LINGER * 2).tries(3);
    let reserve = ctx.step("reserve", |step| noted(step, input.clone()));
    reserve.undo(undo()).undo_retry(again.clone()).await?;
    let tell = ctx.step("tell", |step| noted(step, input.clone()));
    let tell = tell.undo(undo()).undo_retry(again);
    let (scene, paying) = (scene.clone(), input.clone());
    let pay = ctx.sqlite_transaction(PAY, {
        let scene = scene.clone();
        move |db, step| {
            scene.pen.write(&paying.key, step, Times::AtLeastOnce)?;
            bank::transfer(db, step, paying.number)?;
            Ok::<_, Failure>(paying.clone())
        }
    });
    let pay = pay.undo(move |paid: Input, step| {
        let (scene, database) = (scene.clone(), database.clone());
        async move {
            scene.pen.write(&paid.key, &step, Times::AtLeastOnce)?;
            tokio::task::spawn_blocking(move || refund(&database, &step, paid.number)).await?
        }
    });
    tokio::try_join!(tell, pay)?;
    Err(Failure::fatal("the order cannot be shipped").code(TURNED))
}

/// Moves the money back, unless this step has.
fn refund(database: &Path, step: &Step, number: u64) -> Result<(), Failure> {
    let mut db = Connection::open(database)?;
    db.busy_timeout(Duration::from_secs(10))?;
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let known = "select 1 from refunds where step = ?1";
    if !tx.prepare(known)?.exists([step.id()])? {
        let (payer, payee, cents) = bank::of_number(number);
        let add = "update accounts set cents = cents + ?1 where id = ?2";
        tx.execute(add, (cents, payer))?;
        tx.execute(add, (-cents, payee))?;
        tx.execute(
            "insert into refunds values (?1, ?2, ?3, ?4)",
            (step.id(), payee, payer, cents),
        )?;
    }
    Ok(tx.commit()?)
}

/// Sagas that did not end as they must: failed, with all that they did undone, last first, and each
/// payment paid back once. Refunds are looked at in any snapshot, ends only in the last.
pub fn check(last: &Snapshot) -> Vec<Breach> {
    let mut breaches = Vec::new();
    let mut refunds: BTreeMap<&str, usize> = BTreeMap::new();
    for (step, ..) in &last.ledger.refunds {
        *refunds.entry(step).or_default() += 1;
    }
    for (run, history) in last.runs.iter().filter(|(run, _)| run.workflow == SAGA.name()) {
        breaches.extend(check_end(run, history));
        let id = format!("{}/{REFUND}", run.id);
        let times = refunds.remove(id.as_str()).unwrap_or_default();
        let paid = history.iter().any(|record| record.step == PAY && is_done(record));
        if times != usize::from(paid) {
            breaches.push(Breach::Refunded(id, times));
        }
    }
    let strange = refunds.into_iter().map(|(id, times)| Breach::Refunded(id.to_owned(), times));
    breaches.extend(strange);
    breaches
}

fn is_done(record: &Record) -> bool {
    matches!(record.entry, Entry::Done(_))
}

fn check_end(run: &Run, history: &[Record]) -> Option<Breach> {
    let turned = run.failure.as_ref().is_some_and(|failure| failure.is(TURNED));
    let undoing = Undoing::of(history);
    let done =
        history.iter().rev().filter(|record| is_done(record) && !record.step.starts_with('$'));
    let whole = undoing.is_some_and(|undoing| {
        undoing.left.is_empty() && undoing.undone.iter().eq(done.map(|record| &record.step))
    });
    let well = run.state == RunState::Failed && turned && whole;
    (!well).then(|| Breach::NotUndone(run.id.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use onward::{Json, RunId, Timestamp};

    fn good() -> Snapshot {
        let at = Timestamp::from_millis(0);
        let id = RunId::from_u128(7);
        let mut run = Run::fresh(id, SAGA.name().to_owned(), Json::stored("{}"), at);
        run.state = RunState::Failed;
        run.failure = Some(Failure::fatal("no").code(TURNED));
        let record = |seq, step: &str, body: &str| {
            Record::new(seq, step, Entry::Done(Json::stored(body)), at)
        };
        let began = r#"{"outcome":{"state":"cancelled"},"undos":[2,1]}"#;
        let history = vec![
            record(1, "reserve", "1"),
            record(2, PAY, "1"),
            record(3, "$undo", began),
            record(4, REFUND, "null"),
            record(5, "$undo/reserve", "null"),
        ];
        let mut snapshot = Snapshot { runs: vec![(run, history)], ..Snapshot::default() };
        snapshot.ledger.refunds = vec![(format!("{id}/{REFUND}"), 1, 0, 3)];
        snapshot
    }

    fn finds(tamper: impl FnOnce(&mut Snapshot), wanted: fn(&Breach) -> bool) {
        let mut snapshot = good();
        tamper(&mut snapshot);
        let breaches = check(&snapshot);
        assert!(breaches.iter().any(wanted), "found only {breaches:?}");
    }

    #[test]
    fn good_saga_breaks_nothing() {
        assert_eq!(check(&good()), []);
    }

    #[test]
    fn refund_that_was_made_twice_is_found() {
        let twice = |snapshot: &mut Snapshot| {
            let refunds = &mut snapshot.ledger.refunds;
            refunds.push(refunds[0].clone());
        };
        finds(twice, |breach| matches!(breach, Breach::Refunded(_, 2)));
    }

    #[test]
    fn payment_without_a_refund_is_found() {
        let lost = |snapshot: &mut Snapshot| snapshot.ledger.refunds.clear();
        finds(lost, |breach| matches!(breach, Breach::Refunded(_, 0)));
    }

    #[test]
    fn refund_of_nothing_is_found() {
        let strange = |snapshot: &mut Snapshot| snapshot.runs.clear();
        finds(strange, |breach| matches!(breach, Breach::Refunded(_, 1)));
    }

    #[test]
    fn step_that_is_not_undone_is_found() {
        let left = |snapshot: &mut Snapshot| drop(snapshot.runs[0].1.pop());
        finds(left, |breach| matches!(breach, Breach::NotUndone(_)));
    }

    #[test]
    fn other_end_is_found() {
        let other = |snapshot: &mut Snapshot| snapshot.runs[0].0.state = RunState::Completed;
        finds(other, |breach| matches!(breach, Breach::NotUndone(_)));
    }
}
