//! `onward runs list`.

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use onward::limits::PAGE_ROWS_MAX;
use onward::{Filter, Query, RunId, RunPage, RunState};

use crate::args::{self, Global};
use crate::problem::{Exit, Problem};
use crate::{open, output};

/// Lists runs, newest first
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  onward runs list --state failed --workflow index-attachment
  onward runs list --tag tenant=acme --limit 20
  onward runs list -o json | jq -r .key")]
pub(crate) struct ListArgs {
    /// In this state; may be repeated
    #[arg(long, value_parser = states())]
    state: Vec<RunState>,
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
    /// How many at most, up to 1000
    #[arg(long, default_value_t = 50, value_parser = limit)]
    limit: usize,
    /// Only runs older than this one: the last of the page before
    #[arg(long, value_name = "ID", value_parser = super::id)]
    before: Option<RunId>,
}

impl ListArgs {
    pub(crate) async fn execute(self, global: &Global) -> Result<Exit, Problem> {
        let onward = open::existing(&global.store).await?;
        let page = onward.list(self.query()).await?;
        output::print_runs(global.output, &page.runs, output::now(&onward))?;
        say_more(&page);
        Ok(Exit::Ok)
    }

    fn query(self) -> Query {
        let filter = Filter {
            workflow: self.workflow,
            states: self.state,
            queue: self.queue,
            key: self.key,
            tags: self.tag.into_iter().collect(),
            ..Filter::default()
        };
        Query { filter, before: self.before, limit: self.limit }
    }
}

fn say_more(page: &RunPage) {
    match page.runs.last() {
        None => anstream::eprintln!("no runs"),
        Some(last) if page.more => {
            anstream::eprintln!("more follow: the same command with --before {}", last.id);
        }
        Some(_) => {}
    }
}

/// Takes the name of a state, and lists the names in the help.
fn states() -> impl TypedValueParser<Value = RunState> {
    PossibleValuesParser::new(RunState::ALL.map(RunState::as_str)).try_map(|name| name.parse())
}

fn limit(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(limit) if (1..=PAGE_ROWS_MAX).contains(&limit) => Ok(limit),
        _ => Err(format!("a page has 1 to {PAGE_ROWS_MAX} runs")),
    }
}
