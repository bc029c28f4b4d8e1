//! The glossary: one word per thing, in Rust, SQL, the command line and the docs.

use crate::tree::{Finding, Tree};

/// Words that we never say, with the one that we do. A plural `s` is seen too.
///
/// These words of the glossary have honest other meanings here and are left to the reader: task
/// (of the runtime), event, lock (of a mutex or a file), turn, driver (which polls a run), world,
/// execution (what a body does), topic (of a wait), notification (of a waiter), hook.
const BANNED: [(&str, &str); 20] = [
    ("orchestration", "workflow"),
    ("orchestrator", "worker"),
    ("job", "workflow or run"),
    ("pipeline", "workflow"),
    ("invocation", "run"),
    ("instance", "run"),
    ("activity", "step"),
    ("activities", "steps"),
    ("operation", "step or verb"),
    ("checkpoint", "record"),
    ("journal", "history"),
    ("dedup", "key"),
    ("backend", "store"),
    ("provider", "store"),
    ("executor", "worker"),
    ("processor", "worker"),
    ("heartbeat", "renewal"),
    ("partition", "queue"),
    ("reaper", "sweep"),
    ("exception", "failure"),
];

/// A use of a banned word in another sense.
struct Allowed {
    word: &'static str,
    /// The start of the path.
    path: &'static str,
    /// What the line holds, in lower case.
    line: &'static str,
    /// Why it is right there.
    _reason: &'static str,
}

const fn allowed(
    word: &'static str,
    path: &'static str,
    line: &'static str,
    reason: &'static str,
) -> Allowed {
    Allowed { word, path, line, _reason: reason }
}

const ALLOWED: [Allowed; 34] = [
    allowed("provider", "", "tracerprovider", "a name of OpenTelemetry"),
    allowed("dedup", "", ".dedup()", "a method of the standard library"),
    allowed("instance", "", "for instance", "a phrase"),
    allowed("exception", "", "the exception", "a phrase"),
    allowed("exception", "LICENSE-", "", "a text of others"),
    allowed(
        "exception",
        "crates/onward/src/store/postgres/migrations/",
        "exception when",
        "PL/pgSQL's word",
    ),
    allowed("exception", "crates/onward/src/store/postgres/sql/", "raise ", "PL/pgSQL's word"),
    allowed(
        "exception",
        "crates/onward/src/store/postgres/sql/",
        " when others",
        "PL/pgSQL's word",
    ),
    allowed("activity", "", "pg_stat_activity", "a view of Postgres"),
    allowed("backend", "", "pg_terminate_backend", "a function of Postgres"),
    allowed("provider", "crates/onward/src/store/postgres/connect.rs", "", "a name of rustls"),
    allowed("operation", "crates/onward/src/store/sqlite/", "errorcode::", "a name of rusqlite"),
    allowed("operation", "", "operations.md", "the name of a page"),
    allowed("operation", "crates/onward-server/", "", "a change of many runs; OpenAPI's word"),
    allowed("operation", "crates/onward-cli/", "", "a change of many runs, as the server has it"),
    allowed("operation", "docs/cli.md", "", "a change of many runs"),
    allowed("provider", "crates/onward-cli/src/place/link.rs", "", "a name of rustls"),
    allowed("provider", "crates/onward-cli/tests/cli/tls.rs", "", "a name of rustls"),
    allowed("operation", "ARCHITECTURE.md", "operation.rs", "the name of a file"),
    allowed("executor", "crates/onward-server/tests/", "tokioexecutor", "a name of hyper"),
    allowed("operation", "docs/server.md", "", "a change of many runs"),
    allowed("operation", "docs/limits.md", "operation_", "a change of many runs"),
    allowed("backend", "", "pg_backend_pid", "a function of Postgres"),
    allowed("checkpoint", "crates/onward/src/store/sqlite/", "", "SQLite's word for its log"),
    allowed("checkpoint", "bench/", "", "SQLite's word for its log"),
    allowed("processor", "", "processor time", "the machine's"),
    allowed("processor", "bench/", "", "the machine's"),
    allowed("partition", "crates/onward/src/store/postgres/sql/", "partition by", "SQL's word"),
    allowed("journal", "", "journal_mode", "a setting of SQLite"),
    allowed("journal", "", "journal_size_limit", "a setting of SQLite"),
    allowed("checkpoint", "", "checkpoint_fullfsync", "a setting of SQLite"),
    allowed("journal", "crates/onward/src/store/sqlite/", "journal mode", "a setting of SQLite"),
    allowed("operation", "dashboard/", "", "a change of many runs"),
    allowed("operation", "docs/dashboard.md", "", "the name of a page"),
];

