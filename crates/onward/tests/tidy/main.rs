//! The repository's own rules, as tests: each finding names its file and line.
//!
//! A rule is a function from the tree to its findings. Beside each rule stand the proofs that it
//! can fail: a small tree with a fault in it, and the finding that it must give.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test panics where it fails")]

mod docs;
mod habit;
mod limit;
mod place;
mod rust;
mod shape;
mod sql;
mod tree;
mod unused;
mod walk;
mod word;

use tree::{Finding, Tree};

fn holds(rule: impl Fn(&Tree) -> Vec<Finding>) {
    let findings: Vec<_> = rule(&Tree::of_workspace()).iter().map(Finding::to_string).collect();
    assert!(findings.is_empty(), "{} findings:\n{}", findings.len(), findings.join("\n"));
}

#[test]
fn files_are_short() {
    holds(shape::long_files);
}

#[test]
fn functions_are_short() {
    holds(shape::long_functions);
}

#[test]
fn most_functions_are_shorter_still() {
    holds(shape::long_p95);
}

#[test]
fn modules_say_what_they_own() {
    holds(shape::bare_modules);
}

#[test]
fn only_glossary_words_are_used() {
    holds(word::banned);
}

#[test]
fn file_names_are_nouns_of_the_domain() {
    holds(word::vague_names);
}

#[test]
fn stores_have_the_same_sql_files() {
    holds(sql::unequal_folders);
}

#[test]
fn sql_is_lower_case() {
    holds(sql::upper_case);
}

#[test]
fn sql_opens_with_its_promise() {
    holds(sql::bare_files);
}

#[test]
fn every_code_is_documented() {
    holds(docs::codes);
}

#[test]
fn every_limit_is_documented() {
    holds(limit::undocumented);
}

#[test]
fn every_limit_has_tests_of_its_two_sides_or_a_reason() {
    holds(walk::unwalked);
}

#[test]
fn links_between_documents_lead_somewhere() {
    holds(docs::dead_links);
}

#[test]
fn no_notes_to_self_are_left() {
    holds(habit::notes_to_self);
}

#[test]
fn there_are_no_banners() {
    holds(habit::banners);
}

#[test]
fn there_are_no_emoji() {
    holds(habit::emoji);
}

#[test]
fn nothing_is_unsafe() {
    holds(habit::unsafe_code);
}

#[test]
fn a_driver_asks_for_its_lease_once_a_round() {
    holds(habit::lease_asked_again);
}

#[test]
fn what_does_nothing_unless_it_is_used_says_so() {
    holds(unused::unwarned);
}

#[test]
fn every_crate_takes_the_lints_of_the_workspace() {
    holds(habit::crates_without_lints);
}

#[test]
fn no_test_is_ignored_or_panics_on_purpose() {
    holds(habit::refused_attributes);
}

#[test]
fn no_path_of_a_developers_machine_is_kept() {
    holds(place::machine_paths);
}

#[test]
fn no_other_registry_is_named() {
    holds(place::other_registries);
}

#[test]
fn the_root_holds_only_what_is_known() {
    holds(place::strangers_in_the_root);
}
