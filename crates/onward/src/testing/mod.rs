//! Tests as users write them: a clock that jumps, and a checker of retry safety.
//!
//! Owns: [`TestOnward`], [`retry_safe`] and the recorder of [`Effects`]. Never changes how a run
//! executes: it is the same worker and the same driver as in production, on a memory store.
//!
//! A month passes while the test waits for the run:
//!
//! ```
//! use onward::testing::TestOnward;
//! use onward::{Ctx, Failure, Workflow};
//! use std::time::Duration;
//!
//! const MONTH: Duration = Duration::from_secs(30 * 24 * 60 * 60);
//! const REMIND: Workflow<String, String> = Workflow::named("remind");
//!
//! async fn remind(ctx: Ctx, user: String) -> Result<String, Failure> {
//!     ctx.sleep(MONTH).await;
//!     ctx.step("send", async |_| Ok::<_, Failure>(format!("reminded {user}"))).await
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onward::Error> {
//! let onward = TestOnward::new().await?;
//! let begin = onward.now();
//! onward.worker().serve(REMIND, remind).start().await?;
//! let run = onward.start(REMIND, &"Ada".to_owned()).await?;
//! assert_eq!(run.result().await?, "reminded Ada");
//! assert_eq!(onward.now().since(begin), MONTH);
//! # Ok(()) }
//! ```
//!
//! And a workflow is executed once for every point at which its process can die:
//!
//! ```
//! use onward::testing::{Effects, retry_safe};
//! use onward::{Ctx, Failure, Workflow};
//!
//! const PAY: Workflow<u64, String> = Workflow::named("pay");
//!
//! async fn pay(ctx: Ctx, cents: u64, bank: Bank) -> Result<String, Failure> {
//!     ctx.step("charge", async |step| bank.charge(step.id(), cents).await).await
//! }
//!
//! /// Stands for the real bank. It notes what would happen there.
//! #[derive(Clone)]
//! struct Bank(Effects);
//!
//! impl Bank {
//!     async fn charge(&self, key: &str, cents: u64) -> Result<String, Failure> {
//!         self.0.note("charge").key(key).payload(&cents).await;
//!         Ok(format!("receipt for {cents}"))
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let report = retry_safe(PAY, |effects| {
//!     let bank = Bank(effects);
//!     move |ctx, cents| pay(ctx, cents, bank.clone())
//! }, &500).check().await;
//! assert!(report.is_safe(), "{report}");
//! # }
//! ```

mod check;
mod effects;
mod house;
mod judge;
pub(crate) mod observer;
mod onward;
mod play;
mod report;
mod timekeeper;
mod trace;

pub use self::check::{RetrySafe, retry_safe};
pub use self::effects::{Effect, Effects, Note, Place};
pub use self::onward::TestOnward;
pub use self::report::{Finding, Found, Point, Report, Side, What};
pub use crate::store::lossy::{Death, Held, LossyStore};
