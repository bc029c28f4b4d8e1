//! Step keys: work that is done once over all runs; and releasing keys, those of runs too.
//!
//! Owns: how step keys are listed and shown, and how a key of either kind is released. Never takes one.

use std::io::Write;

use clap::Args;
use onward::{Duplicates, KeyState, Onward, RunState, StepKey, Timestamp};
use serde::Serialize;

use super::write_duplicates;
use crate::args::{Global, Most};
use crate::output::{self, Format};
use crate::place::Place;
use crate::problem::{Exit, Problem};
use crate::table::{Cell, Table, style_of};
use crate::{open, payloads, text};

/// Characters of a key or a holder in a list.
const NAME_CHARS: usize = 48;

/// Where the step keys are.
#[derive(Clone, Debug, Args)]
pub(crate) struct KeysAt {
    /// Where the keys are, if not in the store: redis://HOST or another store's URL
    #[arg(long, env = "ONWARD_KEYS", value_name = "URL", hide_env_values = true)]
    keys: Option<String>,
}

impl KeysAt {
    async fn open(&self, global: &Global) -> Result<Place, Problem> {
        let Some(url) = self.keys.as_deref().filter(|url| !url.is_empty()) else {
            return Place::open(global).await;
        };
        if global.server()?.is_some() {
            let why = "--keys is a place that this command opens itself, and a server has its own: \
                       leave --keys out to ask the server, or --server to open the keys";
            return Err(Problem::Usage(why.to_owned()));
        }
        Ok(Place::Store(match url.starts_with("redis") {
            true => payloads::coded(Onward::open("memory:").keys(url))?.await?,
            false => open::existing_at(url, "--keys sqlite:PATH or ONWARD_KEYS").await?,
        }))
    }
}

/// Lists the step keys that are held, done or failed, by name
#[derive(Clone, Debug, Args)]
#[command(after_help = "Example:\n  onward keys steps --limit 50 --after welcome-user-7")]
pub(crate) struct StepsArgs {
    #[command(flatten)]
    keys_at: KeysAt,
    /// Only keys that come after this one
    #[arg(long, value_name = "KEY")]
    after: Option<String>,
    #[command(flatten)]
    most: Most,
}

/// Shows a step key: who has it, what came of it, and who came second
#[derive(Clone, Debug, Args)]
#[command(after_help = "Example:\n  onward keys step welcome-user-7")]
pub(crate) struct StepArgs {
    #[command(flatten)]
    keys_at: KeysAt,
    /// The key
    key: String,
}

/// Forgets a key: the next step with it executes again, the next start makes a new run
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  onward keys release welcome-user-7
  onward keys release --workflow bill order-7

Without --workflow it is the key of a step. A holder that is at work is not stopped; what it does no
longer counts for the key. With --workflow it is the key of that workflow's run, which must have ended.")]
pub(crate) struct ReleaseArgs {
    #[command(flatten)]
    keys_at: KeysAt,
    /// The key is that of a run of this workflow
    #[arg(long, value_name = "NAME")]
    workflow: Option<String>,
    /// The key
    key: String,
}

/// A step key as it is printed with `-o json`.
#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    key: &'a StepKey,
    latest_duplicates: &'a Duplicates,
}

impl StepsArgs {
    pub(crate) async fn execute(self, global: &Global) -> Result<Exit, Problem> {
        let place = self.keys_at.open(global).await?;
        let (keys, more) = place.step_keys(self.after, self.most.rows()).await?;
        let table = |keys: &[StepKey]| table(keys, place.now());
        output::print_rows(global.output, &keys, table, |key| key.key.clone())?;
        if let Some(last) = keys.last().filter(|_| more) {
            anstream::eprintln!("more follow: --after {:?}", last.key);
        }
        Ok(Exit::Ok)
    }
}

impl StepArgs {
    pub(crate) async fn execute(self, global: &Global) -> Result<Exit, Problem> {
        let place = self.keys_at.open(global).await?;
        let Some((key, duplicates)) = place.step_key(&self.key).await? else {
            return Err(Problem::NoStepKey(self.key));
        };
        let now = place.now();
        match global.output {
            Format::Table => {
                write_key(&mut output::stdout(), &key, now)?;
                write_duplicates(&mut output::stdout(), "use", &duplicates, now)?;
            }
            Format::Json => {
                output::print_json(&Shown { key: &key, latest_duplicates: &duplicates })?;
            }
            Format::Ids => writeln!(output::stdout(), "{}", text::line(&key.key))?,
        }
        Ok(Exit::Ok)
    }
}

impl ReleaseArgs {
    pub(crate) async fn execute(self, global: &Global) -> Result<Exit, Problem> {
        if let Some(workflow) = &self.workflow {
            return release_of_run(global, workflow, &self.key).await;
        }
        let place = self.keys_at.open(global).await?;
        if !place.release_key(&self.key).await? {
            return Err(Problem::NoStepKey(self.key));
        }
        anstream::eprintln!("released {:?}", self.key);
        Ok(Exit::Ok)
    }
}

async fn release_of_run(global: &Global, workflow: &str, key: &str) -> Result<Exit, Problem> {
    let place = Place::open(global).await?;
    let (run, _) = place.by_key(workflow, key).await?;
    if place.release_run_key(run.id).await? {
        anstream::eprintln!("released {key:?}, which run {} had", run.id);
    } else {
        anstream::eprintln!("{key:?} is not run {}'s any more; nothing was changed", run.id);
    }
    Ok(Exit::Ok)
}

fn table(keys: &[StepKey], now: Timestamp) -> Table<5> {
    let mut table = Table::new(["KEY", "STATE", "HOLDER", "DUPLICATES", "AGE"]);
    for key in keys {
        table.row([
            text::cut(&key.key, NAME_CHARS).into(),
            state(key.state),
            text::cut(&key.holder.id, NAME_CHARS).into(),
            key.duplicates.to_string().into(),
            text::duration(now.since(key.taken_at)).into(),
        ]);
    }
    table
}

fn write_key(out: &mut dyn Write, key: &StepKey, now: Timestamp) -> Result<(), Problem> {
    let mut table = Table::new(["", ""]);
    let mut row = |name: &str, value: Cell| table.row([name.into(), value]);
    row("key", text::line(&key.key).into());
    row("state", state(key.state));
    row("holder", text::line(&key.holder.id).into());
    row("on", text::line(&key.holder.caller).into());
    row("token", key.token.to_string().into());
    row("taken", text::moment(key.taken_at, now).into());
    if let Some(at) = key.settled_at {
        row("settled", text::moment(at, now).into());
    }
    let held = key.state == KeyState::Held;
    let until = key.until.map_or("it is released".to_owned(), |until| text::moment(until, now));
    row(if held { "held until" } else { "kept until" }, until.into());
    if let Some(result) = &key.result {
        row("result", text::payload(result).into());
    }
    if let Some(failure) = &key.failure {
        row("failure", text::cut(&failure.to_string(), text::PAYLOAD_CHARS).into());
    }
    Ok(table.write(out)?)
}

/// A key's state in the colour of the state of a run that it is like.
fn state(state: KeyState) -> Cell {
    let like = match state {
        KeyState::Held => RunState::Running,
        KeyState::Done => RunState::Completed,
        KeyState::Failed => RunState::Failed,
    };
    Cell::styled(state.as_str(), style_of(like))
}
