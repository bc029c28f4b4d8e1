//! Retrying the runs of a page, each once.
//!
//! Owns: that a write says which state of the run it is for, so that whoever was held up between look
//! and write retries nothing that another has retried meanwhile. Never waits for what a run does next.

use std::num::NonZeroU32;
use std::time::Duration;

use onward::limits::STEER_AT_ONCE;
use onward::store::Seen;
use onward::{Code, Failure, Onward, RunId};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{Page, Totals, get, is_stuck};

/// Looks at one run before the step is executed anew: a run that moves between look and write this
/// often is under somebody else's hand.
const LOOKS_MAX: usize = 8;

/// What a look at a run found.
#[derive(Debug, PartialEq, Eq)]
enum Look {
    /// It was retried since it was chosen.
    Retried,
    /// It is there no more.
    Gone,
    /// It is to be retried, as it is.
    Left(Seen),
}

/// What became of a run.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    Done,
    Skipped,
    Failed,
}

/// Retries the runs of a page, a few at once and at most so many a second, and adds them to the count.
pub(super) async fn page(
    onward: &Onward,
    page: &Page,
    pace: Option<NonZeroU32>,
    mut totals: Totals,
) -> Result<Totals, Failure> {
    let at_once = pace.map_or(STEER_AT_ONCE, |pace| STEER_AT_ONCE.min(pace.get() as usize));
    for some in page.runs.chunks(at_once) {
        let began = Instant::now();
        let mut retries = JoinSet::new();
        for id in some.iter().copied() {
            let (onward, chosen) = (onward.clone(), page.wakes.get(&id).copied());
            if page.at.is_some() && chosen.is_none() {
                // It was not to be retried when it was chosen. If it is now, then since, and a step that is
                // executed anew could not tell whether it was the one that did it.
                totals.matched += 1;
                totals.skipped += 1;
                continue;
            }
            retries.spawn(async move { one(&onward, id, chosen).await });
        }
        while let Some(fate) = retries.join_next().await {
            totals.matched += 1;
            match fate.map_err(|lost| Failure::new(lost.to_string()))?? {
                Fate::Done => totals.done += 1,
                Fate::Skipped => totals.skipped += 1,
                Fate::Failed => totals.failed += 1,
            }
        }
        if let Some(pace) = pace {
            let share = Duration::from_secs(1) * some.len() as u32 / pace.get();
            tokio::time::sleep_until(began + share).await;
        }
    }
    Ok(totals)
}

/// Retries a run, unless it was retried since it had been woken so often.
async fn one(onward: &Onward, id: RunId, chosen: Option<u64>) -> Result<Fate, Failure> {
    let mut chosen = chosen;
    for _ in 0..LOOKS_MAX {
        let seen = match look(onward, id, chosen).await? {
            Look::Retried => return Ok(Fate::Done),
            Look::Gone => return Ok(Fate::Skipped),
            Look::Left(seen) => seen,
        };
        chosen.get_or_insert(seen.wakes);
        match write(onward, seen).await {
            Ok(true) => return Ok(Fate::Done),
            Ok(false) => {}
            Err(error) => match error.code() {
                Code::RunNotFailed | Code::RunUndone | Code::RunNotFound => {
                    return Ok(Fate::Skipped);
                }
                _ if error.is_retryable() => return Err(error.into()),
                _ => return Ok(Fate::Failed),
            },
        }
    }
    Err(Failure::new(format!("run {id} changes whenever it is looked at")))
}

async fn look(onward: &Onward, id: RunId, chosen: Option<u64>) -> Result<Look, Failure> {
    let Some(run) = get(onward, id).await? else { return Ok(Look::Gone) };
    let woken = chosen.is_some_and(|wakes| run.wakes > wakes);
    // A signal wakes a run that is stuck as well, and lets it be stuck.
    if woken && !is_stuck(&run) {
        return Ok(Look::Retried);
    }
    Ok(Look::Left(Seen { run: id, wakes: run.wakes }))
}

/// Retries a run if it stands as it was seen; says whether it did. A store that cannot tell retries it as
/// it stands.
async fn write(onward: &Onward, seen: Seen) -> Result<bool, onward::Error> {
    let Some(steer) = onward.store().steer() else {
        return onward.run(seen.run).retry().await.map(|()| true);
    };
    Ok(steer.retry_seen(seen).await?)
}

#[cfg(test)]
mod tests {
    use super::super::{Action, Chosen, Operation, change, choose};
    use super::*;
    use onward::{Ctx, RunHandle, Workflow};

    const FAIL: Workflow<(), ()> = Workflow::named("fail");

    async fn failed(onward: &Onward) -> RunHandle<()> {
        let run = onward.start(FAIL, &()).await.unwrap();
        run.ended().await.unwrap();
        run
    }

