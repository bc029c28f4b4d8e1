//! Every example ends by itself, and says what it should.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long an example may take on a busy machine.
const TIME_MAX: Duration = Duration::from_secs(120);

/// The examples, each with lines of its output.
const EXAMPLES: [(&str, &[&str]); 18] = [
    ("agent", &["it died", "Yes: it rains", "calls of the model that were paid: 3"]),
    ("backfill", &["are new, 0 refused", "3000 thumbnails made", "3000 were there, 0 are new"]),
    ("debounce", &["six edits: true", "indexed \"Onward\"", "part of it: 5", "one report: true"]),
    ("encrypted", &["with both keys: Dear Ada: Ada is as fit as a fiddle."]),
    ("fan_out", &["10000 documents, 494939 words, unreadable: [4711, 8150]"]),
    (
        "human_approval",
        &["paid, Ada approved it", "the chair: refused", "callback_used", "nobody answered"],
    ),
    ("index_attachment", &["indexed 19 characters"]),
    ("nightly_report", &["42 rows of sales"]),
    (
        "ocr_index",
        &["30 indexed, 10 half done, 40 pages", "100 documents, 100 pages", "101 pages read"],
    ),
    ("once", &["booking 1; booking 1", "booked 1 times, came again 3 times", "evt_2 again: Err"]),
    ("order_saga", &["order 7: on its way", "no_address", "undone: ["]),
    ("payment", &["409", "charges made: 1, of 4200 cents in all"]),
    ("rate_limited_client", &["acme was done after", "bolt was done after"]),
    ("redis_keys", &["the shop: mail 1", "the forum: mail 1", "once more: mail 1", "sent: 1"]),
    ("retry_safe", &["not safe to retry: 1 finding", "happened 2 times", "safe: true"]),
    ("steer", &["imported ", "large imports: 1", "forked from Some("]),
    ("transfer", &["rolled back: true", "17500 cents left", "overdrawn", "all accounts: 50000"]),
    (
        "versions",
        &["order 1: a receipt of the old", "order 2: a receipt of the new", "print label"],
    ),
];

#[test]
fn every_example_ends_well_and_says_what_it_should() {
    let dir = tempfile::tempdir().unwrap();
    let began: Vec<_> =
        EXAMPLES.iter().map(|(name, lines)| (*name, *lines, begin(name, dir.path()))).collect();
    for (name, lines, child) in began {
        let (ended, output) = end(name, child);
        assert!(ended, "{name} did not end well:\n{output}");
        for line in lines {
            assert!(output.contains(line), "{name} does not say {line:?}:\n{output}");
        }
    }
}

#[test]
fn every_example_is_among_those_that_are_tested() {
    let files = std::fs::read_dir(source("")).unwrap();
    let names = files.map(|file| file.unwrap().path().file_stem().unwrap().display().to_string());
    let known = EXAMPLES.iter().map(|(name, _)| (*name).to_owned());
    // It serves until it is stopped; the tests of the server's own crate mount it.
    let known = known.chain(["mounted_server".to_owned()]);
    assert_eq!(names.collect::<BTreeSet<_>>(), known.collect::<BTreeSet<_>>());
}

fn source(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(file)
}

/// Starts an example, in a folder of its own.
fn begin(name: &str, dir: &Path) -> Child {
    let folder = dir.join(name);
    std::fs::create_dir(&folder).unwrap();
    let mut command = Command::new(built(name));
    command.current_dir(folder).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap_or_else(|error| panic!("{name} does not start: {error}"))
}

/// The executable of an example. `cargo test` builds it beside the tests; where only this test was
/// asked for, it is built here.
fn built(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let executable = test.ancestors().nth(2).unwrap().join("examples").join(name);
    let changed = |path: &Path| path.metadata().and_then(|data| data.modified());
    let newest = changed(&source(&format!("{name}.rs"))).unwrap();
    if changed(&executable).is_ok_and(|built| built > newest) {
        return executable;
    }
    let mut build = Command::new(env!("CARGO"));
    build.current_dir(env!("CARGO_MANIFEST_DIR"));
    build.args(["build", "-q", "-p", "onward", "--all-features", "--example", name]);
    assert!(build.status().unwrap().success(), "{name} cannot be built");
    executable
}

/// Waits for its end. Says whether it ended well, and what it said.
fn end(name: &str, mut child: Child) -> (bool, String) {
    let (mut out, mut err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let reading = std::thread::spawn(move || {
        let (mut said, mut warned) = (String::new(), String::new());
        out.read_to_string(&mut said).unwrap();
        err.read_to_string(&mut warned).unwrap();
        said + &warned
    });
    let begin = Instant::now();
    let ended = loop {
        if let Some(ended) = child.try_wait().unwrap() {
            break ended;
        }
        if begin.elapsed() > TIME_MAX {
            child.kill().unwrap();
            panic!("{name} did not end: {}", reading.join().unwrap());
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    (ended.success(), reading.join().unwrap())
}
