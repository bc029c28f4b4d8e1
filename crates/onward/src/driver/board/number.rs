//! Numbers that tell the futures of one name apart, and whether a replay gives each the same one.
//!
//! Owns: the numbers of steps, sleeps, waits and children, and what is refused because its number
//! would be left to chance. Never knows what a future does.
//!
//! A future is numbered when it is created. What is delivered to the function is the same in every
//! replay, one result at a time, so what the function creates between two deliveries is the same
//! too, but not always in the same order: `select!` polls its branches in random order, and nothing
//! here can tell it from `join!`. So a future is refused if another of its name was created since the
//! last delivery and some future was polled and not ready in between: the function may have been put
//! aside there, so the two may be in different branches. Futures that are all created before one is polled
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
    /// How many polls found a future that was not ready.
    polled: u64,
    path: Path,
    alls: u64,
    /// The random numbers that were drawn, and the calls of `on_cancel`.
    drawn: Calls,
    on_cancel: Calls,
}

/// A call whose order among its like counts.
struct Call {
    /// The polls before it.
    polled: u64,
    path: Path,
}

/// The calls of one kind since the last delivery.
#[derive(Default)]
struct Calls {
    delivered: u64,
    /// The polls before the first of them that was made outside of every `ctx.all`.
    outside: Option<u64>,
    /// Those that were made in an item of a `ctx.all`: of each, the polls before the first, and the calls
    /// of each item.
    alls: HashMap<u64, (u64, HashMap<usize, Vec<Call>>)>,
}

#[derive(Default)]
struct Name {
    last: u32,
    calls: Calls,
    /// The latest call, which is none if its future gets an explicit id.
    latest: Option<(u64, Call)>,
}

impl Calls {
    /// Forgets what was before the last delivery: it came first in every replay.
    fn turn_to(&mut self, delivered: u64) {
        if self.delivered != delivered {
            *self = Self { delivered, ..Self::default() };
        }
    }

    fn add(&mut self, call: Call) {
        let Some((all, item)) = call.path.first().copied() else {
            self.outside.get_or_insert(call.polled);
            return;
        };
        let (_, items) = self.alls.entry(all).or_insert_with(|| (call.polled, HashMap::new()));
        items.entry(item).or_default().push(call);
    }

    /// Whether this call and an earlier one may be of two branches: a future was polled in between, so the
    /// function may have been put aside there, and nothing orders them.
    fn may_change_places(&self, call: &Call) -> bool {
        let outer = call.path.first().copied();
        let is_earlier = |polled: u64| polled < call.polled;
        let of_all = |(all, (first, items)): (&u64, &(u64, HashMap<usize, Vec<Call>>))| match outer
        {
            Some((mine, item)) if mine == *all => items.get(&item).is_some_and(|earlier| {
                let apart = |it: &&Call| is_earlier(it.polled) && !is_ordered(&it.path, &call.path);
                earlier.iter().any(|it| apart(&it))
            }),
            _ => is_earlier(*first),
        };
        self.outside.is_some_and(is_earlier) || self.alls.iter().any(of_all)
    }
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
        let (delivered, here) = (self.delivered, self.here());
        let entry = self.names.entry(Arc::clone(&name)).or_default();
        entry.last += 1;
        entry.calls.turn_to(delivered);
        if let Some((_, call)) = entry.latest.take_if(|(at, _)| *at == delivered) {
            entry.calls.add(call);
        }
        let uncertain = entry.calls.may_change_places(&here);
        entry.latest = Some((delivered, here));
        Numbered { name, number: entry.last, uncertain }
    }

    /// Takes a number back, if no other was taken since.
    fn put_back(&mut self, taken: &Numbered) {
        if let Some(name) = self.names.get_mut(&taken.name)
            && name.last == taken.number
        {
            name.last -= 1;
            name.latest = None;
        }
    }

    /// Notes that a future is polled and not ready: the function may be put aside there.
    pub(super) fn poll(&mut self) {
        self.polled += 1;
    }

    /// Notes that a random number is drawn; says whether another branch may draw it in another replay.
    pub(super) fn draw(&mut self) -> bool {
        let (delivered, here) = (self.delivered, self.here());
        self.drawn.call(delivered, here)
    }

    /// Notes a call of `on_cancel`; says whether another branch may be first in another replay.
    pub(super) fn call_on_cancel(&mut self) -> bool {
        let (delivered, here) = (self.delivered, self.here());
        self.on_cancel.call(delivered, here)
    }

    fn here(&self) -> Call {
        Call { polled: self.polled, path: self.path.clone() }
    }
}

