//! `idle_cpu`: the processor time of a process whose worker has nothing to do, in percent, beside
//! others that have nothing to do either.
//!
//! Owns: how long it is watched.

use std::time::{Duration, Instant};

use onward::{Ctx, Failure, Workflow};
use rustix::time::{ClockId, clock_gettime};

use crate::bench::{Bench, Fallible, Measured};
use crate::place::Place;
use crate::role;
use crate::team::Team;

const NOTHING: Workflow<(), ()> = Workflow::named("nothing");

/// How long the worker is watched.
const WATCHED: Duration = Duration::from_secs(20);

/// How long a worker has to come to rest.
const SETTLING: Duration = Duration::from_secs(1);

pub(crate) async fn measure(bench: &Bench, place: &Place, processes: usize) -> Fallible<Measured> {
    let others = Team::start(place, role::STEPS, processes - 1, 1).await?;
    let onward = place.open().await?;
    let worker = onward.worker().serve(NOTHING, nothing).start().await?;
    tokio::time::sleep(SETTLING).await;
    let (begun, used) = (Instant::now(), processor_time());
    tokio::time::sleep(if bench.quick { WATCHED / 10 } else { WATCHED }).await;
    let share = (processor_time() - used).as_secs_f64() / begun.elapsed().as_secs_f64();
    worker.shutdown().await?;
    others.end().await?;
    Ok(Measured::new(share * 100.0, "percent", "about 0"))
}

async fn nothing(_: Ctx, (): ()) -> Result<(), Failure> {
    Ok(())
}

/// What this process has used so far.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(seconds, nanos)
}