/// Words in file names that say nothing.
const VAGUE: [&str; 9] =
    ["manager", "managers", "helper", "helpers", "util", "utils", "common", "impl", "misc"];

/// Banned words in identifiers, comments, statements, docs and texts.
pub(crate) fn banned(tree: &Tree) -> Vec<Finding> {
    let ours =
        tree.files.iter().filter(|file| (file.is_source() || file.is("md")) && !file.is_rule());
    ours.flat_map(|file| file.find(|line| banned_in(&file.path, line))).collect()
}

/// The page about other products, whose words are its subject.
const OF_OTHERS: &str = "docs/from.md";

fn banned_in(path: &str, line: &str) -> Option<String> {
    if path == OF_OTHERS {
        return None;
    }
    let low = line.to_lowercase();
    let excused = |word: &str| {
        let mut uses = ALLOWED.iter().filter(|allowed| allowed.word == word);
        uses.any(|allowed| path.starts_with(allowed.path) && low.contains(allowed.line))
    };
    words(line).into_iter().find_map(|word| {
        let same = |(banned, _): &&(&str, &str)| {
            word == *banned || word.strip_suffix('s').is_some_and(|word| word == *banned)
        };
        let (banned, instead) = BANNED.iter().find(same)?;
        (!excused(banned)).then(|| format!("{word:?}: we say {instead}"))
    })
}

/// The words of a line, those inside `snake_case` and `CamelCase` names too, in lower case.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before_low = false;
    for c in line.chars() {
        if !c.is_alphabetic() || (c.is_uppercase() && before_low) {
            words.push(String::new());
        }
        if c.is_alphabetic() {
            words.last_mut().unwrap().extend(c.to_lowercase());
        }
        before_low = c.is_lowercase();
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Files and folders whose name says nothing.
pub(crate) fn vague_names(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in &tree.files {
        if let Some(word) = words(&file.path).iter().find(|word| VAGUE.contains(&word.as_str())) {
            let what = format!("{word:?} says nothing: name the file after what it holds");
            findings.push(Finding::new(&file.path, 1, what));
        }
    }
    findings
}

#[test]
fn banned_words_are_found_wherever_they_hide() {
    let rust =
        "struct JobQueue;\nlet job_id = 1;\n// Two jobs.\nconst JOB: &str = \"\";\njobless();\n";
    let tree = Tree::of([("src/a.rs", rust), ("docs/b.md", "The backend."), ("c.png", "job")]);
    let lines: Vec<_> = banned(&tree).iter().map(|f| f.to_string()).collect();
    assert_eq!(lines.len(), 5, "{lines:?}");
    assert_eq!(lines[0], "src/a.rs:1: \"job\": we say workflow or run");
    assert_eq!(lines[4], "docs/b.md:1: \"backend\": we say store");
}

#[test]
fn another_sense_is_allowed_only_where_it_is_listed() {
    let text = "pragma journal_mode\nthe journal mode stays\nvec.dedup();\nfor instance\n";
    let sqlite = "crates/onward/src/store/sqlite/open.rs";
    let tree = Tree::of([(sqlite, text), ("src/b.rs", "the journal mode\ndedup_id\n")]);
    let lines: Vec<_> = banned(&tree).iter().map(|f| f.to_string()).collect();
    assert_eq!(
        lines,
        ["src/b.rs:1: \"journal\": we say history", "src/b.rs:2: \"dedup\": we say key"]
    );
}

#[test]
fn vague_file_names_are_found() {
    let tree =
        Tree::of([("src/run_manager.rs", ""), ("src/utils/a.rs", ""), ("src/utility.rs", "")]);
    let lines: Vec<_> = vague_names(&tree).iter().map(|f| f.to_string()).collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].starts_with("src/run_manager.rs:1: \"manager\""));
}
