//! Plays that turn back: whatever was done is undone, once, and in the same order after a crash at any
//! point.

use std::time::Duration;

use onward::{Ctx, Failure};

use super::theatre::{Finale, Script, Shuffle, crash_everywhere_until};

/// A step that takes a shuffled time, notes when its result is delivered, and can be undone.
async fn done(ctx: &Ctx, shuffle: &Shuffle, name: &str) -> Result<String, Failure> {
    let (of, step) = (shuffle.clone(), name.to_owned());
    let value = ctx
        .step(name, |_| async {
            tokio::time::sleep(shuffle.pause()).await;
            Ok::<_, Failure>(format!("{name} by {}", shuffle.attempt()))
        })
        .undo(move |value: String, _| {
            let (shuffle, step) = (of.clone(), step.clone());
            async move {
                assert!(value.starts_with(&step), "{step:?} is undone with {value:?}");
                tokio::time::sleep(shuffle.pause()).await;
                shuffle.undo(&step);
                Ok::<_, Failure>(())
            }
        })
        .await?;
    shuffle.note(name);
    Ok(value)
}

async fn branch(ctx: &Ctx, shuffle: &Shuffle, name: &str) -> Result<(), Failure> {
    for number in 1..=2 {
        done(ctx, shuffle, &format!("do {name} {number}")).await?;
    }
    Ok(())
}

fn turned() -> Failure {
    Failure::fatal("the play turns back").code("turned")
}

#[test]
fn a_play_that_fails_is_undone() {
    let script: Script = |ctx, shuffle| {
        Box::pin(async move {
            done(&ctx, &shuffle, "do first").await?;
            let (a, b) = tokio::join!(branch(&ctx, &shuffle, "a"), branch(&ctx, &shuffle, "b"));
            a.and(b)?;
            Err(turned())
        })
    };
    crash_everywhere_until(script, Finale::Failed);
}

/// Some steps are recorded while others are dropped: what is recorded is undone.
#[test]
fn a_play_that_fails_in_the_middle_of_a_join_is_undone() {
    let script: Script = |ctx, shuffle| {
        Box::pin(async move {
            let fails = async {
                done(&ctx, &shuffle, "do before").await?;
                Err::<(), _>(turned())
            };
            let branches = async {
                let (a, b) = (branch(&ctx, &shuffle, "a"), branch(&ctx, &shuffle, "b"));
                tokio::try_join!(a, b)
            };
            tokio::try_join!(fails, branches)?;
            Ok(Vec::new())
        })
    };
    crash_everywhere_until(script, Finale::Failed);
}

#[test]
fn a_play_that_is_cancelled_in_the_middle_is_undone() {
    let script: Script = |ctx, shuffle| {
        Box::pin(async move {
            let of = shuffle.clone();
            ctx.on_cancel(move |_| {
                of.undo("$on_cancel/1");
                std::future::ready(Ok::<_, Failure>(()))
            });
            done(&ctx, &shuffle, "do first").await?;
            let (a, b) = tokio::join!(branch(&ctx, &shuffle, "a"), branch(&ctx, &shuffle, "b"));
            a.and(b)?;
            ctx.sleep(Duration::from_secs(60 * 60)).await;
            Ok(Vec::new())
        })
    };
    crash_everywhere_until(script, Finale::Cancelled);
}

/// A transaction may be committed though its future was dropped: then it is undone too.
#[test]
fn a_play_with_transactions_is_undone() {
    let script: Script = |ctx, shuffle| {
        Box::pin(async move {
            let keep = async |name: &str| {
                let (body, undo) = (shuffle.clone(), shuffle.clone());
                let (owned, step) = (name.to_owned(), name.to_owned());
                let keep = ctx.sqlite_transaction(name, move |db, _| {
                    std::thread::sleep(body.pause() / 4);
                    db.execute("insert into notes values (?1)", [&owned])?;
                    Ok::<_, Failure>(owned.clone())
                });
                let undone = keep.undo(move |_, _| {
                    undo.undo(&step);
                    std::future::ready(Ok::<_, Failure>(()))
                });
                undone.await?;
                shuffle.note(name);
                Ok::<_, Failure>(())
            };
            keep("do keep 1").await?;
            let fails = async {
                done(&ctx, &shuffle, "do before").await?;
                Err::<(), _>(turned())
            };
            tokio::try_join!(fails, keep("do keep 2"), keep("do keep 3"))?;
            Ok(Vec::new())
        })
    };
    super::theatre::crash_everywhere_in_sqlite(script, Finale::Failed);
}
