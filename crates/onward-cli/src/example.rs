//! Every example that is printed or documented is one that the command line takes, and every endpoint of
//! the API has its command.
//!
//! Owns: how an example is found and split into words. Never executes one.

use clap::{Command, CommandFactory};

use crate::args::Args;

/// A well-formed id in the place of `ID`.
const ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

/// The words of a command, as a shell would hand them over.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in line.chars() {
        match (c, quote) {
            ('\'' | '"', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (c, Some(open)) if c == open => quote = None,
            (c, None) if c.is_whitespace() => words.extend(word.take()),
            (c, _) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// The commands of ours in a line, without what the shell does around them.
fn commands(line: &str) -> Vec<Vec<String>> {
    let (mut all, mut own) = (Vec::new(), Vec::new());
    let mut words = words(line).into_iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "|" | "&&" => all.push(std::mem::take(&mut own)),
            "#" => break,
            ">" | "<" => drop(words.next()),
            "ID" => own.push(ID.to_owned()),
            _ => own.push(word),
        }
    }
    all.push(own);
    all.retain(|words| words.first().is_some_and(|word| word == "onward"));
    all
}

fn check(line: &str, of: &str) {
    for words in commands(line) {
        let parsed = Args::command().try_get_matches_from(&words);
        let error = parsed.err().map(|error| error.to_string());
        assert_eq!(error, None, "{of}: {line}");
    }
}

/// Each command that does something, by its words.
fn leaves(command: &Command, path: &str, found: &mut Vec<(String, Command)>) {
    let mut below = command.get_subcommands().filter(|it| !it.is_hide_set()).peekable();
    if below.peek().is_none() {
        found.push((path.to_owned(), command.clone()));
    }
    for it in below {
        leaves(it, &format!("{path} {}", it.get_name()), found);
    }
}

fn all() -> Vec<(String, Command)> {
    let mut found = Vec::new();
    leaves(&Args::command(), "onward", &mut found);
    found
}

#[test]
fn every_example_of_the_help_is_taken() {
    let whole = Args::command().get_after_help().map(ToString::to_string).unwrap_or_default();
    // These have their text in a column behind the command.
    let short = whole.lines().filter_map(|line| line.trim().split("   ").next());
    short.filter(|line| line.starts_with("onward ")).for_each(|line| check(line, "onward"));
    for (path, command) in all() {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let help = help.replace("\\\n    ", "");
        for line in help.lines().map(str::trim).filter(|line| line.starts_with("onward ")) {
            check(line.split("   ").next().unwrap_or(line), &path);
        }
    }
}

#[test]
fn every_example_of_the_page_is_taken_and_every_command_has_one() {
    let page = include_str!("../../../docs/cli.md");
    let lines: Vec<_> = page.lines().filter(|line| line.starts_with("onward ")).collect();
    lines.iter().for_each(|line| check(line, "docs/cli.md"));
    for (path, _) in all() {
        let has = |line: &&str| line.split(" | ").any(|part| part.starts_with(&path));
        assert!(lines.iter().any(has), "docs/cli.md has no example of {path:?}");
    }
}

/// What each endpoint of the API is called here.
#[cfg(feature = "server")]
const CALLED: [(&str, &str); 52] = [
    ("meta", "onward doctor"),
    ("stats", "onward stats"),
    ("list_workers", "onward workers list"),
    ("list_workflows", "onward workflows list"),
    ("workflow_steps", "onward workflows steps"),
    ("start_run", "onward start"),
    ("list_runs", "onward runs list"),
    ("export_runs_csv", "onward runs list"),
    ("export_runs_jsonl", "onward runs list"),
    ("list_waiting", "onward runs list"),
    ("show_run", "onward runs show"),
    ("run_history", "onward runs show"),
    ("run_timeline", "onward runs show"),
    ("run_record", "onward runs show"),
    ("run_log", "onward runs log"),
    ("delete_run", "onward runs delete"),
    ("release_run_key", "onward keys release"),
    ("cancel_run", "onward runs cancel"),
    ("pause_run", "onward runs pause"),
    ("resume_run", "onward runs resume"),
    ("retry_run", "onward runs retry"),
    ("fork_run", "onward runs fork"),
    ("list_signals", "onward runs show"),
    ("send_signal", "onward signals send"),
    ("answer_callback", "onward signals resolve"),
    ("list_operations", "onward ops list"),
    ("begin_operation", "onward ops start"),
    ("show_operation", "onward ops show"),
    ("abort_operation", "onward ops abort"),
    ("prune_runs", "onward prune"),
    ("list_keys", "onward keys list"),
    ("top_keys", "onward keys top"),
    ("key_conflicts", "onward keys conflicts"),
    ("show_key", "onward keys show"),
    ("list_step_keys", "onward keys steps"),
    ("show_step_key", "onward keys step"),
    ("release_step_key", "onward keys release"),
    ("list_queues", "onward queues list"),
    ("limit_queue", "onward queues set"),
    ("clear_queue", "onward queues clear"),
    ("pause_queue", "onward queues pause"),
    ("resume_queue", "onward queues resume"),
    ("list_schedules", "onward schedules list"),
    ("show_schedule", "onward schedules show"),
    ("put_schedule", "onward schedules put"),
    ("remove_schedule", "onward schedules remove"),
    ("pause_schedule", "onward schedules pause"),
    ("resume_schedule", "onward schedules resume"),
    ("trigger_schedule", "onward schedules trigger"),
    ("backfill_schedule", "onward schedules backfill"),
    ("list_errors", "onward errors list"),
    ("list_audit", "onward audit list"),
];

/// Endpoints for browsers, for machines that look after machines, and what a problem's `type` names.
#[cfg(feature = "server")]
const NOT_CALLED: [&str; 9] = [
    "livez",
    "readyz",
    "openapi",
    "metrics",
    "begin_session",
    "end_session",
    "stream",
    "list_codes",
    "show_code",
];

#[cfg(feature = "server")]
#[test]
fn every_endpoint_has_its_command() {
    let document = onward_server::openapi();
    let paths = document["paths"].as_object().unwrap();
    let methods = paths.values().flat_map(|path| path.as_object().unwrap().values());
    let commands = all();
    for endpoint in methods.map(|method| method["operationId"].as_str().unwrap()) {
        if NOT_CALLED.contains(&endpoint) {
            continue;
        }
        let called = CALLED.iter().find(|(name, _)| *name == endpoint);
        let (_, command) = called.unwrap_or_else(|| panic!("{endpoint} has no command"));
        assert!(commands.iter().any(|(path, _)| path == command), "there is no {command:?}");
    }
}
