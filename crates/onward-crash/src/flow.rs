//! The workflows that the victim serves: one for each way in which a run can be interrupted.
//!
//! Owns: the functions, their keys and the outputs that they must end with. Every body leaves an
//! effect before it does anything else.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use onward::{Ctx, Failure, Onward, Retry, RunHandle, WorkerBuilder, Workflow};
use serde::{Deserialize, Serialize};

use crate::bank::{self, TRANSFERS};
use crate::effect::{Pen, Times};
use crate::saga::SAGA;

/// Steps one after the other, one of which fails at its first two tries.
pub const CHAIN: Workflow<Input, Output> = Workflow::named("chain");
/// Steps with sleeps between them that are long enough to park.
pub const NAP: Workflow<Input, Output> = Workflow::named("nap");
/// A step that must not begin twice.
pub const ONCE: Workflow<Input, Output> = Workflow::named("once");
/// Steps at the same time: all of them, then the first of several.
pub const FAN: Workflow<Input, Output> = Workflow::named("fan");
/// A run that goes on as another, twice.
pub const RELAY: Workflow<Input, Output> = Workflow::named("relay");
/// Transfers of money in transactions, beside an ordinary step.
pub const TRANSFER: Workflow<Input, Output> = Workflow::named("transfer");
/// Letters that the victim sends to the run, one after the other and again at every start.
pub const MAILBOX: Workflow<Input, Output> = Workflow::named("mailbox");
/// Children, two at a time.
pub const FAMILY: Workflow<Input, Output> = Workflow::named("family");
/// A child of a family.
pub const PUPIL: Workflow<Input, Output> = Workflow::named("pupil");
/// Steps with keys that all such runs of a round share.
pub const SHARED: Workflow<Input, Output> = Workflow::named("shared");
/// A step that goes on only when the test opens the gate.
pub const GATE: Workflow<Input, Output> = Workflow::named("gate");

/// Steps that take longer than a short lease: a worker that was stopped in one goes on with it while
/// another executes it.
pub const VIGIL: Workflow<Input, Output> = Workflow::named("vigil");

/// The workflows that any store can serve and that need nobody to open a gate.
pub const ANYWHERE: [Workflow<Input, Output>; 5] = [CHAIN, NAP, ONCE, FAN, RELAY];

/// The workflows that a victim starts by itself.
const OWN: [Workflow<Input, Output>; 10] =
    [CHAIN, NAP, ONCE, FAN, RELAY, TRANSFER, SAGA, MAILBOX, FAMILY, SHARED];

/// Letters that a mailbox gets: so many that the victim can die between them.
pub const LETTERS: u64 = 6;

/// The name of a letter.
const LETTER: &str = "letter";

/// Children of a family.
pub const PUPILS: u64 = 4;

/// Keys that the runs of a round share: so many that the victim can die at several of them.
const KEYS: u64 = 8;

/// How long a parking sleep takes; longer than [`LINGER`].
const NAP_TIME: Duration = Duration::from_millis(60);

/// The victim's linger: short, so that naps and retries park.
pub const LINGER: Duration = Duration::from_millis(20);

/// How long the shortest step of a vigil takes.
const VIGIL_TIME: Duration = Duration::from_millis(600);

/// Transfers of a run one after the other: so many that the victim can die at several of them.
const INSTALMENTS: u32 = 6;

/// Longer than any run of a test is left alone, however bad its store is.
const PATIENCE: Duration = Duration::from_secs(60 * 60);

/// How long a body waits at the gate before it gives up, so that a failed test leaves nobody.
const GATE_PATIENCE: Duration = Duration::from_secs(60);

/// How often the gate is looked at.
const GATE_LOOK: Duration = Duration::from_millis(5);

/// What a run is started with.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Input {
    /// The run's key.
    pub key: String,
    /// A number that the steps compute with.
    pub number: u64,
    /// How often the run goes on as another.
    pub laps: u32,
}

/// What a run ends with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    /// What the steps computed.
    pub total: u64,
    /// Which way the run went, where it had a choice.
    pub way: String,
}