    fn retry_all() -> Operation {
        Operation {
            action: Action::Retry,
            filter: Chosen { workflow: Some("fail".to_owned()), ..Chosen::default() },
            ids: Vec::new(),
            by: "ada".to_owned(),
            reason: None,
            pace: None,
            expected: None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn runs_are_retried_at_their_pace() {
        let onward = Onward::open("memory:").await.unwrap();
        onward.start_many(FAIL, (0..4).map(|_| ())).await.unwrap();
        let operation = Operation { pace: NonZeroU32::new(1), ..retry_all() };
        let page = choose(&onward, &operation, None, 0).await.unwrap();
        let begun = Instant::now();
        let totals = change(&onward, &operation, &page, Totals::default()).await.unwrap();
        assert_eq!((totals.matched, totals.skipped), (4, 4), "none of them failed");
        assert!(begun.elapsed() >= Duration::from_secs(4), "{:?}", begun.elapsed());
    }

    async fn failing(onward: &Onward) -> onward::Worker {
        let body = async |_: Ctx, ()| Err::<(), _>(Failure::fatal("no"));
        onward.worker().serve(FAIL, body).start().await.unwrap()
    }

    /// Fails where a run is retried that was not to be when it was chosen: a step that is executed anew
    /// after a crash could not tell that it had been, and would retry it again.
    #[tokio::test]
    async fn a_run_that_failed_after_it_was_chosen_is_left_alone() {
        let onward = Onward::open("memory:").await.unwrap();
        let run = onward.start(FAIL, &()).await.unwrap();
        let operation = retry_all();
        let page = choose(&onward, &operation, None, 0).await.unwrap();
        let worker = failing(&onward).await;
        assert_eq!(run.ended().await.unwrap().attempt, 1);
        let totals = change(&onward, &operation, &page, Totals::default()).await.unwrap();
        assert_eq!((totals.matched, totals.done, totals.skipped), (1, 0, 1));
        assert_eq!(run.status().await.unwrap().retried_at, None);
        worker.shutdown().await.unwrap();
    }

    /// One worker of the operation looks at a run and is held up; its successor retries the run, which
    /// fails again; the first goes on with its write.
    #[tokio::test]
    async fn a_worker_that_was_held_up_before_its_write_retries_no_run_twice() {
        let onward = Onward::open("memory:").await.unwrap();
        let worker = failing(&onward).await;
        let run = failed(&onward).await;
        let operation = retry_all();
        let page = choose(&onward, &operation, None, 0).await.unwrap();
        let chosen = page.wakes.get(&run.id()).copied();
        let Look::Left(seen) = look(&onward, run.id(), chosen).await.unwrap() else {
            panic!("it was retried before")
        };
        let successor = change(&onward, &operation, &page, Totals::default()).await.unwrap();
        assert_eq!((successor.matched, successor.done), (1, 1));
        let again = run.ended().await.unwrap();
        assert_eq!(again.attempt, 2, "the successor retried it");
        assert!(!write(&onward, seen).await.unwrap(), "it is not as it was seen");
        let left = run.status().await.unwrap();
        assert_eq!((left.attempt, left.retried_at), (2, again.retried_at));
        assert_eq!(one(&onward, run.id(), chosen).await.unwrap(), Fate::Done);
        assert_eq!(run.status().await.unwrap().retried_at, again.retried_at);
        worker.shutdown().await.unwrap();
    }

    /// As after a crash: the step was cut before it was recorded, and is executed once more.
    #[tokio::test]
    async fn a_page_that_is_changed_again_retries_no_run_twice() {
        let onward = Onward::open("memory:").await.unwrap();
        let worker = failing(&onward).await;
        let run = failed(&onward).await;
        let operation = retry_all();
        let page = choose(&onward, &operation, None, 0).await.unwrap();
        let first = change(&onward, &operation, &page, Totals::default()).await.unwrap();
        assert_eq!((first.matched, first.done, first.skipped), (1, 1, 0));
        let failed_again = run.ended().await.unwrap();
        assert_eq!(failed_again.attempt, 2, "it was retried");
        let again = change(&onward, &operation, &page, Totals::default()).await.unwrap();
        assert_eq!(again, first, "it is counted as before");
        let left = run.status().await.unwrap();
        assert_eq!(
            (left.attempt, left.retried_at),
            (failed_again.attempt, failed_again.retried_at)
        );
        let later = choose(&onward, &operation, None, 0).await.unwrap();
        let third = change(&onward, &operation, &later, Totals::default()).await.unwrap();
        assert_eq!(third.done, 1, "another operation retries it");
        assert_eq!(run.ended().await.unwrap().attempt, 3);
        worker.shutdown().await.unwrap();
    }
}