impl Calls {
    /// Notes a call; says whether it and an earlier one may be of two branches.
    fn call(&mut self, delivered: u64, call: Call) -> bool {
        self.turn_to(delivered);
        let uncertain = self.may_change_places(&call);
        self.add(call);
        uncertain
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
        self.lock().numbers.put_back(taken);
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
            let name = &*numbered.name;
            self.refuse_order(&format!("{name:?}"), &line_to_write(name));
        }
    }

    /// Stops the run, whose function does the same in two branches in an order that is left to chance.
    pub(super) fn refuse_order(&self, what: &str, instead: &str) {
        let advice = Code::AmbiguousOrder.advice();
        self.trouble(Code::AmbiguousOrder, format!("{what} in two branches: {advice} {instead}"));
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

/// What to write instead of futures of this name whose order is left to chance.
fn line_to_write(name: &str) -> String {
    let together = "create both futures before you await one of them";
    let id = |line: &str| format!("Give each an id, as in {line}, or {together}.");
    match name.split_once('/') {
        Some(("$signal", signal)) => format!(
            "To wait for {signal:?} in both, {together}, or give the signals different names."
        ),
        Some(("$child", _)) => id("ctx.start(…).id(order.number)"),
        Some((engine, _)) if engine.starts_with('$') => format!("To do it twice, {together}."),
        None if name == "$sleep" => id("ctx.sleep(…).id(\"reminder\")"),
        None if name.starts_with('$') => format!("To do it twice, {together}."),
        _ => id(&format!("ctx.step({name:?}, …).id(page)")),
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
        numbers.poll();
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
    fn one_that_follows_one_without_a_certain_order_has_none_either() {
        let mut numbers = Numbers::default();
        let (first, second) = (poll(&mut numbers, "save"), numbers.take("save"));
        let third = numbers.take("save");
        assert!(!first.uncertain && second.uncertain && third.uncertain);
    }

    #[test]
    fn one_that_gets_an_id_counts_for_nothing() {
        let mut numbers = Numbers::default();
        let keyed = numbers.take("save");
        numbers.put_back(&keyed);
        numbers.poll();
        let first = numbers.take("save");
        assert_eq!((first.number, first.uncertain), (1, false));
        numbers.poll();
        let keyed = numbers.take("save");
        numbers.put_back(&keyed);
        let second = numbers.take("save");
        assert_eq!((second.number, second.uncertain), (2, true), "it is after the first");
    }

    #[test]
    fn what_is_outside_of_an_all_has_no_certain_place_beside_its_items() {
        let mut numbers = Numbers::default();
        numbers.take("save");
        numbers.path = vec![(1, 0)];
        let in_item = numbers.take("save");
        numbers.poll();
        numbers.path = vec![(1, 1)];
        let in_next = numbers.take("save");
        assert!(!in_item.uncertain && in_next.uncertain);
    }

    #[test]
    fn items_of_one_all_are_polled_in_order() {
        let mut numbers = Numbers { path: vec![(1, 0), (2, 3)], ..Numbers::default() };
        poll(&mut numbers, "save");
        numbers.path = vec![(1, 1), (3, 0)];
        assert!(!numbers.take("save").uncertain, "another item of the outer one");
        numbers.poll();
        assert!(numbers.take("save").uncertain, "another branch of the same item");
        numbers.poll();
        numbers.path = vec![(4, 1)];
        assert!(numbers.take("save").uncertain, "an item of another");
        numbers.poll();
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
