//! Statements: the same verbs in every store, lower case, each under its promise.

use std::collections::{BTreeMap, BTreeSet};

use crate::tree::{File, Finding, Tree};

/// The statements that we wrote. A store's golden schema is what its database prints.
fn written(tree: &Tree) -> impl Iterator<Item = &File> {
    tree.sql().filter(|file| !file.path.ends_with("/schema.sql"))
}

/// The verbs that have statements. A file is named after its verb and what it does there, so that
/// one who knows `claim_history.sql` of one store finds `claim_….sql` of another.
const VERBS: [&str; 21] = [
    "start",
    "join",
    "renew",
    "leave",
    "claim",
    "record",
    "settle",
    "retry",
    "sweep",
    "prune",
    "run",
    "history",
    "duplicates",
    "stats",
    "wake",
    "schema",
    "export",
    "import",
    "key",
    "schedule",
    "queue",
];

/// The verb that a file is named after.
fn verb(name: &str) -> Option<&'static str> {
    let first = name.split(['_', '.']).next().unwrap_or(name);
    VERBS.into_iter().find(|verb| *verb == first)
}

/// Verbs that one store has statements for and another lacks.
pub(crate) fn unequal_folders(tree: &Tree) -> Vec<Finding> {
    let mut folders: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for file in tree.sql() {
        if let Some((folder, name)) = file.path.rsplit_once('/')
            && folder.contains("/store/")
            && folder.ends_with("/sql")
        {
            folders.entry(folder).or_default().extend(verb(name));
        }
    }
    let all: BTreeSet<&str> = folders.values().flatten().copied().collect();
    let mut findings = Vec::new();
    for (folder, names) in &folders {
        for missing in all.difference(names) {
            let what = "another store has statements for this verb; every store has the same ones";
            findings.push(Finding::new(&format!("{folder}/{missing}.sql"), 1, what));
        }
    }
    findings
}

/// Capitals outside comments and texts.
pub(crate) fn upper_case(tree: &Tree) -> Vec<Finding> {
    let shouted = |line: &str| {
        let code = statement(line);
        let word = code.split(|c: char| !c.is_alphanumeric() && c != '_');
        let mut word = word.filter(|word| word.contains(|c: char| c.is_uppercase()));
        word.next().map(|word| format!("{word}: statements are in lower case"))
    };
    written(tree).flat_map(|file| file.find(shouted)).collect()
}

/// A line without its comment and its texts.
fn statement(line: &str) -> String {
    let mut code = String::new();
    let mut text = false;
    for (at, c) in line.char_indices() {
        if !text && line[at..].starts_with("--") {
            break;
        }
        // A name in double quotes is as it is.
        text ^= c == '\'' || c == '"';
        if !text {
            code.push(c);
        }
    }
    code
}

/// Files that do not open with a comment.
pub(crate) fn bare_files(tree: &Tree) -> Vec<Finding> {
    let bare = |file: &&File| !file.text.starts_with("-- ");
    let what = "opens without a comment that says what it promises";
    written(tree).filter(bare).map(|file| Finding::new(&file.path, 1, what)).collect()
}

#[test]
fn one_store_alone_is_equal() {
    let tree = Tree::of([("a/store/x/sql/claim.sql", ""), ("a/store/x/sql/wake.sql", "")]);
    assert_eq!(unequal_folders(&tree), []);
}

#[test]
fn a_file_that_another_store_lacks_is_found() {
    let tree = Tree::of([
        ("a/store/x/sql/claim.sql", ""),
        ("a/store/x/sql/wake.sql", ""),
        ("a/store/y/sql/claim.sql", ""),
        ("a/store/y/migrations/1.sql", ""),
    ]);
    let lines: Vec<_> = unequal_folders(&tree).iter().map(|f| f.to_string()).collect();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].starts_with("a/store/y/sql/wake.sql:1: another store"));
}

#[test]
fn capitals_are_found_outside_comments_and_texts() {
    let text = "-- A Comment.\nselect 'Text' -- More\nFROM runs\n";
    let findings = upper_case(&Tree::of([("a.sql", text)]));
    assert_eq!(findings, [Finding::new("a.sql", 3, "FROM: statements are in lower case")]);
}

#[test]
fn a_golden_schema_is_left_as_its_database_prints_it() {
    let tree = Tree::of([("a/store/x/schema.sql", "CREATE TABLE runs (no integer)\n")]);
    assert!(upper_case(&tree).is_empty() && bare_files(&tree).is_empty());
}

#[test]
fn a_bare_statement_is_found() {
    let tree = Tree::of([("a.sql", "select 1\n"), ("b.sql", "-- One.\nselect 1\n")]);
    assert_eq!(bare_files(&tree).len(), 1);
}
