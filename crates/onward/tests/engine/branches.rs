//! Branches of one function: what `select!` and `join!` may call twice at once, and what is refused.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::{FutureExt as _, join_all};
use futures::stream::{FuturesUnordered, StreamExt as _};
use onward::testing::TestOnward;
use onward::{Code, Ctx, Failure, Onward, RunState, Waits, Workflow};

use crate::stores::until_state;

const WORK: Workflow<(), Vec<String>> = Workflow::named("work");
const CHILD: Workflow<u32, u32> = Workflow::named("child");

type Returned<'a> = Pin<Box<dyn Future<Output = Result<Vec<String>, Failure>> + Send + 'a>>;
type Script = fn(&Ctx) -> Returned<'_>;

async fn child(_: Ctx, number: u32) -> Result<u32, Failure> {
    Ok(number)
}

/// Executes a function, and says what it gives or the code and the message of its failure.
async fn executed(script: Script) -> Result<Vec<String>, (String, String)> {
    let onward = TestOnward::new().await.unwrap();
    let work = move |ctx: Ctx, ()| async move { script(&ctx).await };
    let run = onward.start(WORK, &()).await.unwrap();
    run.signal("go", "one").await.unwrap();
    run.signal("go", "two").await.unwrap();
    let worker = onward.worker().serve(WORK, work).serve(CHILD, child).start().await.unwrap();
    let ended = run.ended().await.unwrap();
    worker.shutdown().await.unwrap();
    match ended.failure {
        Some(failure) => Err((failure.code.clone(), failure.message.clone())),
        None => Ok(run.result().await.unwrap()),
    }
}

async fn refused(script: Script) -> String {
    let (code, message) = executed(script).await.unwrap_err();
    assert_eq!(code, Code::AmbiguousOrder.as_str(), "{message}");
    // It shows what to write instead.
    let has_id =
        ["$signal", "$callback", "random()", "on_cancel()"].iter().all(|it| !message.contains(it));
    assert_eq!(message.contains(".id("), has_id, "{message}");
    assert!(message.contains("before"), "{message}");
    message
}

async fn step(ctx: &Ctx, value: &str) -> Result<String, Failure> {
    ctx.step("work", async |_| Ok::<_, Failure>(value.to_owned())).await
}

async fn step_with_id(ctx: &Ctx, value: &str) -> Result<String, Failure> {
    ctx.step("work", async |_| Ok::<_, Failure>(value.to_owned())).id(value).await
}

#[tokio::test]
async fn one_function_in_two_branches_is_refused_before_its_first_body() {
    let message = refused(|ctx| {
        async { Ok(vec![tokio::select! { a = step(ctx, "a") => a?, b = step(ctx, "b") => b? }]) }
            .boxed()
    })
    .await;
    assert!(message.contains("\"work\""), "{message}");
    refused(|ctx| {
        async {
            let (a, b) = tokio::try_join!(step(ctx, "a"), step(ctx, "b"))?;
            Ok(vec![a, b])
        }
        .boxed()
    })
    .await;
    refused(|ctx| {
        async { join_all(["a", "b"].map(|value| step(ctx, value))).await.into_iter().collect() }
            .boxed()
    })
    .await;
}

