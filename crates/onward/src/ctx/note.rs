//! What a workflow notes on its own run: log lines, progress and tags.
//!
//! Owns: these methods of [`Ctx`] and [`Step`]. Never awaits: a note is kept by the board and goes
//! with a later write.

use super::{Ctx, Step};
use crate::error::{check_name, check_text};
use crate::limits::{TAG_VALUE_BYTES_MAX, TAGS_MAX};
use crate::{Code, Error, Failure};

impl Ctx {
    /// Writes a line into the run's log, which [`RunHandle::log`](crate::RunHandle::log) reads. It is
    /// stored within a second, or with the end of the attempt, and not written again on replay.
    ///
    /// The last 1,000 lines are kept, each up to 1 KiB; longer ones are cut.
    ///
    /// ```
    /// use onward::{Ctx, Failure, Onward, Workflow};
    ///
    /// const IMPORT: Workflow<u32, u32> = Workflow::named("import");
    ///
    /// async fn import(ctx: Ctx, rows: u32) -> Result<u32, Failure> {
    ///     ctx.log(format!("importing {rows} rows"));
    ///     ctx.step("load", async |step| {
    ///         step.log("connected");
    ///         Ok::<_, Failure>(rows)
    ///     })
    ///     .await
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onward::Error> {
    /// # let onward = Onward::open("memory:").await?;
    /// # let worker = onward.worker().serve(IMPORT, import).start().await?;
    /// let run = onward.start(IMPORT, &7).await?;
    /// run.result().await?;
    /// let log = run.log().await?;
    /// assert_eq!(log[0].text, "importing 7 rows");
    /// assert_eq!((log[1].step.as_deref(), &*log[1].text), (Some("load"), "connected"));
    /// # worker.shutdown().await }
    /// ```
    pub fn log(&self, text: impl Into<String>) {
        self.board.log(None, text.into());
    }

    /// Says how far the run is, for whoever looks at it: [`Run::progress`](crate::Run::progress). The
    /// latest value is kept, written at most once a second; a total of 0 says that it is not known.
    ///
    /// ```
    /// # use onward::{Ctx, Failure};
    /// # async fn convert(_: &str) -> Result<(), std::io::Error> { Ok(()) }
    /// async fn convert_all(ctx: Ctx, files: Vec<String>) -> Result<(), Failure> {
    ///     for (done, file) in files.iter().enumerate() {
    ///         ctx.progress(done as u64, files.len() as u64);
    ///         ctx.step("convert", |_| convert(file)).await?;
    ///     }
    ///     Ok(())
    /// }
    /// ```
    pub fn progress(&self, done: u64, total: u64) {
        self.board.set_progress(done, total);
    }

    /// Sets a tag of the run, so that lists find it by that. It is stored within a second, or with the
    /// end of the attempt. A replay does not set it again, so a tag never falls back to an old value.
    ///
    /// ```
    /// # use onward::{Ctx, Failure};
    /// # async fn find_tenant(_: u64) -> Result<String, std::io::Error> { Ok("acme".to_owned()) }
    /// async fn index(ctx: Ctx, document: u64) -> Result<(), Failure> {
    ///     let tenant = ctx.step("find tenant", |_| find_tenant(document)).await?;
    ///     ctx.set_tag("tenant", &tenant)?;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// `invalid_name` for a name or value that is empty or too long, `invalid_option` when the run has
    /// 32 others, and the misuse of a `Ctx` outside its function.
    pub fn set_tag(&self, name: &str, value: &str) -> Result<(), Failure> {
        self.board.check_place()?;
        check_name("tag", name)?;
        check_text("tag value", value, TAG_VALUE_BYTES_MAX)?;
        if self.board.set_tag(name, value) {
            return Ok(());
        }
        let about = format!("tag {name:?} would be one more than {TAGS_MAX}");
        Err(Error::new(Code::InvalidOption).about(about).into())
    }
}

impl Step {
    /// Writes a line into the run's log, marked with the step and the try. A body that is executed
    /// again, because it failed or its process died, writes its lines again. Those of the last second
    /// before a process dies may be missing.
    ///
    /// ```
    /// # use onward::{Ctx, Failure};
    /// # async fn fetch(_: &str) -> Result<String, std::io::Error> { Ok(String::new()) }
    /// # async fn workflow(ctx: Ctx, url: String) -> Result<String, Failure> {
    /// ctx.step("fetch", async |step| {
    ///     step.log(format!("try {} of {url}", step.try_number()));
    ///     fetch(&url).await
    /// })
    /// # .await }
    /// ```
    pub fn log(&self, text: impl Into<String>) {
        self.board.log(Some((&self.name, self.try_number)), text.into());
    }

    /// Says how far the run is, as [`Ctx::progress`] does.
    ///
    /// ```
    /// # use onward::{Ctx, Failure};
    /// # async fn send(_: usize) -> Result<(), std::io::Error> { Ok(()) }
    /// # async fn workflow(ctx: Ctx) -> Result<(), Failure> {
    /// ctx.step("send all", async |step| {
    ///     for part in 0..100 {
    ///         send(part).await?;
    ///         step.progress(part as u64 + 1, 100);
    ///     }
    ///     Ok::<_, Failure>(())
    /// })
    /// # .await }
    /// ```
    pub fn progress(&self, done: u64, total: u64) {
        self.board.set_progress(done, total);
    }
}
