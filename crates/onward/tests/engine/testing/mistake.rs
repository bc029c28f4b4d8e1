//! The classic mistakes: the checker finds each, and passes the same workflow written right.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::SystemTime;

use onward::testing::{Effects, Finding, Place, Report, retry_safe};
use onward::{Ctx, Failure, Workflow};

const PLAY: Workflow<(), ()> = Workflow::named("play");

/// Checks a workflow whose effects go straight to the recorder.
async fn check<F, Fut>(function: F) -> Report
where
    F: Fn(Ctx, Effects) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<(), Failure>> + Send + 'static,
{
    let build = move |effects: Effects| {
        let function = function.clone();
        move |ctx, ()| function(ctx, effects.clone())
    };
    retry_safe(PLAY, build, &()).check().await
}

fn finds(report: &Report, matches: impl Fn(&Finding) -> bool) {
    assert!(!report.is_safe(), "{report}");
    assert!(report.findings.iter().any(|found| matches(&found.finding)), "{report}");
}

fn passes(report: &Report) {
    assert!(report.is_safe(), "{report}");
    assert!(report.effects > 0 && report.points > 0, "{report}");
}

fn is_step(place: &Place, name: &str) -> bool {
    matches!(place, Place::Step { id } if id.ends_with(&format!("/{name}")))
}

#[tokio::test]
async fn an_increment_is_found() {
    let report = check(async |ctx: Ctx, effects: Effects| {
        let count = async |_| {
            effects.note("visits + 1").await;
            Ok::<_, Failure>(())
        };
        ctx.step("count", count).await
    });
    let report = report.await;
    finds(&report, |finding| {
        matches!(finding, Finding::Repeated { effect, place, times: 2, beside }
            if effect == "visits + 1" && is_step(place, "count") && beside.is_empty())
    });
    let text = report.to_string();
    assert!(text.contains("\"visits + 1\" of step \"count\" happened 2 times"), "{text}");
    assert!(text.contains("died after the effect \"visits + 1\" of step \"count\""), "{text}");
    assert!(text.contains("step.id()"), "{text}");
}

/// It goes another way in one of four replays, as if by chance.
#[tokio::test]
async fn what_goes_another_way_now_and_then_is_found() {
    let replays = Arc::new(AtomicUsize::new(0));
    let report = check(move |ctx: Ctx, effects: Effects| {
        let replays = Arc::clone(&replays);
        async move {
            let executed = AtomicBool::new(false);
            let first = ctx.step("first", async |step| {
                executed.store(true, Ordering::SeqCst);
                effects.note("first").key(step.id()).await;
                Ok::<_, Failure>(())
            });
            first.await?;
            let replayed = !executed.load(Ordering::SeqCst);
            if replayed && replays.fetch_add(1, Ordering::SeqCst) % 4 == 3 {
                ctx.step("another way", async |_| Ok::<_, Failure>(())).await?;
            }
            ctx.step("last", async |_| Ok::<_, Failure>(())).await
        }
    });
    finds(
        &report.await,
        |finding| matches!(finding, Finding::StepsDiffer { instead, .. } if instead == &["another way"]),
    );
}

#[tokio::test]
async fn an_increment_by_a_fake_that_is_not_async_is_found() {
    let report = check(async |ctx: Ctx, effects: Effects| {
        let both = async |step: onward::Step| {
            effects.note("visits + 1").now();
            effects.note("after it").key(step.id()).now();
            Ok::<_, Failure>(())
        };
        ctx.step("count", both).await
    });
    let report = report.await;
    finds(
        &report,
        |finding| matches!(finding, Finding::Repeated { effect, times: 2, .. } if effect == "visits + 1"),
    );
    assert_eq!(report.findings.len(), 1, "a death unwinds what comes after it: {report}");
    assert_eq!(report.points, 2 * 3, "{report}");
}

#[tokio::test]
async fn an_increment_under_the_step_s_id_passes() {
    let report = check(async |ctx: Ctx, effects: Effects| {
        let count = async |step: onward::Step| {
            effects.note("visits + 1").key(step.id()).await;
            Ok::<_, Failure>(())
        };
        ctx.step("count", count).await
    });
    passes(&report.await);
}

