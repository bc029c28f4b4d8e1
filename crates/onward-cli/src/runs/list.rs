//! `onward runs list`.

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use onward::limits::PAGE_ROWS_MAX;
use onward::{Filter, Onward, Query, Run, RunId, RunPage, RunState};

use crate::args::{self, Global};
use crate::open;
use crate::output::{self, Format, STUCK};
use crate::problem::{Exit, Problem};

/// Runs in a table, unless a limit is given.
const TABLE_ROWS: usize = 50;

/// Runs that are in memory at once while all of them are printed.
const PRINTED_ROWS: usize = 100;

/// Lists runs, newest first
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  onward runs list --state failed --workflow index-attachment
  onward runs list --tag tenant=acme --limit 20
  onward runs list --state stuck -o ids | onward runs retry -
  onward runs list -o json | jq -r .key

Stuck runs are waiting ones that go on only after a retry, or on a worker of another build.")]
pub(crate) struct ListArgs {
    /// In this state; may be repeated
    #[arg(long, value_parser = states())]
    state: Vec<State>,
    /// Of this workflow
    #[arg(long)]
    workflow: Option<String>,
    /// In this queue
    #[arg(long)]
    queue: Option<String>,
    /// With this key
    #[arg(long)]
    key: Option<String>,
    /// With this tag, name=value; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = args::tag)]
    tag: Vec<(String, String)>,
    /// How many at most, up to 1000; when left out, 50 in a table and all as json or ids
    #[arg(long, value_parser = limit)]
    limit: Option<usize>,
    /// Only runs older than this one: the last of the page before
    #[arg(long, value_name = "ID", value_parser = super::id)]
    before: Option<RunId>,
}

/// A state to list: one of the library's, or the waiting ones that are stuck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Of(RunState),
    Stuck,
}

impl ListArgs {
    pub(crate) async fn execute(self, global: &Global) -> Result<Exit, Problem> {
        let onward = open::existing(&global.store).await?;
        let (limit, all) = match self.limit {
            Some(limit) => (limit, false),
            None if global.output == Format::Table => (TABLE_ROWS, false),
            None => (PRINTED_ROWS, true),
        };
        let wanted = Wanted::of(&self.state);
        let mut query = self.query(limit);
        let mut printed = 0;
        loop {
            let page = wanted.page(&onward, query.clone()).await?;
            output::print_runs(global.output, &page.runs, output::now(&onward))?;
            printed += page.runs.len();
            query.before = page.runs.last().map(|run| run.id);
            if !all || !page.more {
                say_more(&page, printed);
                return Ok(Exit::Ok);
            }
        }
    }

    fn query(self, limit: usize) -> Query {
        let mut states: Vec<_> = self.state.into_iter().map(State::stored).collect();
        states.sort_unstable();
        states.dedup();
        let filter = Filter {
            workflow: self.workflow,
            states,
            queue: self.queue,
            key: self.key,
            tags: self.tag.into_iter().collect(),
            ..Filter::default()
        };
        Query { filter, before: self.before, limit }
    }
}

impl State {
    /// The state under which the store has it.
    fn stored(self) -> RunState {
        match self {
            State::Of(state) => state,
            State::Stuck => RunState::Waiting,
        }
    }
}

/// Which of the listed runs are wanted: of the waiting ones, perhaps only those that are stuck.
struct Wanted {
    waiting_if_stuck: bool,
}

impl Wanted {
    fn of(states: &[State]) -> Self {
        let waiting = State::Of(RunState::Waiting);
        Self { waiting_if_stuck: states.contains(&State::Stuck) && !states.contains(&waiting) }
    }

    fn has(&self, run: &Run) -> bool {
        !self.waiting_if_stuck || run.state != RunState::Waiting || output::is_stuck(run)
    }

    /// As a page of the library's, without the runs that are not wanted.
    async fn page(&self, onward: &Onward, mut query: Query) -> Result<RunPage, Problem> {
        let mut found = RunPage::default();
        loop {
            let page = onward.list(query.clone()).await?;
            query.before = page.runs.last().map(|run| run.id);
            let mut runs = page.runs.into_iter().filter(|run| self.has(run));
            found.runs.extend(runs.by_ref().take(query.limit - found.runs.len()));
            found.more = page.more || runs.next().is_some();
            if !page.more || found.runs.len() == query.limit {
                return Ok(found);
            }
        }
    }
}

fn say_more(page: &RunPage, printed: usize) {
    match page.runs.last() {
        None if printed == 0 => anstream::eprintln!("no runs"),
        Some(last) if page.more => {
            anstream::eprintln!("more follow: the same command with --before {}", last.id);
        }
        _ => {}
    }
}

/// Takes the name of a state, and lists the names in the help.
fn states() -> impl TypedValueParser<Value = State> {
    let names = RunState::ALL.map(RunState::as_str).into_iter().chain([STUCK]);
    PossibleValuesParser::new(names).try_map(|name| match name.as_str() {
        STUCK => Ok(State::Stuck),
        name => name.parse().map(State::Of),
    })
}

fn limit(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(limit) if (1..=PAGE_ROWS_MAX).contains(&limit) => Ok(limit),
        _ => Err(format!("a page has 1 to {PAGE_ROWS_MAX} runs")),
    }
}
