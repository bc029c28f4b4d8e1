//! `/schedules`: what starts runs by the clock.
//!
//! Owns: how a schedule is asked for and shown. Never computes a time; the library does.

use std::collections::BTreeMap;
use std::future::IntoFuture;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use onward::limits::SCHEDULE_NEXT_MAX;
use onward::store::Which;
use onward::{
    CatchUp, Failure, Json, Key, Occurred, Overlap, RunId, Schedule, ScheduleHandle, ScheduleSpec,
    Timestamp, Workflow,
};
use serde::{Deserialize, Serialize};

use super::start::REPLAYED;
use crate::answer::{self, Answer, Fields, Page};
use crate::app::App;
use crate::limits::BACKFILL_MAX;
use crate::operation::check_workflow;
use crate::problem::Problem;
use crate::request::{At, Body, Params, idempotency_key, null, payload};

/// What the step keys begin with that keep the runs of triggers.
const TRIGGER: &str = "onward-trigger";

/// What those begin with that keep their answers.
const TRIGGER_ANSWER: &str = "onward-trigger-answer";

/// How long they are kept: longer than anybody repeats a request whose answer was lost.
const TRIGGER_KEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// Times that are shown ahead.
const NEXT_SHOWN: usize = 5;

pub(crate) async fn list(State(app): State<App>, params: Params) -> Answer {
    let page = app.onward.schedules(params.cursor()).await?;
    let last = page.schedules.last().map(|schedule| schedule.name.clone());
    let mut items = Vec::with_capacity(page.schedules.len());
    for schedule in page.schedules {
        items.push(shown(&app, schedule, NEXT_SHOWN).await?);
    }
    answer::ok(&Page { items, next: last.filter(|_| page.more) })
}

/// A schedule with its next times. One whose times cannot be computed is shown without.
async fn shown(app: &App, schedule: Schedule, times: usize) -> Result<Fields, Problem> {
    let next = app.onward.schedule(schedule.name.as_str()).next(times).await;
    let schedule = app.options.shown_schedule(schedule);
    let mut fields = answer::fields(&schedule)?;
    fields.insert("next".to_owned(), answer::raw(&next.unwrap_or_default())?);
    fields.insert("text".to_owned(), answer::raw(&schedule.spec.to_string())?);
    Ok(fields)
}

async fn answered(app: &App, schedule: Schedule) -> Answer {
    answer::ok(&shown(app, schedule, NEXT_SHOWN).await?)
}

fn handle(app: &App, name: String) -> ScheduleHandle {
    app.onward.schedule(name)
}

