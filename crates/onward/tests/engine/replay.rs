//! P8: results reach the workflow function in the order they were recorded, live and on replay,
//! so plain combinators choose the same way again after a crash at any point.

mod back;
mod theatre;

use std::time::Duration;

use futures::future::join_all;
use futures::stream::{FuturesUnordered, StreamExt};
use onward::{Ctx, Failure, SignalFuture};

use theatre::{
    ECHO, Finale, Script, Shuffle, crash_everywhere, crash_everywhere_encoded,
    crash_everywhere_in_sqlite,
};

/// A step that takes a shuffled time, and notes when its result is delivered.
async fn noted(ctx: &Ctx, shuffle: &Shuffle, name: &str) -> Result<String, Failure> {
    let value = ctx
        .step(name, |_| async {
            tokio::time::sleep(shuffle.pause()).await;
            Ok::<_, Failure>(format!("{name} by {}", shuffle.attempt()))
        })
        .await?;
    shuffle.note(name);
    Ok(value)
}

async fn noted_sleep(ctx: &Ctx, shuffle: &Shuffle, name: &str) {
    ctx.sleep(shuffle.fixed_pause(name)).await;
    shuffle.note(name);
}

#[test]
fn join_chooses_the_same_way_again() {
    let script: Script = |ctx, shuffle| {
        Box::pin(async move {
            let branch = async |name: &str| {
                let first = noted(&ctx, &shuffle, &format!("{name} 1")).await?;
                let second = noted(&ctx, &shuffle, &format!("{name} 2")).await?;
                Ok::<_, Failure>(vec![first, second])
            };
            let (a, b, c, ()) = tokio::join!(
                branch("a"),
                branch("b"),
                branch("c"),
                noted_sleep(&ctx, &shuffle, "$sleep"),
            );
            Ok([a?, b?, c?].concat())
        })
    };
    crash_everywhere(script);
}

#[test]
fn select_chooses_the_same_way_again() {
    let script: Script = |ctx, shuffle| {
        Box::pin(async move {
            let mut won = Vec::new();
            for round in 1..=4 {
                let names = [format!("left {round}"), format!("right {round}")];
                let pause = shuffle.fixed_pause(&names[0]);
                won.push(tokio::select! {
                    left = noted(&ctx, &shuffle, &names[0]) => left?,
                    right = noted(&ctx, &shuffle, &names[1]) => right?,
                    () = ctx.sleep(pause) => {
                        shuffle.note(&sleep_name(round));
                        "slept".to_owned()
                    }
                });
            }
            won.push(noted(&ctx, &shuffle, "last").await?);
            Ok(won)
        })
    };
    crash_everywhere(script);
}

fn sleep_name(number: u32) -> String {
    if number == 1 { "$sleep".to_owned() } else { format!("$sleep#{number}") }
}

/// More than 30 futures: `join_all` then polls only the children that were woken.
#[test]
fn join_all_chooses_the_same_way_again() {
    let script: Script = |ctx, shuffle| {
        Box::pin(async move {
            let names: Vec<_> = (0..40).map(|number| format!("part {number}")).collect();
            let parts = names.iter().map(|name| noted(&ctx, &shuffle, name));
            let mut all: Vec<_> = join_all(parts).await.into_iter().collect::<Result<_, _>>()?;
            all.push(noted(&ctx, &shuffle, "last").await?);
            Ok(all)
        })
    };
    crash_everywhere(script);
}

#[test]
fn futures_unordered_chooses_the_same_way_again() {
    let script: Script = |ctx, shuffle| {
        Box::pin(async move {
            let names: Vec<_> = (0..8).map(|number| format!("part {number}")).collect();
            let mut parts: FuturesUnordered<_> =
                names.iter().map(|name| noted(&ctx, &shuffle, name)).collect();
            let mut order = Vec::new();
            while let Some(part) = parts.next().await {
                order.push(part?);
                // A step between two results: it must fall between the same two again.
                if order.len() == 3 {
                    order.push(noted(&ctx, &shuffle, "between").await?);
                }
            }
            Ok(order)
        })
    };
    crash_everywhere(script);
}

/// A future that is polled, put aside and polled again later, while others take their turn.
#[test]
fn a_future_put_aside_keeps_its_result() {
    let script: Script = |ctx, shuffle| {
        Box::pin(async move {
            let mut aside = Box::pin(noted(&ctx, &shuffle, "aside"));
            let first = tokio::select! {
                aside = &mut aside => return Ok(vec![aside?]),
                first = noted(&ctx, &shuffle, "first") => first?,
            };
            let second = noted(&ctx, &shuffle, "second").await?;
            Ok(vec![first, second, aside.await?])
        })
    };
    crash_everywhere(script);
}

