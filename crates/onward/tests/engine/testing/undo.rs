//! Runs that turn back, with processes that die on the way.

use std::time::Duration;

use onward::testing::{Effects, Finding, Report, TestOnward, retry_safe};
use onward::{Ctx, Failure, Retry, RunState, Step, Workflow};

const ORDER: Workflow<(), ()> = Workflow::named("order");

/// What the undo of the charge does.
type Refund = fn(&Effects, &Step);

/// Reserves and charges at once, then fails. The first try of the undo fails too.
async fn order(ctx: Ctx, effects: Effects, refund: Refund) -> Result<(), Failure> {
    let noting = |name: &'static str| {
        let effects = effects.clone();
        move |step: Step| {
            let effects = effects.clone();
            async move {
                effects.note(name).key(step.id()).await;
                Ok::<_, Failure>(7)
            }
        }
    };
    let undo = effects.clone();
    let reserve = ctx.step("reserve", noting("reserve")).undo(move |_: u32, step| {
        let undo = undo.clone();
        async move {
            undo.note("release").key(step.id()).await;
            Ok::<_, Failure>(())
        }
    });
    let undo = effects.clone();
    let charge = ctx.step("charge", noting("charge")).undo(move |_: u32, step| {
        let undo = undo.clone();
        async move {
            if step.try_number() == 1 {
                return Err(Failure::new("busy"));
            }
            refund(&undo, &step);
            tokio::task::yield_now().await;
            Ok(())
        }
    });
    let charge = charge.undo_retry(Retry::fixed(Duration::from_secs(60 * 60)).tries(3));
    futures::try_join!(reserve, charge)?;
    Err(Failure::fatal("sold out").code("sold_out"))
}

async fn check(refund: Refund) -> Report {
    let build = move |effects: Effects| move |ctx, ()| order(ctx, effects.clone(), refund);
    retry_safe(ORDER, build, &()).check().await
}

#[tokio::test]
async fn undos_under_their_own_ids_pass() {
    let report = check(|effects, step| effects.note("refund").key(step.id()).now()).await;
    assert!(report.is_safe(), "{report}");
    assert_eq!(report.effects, 4, "{report}");
}

#[tokio::test]
async fn an_undo_that_would_pay_back_twice_is_found() {
    let report = check(|effects, _| effects.note("refund").now()).await;
    let found = report.findings.iter().any(
        |found| matches!(&found.finding, Finding::Repeated { effect, .. } if effect == "refund"),
    );
    assert!(found, "{report}");
    assert!(report.to_string().contains("$undo/charge"), "{report}");
}

#[tokio::test]
async fn an_undo_waits_in_no_time() {
    let onward = TestOnward::new().await.unwrap();
    let effects = Effects::new();
    let noted = effects.clone();
    let refund: Refund = |effects, step| effects.note("refund").key(step.id()).now();
    let serve = move |ctx, ()| order(ctx, noted.clone(), refund);
    onward.worker().serve(ORDER, serve).start().await.unwrap();
    let begin = onward.now();
    let run = onward.start(ORDER, &()).await.unwrap();
    assert_eq!(run.ended().await.unwrap().state, RunState::Failed);
    assert_eq!(onward.now(), begin + Duration::from_secs(60 * 60));
    assert_eq!(effects.happened("refund"), 1);
}