#[tokio::test]
async fn no_body_begins_in_a_run_that_is_refused() {
    let executed = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&executed);
    let onward = Onward::open("memory:").await.unwrap();
    let worker = onward.worker().serve(WORK, move |ctx: Ctx, ()| {
        let counter = Arc::clone(&counter);
        async move {
            let call = async || {
                ctx.step("work", async |_| {
                    counter.fetch_add(1, Ordering::SeqCst);
                    Ok::<_, Failure>(String::new())
                })
                .await
            };
            Ok(vec![tokio::select! { a = call() => a?, b = call() => b? }])
        }
    });
    let worker = worker.start().await.unwrap();
    let run = onward.start(WORK, &()).await.unwrap();
    let error = run.result().await.unwrap_err();
    assert!(error.failure().unwrap().is(Code::AmbiguousOrder.as_str()), "{error}");
    assert_eq!(executed.load(Ordering::SeqCst), 0);
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn an_id_tells_branches_apart() {
    let both = executed(|ctx| {
        async {
            let (a, b) = tokio::try_join!(step_with_id(ctx, "a"), step_with_id(ctx, "b"))?;
            let nap = async |who: &str| ctx.sleep(Duration::from_secs(60)).id(who).await;
            tokio::join!(nap("a"), nap("b"));
            let ask = async |number: u32| ctx.start(CHILD, &number).id(number).result().await;
            let (one, two) = tokio::try_join!(ask(1), ask(2))?;
            Ok(vec![a, b, one.to_string(), two.to_string()])
        }
        .boxed()
    });
    assert_eq!(both.await.unwrap(), ["a", "b", "1", "2"]);
}

#[tokio::test]
async fn an_id_of_a_sleep_or_a_child_is_used_once() {
    for script in [
        (|ctx| {
            async {
                let nap = || ctx.sleep(Duration::from_secs(1)).id("nap");
                tokio::join!(nap(), nap());
                Ok(Vec::new())
            }
            .boxed()
        }) as Script,
        |ctx| {
            async {
                let ask = || ctx.start(CHILD, &1).id("one").result();
                tokio::try_join!(ask(), ask())?;
                Ok(Vec::new())
            }
            .boxed()
        },
    ] {
        assert_eq!(executed(script).await.unwrap_err().0, Code::StepIdTaken.as_str());
    }
}

#[tokio::test]
async fn futures_that_are_made_before_one_is_polled_have_a_certain_order() {
    let made = executed(|ctx| {
        async {
            let of = |value: &'static str| {
                ctx.step("work", move |_| std::future::ready(Ok::<_, Failure>(value.to_owned())))
            };
            let first = tokio::select! { a = of("a") => a?, b = of("b") => b? };
            assert!(["a", "b"].contains(&&*first));
            let all: Result<Vec<_>, _> = join_all(["c", "d"].map(of)).await.into_iter().collect();
            let mut rest = vec!["e", "f", "g"].into_iter().map(of);
            let mut some: FuturesUnordered<_> = rest.by_ref().take(2).collect();
            let mut all = all?;
            // One more for each that is done: it is made after a result, and that has its place.
            while let Some(done) = some.next().await {
                all.push(done?);
                some.extend(rest.next());
            }
            let (one, two) = tokio::try_join!(ctx.signal("go"), ctx.signal("go"))?;
            Ok([all, vec![one, two]].concat())
        }
        .boxed()
    });
    assert_eq!(made.await.unwrap(), ["c", "d", "e", "f", "g", "one", "two"]);
}

#[tokio::test]
async fn what_has_no_id_in_two_branches_is_refused() {
    let nap = refused(|ctx| {
        async {
            let nap = async || ctx.sleep(Duration::from_secs(1)).await;
            tokio::join!(nap(), nap());
            Ok(Vec::new())
        }
        .boxed()
    });
    assert!(nap.await.contains("$sleep"));
    let wait = refused(|ctx| {
        async {
            let wait = async || ctx.signal::<String>("go").await;
            tokio::try_join!(wait(), wait()).map(|(one, two)| vec![one, two])
        }
        .boxed()
    });
    assert!(wait.await.contains("$signal/go"));
    let ask = refused(|ctx| {
        async {
            let ask = async || ctx.start(CHILD, &1).result().await;
            tokio::try_join!(ask(), ask()).map(|_| Vec::new())
        }
        .boxed()
    });
    assert!(ask.await.contains("$child/child"));
    refused(|ctx| {
        async {
            let start = async || ctx.start(CHILD, &1).await;
            tokio::try_join!(start(), start()).map(|_| Vec::new())
        }
        .boxed()
    })
    .await;
    let call = refused(|ctx| {
        async {
            let call = async || ctx.callback::<()>().await;
            tokio::try_join!(call(), call()).map(|_| Vec::new())
        }
        .boxed()
    });
    assert!(call.await.contains("$callback"));
}