#[tokio::test]
async fn an_append_is_found() {
    let report = check(async |ctx: Ctx, effects: Effects| {
        for line in ["one", "two"] {
            let append = async |_| {
                effects.note("append").payload(line).await;
                Ok::<_, Failure>(())
            };
            ctx.step("append", append).await?;
        }
        Ok(())
    });
    let report = report.await;
    for step in ["append", "append#2"] {
        finds(
            &report,
            |finding| matches!(finding, Finding::Repeated { place, .. } if is_step(place, step)),
        );
    }
    assert_eq!(report.findings.len(), 2, "{report}");
}

#[tokio::test]
async fn a_line_that_is_set_by_its_number_passes() {
    let report = check(async |ctx: Ctx, effects: Effects| {
        for (number, line) in ["one", "two"].iter().enumerate() {
            let set = async |_| {
                effects.note("set line").key(number).payload(line).await;
                Ok::<_, Failure>(())
            };
            ctx.step("set line", set).id(number).await?;
        }
        Ok(())
    });
    passes(&report.await);
}

#[tokio::test]
async fn a_key_made_from_the_clock_is_found() {
    let report = check(async |ctx: Ctx, effects: Effects| {
        let charge = async |_| {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
            effects.note("charge").key(format!("charge-{}", now.as_nanos())).payload(&500).await;
            Ok::<_, Failure>(())
        };
        ctx.step("charge", charge).await
    });
    let report = report.await;
    finds(&report, |finding| {
        matches!(finding, Finding::KeyDiffers { effect, place, keys }
            if effect == "charge" && is_step(place, "charge") && keys.len() == 2)
    });
    assert!(report.to_string().contains("came under another key"), "{report}");
}

#[tokio::test]
async fn a_key_made_from_the_seconds_of_a_clock_is_found_after_a_while() {
    let build = |effects: Effects| {
        move |ctx: Ctx, (): ()| {
            let effects = effects.clone();
            async move {
                let charge = async |_| {
                    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
                    effects.note("charge").key(format!("charge-{}", now.as_secs())).await;
                    Ok::<_, Failure>(())
                };
                ctx.step("charge", charge).await
            }
        }
    };
    let check = retry_safe(PLAY, build, &()).apart(std::time::Duration::from_millis(1_001));
    let is_other = |finding: &Finding| matches!(finding, Finding::KeyDiffers { .. });
    finds(&check.check().await, is_other);
}

/// The step's key, not only that of its effect.
#[tokio::test]
async fn a_step_key_made_from_the_clock_is_found() {
    let report = check(async |ctx: Ctx, effects: Effects| {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
        let mail = async |step: onward::Step| {
            effects.note("mail").key(step.id()).await;
            Ok::<_, Failure>(())
        };
        ctx.step("mail", mail).key(format!("mail-{}", now.as_nanos())).await?;
        ctx.step("note", async |_| Ok::<_, Failure>(())).await
    });
    finds(
        &report.await,
        |finding| matches!(finding, Finding::Mismatch { code, .. } if code == "key_changed"),
    );
}

#[tokio::test]
async fn a_key_made_from_the_run_s_own_time_passes() {
    let report = check(async |ctx: Ctx, effects: Effects| {
        let key = format!("charge-{}", ctx.now());
        let charge = async |_| {
            effects.note("charge").key(&key).payload(&500).await;
            Ok::<_, Failure>(())
        };
        ctx.step("charge", charge).await
    });
    passes(&report.await);
}

