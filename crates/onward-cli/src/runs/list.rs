//! `onward runs list`.
//!
//! Owns: the list and how far it goes. Never changes a run.

use clap::Args;
use onward::limits::PAGE_ROWS_MAX;
use onward::{Query, RunId, RunPage};

use super::filter::{FilterArgs, Wanted};
use crate::args::Global;
use crate::output::{self, Format};
use crate::place::Place;
use crate::problem::{Exit, Problem};

/// Runs in a table, unless a limit is given.
const TABLE_ROWS: usize = 50;

/// Runs that are in memory at once while all of them are printed.
const PRINTED_ROWS: usize = 100;

/// Lists runs, newest first
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  onward runs list --state failed --workflow index-attachment
  onward runs list --tag tenant=acme --limit 20
  onward runs list --created-from 2026-03-01T00:00:00Z --created-before 2026-03-02T00:00:00Z
  onward runs list --state stuck -o ids | onward runs retry -
  onward runs list -o json | jq -r .key

Stuck runs are waiting ones that go on only after a retry, or on a worker of another build. Paused
ones go on after a resume.")]
pub(crate) struct ListArgs {
    #[command(flatten)]
    filter: FilterArgs,
    /// How many at most, up to 1000; when left out, 50 in a table and all as json or ids
    #[arg(long, value_parser = limit)]
    limit: Option<usize>,
    /// Only runs older than this one: the last of the page before
    #[arg(long, value_name = "ID", value_parser = super::id)]
    before: Option<RunId>,
}

impl ListArgs {
    pub(crate) async fn execute(self, global: &Global) -> Result<Exit, Problem> {
        let place = Place::open(global).await?;
        let (limit, all) = match self.limit {
            Some(limit) => (limit, false),
            None if global.output == Format::Table => (TABLE_ROWS, false),
            None => (PRINTED_ROWS, true),
        };
        let (filter, wanted) = self.filter.read(place.now());
        let mut query = Query { filter, before: self.before, limit };
        let mut printed = 0;
        loop {
            let page = page_of(&place, query.clone(), &wanted).await?;
            output::print_list(global.output, &page.runs, &place)?;
            printed += page.runs.len();
            query.before = page.runs.last().map(|run| run.id);
            if !all || !page.more {
                say_more(&page, printed);
                return Ok(Exit::Ok);
            }
        }
    }
}

/// As a page of the library's, without the runs that are not wanted.
async fn page_of(place: &Place, mut query: Query, wanted: &Wanted) -> Result<RunPage, Problem> {
    let mut found = RunPage::default();
    loop {
        let page = place.list(query.clone()).await?;
        query.before = page.runs.last().map(|run| run.id);
        let mut runs = page.runs.into_iter().filter(|run| wanted.has(run));
        found.runs.extend(runs.by_ref().take(query.limit - found.runs.len()));
        found.more = page.more || runs.next().is_some();
        if !page.more || found.runs.len() == query.limit {
            return Ok(found);
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

fn limit(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(limit) if (1..=PAGE_ROWS_MAX).contains(&limit) => Ok(limit),
        _ => Err(format!("a page has 1 to {PAGE_ROWS_MAX} runs")),
    }
}