pub(crate) async fn show(State(app): State<App>, At(name): At<String>, params: Params) -> Answer {
    let times = match params.number("times")? {
        None => NEXT_SHOWN,
        Some(times) => usize::try_from(times)
            .ok()
            .filter(|times| (1..=SCHEDULE_NEXT_MAX).contains(times))
            .ok_or_else(|| {
                let text = format!("{times} is not between 1 and {SCHEDULE_NEXT_MAX}");
                Problem::invalid("times", text)
            })?,
    };
    let schedule = handle(&app, name).status().await?;
    answer::ok(&shown(&app, schedule, times).await?)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewSchedule {
    workflow: String,
    spec: ScheduleSpec,
    #[serde(default = "null", deserialize_with = "payload")]
    input: Json,
    queue: Option<String>,
    lane: Option<String>,
    #[serde(default)]
    priority: i32,
    timeout_ms: Option<u64>,
    #[serde(default)]
    tags: BTreeMap<String, String>,
    #[serde(default)]
    overlap: Overlap,
    #[serde(default)]
    catch_up: CatchUp,
}

pub(crate) async fn put(
    State(app): State<App>,
    At(name): At<String>,
    Body(new): Body<NewSchedule>,
) -> Answer {
    check_workflow(&new.workflow)?;
    let handle = handle(&app, name);
    let mut setup = match new.spec {
        ScheduleSpec::Cron { cron, time_zone } => handle.cron(cron).time_zone(time_zone),
        ScheduleSpec::Every { every_ms, anchor } => {
            let every = u64::try_from(every_ms).unwrap_or(0);
            handle.every(Duration::from_millis(every)).anchor(anchor)
        }
    };
    setup = setup.overlap(new.overlap).catch_up(new.catch_up).priority(new.priority);
    if let Some(queue) = new.queue {
        setup = setup.queue(queue);
    }
    if let Some(lane) = new.lane {
        setup = setup.lane(lane);
    }
    if let Some(ms) = new.timeout_ms {
        setup = setup.timeout(Duration::from_millis(ms));
    }
    for (tag, value) in new.tags {
        setup = setup.tag(tag, value);
    }
    let workflow = Workflow::<Json, Json>::of_name(new.workflow);
    let stored = setup.start(workflow, &new.input).await?;
    answered(&app, stored).await
}

#[derive(Serialize)]
struct Removed {
    removed: bool,
}

pub(crate) async fn remove(State(app): State<App>, At(name): At<String>) -> Answer {
    let removed = handle(&app, name).remove().await?;
    answer::ok(&Removed { removed })
}

pub(crate) async fn pause(State(app): State<App>, At(name): At<String>) -> Answer {
    let paused = handle(&app, name).pause().await?;
    answered(&app, paused).await
}

pub(crate) async fn resume(State(app): State<App>, At(name): At<String>) -> Answer {
    let resumed = handle(&app, name).resume().await?;
    answered(&app, resumed).await
}

pub(crate) async fn trigger(
    State(app): State<App>,
    At(name): At<String>,
    headers: HeaderMap,
) -> Answer {
    let Some(key) = idempotency_key(&headers)? else {
        return answer::ok(&handle(&app, name).trigger().await?);
    };
    // One that is not there keeps no key.
    handle(&app, name.clone()).status().await?;
    let kept = |key| app.onward.once(key).ttl(TRIGGER_KEPT);
    let fresh = Plan { run: RunId::new(), at: app.now() };
    // Kept before the run is started: whoever repeats the request, after a crash too, asks for the
    // same run.
    let plan = kept(Key::hash(TRIGGER, &(&name, &key))?);
    let plan: Plan = plan.run(async || Ok::<_, Failure>(fresh)).await?;
    let (mut is_first, mut refused) = (false, None);
    let answer = kept(Key::hash(TRIGGER_ANSWER, &(&name, &key))?).run(async || {
        let fired = fire(&app, name, plan).await;
        let (occurred, first) = fired.map_err(|error| {
            let failure = Failure::fatal(error.to_string());
            refused = Some(error);
            failure
        })?;
        is_first = first;
        Ok::<_, Failure>(occurred)
    });
    let answer = answer.await;
    let occurred: Occurred = match refused {
        Some(error) => return Err(error.into()),
        None => answer?,
    };
    let mut response = answer::ok(&occurred)?;
    if !is_first {
        response.headers_mut().insert(REPLAYED.0, REPLAYED.1);
    }
    Ok(response)
}

/// Triggers a schedule as it was planned, and says whether that was not done before.
async fn fire(app: &App, name: String, plan: Plan) -> Result<(Occurred, bool), onward::Error> {
    // A trigger that is there is not made again: it would be the schedule's latest run once more, by
    // which the overlap of the next is judged.
    if app.store().get(Which::Id(plan.run)).await?.is_some() {
        return Ok((Occurred::Started { run: plan.run }, false));
    }
    Ok((handle(app, name).trigger_as(plan.run, plan.at).await?, true))
}

/// The run of a trigger with a key, before it is started.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Plan {
    run: RunId,
    at: Timestamp,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewBackfill {
    from: i64,
    before: i64,
}

#[derive(Serialize)]
struct Backfilled {
    started: u64,
    existing: u64,
    refused: u64,
    /// Whether the time was over before the last of them. Sent again, it goes on.
    more: bool,
}

pub(crate) async fn backfill(
    State(app): State<App>,
    At(name): At<String>,
    Body(new): Body<NewBackfill>,
) -> Answer {
    let (from, before) = (Timestamp::from_millis(new.from), Timestamp::from_millis(new.before));
    let so_far = Arc::new(Mutex::new((0, 0, 0)));
    let told = Arc::clone(&so_far);
    let counts = |done: onward::Backfilled| (done.started, done.existing, done.refused);
    let filling = handle(&app, name).backfill(from, before).on_progress(move |done| {
        *told.lock().unwrap_or_else(PoisonError::into_inner) = counts(done);
    });
    let ((started, existing, refused), more) =
        match tokio::time::timeout(BACKFILL_MAX, filling.into_future()).await {
            Ok(done) => (counts(done?), false),
            Err(_) => (*so_far.lock().unwrap_or_else(PoisonError::into_inner), true),
        };
    answer::ok(&Backfilled { started, existing, refused, more })
}