/// The runs of one round: each with its workflow and its input.
pub fn round(round: u32, runs: u32) -> Vec<(Workflow<Input, Output>, Input)> {
    round_of(&OWN, round, runs)
}

/// The runs of one round of these workflows.
pub fn round_of(
    workflows: &[Workflow<Input, Output>],
    round: u32,
    runs: u32,
) -> Vec<(Workflow<Input, Output>, Input)> {
    let own = (0..runs).map(|number| {
        let workflow = workflows[number as usize % workflows.len()].clone();
        let key = format!("{}-{round}-{number}", workflow.name());
        (workflow, Input { key, number: u64::from(number), laps: 2 })
    });
    own.collect()
}

/// Starts a run under its key.
///
/// # Errors
/// When the store refuses it or does not answer.
pub async fn start(
    onward: &Onward,
    workflow: Workflow<Input, Output>,
    input: &Input,
) -> Result<RunHandle<Output>, onward::Error> {
    onward.start(workflow, input).key(input.key.as_str()).await
}

/// Sends a mailbox its letters, in order. Sent again, each is known by its key.
///
/// # Errors
/// When the store refuses one or does not answer.
pub async fn send_letters(run: &RunHandle<Output>) -> Result<(), onward::Error> {
    for number in 0..LETTERS {
        let sent = run.signal(LETTER, &number).key(format!("letter-{number}")).await;
        match sent {
            // It has got them all.
            Err(error) if error.code() == onward::Code::RunFinished => return Ok(()),
            sent => sent?,
        }
        tokio::time::sleep(Duration::from_millis(number % 3)).await;
    }
    Ok(())
}

/// The letters in their order, as a mailbox ends with them.
fn all_letters() -> String {
    (0..LETTERS).map(|number| number.to_string()).collect::<Vec<_>>().join(" ")
}

/// Whether a run of this key may end with this output.
pub fn is_expected(input: &Input, output: &Output) -> bool {
    let way = output.way.as_str();
    match input.key.split('-').next() {
        Some("chain") => output.total == input.number + 3 && way.is_empty(),
        Some("nap") => output.total == input.number + 2 && way.is_empty(),
        Some("once") => output.total == input.number + 2 && ["sent", "interrupted"].contains(&way),
        Some("fan") => output.total == input.number * 3 && ["hare", "tortoise"].contains(&way),
        Some("relay") => output.total == input.number + 6 && way.is_empty(),
        Some("vigil") => output.total == input.number + 2 && way.is_empty(),
        Some("payment") => output.total == input.number && way.is_empty(),
        Some("transfer") => {
            output.total == input.number * 3 + 1 && ["pay", "fee", "tell"].contains(&way)
        }
        Some("mailbox") => output.total == input.number + LETTERS && way == all_letters(),
        Some("family") => output.total == (0..PUPILS).sum::<u64>() && way == "0 1 2 3",
        Some("shared") => output.total == KEYS && way.is_empty(),
        Some("gate") => output.total == input.number + 2 && way.is_empty(),
        _ => false,
    }
}

/// What the functions share: where effects go, and where the gate is.
#[derive(Clone, Debug)]
pub struct Scene {
    /// Writes the effects.
    pub pen: Pen,
    /// The file whose existence opens the gate.
    pub gate: PathBuf,
}

/// Serves every workflow.
pub fn serve(worker: WorkerBuilder, scene: &Scene) -> WorkerBuilder {
    worker
        .serve(CHAIN, with(scene, chain))
        .serve(NAP, with(scene, nap))
        .serve(ONCE, with(scene, once))
        .serve(FAN, with(scene, fan))
        .serve(RELAY, with(scene, relay))
        .serve(TRANSFER, with(scene, transfer))
        .serve(MAILBOX, with(scene, mailbox))
        .serve(FAMILY, with(scene, family))
        .serve(PUPIL, with(scene, pupil))
        .serve(SHARED, with(scene, shared))
        .serve(GATE, with(scene, gate))
        .serve(VIGIL, with(scene, vigil))
}