/// Each branch makes a future and puts it aside; which comes first is up to chance.
#[tokio::test]
async fn what_a_branch_makes_before_it_waits_for_something_else_is_refused() {
    let nap = refused(|ctx| {
        async {
            let leg = async |name: &'static str| {
                let limit = ctx.sleep(Duration::from_secs(1));
                ctx.step(name, async |_| Ok::<_, Failure>(())).await?;
                limit.await;
                Ok::<_, Failure>(name.to_owned())
            };
            tokio::try_join!(leg("a"), leg("b")).map(|(a, b)| vec![a, b])
        }
        .boxed()
    });
    assert!(nap.await.contains("$sleep"));
    let ask = refused(|ctx| {
        async {
            let leg = async |name: &'static str| {
                let child = ctx.start(CHILD, &1);
                ctx.step(name, async |_| Ok::<_, Failure>(())).await?;
                child.result().await
            };
            tokio::try_join!(leg("a"), leg("b")).map(|_| Vec::new())
        }
        .boxed()
    });
    assert!(ask.await.contains("$child/child"));
}

/// What has an id of its own orders nothing, and one whose order is left to chance orders nothing either.
#[tokio::test]
async fn what_two_branches_make_beside_something_else_is_refused() {
    let leg = refused(|ctx| {
        async {
            let leg = async |name: &'static str| {
                let of = || ctx.step("work", async |_| Ok::<_, Failure>(name.to_owned()));
                tokio::try_join!(of().id(name), of()).map(|(_, plain)| plain)
            };
            Ok(vec![tokio::select! { a = leg("a") => a?, b = leg("b") => b? }])
        }
        .boxed()
    });
    assert!(leg.await.contains("\"work\""));
    let leg = refused(|ctx| {
        async {
            let leg = async |name: &'static str| {
                let of = || ctx.step("work", async |_| Ok::<_, Failure>(name.to_owned()));
                let (first, second) = (of(), of());
                second.await?;
                first.await
            };
            tokio::try_join!(leg("a"), leg("b")).map(|(a, b)| vec![a, b])
        }
        .boxed()
    });
    assert!(leg.await.contains("\"work\""));
}

/// The branches go on together, and each is put aside at a future that was polled before.
#[tokio::test]
async fn what_two_branches_make_before_they_wait_on_is_refused() {
    let leg = refused(|ctx| {
        async {
            let meet = tokio::sync::Barrier::new(2);
            let leg = async |name: &'static str| {
                let mut nap = std::pin::pin!(ctx.sleep(Duration::from_secs(60)).id(name));
                let warm = ctx.step("warm", async |_| Ok::<_, Failure>(())).id(name);
                tokio::select! { () = &mut nap => {}, warm = warm => warm? }
                meet.wait().await;
                let work = ctx.step("work", async |_| Ok::<_, Failure>(name.to_owned()));
                nap.await;
                work.await
            };
            tokio::try_join!(leg("a"), leg("b")).map(|(a, b)| vec![a, b])
        }
        .boxed()
    });
    assert!(leg.await.contains("\"work\""));
}

