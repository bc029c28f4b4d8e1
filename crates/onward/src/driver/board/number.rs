//! Numbers that tell the futures of one name apart, and whether a replay gives each the same one.
//!
//! Owns: the numbers of steps, sleeps, waits and children, and what is refused because its number
//! would be left to chance. Never knows what a future does.
//!
//! A future is numbered when it is created. What is delivered to the function is the same in every
//! replay, one result at a time, so what the function creates between two deliveries is the same
//! too, but not always in the same order: `select!` polls its branches in random order, and nothing
//! here can tell it from `join!`. So a future is refused if another of its name was created since the
//! last delivery and some future was first polled in between: the function may have been put aside
//! there, so the two may be in different branches. Futures that are all created before one is polled
//! have a certain order, and so have the items of `ctx.all`, which polls them in order.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::Board;
use crate::Code;

/// A future's number among those of its name.
#[derive(Clone, Debug)]
pub(crate) struct Numbered {
    name: Arc<str>,
    pub(crate) number: u32,
    /// Whether another branch may have been given this number instead.
    uncertain: bool,
}

/// The items of `ctx.all` that are being polled, the outermost first: which `ctx.all`, which item.
type Path = Vec<(u64, usize)>;

/// The numbers of a run's futures.
#[derive(Default)]
pub(super) struct Numbers {
    names: HashMap<Arc<str>, Name>,
    /// Explicit ids that are in use.
    explicit: HashSet<String>,
    /// How many results were delivered to the function.
    delivered: u64,
    /// How many futures were polled for the first time.
    polled: u64,
    path: Path,
    alls: u64,
    /// The latest random number that was drawn, and the latest call of `on_cancel`.
    drawn: Option<Call>,
    on_cancel: Option<Call>,
}

/// A call whose order among its like counts.
struct Call {
    /// The deliveries and first polls before it.
    delivered: u64,
    polled: u64,
    path: Path,
}

#[derive(Default)]
struct Name {
    last: u32,
    /// Where the latest was created.
    created: Option<Call>,
}

impl Numbers {
    /// Notes that the function was given a result.
    pub(super) fn deliver(&mut self) {
        self.delivered += 1;
    }

    fn take(&mut self, name: &str) -> Numbered {
        let name = match self.names.get_key_value(name) {
            Some((name, _)) => Arc::clone(name),
            None => Arc::from(name),
        };
        let entry = self.names.entry(Arc::clone(&name)).or_default();
        entry.last += 1;
        let here = Call { delivered: self.delivered, polled: self.polled, path: self.path.clone() };
        let (number, before) = (entry.last, entry.created.take());
        let uncertain = entry.created.insert(here).may_change_places(before);
        Numbered { name, number, uncertain }
    }

    /// Notes that a future is polled for the first time: the function may be put aside there.
    pub(super) fn first_poll(&mut self) {
        self.polled += 1;
    }

    /// Notes that a random number is drawn; says whether another branch may draw it in another replay.
    pub(super) fn draw(&mut self) -> bool {
        let (here, before) = (self.here(), self.drawn.take());
        self.drawn.insert(here).may_change_places(before)
    }

    /// Notes a call of `on_cancel`; says whether another branch may be first in another replay.
    pub(super) fn call_on_cancel(&mut self) -> bool {
        let (here, before) = (self.here(), self.on_cancel.take());
        self.on_cancel.insert(here).may_change_places(before)
    }

    fn here(&self) -> Call {
        Call { delivered: self.delivered, polled: self.polled, path: self.path.clone() }
    }
}

impl Call {
    /// Whether this call and the one before it may be of two branches: a future was first polled in
    /// between, so the function may have been put aside there.
    fn may_change_places(&self, before: Option<Self>) -> bool {
        before.is_some_and(|before| {
            before.delivered == self.delivered
                && before.polled < self.polled
                && !is_ordered(&before.path, &self.path)
        })
    }
}

/// Whether two places are in different items of one `ctx.all`, which are polled in order.
fn is_ordered(one: &Path, other: &Path) -> bool {
    let apart = one.iter().zip(other).find(|(one, other)| one != other);
    apart.is_some_and(|(one, other)| one.0 == other.0)
}

impl Board {
    /// The number of a new future of this name.
    pub(crate) fn take_number(&self, name: &str) -> Numbered {
        self.lock().numbers.take(name)
    }