fn with<Fut>(
    scene: &Scene,
    function: impl Fn(Ctx, Scene, Input) -> Fut + Send + Sync + 'static,
) -> impl Fn(Ctx, Input) -> Fut + Send + Sync + 'static
where
    Fut: Future<Output = Result<Output, Failure>> + Send + 'static,
{
    let scene = scene.clone();
    move |ctx, input| function(ctx, scene.clone(), input)
}

fn plain(total: u64) -> Result<Output, Failure> {
    Ok(Output { total, way: String::new() })
}

impl Scene {
    /// Leaves an effect and works for a moment.
    async fn work(&self, input: &Input, step: onward::Step, result: u64) -> Result<u64, Failure> {
        self.pen.write(&input.key, &step, Times::AtLeastOnce)?;
        tokio::time::sleep(Duration::from_millis(1 + input.number % 3)).await;
        Ok(result)
    }
}

async fn chain(ctx: Ctx, scene: Scene, input: Input) -> Result<Output, Failure> {
    let one = ctx.step("one", |step| scene.work(&input, step, input.number + 1)).await?;
    let flaky = ctx.step("flaky", async |step| {
        let try_number = step.try_number();
        let result = scene.work(&input, step, one + 1).await?;
        if try_number < 3 { Err(Failure::new("not yet")) } else { Ok(result) }
    });
    let two = flaky.retry(Retry::fixed(LINGER * 2).tries(3)).await?;
    plain(ctx.step("three", |step| scene.work(&input, step, two + 1)).await?)
}

async fn nap(ctx: Ctx, scene: Scene, input: Input) -> Result<Output, Failure> {
    let one = ctx.step("work", |step| scene.work(&input, step, input.number + 1)).await?;
    ctx.sleep(NAP_TIME).await;
    let two = ctx.step("work", |step| scene.work(&input, step, one + 1)).await?;
    ctx.sleep(NAP_TIME).await;
    plain(two)
}

async fn once(ctx: Ctx, scene: Scene, input: Input) -> Result<Output, Failure> {
    let one = ctx.step("prepare", |step| scene.work(&input, step, input.number + 1)).await?;
    let sent = ctx.step("send", async |step| {
        scene.pen.write(&input.key, &step, Times::AtMostOnce)?;
        tokio::time::sleep(Duration::from_millis(2)).await;
        Ok::<_, Failure>(())
    });
    let way = match sent.at_most_once().await {
        Ok(()) => "sent",
        Err(failure) if failure.is("interrupted") => "interrupted",
        Err(failure) => return Err(failure),
    };
    let total = ctx.step("note", |step| scene.work(&input, step, one + 1)).await?;
    Ok(Output { total, way: way.to_owned() })
}

async fn fan(ctx: Ctx, scene: Scene, input: Input) -> Result<Output, Failure> {
    let part = |name| ctx.step(name, |step| scene.work(&input, step, input.number));
    let (a, b, c) = tokio::join!(part("a"), part("b"), part("c"));
    let total = a? + b? + c?;
    let hare = ctx.step("hare", |step| scene.work(&input, step, 0));
    let tortoise = ctx.step("tortoise", |step| scene.work(&input, step, 0));
    let way = tokio::select! {
        won = hare => { won?; "hare" }
        won = tortoise => { won?; "tortoise" }
        () = ctx.sleep(PATIENCE) => "nobody",
    };
    // A function that chose otherwise on replay would leave this step's record behind.
    ctx.step(format!("crown {way}"), |step| scene.work(&input, step, 0)).await?;
    Ok(Output { total, way: way.to_owned() })
}

async fn relay(ctx: Ctx, scene: Scene, input: Input) -> Result<Output, Failure> {
    let one = ctx.step("run", |step| scene.work(&input, step, input.number + 1)).await?;
    let two = ctx.step("hand over", |step| scene.work(&input, step, one + 1)).await?;
    match input.laps {
        0 => plain(two),
        laps => ctx.continue_as(RELAY, &Input { number: two, laps: laps - 1, ..input }),
    }
}