#[tokio::test]
async fn random_numbers_and_calls_for_a_cancel_in_two_branches_are_refused() {
    let draw = refused(|ctx| {
        async {
            let draw = async |name: &'static str| {
                let id = ctx.uuid().to_string();
                ctx.step(name, async |_| Ok::<_, Failure>(id.clone())).await
            };
            tokio::try_join!(draw("a"), draw("b")).map(|(a, b)| vec![a, b])
        }
        .boxed()
    });
    assert!(draw.await.contains("uuid"));
    // An id tells the steps apart, and not what is drawn for them.
    let draw = refused(|ctx| {
        async {
            let draw = async |id: &'static str| {
                let token = ctx.uuid().to_string();
                ctx.step("pay", async |_| Ok::<_, Failure>(token.clone())).id(id).await
            };
            tokio::try_join!(draw("a"), draw("b")).map(|(a, b)| vec![a, b])
        }
        .boxed()
    });
    assert!(draw.await.contains("uuid"));
    let call = refused(|ctx| {
        async {
            let call = async |name: &'static str| {
                ctx.on_cancel(move |_| std::future::ready(Ok::<_, Failure>(())));
                ctx.step(name, async |_| Ok::<_, Failure>(name.to_owned())).await
            };
            tokio::try_join!(call("a"), call("b")).map(|(a, b)| vec![a, b])
        }
        .boxed()
    });
    assert!(call.await.contains("on_cancel"));
    let one_by_one = executed(|ctx| {
        async {
            let (one, two) = (ctx.uuid(), ctx.uuid());
            step(ctx, "a").await?;
            ctx.on_cancel(move |_| std::future::ready(Ok::<_, Failure>(())));
            ctx.on_cancel(move |_| std::future::ready(Ok::<_, Failure>(())));
            let three = ctx.uuid();
            Ok(vec![(one != two && two != three).to_string()])
        }
        .boxed()
    });
    assert_eq!(one_by_one.await.unwrap(), ["true"]);
}

/// A run that was begun by code without branches is not lost to code that has them.
#[tokio::test]
async fn a_run_with_records_waits_for_better_code() {
    let onward = Onward::open("memory:").await.unwrap();
    let run = onward.start(WORK, &()).await.unwrap();
    let first = async |ctx: Ctx, ()| {
        step(&ctx, "before").await?;
        ctx.signal::<String>("go").await.map(|went| vec![went])
    };
    let begun = onward.worker().build("1").serve(WORK, first).linger(Duration::ZERO);
    let worker = begun.start().await.unwrap();
    until_state(&run, RunState::Waiting).await;
    worker.shutdown().await.unwrap();
    run.signal("go", "went").await.unwrap();
    let second = async |ctx: Ctx, ()| {
        tokio::try_join!(step(&ctx, "a"), step(&ctx, "b")).map(|(a, b)| vec![a, b])
    };
    let worker = onward.worker().build("2").serve(WORK, second).start().await.unwrap();
    let is_stuck = |waits: &Option<Waits>| match waits {
        Some(Waits::Stuck { code, .. }) => code == Code::AmbiguousOrder.as_str(),
        _ => false,
    };
    let stuck = async {
        while !is_stuck(&run.status().await.unwrap().waits_for) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), stuck).await.unwrap();
    worker.shutdown().await.unwrap();
    let worker = onward.worker().build("3").serve(WORK, first).start().await.unwrap();
    assert_eq!(run.result().await.unwrap(), ["went"]);
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn items_of_all_may_each_call_the_same() {
    let all = executed(|ctx| {
        async move {
            let of = |number: u32| {
                async move {
                    let id = ctx.uuid();
                    let nap = Duration::from_secs(u64::from(10 - number));
                    ctx.sleep(nap).await;
                    step(ctx, "first").await?;
                    let again = ctx.uuid();
                    Ok::<_, Failure>(format!("{number} {}", id != again))
                }
                .boxed()
            };
            ctx.all(0..6, 3, of).await
        }
        .boxed()
    });
    let numbers: Vec<_> = (0..6).map(|number| format!("{number} true")).collect();
    assert_eq!(all.await.unwrap(), numbers);
    // Two branches of one item are as any others.
    refused(|ctx| {
        async move {
            let of = |_| {
                async move { tokio::try_join!(step(ctx, "a"), step(ctx, "b")).map(|(a, b)| a + &b) }
                    .boxed()
            };
            ctx.all(0..2, 2, of).await
        }
        .boxed()
    })
    .await;
}