    /// Gives a number back, if no other was taken since: the future has an explicit id instead.
    pub(crate) fn return_number(&self, taken: &Numbered) {
        if let Some(name) = self.lock().numbers.names.get_mut(&taken.name)
            && name.last == taken.number
        {
            name.last -= 1;
        }
    }

    /// Whether this explicit id was free; it is taken afterwards.
    pub(crate) fn take_explicit(&self, step: &str) -> bool {
        self.lock().numbers.explicit.insert(step.to_owned())
    }

    /// Takes an explicit id for a future that cannot fail, and stops the run if it is in use.
    pub(crate) fn claim_explicit(&self, step: &str) {
        if !self.take_explicit(step) {
            self.trouble(Code::StepIdTaken, format!("{step:?}: {}", Code::StepIdTaken.advice()));
        }
    }

    /// Stops the run if the number of a future that is asked for is left to chance.
    pub(crate) fn check_number(&self, numbered: &Numbered) {
        if numbered.uncertain {
            let what = format!("{:?} in two branches", &*numbered.name);
            self.refuse_order(&what);
        }
    }

    /// Stops the run, whose function does the same in two branches in an order that is left to chance.
    pub(super) fn refuse_order(&self, what: &str) {
        let detail = format!("{what}: {}", Code::AmbiguousOrder.advice());
        self.trouble(Code::AmbiguousOrder, detail);
    }

    /// A name for one `ctx.all` of this execution.
    pub(crate) fn name_all(&self) -> u64 {
        let numbers = &mut self.lock().numbers;
        numbers.alls += 1;
        numbers.alls
    }

    /// Notes that an item of a `ctx.all` is being polled, until the guard is dropped.
    pub(crate) fn enter_item(&self, all: u64, item: usize) -> ItemGuard<'_> {
        self.lock().numbers.path.push((all, item));
        ItemGuard(self)
    }
}

/// An item of a `ctx.all` that is being polled.
pub(crate) struct ItemGuard<'a>(&'a Board);

impl Drop for ItemGuard<'_> {
    fn drop(&mut self) {
        self.0.lock().numbers.path.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poll(numbers: &mut Numbers, name: &str) -> Numbered {
        let numbered = numbers.take(name);
        numbers.first_poll();
        numbered
    }

    #[test]
    fn futures_that_are_created_together_have_a_certain_order() {
        let mut numbers = Numbers::default();
        let (first, second) = (numbers.take("save"), numbers.take("save"));
        assert_eq!((first.number, second.number), (1, 2));
        assert!(!first.uncertain && !second.uncertain);
    }

    #[test]
    fn one_that_is_created_after_a_future_was_polled_has_not() {
        let mut numbers = Numbers::default();
        poll(&mut numbers, "save");
        assert!(numbers.take("save").uncertain);
        assert!(!numbers.take("load").uncertain, "another name has its own numbers");
        numbers.deliver();
        assert!(!numbers.take("save").uncertain, "a delivery comes before it in every replay");
    }

    #[test]
    fn the_future_that_was_polled_in_between_may_have_any_name() {
        let mut numbers = Numbers::default();
        let early = numbers.take("save");
        poll(&mut numbers, "load");
        assert!(!early.uncertain && numbers.take("save").uncertain);
    }

    #[test]
    fn items_of_one_all_are_polled_in_order() {
        let mut numbers = Numbers { path: vec![(1, 0), (2, 3)], ..Numbers::default() };
        poll(&mut numbers, "save");
        numbers.path = vec![(1, 1), (3, 0)];
        assert!(!numbers.take("save").uncertain, "another item of the outer one");
        numbers.first_poll();
        assert!(numbers.take("save").uncertain, "another branch of the same item");
        numbers.first_poll();
        numbers.path = vec![(4, 1)];
        assert!(numbers.take("save").uncertain, "an item of another");
        numbers.first_poll();
        numbers.path = Vec::new();
        assert!(numbers.take("save").uncertain, "outside of it");
    }

    #[test]
    fn random_numbers_of_two_branches_have_no_certain_order() {
        let mut numbers = Numbers::default();
        assert!(!numbers.draw() && !numbers.draw(), "one after the other");
        poll(&mut numbers, "save");
        assert!(numbers.draw(), "a future was polled in between");
        numbers.deliver();
        assert!(!numbers.draw());
    }
}
