//! What a workflow function is given: steps, sleeps, and values that replay alike.
//!
//! Owns: [`Ctx`] and the futures it makes. Never writes to the store, and reads only its clock:
//! it reports to the run's board, and the driver records and delivers.

mod all;
mod body;
mod callback;
mod child;
mod note;
mod signal;
mod sleep;
mod step;
mod transaction;
mod undo;

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

pub use all::{All, AllResults};
pub use body::Step;
pub use callback::{Callback, CallbackFuture};
pub(crate) use callback::{Issued, Token};
pub use child::{Child, ChildResult, ChildStarted, StartChild};
pub use signal::{SignalFuture, SignalWithin};
pub use sleep::Sleep;
pub use step::StepFuture;
pub(crate) use step::recordable;
pub use transaction::TransactionFuture;
pub(crate) use undo::{Left, undo_all, undo_failed};

use crate::driver::board::Board;
use crate::limits::DURATION_MAX;
use crate::{Code, Failure, Json, RunId, Timestamp, Uuid, Workflow};

/// A run, as its workflow function sees it.
///
/// Everything that a workflow function awaits should come from here; then plain `join!`,
/// `select!`, `join_all` and `FuturesUnordered` choose the same way again after a crash.
///
/// ```
/// use onward::{Ctx, Failure};
/// use std::time::Duration;
///
/// # async fn fetch(_: &str) -> Result<String, std::io::Error> { Ok(String::new()) }
/// async fn first_page(ctx: Ctx, (one, other): (String, String)) -> Result<String, Failure> {
///     tokio::select! {
///         page = ctx.step("fetch one", |_| fetch(&one)) => page,
///         page = ctx.step("fetch other", |_| fetch(&other)) => page,
///         () = ctx.sleep(Duration::from_secs(60)) => Err(Failure::fatal("too slow")),
///     }
/// }
/// ```
#[derive(Clone)]
pub struct Ctx {
    board: Arc<Board>,
    scheduled_at: Option<Timestamp>,
}

/// The code of the failure that stands for "go on with another input".
pub(crate) const CONTINUE: &str = "$continue";

impl Ctx {
    pub(crate) fn new(board: Arc<Board>, scheduled_at: Option<Timestamp>) -> Self {
        Self { board, scheduled_at }
    }

