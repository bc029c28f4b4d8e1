//! The same for many items, a few at a time.
//!
//! Owns: [`All`], which keeps a limited number of futures and the results in the order of the items,
//! and [`AllResults`], which goes on after a failure. Never makes a future before there is room for
//! it, so ten thousand items cost the memory of their results.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::Failure;
use crate::driver::board::Board;

/// The results of many futures, in the order of their items; made by [`Ctx::all`](crate::Ctx::all).
/// The first failure ends it, and drops what is not done.
#[must_use = "nothing is done before it is awaited"]
pub struct All<I: Iterator, F, Fut, T> {
    crowd: Crowd<I, F, Fut, T>,
}

/// The results of many futures, failures among them, in the order of their items; made by
/// [`All::results`].
#[must_use = "nothing is done before it is awaited"]
pub struct AllResults<I: Iterator, F, Fut, T> {
    crowd: Crowd<I, F, Fut, T>,
}

impl<I, F, Fut, T> All<I, F, Fut, T>
where
    I: Iterator,
    F: FnMut(I::Item) -> Fut,
    Fut: Future<Output = Result<T, Failure>>,
{
    pub(super) fn new(board: Arc<Board>, items: I, limit: usize, each: F) -> Self {
        let (limit, going, results) = (limit.max(1), Vec::new(), Vec::new());
        let number = board.name_all();
        Self { crowd: Crowd { board, number, items, each, limit, going, results, failed: None } }
    }

    /// Goes on after a failure, and gives the result of every item.
    ///
    /// ```
    /// # use onward::{Ctx, Failure};
    /// # async fn mail(_: u32) -> Result<(), std::io::Error> { Ok(()) }
    /// async fn mail_all(ctx: Ctx, users: Vec<u32>) -> Result<usize, Failure> {
    ///     let sent = ctx.all(users, 10, |user| ctx.step("mail", move |_| mail(user)));
    ///     Ok(sent.results().await.iter().filter(|sent| sent.is_err()).count())
    /// }
    /// ```
    pub fn results(self) -> AllResults<I, F, Fut, T> {
        AllResults { crowd: self.crowd }
    }
}

/// Futures that are under way, and what came of those before them.
struct Crowd<I: Iterator, F, Fut, T> {
    board: Arc<Board>,
    /// What tells it from others of this run's execution.
    number: u64,
    items: I,
    each: F,
    limit: usize,
    going: Vec<(usize, Pin<Box<Fut>>)>,
    results: Vec<Option<Result<T, Failure>>>,
    /// The place of the first failure.
    failed: Option<usize>,
}

impl<I, F, Fut, T> Crowd<I, F, Fut, T>
where
    I: Iterator,
    F: FnMut(I::Item) -> Fut,
    Fut: Future<Output = Result<T, Failure>>,
{
    /// Makes futures while there is room, and polls those under way. Ready when none is left.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            while self.going.len() < self.limit {
                let Some(item) = self.items.next() else { break };
                let place = self.results.len();
                let _item = self.board.enter_item(self.number, place);
                self.going.push((place, Box::pin((self.each)(item))));
                self.results.push(None);
            }
            if self.going.is_empty() {
                return Poll::Ready(());
            }
            let (results, failed) = (&mut self.results, &mut self.failed);
            let (board, number) = (&self.board, self.number);
            let before = self.going.len();
            self.going.retain_mut(|(place, future)| {
                let _item = board.enter_item(number, *place);
                let Poll::Ready(result) = future.as_mut().poll(cx) else { return true };
                if result.is_err() {
                    failed.get_or_insert(*place);
                }
                results[*place] = Some(result);
                false
            });
            // A future that is made now must be polled now, or nothing wakes this one for it.
            if self.going.len() == before {
                return Poll::Pending;
            }
        }
    }
}

impl<I, F, Fut, T> Future for All<I, F, Fut, T>
where
    I: Iterator + Unpin,
    F: FnMut(I::Item) -> Fut + Unpin,
    Fut: Future<Output = Result<T, Failure>>,
    T: Unpin,
{
    type Output = Result<Vec<T>, Failure>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let crowd = &mut self.get_mut().crowd;
        let polled = crowd.poll(cx);
        if let Some(Some(Err(failure))) = crowd.failed.map(|place| crowd.results[place].take()) {
            crowd.going.clear();
            return Poll::Ready(Err(failure));
        }
        polled.map(|()| std::mem::take(&mut crowd.results).into_iter().flatten().collect())
    }
}

impl<I, F, Fut, T> Future for AllResults<I, F, Fut, T>
where
    I: Iterator + Unpin,
    F: FnMut(I::Item) -> Fut + Unpin,
    Fut: Future<Output = Result<T, Failure>>,
    T: Unpin,
{
    type Output = Vec<Result<T, Failure>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let crowd = &mut self.get_mut().crowd;
        let polled = crowd.poll(cx);
        polled.map(|()| std::mem::take(&mut crowd.results).into_iter().flatten().collect())
    }
}

impl<I: Iterator, F, Fut, T> fmt::Debug for All<I, F, Fut, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("All").field("begun", &self.crowd.results.len()).finish()
    }
}

impl<I: Iterator, F, Fut, T> fmt::Debug for AllResults<I, F, Fut, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AllResults").field("begun", &self.crowd.results.len()).finish()
    }
}