/// Saves twice, in steps that are named by chance.
async fn save_by_chance(ctx: Ctx, effects: Effects) -> Result<(), Failure> {
    for _ in 0..2 {
        let name = format!("save {}", RandomState::new().hash_one(()));
        let save = async |step: onward::Step| {
            effects.note("save").key(step.id()).await;
            Ok::<_, Failure>(())
        };
        ctx.step(name, save).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_step_named_by_a_random_number_is_found() {
    let report = check(save_by_chance).await;
    finds(
        &report,
        |finding| matches!(finding, Finding::Mismatch { code, .. } if code == "history_mismatch"),
    );
    finds(&report, |finding| {
        matches!(finding, Finding::StepsDiffer { missing, instead }
            if missing.len() == 2 && instead.len() == 2)
    });
}

/// The mistake is in a child: its own history is judged, and what it is stuck at is told.
#[tokio::test]
async fn a_step_of_a_child_that_is_named_by_a_random_number_is_found() {
    const CHILD: Workflow<(), ()> = Workflow::named("child");
    let parent = |_: Effects| async |ctx: Ctx, ()| ctx.start(CHILD, &()).result().await;
    let child = |effects: Effects| move |ctx, ()| save_by_chance(ctx, effects.clone());
    let report = retry_safe(PLAY, parent, &()).serve(CHILD, child).check().await;
    finds(
        &report,
        |finding| matches!(finding, Finding::Mismatch { code, .. } if code == "history_mismatch"),
    );
    finds(&report, |finding| {
        matches!(finding, Finding::StepsDiffer { missing, .. }
            if missing.iter().all(|step| step.starts_with("$child/child > save ")))
    });
}

#[tokio::test]
async fn a_step_named_by_the_run_s_own_random_number_passes() {
    let report = check(async |ctx: Ctx, effects: Effects| {
        for _ in 0..2 {
            let name = format!("save {}", ctx.random());
            let save = async |step: onward::Step| {
                effects.note("save").key(step.id()).await;
                Ok::<_, Failure>(())
            };
            ctx.step(name, save).await?;
        }
        Ok(())
    });
    passes(&report.await);
}

const FRUIT: [&str; 6] = ["apple", "banana", "cherry", "date", "elderberry", "fig"];

/// Saves each in a step that is named after it.
async fn save_all(
    ctx: Ctx,
    effects: Effects,
    fruit: impl IntoIterator<Item = (&'static str, usize)>,
) -> Result<(), Failure> {
    for (name, count) in fruit {
        let save = async |step: onward::Step| {
            effects.note("save").key(step.id()).payload(&count).await;
            Ok::<_, Failure>(())
        };
        ctx.step(name, save).await?;
    }
    Ok(())
}

#[tokio::test]
async fn the_order_of_a_hash_map_is_found() {
    let report = check(|ctx, effects| {
        let fruit: HashMap<_, _> = FRUIT.into_iter().zip(1..).collect();
        save_all(ctx, effects, fruit.into_iter().collect::<Vec<_>>())
    });
    let report = report.await;
    finds(&report, |finding| matches!(finding, Finding::OrderDiffers { .. }));
    finds(
        &report,
        |finding| matches!(finding, Finding::Mismatch { code, .. } if code == "history_mismatch"),
    );
    assert!(report.to_string().contains("BTreeMap"), "{report}");
}

/// With one name for all, nothing but what they are given tells the steps apart.
#[tokio::test]
async fn the_order_of_a_hash_map_is_found_in_steps_of_one_name() {
    let report = check(async |ctx: Ctx, effects: Effects| {
        let fruit: HashMap<_, _> = FRUIT.into_iter().zip(1..).collect();
        for name in fruit.into_keys() {
            let save = async |step: onward::Step| {
                effects.note("save").key(step.id()).payload(&name).await;
                Ok::<_, Failure>(())
            };
            ctx.step("save", save).await?;
        }
        Ok(())
    });
    finds(&report.await, |finding| matches!(finding, Finding::InputDiffers { .. }));
}

#[tokio::test]
async fn the_order_of_a_tree_passes() {
    let report = check(|ctx, effects| {
        let fruit: BTreeMap<_, _> = FRUIT.into_iter().zip(1..).collect();
        save_all(ctx, effects, fruit.into_iter().collect::<Vec<_>>())
    });
    passes(&report.await);
}

#[tokio::test]
async fn a_second_effect_hidden_in_one_step_is_found() {
    let report = check(async |ctx: Ctx, effects: Effects| {
        let both = async |step: onward::Step| {
            effects.note("mail").await;
            effects.note("charge").key(step.id()).await;
            Ok::<_, Failure>(())
        };
        ctx.step("charge and mail", both).await
    });
    let report = report.await;
    finds(&report, |finding| {
        matches!(finding, Finding::Repeated { effect, beside, .. }
            if effect == "mail" && beside == &["charge".to_owned()])
    });
    assert_eq!(report.findings.len(), 1, "{report}");
    assert!(report.to_string().contains("a step of its own"), "{report}");
}

#[tokio::test]
async fn two_effects_in_two_steps_pass() {
    let report = check(async |ctx: Ctx, effects: Effects| {
        for name in ["charge", "mail"] {
            let one = async |step: onward::Step| {
                effects.note(name).key(step.id()).await;
                Ok::<_, Failure>(())
            };
            ctx.step(name, one).await?;
        }
        Ok(())
    });
    passes(&report.await);
}

#[tokio::test]
async fn a_first_effect_that_is_repeated_because_the_second_fails_is_found() {
    let report = check(async |ctx: Ctx, effects: Effects| {
        let both = async |step: onward::Step| {
            effects.note("charge").await;
            match step.try_number() {
                1 => Err(Failure::new("the mail server is down")),
                _ => Ok(()),
            }
        };
        ctx.step("charge and mail", both).await
    });
    let report = report.await;
    finds(&report, |finding| matches!(finding, Finding::Repeated { times: 2, .. }));
    assert!(report.findings[0].first_at.is_none(), "it takes no crash: {report}");
    assert!(report.to_string().contains("Seen without any crash"), "{report}");
}

#[tokio::test]
async fn an_effect_outside_the_steps_is_found() {
    let report = check(async |ctx: Ctx, effects: Effects| {
        effects.note("mail").await;
        ctx.step("nothing", async |_| Ok::<_, Failure>(())).await
    });
    let report = report.await;
    finds(&report, |finding| {
        matches!(finding, Finding::Repeated { place: Place::Function { .. }, .. })
    });
    assert!(report.to_string().contains("Move it into a step"), "{report}");
}

#[tokio::test]
async fn an_effect_in_a_spawned_task_is_found() {
    let report = check(async |ctx: Ctx, effects: Effects| {
        let spawn = async |_| {
            let effects = effects.clone();
            tokio::spawn(async move { effects.note("mail").await }).await?;
            Ok::<_, Failure>(())
        };
        ctx.step("mail", spawn).await
    });
    finds(&report.await, |finding| {
        matches!(finding, Finding::Repeated { effect, place: Place::Elsewhere, .. }
            if effect == "mail")
    });
}

#[tokio::test]
async fn another_payload_under_the_same_key_is_found() {
    let report = check(async |ctx: Ctx, effects: Effects| {
        let charge = async |step: onward::Step| {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
            effects.note("charge").key(step.id()).payload(&now.as_nanos().to_string()).await;
            Ok::<_, Failure>(())
        };
        ctx.step("charge", charge).await
    });
    finds(&report.await, |finding| matches!(finding, Finding::InputDiffers { .. }));
}

#[tokio::test]
async fn one_key_for_two_different_effects_is_found() {
    let report = check(async |ctx: Ctx, effects: Effects| {
        for cents in [100, 200] {
            let charge = async |_| {
                effects.note("charge").key("order-7").payload(&cents).await;
                Ok::<_, Failure>(())
            };
            ctx.step("charge", charge).await?;
        }
        Ok(())
    });
    finds(&report.await, |finding| matches!(finding, Finding::KeyShared { .. }));
}

/// Takes money and gives it back, both under the number of the order.
async fn charge_and_refund(ctx: Ctx, effects: Effects, names: [&str; 2]) -> Result<(), Failure> {
    for (step, name) in ["take", "give back"].into_iter().zip(names) {
        let call = async |_| {
            effects.note(name).key("order-7").payload(&500).await;
            Ok::<_, Failure>(())
        };
        ctx.step(step, call).await?;
    }
    Ok(())
}

#[tokio::test]
async fn one_key_for_effects_of_two_names_is_found() {
    let report = check(|ctx, effects| charge_and_refund(ctx, effects, ["charge", "refund"])).await;
    finds(&report, |finding| {
        matches!(finding, Finding::KeyShared { effects, key, places: [one, other] }
            if effects == &["charge", "refund"] && key == "order-7"
                && is_step(one, "take") && is_step(other, "give back"))
    });
    assert_eq!(report.findings.len(), 1, "{report}");
    let text = report.to_string();
    let both = "\"charge\" of step \"take\" and the effect \"refund\" of step \"give back\"";
    assert!(text.contains(both) && text.contains(".to(service)"), "{text}");
}

/// The second is left out by the other side, alike though it looks.
#[tokio::test]
async fn one_key_for_the_same_effect_of_two_steps_is_found() {
    let report = check(|ctx, effects| charge_and_refund(ctx, effects, ["pay", "pay"])).await;
    finds(
        &report,
        |finding| matches!(finding, Finding::KeyShared { effects, .. } if effects == &["pay", "pay"]),
    );
}

#[tokio::test]
async fn one_key_for_two_services_passes() {
    let report = check(async |ctx: Ctx, effects: Effects| {
        for service in ["bank", "mailer"] {
            let call = async |_| {
                effects.note("send").to(service).key("order-7").payload(service).await;
                Ok::<_, Failure>(())
            };
            ctx.step(service, call).await?;
        }
        Ok(())
    });
    passes(&report.await);
}

/// Reads a price in one step and pays it in the next. In between it is `kept` somewhere.
async fn pay_what_is_kept(
    ctx: Ctx,
    effects: Effects,
    kept: std::sync::Arc<std::sync::Mutex<u32>>,
) -> Result<(), Failure> {
    let read = async |_| {
        *kept.lock().unwrap() = 500;
        Ok::<_, Failure>(())
    };
    ctx.step("read the price", read).await?;
    let pay = async |step: onward::Step| {
        let cents = *kept.lock().unwrap();
        effects.note("pay").key(step.id()).payload(&cents).await;
        Ok::<_, Failure>(())
    };
    ctx.step("pay", pay).await
}

#[tokio::test]
async fn a_value_that_one_step_leaves_in_memory_for_the_next_is_found() {
    let build = |effects: Effects| {
        let kept = std::sync::Arc::default();
        move |ctx: Ctx, ()| pay_what_is_kept(ctx, effects.clone(), std::sync::Arc::clone(&kept))
    };
    let report = retry_safe(PLAY, build, &()).check().await;
    finds(&report, |finding| {
        matches!(finding, Finding::InputDiffers { effect, payloads, .. }
            if effect == "pay" && payloads == &["500", "0"])
    });
}

#[tokio::test]
async fn a_value_that_is_kept_outside_for_the_next_step_passes() {
    let build = |effects: Effects| {
        let kept = effects.outside("kept", Default::default);
        move |ctx: Ctx, ()| pay_what_is_kept(ctx, effects.clone(), std::sync::Arc::clone(&kept))
    };
    passes(&retry_safe(PLAY, build, &()).check().await);
}

#[tokio::test]
async fn an_effect_that_is_believed_done_before_it_is_done_is_found() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let build = |effects: Effects| {
        let sent = effects.outside("sent", || AtomicBool::new(false));
        move |ctx: Ctx, ()| {
            let (effects, sent) = (effects.clone(), sent.clone());
            async move {
                let mail = async |step: onward::Step| {
                    // A flag in somebody's cache, which outlives the process.
                    if !sent.swap(true, Ordering::SeqCst) {
                        effects.note("mail").key(step.id()).await;
                    }
                    Ok::<_, Failure>(())
                };
                ctx.step("mail", mail).await
            }
        }
    };
    let report = retry_safe(PLAY, build, &()).check().await;
    finds(
        &report,
        |finding| matches!(finding, Finding::Lost { effect, expected: 1, happened: 0 } if effect == "mail"),
    );
}