async fn transfer(ctx: Ctx, scene: Scene, input: Input) -> Result<Output, Failure> {
    let quote = ctx.step("quote", |step| scene.work(&input, step, input.number + 1)).await?;
    let moving = |name: &'static str| {
        let (scene, input) = (scene.clone(), input.clone());
        ctx.sqlite_transaction(name, move |db, step| {
            scene.pen.write(&input.key, step, Times::AtLeastOnce)?;
            bank::transfer(db, step, input.number)?;
            Ok::<_, Failure>(input.number)
        })
    };
    let (mut pay, mut fee) = (moving(TRANSFERS[0]), moving(TRANSFERS[1]));
    let mut tell = ctx.step("tell", |step| scene.work(&input, step, 0));
    let (way, first) = tokio::select! {
        won = &mut pay => ("pay", won?),
        won = &mut fee => ("fee", won?),
        won = &mut tell => ("tell", won?),
    };
    // A function that chose otherwise on replay would leave this step's record behind.
    let crown = ctx.step(format!("crown {way}"), |step| scene.work(&input, step, quote)).await?;
    let rest = match way {
        "pay" => fee.await? + tell.await?,
        "fee" => pay.await? + tell.await?,
        _ => pay.await? + fee.await?,
    };
    for _ in 0..INSTALMENTS {
        moving(TRANSFERS[2]).await?;
    }
    Ok(Output { total: crown + first + rest, way: way.to_owned() })
}

async fn mailbox(ctx: Ctx, scene: Scene, input: Input) -> Result<Output, Failure> {
    let (mut total, mut way) = (input.number, Vec::new());
    for _ in 0..LETTERS {
        let letter: u64 = ctx.signal(LETTER).await?;
        way.push(letter.to_string());
        total = ctx.step("read", |step| scene.work(&input, step, total + 1)).await?;
    }
    Ok(Output { total, way: way.join(" ") })
}

async fn family(ctx: Ctx, _: Scene, input: Input) -> Result<Output, Failure> {
    let pupils = (0..PUPILS).map(|number| Input { number, ..input.clone() });
    let ends = ctx.all(pupils, 2, |pupil| ctx.start(PUPIL, &pupil).result()).await?;
    let way: Vec<_> = ends.iter().map(|end| end.total.to_string()).collect();
    Ok(Output { total: ends.iter().map(|end| end.total).sum(), way: way.join(" ") })
}

async fn pupil(ctx: Ctx, scene: Scene, input: Input) -> Result<Output, Failure> {
    plain(ctx.step("learn", |step| scene.work(&input, step, input.number)).await?)
}

async fn shared(ctx: Ctx, scene: Scene, input: Input) -> Result<Output, Failure> {
    let round = input.key.split('-').nth(1).unwrap_or_default();
    let mut total = 0;
    // Each begins at another place, so that they meet at some keys and not at others.
    for number in 0..KEYS {
        let key = format!("stamp-{round}-{}", (input.number + number) % KEYS);
        total += ctx.step("stamp", |step| scene.work(&input, step, 1)).key(key).await?;
    }
    plain(total)
}

async fn gate(ctx: Ctx, scene: Scene, input: Input) -> Result<Output, Failure> {
    let held = ctx.step("wait at the gate", async |step| {
        scene.pen.write(&input.key, &step, Times::AtLeastOnce)?;
        wait_until_open(&scene.gate).await?;
        Ok::<_, Failure>(input.number + 1)
    });
    let one = held.await?;
    plain(ctx.step("go on", |step| scene.work(&input, step, one + 1)).await?)
}

async fn vigil(ctx: Ctx, scene: Scene, input: Input) -> Result<Output, Failure> {
    let mut total = input.number;
    for _ in 0..2 {
        let watch = ctx.step("watch", async |step| {
            scene.pen.write(&input.key, &step, Times::AtLeastOnce)?;
            tokio::time::sleep(VIGIL_TIME + Duration::from_millis(100 * (input.number % 10))).await;
            Ok::<_, Failure>(total + 1)
        });
        total = watch.await?;
    }
    plain(total)
}

async fn wait_until_open(gate: &Path) -> Result<(), Failure> {
    let begun = Instant::now();
    while !gate.exists() {
        if begun.elapsed() > GATE_PATIENCE {
            return Err(Failure::fatal("the gate stays shut"));
        }
        tokio::time::sleep(GATE_LOOK).await;
    }
    Ok(())
}
