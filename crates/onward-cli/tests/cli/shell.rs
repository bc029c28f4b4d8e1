//! Completions, manual pages, and looking again and again.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::place::{Place, text};

#[test]
fn every_shell_gets_a_script_that_knows_the_commands() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ended = place.onward(&["completions", shell]);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        for word in ["onward", "doctor", "schedules", "created-before"] {
            assert!(ended.stdout.contains(word), "{shell} does not know {word}");
        }
    }
    let wrong = place.onward(&["completions", "cmd"]);
    assert_eq!(wrong.code, 2);
    assert!(wrong.stderr.contains("bash"), "{}", wrong.stderr);
}

#[test]
fn there_is_a_manual_page_for_each_command() {
    let place = Place::new();
    let page = place.onward(&["man"]);
    assert_eq!(page.code, 0, "{}", page.stderr);
    assert!(page.stdout.contains(".TH onward 1"), "{}", page.stdout);
    let dir = place.path("man1");
    let written = place.onward(&["man", text(&dir)]);
    assert_eq!(written.code, 0, "{}", written.stderr);
    for name in ["onward.1", "onward-runs-list.1", "onward-doctor.1", "onward-ops-start.1"] {
        let page = std::fs::read_to_string(dir.join(name)).unwrap();
        assert!(page.contains("EXAMPLE") || page.contains("Example"), "{name} has no example");
    }
    assert!(!dir.join("onward-demo-worker.1").exists(), "what is hidden stays so");
}

#[test]
fn no_help_and_no_page_holds_a_value_of_the_environment() {
    let place = Place::new();
    for args in [&["--help"][..], &["runs", "list", "--help"], &["man"], &["completions", "zsh"]] {
        let mut command = place.command(args);
        command.env("ONWARD_STORE", "postgres://ada:hunter2@db/app");
        command.env("ONWARD_KEYS", "redis://:hunter2@db").env("ONWARD_TOKEN", "hunter2");
        let said = String::from_utf8(command.output().unwrap().stdout).unwrap();
        assert!(said.contains("onward") && !said.contains("hunter2"), "{args:?}: {said}");
    }
}

#[test]
fn a_watched_list_is_printed_again_without_a_terminal() {
    let place = Place::new();
    let id = place.start(&["work"]);
    let mut command = place.command(&["runs", "list", "-o", "ids", "--watch=1"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), id, "no screen is cleared");
    assert_eq!(lines.next().unwrap().unwrap(), id);
    child.kill().unwrap();
    child.wait().unwrap();
    let refused = place.onward(&["runs", "cancel", &id, "--watch"]);
    assert_eq!(refused.code, 2);
    assert!(refused.stderr.contains("only look"), "{}", refused.stderr);
}

#[test]
fn the_commands_that_the_dashboard_prints_are_taken() {
    let place = Place::new();
    let id = place.start(&["work", "--tag", "tenant=acme"]);
    let list = [
        "runs",
        "list",
        "--state",
        "queued",
        "--workflow",
        "work",
        "--queue",
        "default",
        "--tag",
        "tenant=acme",
        "--created-from",
        "2026-01-01T00:00:00.000Z",
        "--created-before",
        "2999-01-01T00:00:00.000Z",
        "-o",
        "ids",
    ];
    let listed = place.onward(&list);
    assert_eq!((listed.code, listed.stdout), (0, format!("{id}\n")), "{}", listed.stderr);
    let none = ["runs", "list", "--created-before", "2026-01-01T00:00:00.000Z", "-o", "ids"];
    assert_eq!(place.onward(&none).stdout, "");
    let cancelled = place.onward_with_stdin(&["runs", "cancel", "-"], &format!("{id}\n"));
    assert_eq!(cancelled.code, 0, "{}", cancelled.stderr);
    let deleted = place.onward(&["runs", "delete", &id]);
    assert_eq!((deleted.code, deleted.stdout), (0, format!("deleted {id}\n")));
    assert_eq!(place.runs(), 0);
}

#[test]
fn a_number_below_zero_is_an_input_and_not_a_flag() {
    let place = Place::new();
    let id = place.start(&["work", "--input", "-5"]);
    let shown = place.onward(&["runs", "show", &id, "-o", "json"]).stdout;
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["input"], -5, "{shown}");
    let sent = place.onward(&["signals", "send", &id, "go", "-1.5"]);
    assert_eq!(sent.code, 0, "{}", sent.stderr);
    let put = ["schedules", "put", "s", "work", "--every", "1h", "--input", "-5"];
    assert_eq!(place.onward(&put).code, 0);
}

/// A list that happens to be empty is no mistake of the script that pipes it.
#[test]
fn no_id_from_stdin_is_nothing_to_do() {
    let place = Place::new();
    place.start(&["work"]);
    for args in [&["ops", "start", "retry", "-", "--yes"][..], &["ops", "abort", "-"]] {
        let ended = place.onward_with_stdin(args, "");
        assert_eq!((ended.code, ended.stdout.as_str()), (0, ""), "{args:?}: {}", ended.stderr);
    }
    assert_eq!(place.onward(&["ops", "start", "retry", "--yes"]).code, 2);
}
