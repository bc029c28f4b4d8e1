//! The table of pairs: complete, and true as far as a program can see.
//!
//! Owns: how `table.txt` is read and checked. A cell names tests of this program as `module::test`, cases
//! of the conformance suite as `conformance::module::case`, or says in a sentence why there is none.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The features, in the order of the table. Retries of a step, its timeout and `at_most_once` are `step`;
/// time limits are `sleep`, callbacks `signal`, joins and `all` `fan-out`, `on_cancel` is `undo`, and
/// crashes, shutdowns and other builds are `takeover`.
const FEATURES: [&str; 18] = [
    "step",
    "transaction",
    "step key",
    "run key",
    "sleep",
    "signal",
    "child",
    "fan-out",
    "undo",
    "cancel",
    "deadline",
    "pause",
    "retry",
    "fork",
    "continue_as",
    "schedule",
    "codec",
    "takeover",
];

/// The shortest text that can be a reason.
const REASON_WORDS_MIN: usize = 5;

/// What a cell says, or what is wrong with its line.
fn cell(line: &str) -> Result<((usize, usize), &str), String> {
    let wrong = |why: &str| Err(format!("{line}: {why}"));
    let Some((pair, says)) = line.split_once(": ") else { return wrong("no cell") };
    let Some((one, other)) = pair.split_once(" × ") else { return wrong("no pair") };
    let place = |name: &str| FEATURES.iter().position(|feature| *feature == name);
    match (place(one), place(other)) {
        (Some(one), Some(other)) if one <= other => Ok(((one, other), says)),
        (Some(_), Some(_)) => wrong("in the order of the features"),
        _ => wrong("an unknown feature"),
    }
}

fn is_test(says: &str) -> bool {
    says.split(", ").all(|name| name.contains("::") && !name.contains(' '))
}

fn is_sentence(says: &str) -> bool {
    let reason = says.strip_prefix("open: ").unwrap_or(says);
    reason.starts_with(char::is_uppercase)
        && reason.ends_with('.')
        && reason.split(' ').count() >= REASON_WORDS_MIN
}

/// Whether there is such a test or case below a crate's folder.
fn exists(root: &Path, name: &str) -> bool {
    let Some((module, function)) = name.rsplit_once("::") else { return false };
    let (file, begin) = match module.strip_prefix("conformance::") {
        Some(module) => (source(&root.join("src/conformance"), module), "pub async fn"),
        None => (source(&root.join("tests/engine"), module), "fn"),
    };
    let Ok(text) = std::fs::read_to_string(file) else { return false };
    let Some(at) = text.find(&format!("{begin} {function}(")) else { return false };
    if begin != "fn" {
        return is_in_a_suite(&root.join("src/conformance"), function);
    }
    let before = text[..at].trim_end_matches("async ").trim_end();
    before.rsplit('\n').next().is_some_and(|line| line.contains("test"))
}

/// Whether a list of cases has this one.
fn is_in_a_suite(folder: &Path, case: &str) -> bool {
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let mut lists = files
        .filter(|file| file.ends_with("mod.rs") || file.to_string_lossy().ends_with("_suite.rs"));
    lists.any(|file| std::fs::read_to_string(file).unwrap().lines().any(|line| line.trim() == case))
}

fn source(folder: &Path, module: &str) -> PathBuf {
    folder.join(format!("{}.rs", module.replace("::", "/")))
}

/// What is wrong with a table of these features.
fn findings(table: &str, root: &Path) -> Vec<String> {
    let mut findings = Vec::new();
    let mut cells = BTreeMap::new();
    for line in table.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match cell(line) {
            Err(wrong) => findings.push(wrong),
            Ok((pair, says)) => {
                if cells.insert(pair, says).is_some() {
                    findings.push(format!("{line}: there is another line for this pair"));
                }
                let is_known = match is_test(says) {
                    true => says.split(", ").all(|name| exists(root, name)),
                    false => is_sentence(says),
                };
                if !is_known {
                    findings.push(format!("{line}: neither a test that there is nor a sentence"));
                }
            }
        }
    }
    for (one, name) in FEATURES.iter().enumerate() {
        for (other, beside) in FEATURES.iter().enumerate().skip(one) {
            if !cells.contains_key(&(one, other)) {
                findings.push(format!("{name} × {beside} is missing"));
            }
        }
    }
    findings
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn every_pair_of_features_has_a_test_or_a_reason() {
    let table = std::fs::read_to_string(root().join("tests/engine/pairs/table.txt")).unwrap();
    let findings = findings(&table, root());
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}

#[test]
fn what_is_wrong_with_the_table_is_found() {
    let all = FEATURES.len() * (FEATURES.len() + 1) / 2;
    assert_eq!(findings("", root()).len(), all);
    let good = "step × retry: A reason in a sentence of words.";
    assert_eq!(findings(good, root()).len(), all - 1);
    let test = "step × retry: pairs::table::what_is_wrong_with_the_table_is_found";
    assert_eq!(findings(test, root()).len(), all - 1);
    let case =
        "step × retry: conformance::retry::retry_twice, conformance::key::retry_failed_start_twice";
    assert_eq!(findings(case, root()).len(), all - 1);
    for wrong in [
        "retry × step: A reason in a sentence of words.",
        "step × magic: A reason in a sentence of words.",
        "step, retry: A reason in a sentence of words.",
        "step × retry: no sentence.",
        "step × retry: pairs::table::findings",
        "step × retry: pairs::table::there_is_no_such_test",
        "step × retry: conformance::stage::new",
        "step × retry: conformance::retry::retry_twice, conformance::retry::nothing",
    ] {
        assert!(findings(wrong, root()).len() >= all, "{wrong}");
    }
    assert_eq!(findings(&format!("{good}\n{good}"), root()).len(), all);
}