    /// A step: a piece of work whose result is recorded once and then never computed again.
    ///
    /// The body gets a [`Step`], may borrow the workflow's locals, and may fail with any error.
    /// Nothing happens until the future is polled, and dropping the future drops the body.
    ///
    /// ```
    /// use onward::{Ctx, Failure, Retry};
    /// use std::time::Duration;
    ///
    /// # async fn ocr(_: &str) -> Result<String, std::io::Error> { Ok(String::new()) }
    /// # async fn save(_: &str, _: &str) -> Result<u64, std::io::Error> { Ok(1) }
    /// async fn index(ctx: Ctx, file: String) -> Result<u64, Failure> {
    ///     let text = ctx.step("ocr", |_| ocr(&file))
    ///         .retry(Retry::exponential(Duration::from_millis(200)).tries(8))
    ///         .timeout(Duration::from_secs(30))
    ///         .await?;
    ///     // The step's id is the same over all tries: hand it on as the idempotency key.
    ///     ctx.step("save", async |step| save(step.id(), &text).await).await
    /// }
    /// ```
    ///
    /// A body with several `?` says at its end what it fails with, and one that owns its captures
    /// clones them for each try:
    ///
    /// ```
    /// # use onward::{Ctx, Failure};
    /// # async fn fetch(_: &str) -> Result<String, std::io::Error> { Ok("7".into()) }
    /// async fn price(ctx: Ctx, url: String) -> Result<u32, Failure> {
    ///     let parsed = ctx.step("fetch and parse", async |_| {
    ///         let text = fetch(&url).await?;
    ///         let price: u32 = text.parse()?;
    ///         Ok::<_, Failure>(price)
    ///     });
    ///     let price = parsed.await?;
    ///     let owned = ctx.step("fetch again", move |_| {
    ///         let url = url.clone();
    ///         async move { fetch(&url).await }
    ///     });
    ///     owned.await?;
    ///     Ok(price)
    /// }
    /// ```
    pub fn step<'a, T, E, F, Fut>(
        &self,
        name: impl Into<Cow<'a, str>>,
        body: F,
    ) -> StepFuture<'a, T>
    where
        T: Serialize + DeserializeOwned + Send + 'a,
        E: Into<Failure>,
        F: Fn(Step) -> Fut + Send + 'a,
        Fut: Future<Output = Result<T, E>> + Send + 'a,
    {
        StepFuture::new(Arc::clone(&self.board), name.into(), body)
    }

    /// Sleeps, durably: the run goes on at that time, whatever happened to the process.
    ///
    /// The time counts from [`now`](Ctx::now). Sleeps of more than a second free the memory and
    /// the worker's place until then.
    ///
    /// ```
    /// # use onward::{Ctx, Failure};
    /// # use std::time::Duration;
    /// # async fn send(_: &str) -> Result<(), std::io::Error> { Ok(()) }
    /// async fn remind(ctx: Ctx, user: String) -> Result<(), Failure> {
    ///     ctx.sleep(Duration::from_secs(3 * 24 * 60 * 60)).await;
    ///     ctx.step("send", |_| send(&user)).await
    /// }
    /// ```
    pub fn sleep(&self, duration: Duration) -> Sleep {
        Sleep::new(Arc::clone(&self.board), self.now() + duration.min(DURATION_MAX))
    }

    /// Sleeps until a time, durably. A time that has passed ends the sleep at once.
    ///
    /// ```
    /// # use onward::{Ctx, Failure, Timestamp};
    /// # use std::time::Duration;
    /// # async fn publish(_: &str) -> Result<(), std::io::Error> { Ok(()) }
    /// async fn embargo(ctx: Ctx, (text, until): (String, Timestamp)) -> Result<(), Failure> {
    ///     ctx.sleep_until(until).await; // a `SystemTime` turns into one with `.into()`
    ///     ctx.step("publish", |_| publish(&text)).await
    /// }
    /// ```
    pub fn sleep_until(&self, time: Timestamp) -> Sleep {
        Sleep::new(Arc::clone(&self.board), time)
    }

    /// The next signal of a name that somebody sends to this run, with what it carries.
    ///
    /// Signals of one name are delivered in the order in which they came, each once. One that came
    /// before anybody waited is kept. While the run only waits it costs nothing but its row.
    ///
    /// ```
    /// use onward::{Ctx, Failure, Onward, Workflow};
    /// use std::time::Duration;
    ///
    /// const EXPENSE: Workflow<u64, String> = Workflow::named("expense");
    ///
    /// async fn expense(ctx: Ctx, cents: u64) -> Result<String, Failure> {
    ///     let week = Duration::from_secs(7 * 24 * 60 * 60);
    ///     match ctx.signal::<bool>("approved").timeout(week).await? {
    ///         Some(true) => Ok(format!("{cents} cents paid")),
    ///         Some(false) => Ok("refused".to_owned()),
    ///         None => Ok("nobody answered".to_owned()),
    ///     }
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onward::Error> {
    /// # let onward = Onward::open("memory:").await?;
    /// # let worker = onward.worker().serve(EXPENSE, expense).start().await?;
    /// let run = onward.start(EXPENSE, &4200).key("expense-7").await?;
    /// run.signal("approved", &true).key("click-1").await?;
    /// assert_eq!(run.result().await?, "4200 cents paid");
    /// # worker.shutdown().await }
    /// ```
    pub fn signal<T: DeserializeOwned>(&self, name: &str) -> SignalFuture<T> {
        SignalFuture::new(Arc::clone(&self.board), name)
    }

    /// A question to the world outside: a secret token that somebody answers with, once. Hand the
    /// token on in a step, then wait for the answer. See [`Onward::resolve`](crate::Onward::resolve)
    /// for an example.
    ///
    /// ```
    /// # use onward::{Ctx, Failure};
    /// # use std::time::Duration;
    /// # async fn mail(_: &str, _: &str) -> Result<(), std::io::Error> { Ok(()) }
    /// async fn confirm(ctx: Ctx, address: String) -> Result<bool, Failure> {
    ///     let day = Duration::from_secs(24 * 60 * 60);
    ///     let callback = ctx.callback::<()>().valid_for(day).await?;
    ///     let token = callback.token();
    ///     ctx.step("mail the link", |_| mail(&address, &token)).await?;
    ///     Ok(callback.result().await?.is_some())
    /// }
    /// ```
    pub fn callback<'a, T: DeserializeOwned>(&self) -> CallbackFuture<'a, T> {
        CallbackFuture::new(self)
    }

    /// Which version of a piece of code this run goes by. A run that comes by here for the first
    /// time gets the last one; a run that had gone past here before this line was written gets the
    /// first. It is recorded, so a run stays with what it got.
    ///
    /// ```
    /// # use onward::{Ctx, Failure};
    /// # async fn old_charge() -> Result<(), std::io::Error> { Ok(()) }
    /// # async fn new_charge() -> Result<(), std::io::Error> { Ok(()) }
    /// async fn pay(ctx: Ctx, _: ()) -> Result<(), Failure> {
    ///     match ctx.version("charge with the new API", 1..=2).await? {
    ///         1 => ctx.step("charge", |_| old_charge()).await,
    ///         _ => ctx.step("charge by API 2", |_| new_charge()).await,
    ///     }
    /// }
    /// ```
    pub fn version<'a>(&self, change: &str, versions: RangeInclusive<u32>) -> StepFuture<'a, u32> {
        let board = Arc::clone(&self.board);
        self.step(format!("version of {change}"), move |_| {
            // Records that nobody has asked for yet: the run has been further than this.
            let version = if board.has_unasked() { versions.start() } else { versions.end() };
            std::future::ready(Ok::<_, Failure>(*version))
        })
    }

    /// Starts another run as a child of this one. A replay finds the same child again.
    ///
    /// ```
    /// use onward::{Ctx, Failure, Onward, Workflow};
    ///
    /// const PAGE: Workflow<u32, u32> = Workflow::named("ocr-page");
    /// const BOOK: Workflow<u32, u32> = Workflow::named("ocr-book");
    ///
    /// async fn page(_: Ctx, number: u32) -> Result<u32, Failure> {
    ///     Ok(number * 100) // characters
    /// }
    ///
    /// async fn book(ctx: Ctx, _: u32) -> Result<u32, Failure> {
    ///     // One after the other, or at once: each is a run of its own, on any worker.
    ///     let first = ctx.start(PAGE, &1).result().await?;
    ///     let (second, third) = tokio::try_join!(
    ///         ctx.start(PAGE, &2).result(),
    ///         ctx.start(PAGE, &3).queue("default").result(),
    ///     )?;
    ///     Ok(first + second + third)
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onward::Error> {
    /// # let onward = Onward::open("memory:").await?;
    /// # let worker = onward.worker().serve(PAGE, page).serve(BOOK, book).start().await?;
    /// assert_eq!(onward.start(BOOK, &3).await?.result().await?, 600);
    /// # worker.shutdown().await }
    /// ```
    pub fn start<I: Serialize, O: DeserializeOwned>(
        &self,
        workflow: Workflow<I, O>,
        input: &I,
    ) -> StartChild<O> {
        StartChild::new(Arc::clone(&self.board), workflow.name(), input)
    }

    /// Does the same for many items, at most `limit` at a time, and gives the results in the order
    /// of the items. What is done may be steps or children; the closure is given the item.
    ///
    /// The first failure ends it and drops what is under way; children that were started go on.
    /// [`results`](All::results) goes on after failures and gives them too.
    ///
    /// ```
    /// # use onward::{Ctx, Failure, Workflow};
    /// # const INDEX: Workflow<u64, u64> = Workflow::named("index-document");
    /// # async fn fetch(_: u64) -> Result<String, std::io::Error> { Ok(String::new()) }
    /// async fn index_all(ctx: Ctx, documents: Vec<u64>) -> Result<u64, Failure> {
    ///     // Each document in a run of its own, a hundred at a time.
    ///     let words = ctx.all(&documents, 100, |document| ctx.start(INDEX, document).result());
    ///     // Or in a step.
    ///     let texts = ctx.all(documents.clone(), 10, |id| ctx.step("fetch", move |_| fetch(id)));
    ///     let (words, texts) = tokio::try_join!(words, texts)?;
    ///     Ok(words.iter().sum::<u64>() + texts.len() as u64)
    /// }
    /// ```
    pub fn all<I, F, Fut, T>(&self, items: I, limit: usize, each: F) -> All<I::IntoIter, F, Fut, T>
    where
        I: IntoIterator,
        F: FnMut(I::Item) -> Fut,
        Fut: Future<Output = Result<T, Failure>>,
    {
        All::new(Arc::clone(&self.board), items.into_iter(), limit, each)
    }

    /// The run's own time: when the latest result that it was given was recorded, by the store's
    /// clock, or when the run was first claimed. The same on replay.
    ///
    /// ```
    /// # use onward::{Ctx, Failure};
    /// # use std::time::Duration;
    /// # async fn poll() -> Result<bool, std::io::Error> { Ok(true) }
    /// async fn wait_an_hour(ctx: Ctx, _: ()) -> Result<bool, Failure> {
    ///     let give_up_at = ctx.now() + Duration::from_secs(3600);
    ///     while ctx.now() < give_up_at {
    ///         if ctx.step("poll", |_| poll()).await? {
    ///             return Ok(true);
    ///         }
    ///         ctx.sleep(Duration::from_secs(60)).await;
    ///     }
    ///     Ok(false)
    /// }
    /// ```
    pub fn now(&self) -> Timestamp {
        self.board.now()
    }

    /// A random number, derived from the run: the same on replay.
    ///
    /// ```
    /// # use onward::{Ctx, Failure};
    /// # use std::time::Duration;
    /// async fn spread(ctx: Ctx, _: ()) -> Result<(), Failure> {
    ///     // Within an hour, and at the same moment after a crash.
    ///     ctx.sleep(Duration::from_secs(ctx.random() % 3600)).await;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Panics
    /// Outside the workflow function, as in a step's body or a spawned task, where it would not
    /// be the same on replay. Use any other source of randomness there.
    pub fn random(&self) -> u64 {
        self.refuse_elsewhere("random");
        let bytes = self.board.random();
        bytes[..8].iter().fold(0, |number, byte| (number << 8) | u64::from(*byte))
    }

    /// A random identifier, derived from the run: the same on replay.
    ///
    /// ```
    /// # use onward::{Ctx, Failure};
    /// # async fn create(_: &str) -> Result<(), std::io::Error> { Ok(()) }
    /// async fn open_account(ctx: Ctx, _: ()) -> Result<String, Failure> {
    ///     let account = ctx.uuid().to_string();
    ///     ctx.step("create", |_| create(&account)).await?;
    ///     Ok(account)
    /// }
    /// ```
    ///
    /// # Panics
    /// Outside the workflow function, as [`random`](Ctx::random) does.
    pub fn uuid(&self) -> Uuid {
        self.refuse_elsewhere("uuid");
        self.board.uuid()
    }

    /// The run's id.
    ///
    /// ```
    /// # use onward::{Ctx, Failure};
    /// async fn report(ctx: Ctx, _: ()) -> Result<String, Failure> {
    ///     Ok(format!("report-{}.pdf", ctx.run_id()))
    /// }
    /// ```
    pub fn run_id(&self) -> RunId {
        self.board.run
    }

    /// The time of the schedule that this run is for, if a schedule started it. A run that catches
    /// up has the time that was missed, not the time at which it begins.
    ///
    /// ```
    /// # use onward::{Ctx, Failure};
    /// # async fn write_report(_: std::time::SystemTime) -> Result<(), std::io::Error> { Ok(()) }
    /// async fn report(ctx: Ctx, _: ()) -> Result<(), Failure> {
    ///     let night = ctx.scheduled_at().unwrap_or_else(|| ctx.now());
    ///     ctx.step("write", |_| write_report(night.into())).await
    /// }
    /// ```
    pub fn scheduled_at(&self) -> Option<Timestamp> {
        self.scheduled_at
    }

    /// Ends this run and continues as a new run of the same workflow with another input, under the same
    /// key and with a fresh history. The work of this run is final: its undos are dropped. Signals that
    /// it did not receive go to the new run. Return the value of this call from your function:
    ///
    /// ```
    /// # use onward::{Ctx, Failure, Workflow};
    /// # async fn copy_page(_: u64) -> Result<Option<u64>, std::io::Error> { Ok(None) }
    /// const COPY_ALL: Workflow<u64, ()> = Workflow::named("copy-all");
    ///
    /// async fn copy_all(ctx: Ctx, mut page: u64) -> Result<(), Failure> {
    ///     for _ in 0..1_000 {
    ///         match ctx.step("copy page", |_| copy_page(page)).await? {
    ///             Some(next) => page = next,
    ///             None => return Ok(()),
    ///         }
    ///     }
    ///     ctx.continue_as(COPY_ALL, &page)
    /// }
    /// ```
    ///
    /// # Errors
    /// Always: with the value that makes the run continue, with the reason why the input cannot be
    /// stored, or with `invalid_option` if the run is of another workflow.
    pub fn continue_as<I: Serialize, O>(
        &self,
        workflow: Workflow<I, O>,
        input: &I,
    ) -> Result<O, Failure> {
        self.board.check_place()?;
        if workflow.name() != self.board.workflow {
            let (own, other) = (&self.board.workflow, workflow.name());
            let why =
                format!("a run of {own:?} cannot continue as {other:?}; start {other:?} instead");
            return Err(Failure::engine(Code::InvalidOption, why));
        }
        self.board.set_continue_as(Json::of(input)?);
        Err(Failure::fatal("the run goes on with another input").code(CONTINUE))
    }

    fn refuse_elsewhere(&self, what: &str) {
        let place = self.board.check_place();
        assert!(place.is_ok(), "ctx.{what}() outside the workflow function would shift its values");
    }
}

impl fmt::Debug for Ctx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ctx").field("run", &self.board.run).finish()
    }
}