/// Branches that speak over a channel: the function wakes itself within one poll.
#[test]
fn branches_that_talk_choose_the_same_way_again() {
    let script: Script = |ctx, shuffle| {
        Box::pin(async move {
            let (send, mut receive) = tokio::sync::mpsc::channel(1);
            let sender = async {
                for number in 0..3 {
                    let value = noted(&ctx, &shuffle, &format!("made {number}")).await?;
                    let _ = send.send(value).await;
                }
                drop(send);
                Ok::<_, Failure>(())
            };
            let receiver = async {
                let mut got = Vec::new();
                while let Some(value) = receive.recv().await {
                    got.push(value);
                    got.push(noted(&ctx, &shuffle, &format!("used {}", got.len())).await?);
                }
                Ok::<_, Failure>(got)
            };
            let (sent, got) = tokio::join!(sender, receiver);
            sent?;
            got
        })
    };
    crash_everywhere(script);
}

/// Long sleeps park the run, so every wake is a replay.
#[test]
fn parked_timers_fire_in_the_same_order_again() {
    let script: Script = |ctx, shuffle| {
        Box::pin(async move {
            // Each sleep is made before the first of them is polled, so that it keeps its number.
            let nap = |ms: u64, name: &'static str| {
                let (sleep, shuffle) = (ctx.sleep(Duration::from_millis(ms)), &shuffle);
                async move {
                    sleep.await;
                    shuffle.note(name);
                }
            };
            tokio::join!(nap(60, "$sleep"), nap(30, "$sleep#2"), nap(90, "$sleep#3"));
            Ok(vec![noted(&ctx, &shuffle, "last").await?])
        })
    };
    crash_everywhere(script);
}

/// A transaction that leaves its name, after a shuffled time on the writer's thread.
async fn kept(ctx: &Ctx, shuffle: &Shuffle, name: &str) -> Result<String, Failure> {
    let (body, owned) = (shuffle.clone(), name.to_owned());
    let value = ctx
        .sqlite_transaction(name, move |db, _| {
            std::thread::sleep(body.pause() / 4);
            db.execute("insert into notes values (?1)", [&owned])?;
            Ok::<_, Failure>(format!("{owned} by {}", body.attempt()))
        })
        .await?;
    shuffle.note(name);
    Ok(value)
}

#[test]
fn join_over_transactions_chooses_the_same_way_again() {
    let script: Script = |ctx, shuffle| {
        Box::pin(async move {
            let plain = async {
                let first = noted(&ctx, &shuffle, "plain 1").await?;
                Ok::<_, Failure>(vec![first, noted(&ctx, &shuffle, "plain 2").await?])
            };
            let keeping = async |name: &str| {
                let first = kept(&ctx, &shuffle, &format!("keep {name} 1")).await?;
                let second = noted(&ctx, &shuffle, &format!("{name} 2")).await?;
                let third = kept(&ctx, &shuffle, &format!("keep {name} 3")).await?;
                Ok::<_, Failure>(vec![first, second, third])
            };
            let (plain, a, b) = tokio::join!(plain, keeping("a"), keeping("b"));
            Ok([plain?, a?, b?].concat())
        })
    };
    crash_everywhere_in_sqlite(script, Finale::Completed);
}

#[test]
fn select_over_transactions_chooses_the_same_way_again() {
    let script: Script = |ctx, shuffle| {
        Box::pin(async move {
            let mut won = Vec::new();
            for round in 1..=3 {
                let names = ["keep left", "right", "keep other"];
                let [left, right, other] = names.map(|name| format!("{name} {round}"));
                won.push(tokio::select! {
                    left = kept(&ctx, &shuffle, &left) => left?,
                    right = noted(&ctx, &shuffle, &right) => right?,
                    other = kept(&ctx, &shuffle, &other) => other?,
                });
            }
            won.push(kept(&ctx, &shuffle, "keep last").await?);
            Ok(won)
        })
    };
    crash_everywhere_in_sqlite(script, Finale::Completed);
}

/// The next poke, noted with what it carries.
async fn poke(ctx: &Ctx, shuffle: &Shuffle) -> Result<String, Failure> {
    poked(ctx.signal("poke"), shuffle).await
}

async fn poked(wait: SignalFuture<u32>, shuffle: &Shuffle) -> Result<String, Failure> {
    let number = wait.await?;
    shuffle.note(&format!("$signal/poke {number}"));
    Ok(format!("poke {number}"))
}

