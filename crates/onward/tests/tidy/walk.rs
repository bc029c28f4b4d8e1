//! A walk through the limits: each has tests of its two sides, or a sentence that says why it needs none.
//!
//! Owns: how `limits.txt` is read and checked. A line names a limit and then tests, as `unit::module::test`,
//! `conformance::module::case` or the name of a test program and its module, or it has a sentence; `open: ` before
//! the sentence says that a test is missing. Never tests a limit.

use crate::limit::names;
use crate::tree::{Finding, Tree};

const TABLE: &str = "crates/onward/tests/tidy/limits.txt";
const LIMITS: &str = "crates/onward/src/limits.rs";

/// Where tests are, by the word that their names begin with.
const PLACES: [(&str, &str); 7] = [
    ("unit", "crates/onward/src"),
    ("conformance", "crates/onward/src/conformance"),
    ("engine", "crates/onward/tests/engine"),
    ("stores", "crates/onward/tests/stores"),
    ("postgres", "crates/onward/tests/postgres"),
    ("server", "crates/onward-server/tests/server/cases"),
    ("cli", "crates/onward-cli/tests/cli"),
];

/// The shortest text that can be a reason.
const REASON_WORDS_MIN: usize = 8;

/// Limits without a line, and lines about nothing, or that name a test that is not there.
pub(crate) fn unwalked(tree: &Tree) -> Vec<Finding> {
    let (Some(table), Some(limits)) = (tree.file(TABLE), tree.file(LIMITS)) else {
        return vec![Finding::new(TABLE, 1, "is missing, or the limits are")];
    };
    let mut left: Vec<&str> = names(limits);
    let mut findings = Vec::new();
    for (number, line) in table.lines() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, says) = line.split_once(": ").unwrap_or((line, ""));
        match left.iter().position(|limit| *limit == name) {
            Some(place) => drop(left.remove(place)),
            None => findings.push(Finding::new(TABLE, number, "is no limit, or has two lines")),
        }
        let tests = says.split(", ").all(|test| is_there(tree, test));
        if !tests && !is_sentence(says) {
            findings.push(Finding::new(
                TABLE,
                number,
                "neither a test that there is nor a sentence",
            ));
        }
    }
    findings.extend(left.iter().map(|name| Finding::new(TABLE, 1, format!("{name} is missing"))));
    findings
}

fn is_sentence(says: &str) -> bool {
    let reason = says.strip_prefix("open: ").unwrap_or(says);
    let begins = reason.starts_with(char::is_uppercase);
    begins && reason.ends_with('.') && reason.split(' ').count() >= REASON_WORDS_MIN
}

/// Whether there is such a test: a function in the file of its module.
fn is_there(tree: &Tree, test: &str) -> bool {
    let Some((module, function)) = test.rsplit_once("::") else { return false };
    let Some((place, module)) = module.split_once("::") else { return false };
    let Some((_, folder)) = PLACES.iter().find(|(name, _)| *name == place) else { return false };
    let module = module.replace("::", "/");
    let files = [
        format!("{folder}/{module}.rs"),
        format!("{folder}/{module}/mod.rs"),
        format!("{folder}/{module}/tests.rs"),
    ];
    let is_its =
        |line: &str| line.trim_start().starts_with("pub async fn ") || line.contains("fn ");
    let begins = format!("fn {function}(");
    files
        .iter()
        .filter_map(|path| tree.file(path))
        .any(|file| file.lines().any(|(_, line)| is_its(line) && line.contains(&begins)))
}

#[test]
fn what_is_wrong_with_the_table_is_found() {
    let limits = "//! Limits.\n\npub const A_MAX: u32 = 1;\npub const B_MAX: u32 = 2;\n";
    let tests = "#[test]\nfn a_is_bounded() {}\n";
    let told = |table: &str| {
        let files =
            [(TABLE, table), (LIMITS, limits), ("crates/onward/tests/engine/limits.rs", tests)];
        unwalked(&Tree::of(files)).iter().map(Finding::to_string).collect::<Vec<_>>()
    };
    let good = "A_MAX: engine::limits::a_is_bounded\nB_MAX: Not a bound, since it only says where a test begins.\n";
    assert_eq!(told(good), Vec::<String>::new());
    let missing = "A_MAX: engine::limits::b_is_bounded\nC_MAX: Because.\n";
    let expected = [
        format!("{TABLE}:1: neither a test that there is nor a sentence"),
        format!("{TABLE}:2: is no limit, or has two lines"),
        format!("{TABLE}:2: neither a test that there is nor a sentence"),
        format!("{TABLE}:1: B_MAX is missing"),
    ];
    assert_eq!(told(missing), expected);
}