#[test]
fn signals_come_in_order_again() {
    let script: Script = |ctx, shuffle| {
        Box::pin(async move {
            let mut came = vec![noted(&ctx, &shuffle, "first").await?];
            for _ in 0..6 {
                came.push(poke(&ctx, &shuffle).await?);
            }
            let numbers: Vec<_> = (0..6).map(|number| format!("poke {number}")).collect();
            assert_eq!(came[1..], numbers);
            Ok(came)
        })
    };
    crash_everywhere(script);
}

/// A wait that loses a `select!` swallows nothing: each signal is taken once, in order.
#[test]
fn select_over_signals_timers_and_children_chooses_the_same_way_again() {
    let script: Script = |ctx, shuffle| {
        Box::pin(async move {
            let mut won = Vec::new();
            for round in 1..=5 {
                let child = if round == 1 {
                    "$child/echo".to_owned()
                } else {
                    format!("$child/echo#{round}")
                };
                let (pause, name) = (shuffle.fixed_pause(&child), format!("step {round}"));
                won.push(tokio::select! {
                    poked = poke(&ctx, &shuffle) => poked?,
                    echoed = ctx.start(ECHO, &round).result() => {
                        shuffle.note(&child);
                        format!("echo {}", echoed?)
                    }
                    step = noted(&ctx, &shuffle, &name) => step?,
                    () = ctx.sleep(pause) => {
                        shuffle.note(&sleep_name(round));
                        "slept".to_owned()
                    }
                });
            }
            let pokes: Vec<_> = won.iter().filter(|won| won.starts_with("poke")).collect();
            for (number, poke) in pokes.into_iter().enumerate() {
                assert_eq!(*poke, format!("poke {number}"));
            }
            Ok(won)
        })
    };
    crash_everywhere(script);
}

/// A wait that nobody answers in time ends by its own time limit, and so it does again: the limit
/// counts from when the wait was made, whatever dies meanwhile. What comes afterwards is kept.
#[test]
fn waits_with_a_time_limit_end_the_same_way_again() {
    let script: Script = |ctx, shuffle| {
        Box::pin(async move {
            let mut came = Vec::new();
            for round in 1..=4 {
                let name = format!("step {round}");
                came.push(noted(&ctx, &shuffle, &name).await?);
                let limit = shuffle.fixed_pause(&name);
                let never = ctx.signal::<u32>("never").timeout(limit).await?;
                assert_eq!(never, None);
                shuffle.note(&timeout_name("never", round));
                came.push(match ctx.signal::<u32>("poke").timeout(limit).await? {
                    Some(number) => {
                        shuffle.note(&format!("$signal/poke {number}"));
                        format!("poke {number}")
                    }
                    None => {
                        shuffle.note(&timeout_name("poke", round));
                        "nobody".to_owned()
                    }
                });
            }
            let pokes: Vec<_> = came.iter().filter(|came| came.starts_with("poke")).collect();
            for (number, poke) in pokes.into_iter().enumerate() {
                assert_eq!(*poke, format!("poke {number}"));
            }
            Ok(came)
        })
    };
    crash_everywhere(script);
}

fn timeout_name(signal: &str, number: u32) -> String {
    match number {
        1 => format!("$timeout/{signal}"),
        _ => format!("$timeout/{signal}#{number}"),
    }
}

#[test]
fn waits_at_once_get_signals_in_their_order_again() {
    let script: Script = |ctx, shuffle| {
        Box::pin(async move {
            let pokes = join_all((0..4).map(|_| poked(ctx.signal("poke"), &shuffle)));
            let (pokes, step) = tokio::join!(pokes, noted(&ctx, &shuffle, "beside"));
            let pokes = pokes.into_iter().collect::<Result<Vec<_>, _>>()?;
            assert_eq!(pokes, ["poke 0", "poke 1", "poke 2", "poke 3"]);
            Ok([pokes, vec![step?]].concat())
        })
    };
    crash_everywhere(script);
}

/// With a codec every record, signal and child's end is encoded when it is written, written again and
/// read again.
#[test]
fn encoded_payloads_choose_the_same_way_again() {
    let script: Script = |ctx, shuffle| {
        Box::pin(async move {
            let mut won = vec![noted(&ctx, &shuffle, "first").await?];
            for round in 1..=3 {
                let name = format!("step {round}");
                won.push(tokio::select! {
                    poked = poke(&ctx, &shuffle) => poked?,
                    step = noted(&ctx, &shuffle, &name) => step?,
                });
            }
            won.push(ctx.start(ECHO, &7).result().await?.to_string());
            won.push(noted(&ctx, &shuffle, "last").await?);
            Ok(won)
        })
    };
    crash_everywhere_encoded(script, Finale::Completed);
}
