//! The commands: exit codes, formats, and what they leave behind.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;

use serde_json::Value;

use crate::place::{Place, text};

/// A well-formed id that no store has.
const NOBODY: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

#[test]
fn a_command_that_looks_creates_no_database() {
    let place = Place::new();
    for args in [
        &["runs", "list"][..],
        &["runs", "show", NOBODY],
        &["runs", "watch", NOBODY],
        &["runs", "cancel", NOBODY],
        &["runs", "retry", NOBODY],
        &["keys", "show", "w", "k"],
        &["signals", "send", NOBODY, "go"],
        &["keys", "steps"],
        &["keys", "step", "k"],
        &["keys", "release", "k"],
        &["prune", "--older-than", "1d"],
        &["schedules", "list"],
        &["schedules", "show", "s"],
        &["schedules", "next", "s"],
        &["schedules", "pause", "s"],
        &["schedules", "resume", "s"],
        &["schedules", "trigger", "s"],
        &["schedules", "remove", "s"],
        &["schedules", "backfill", "s", "--from", "2026-01-01T00:00:00Z"],
    ] {
        let ended = place.onward(args);
        assert_eq!(ended.code, 4, "{args:?}: {}", ended.stderr);
        assert!(ended.stderr.contains("there is no database at"), "{}", ended.stderr);
        assert!(ended.stderr.contains("--store"), "{}", ended.stderr);
        assert!(!place.database().exists(), "{args:?} created a database");
    }
}

#[test]
fn what_does_not_exist_is_exit_3() {
    let place = Place::new();
    place.start(&["w"]);
    for args in [
        &["runs", "show", NOBODY][..],
        &["runs", "watch", NOBODY],
        &["runs", "cancel", NOBODY],
        &["runs", "retry", NOBODY],
        &["keys", "show", "w", "no-such-key"],
        &["schedules", "show", "no-such-schedule"],
        &["schedules", "next", "no-such-schedule"],
        &["schedules", "pause", "no-such-schedule"],
        &["schedules", "resume", "no-such-schedule"],
        &["schedules", "trigger", "no-such-schedule"],
        &["schedules", "remove", "no-such-schedule"],
        &["schedules", "backfill", "no-such-schedule", "--from", "2026-01-01T00:00:00Z"],
        &["signals", "send", NOBODY, "go"],
        &["keys", "step", "no-such-key"],
        &["keys", "release", "no-such-key"],
    ] {
        let ended = place.onward(args);
        assert_eq!(ended.code, 3, "{args:?}: {}", ended.stderr);
        assert!(ended.stderr.starts_with("error: "), "{}", ended.stderr);
        assert_eq!(ended.stdout, "");
    }
}

#[test]
fn wrong_usage_is_exit_2_and_leaves_no_database() {
    let place = Place::new();
    for args in [
        &["frobnicate"][..],
        &["runs", "show", "not-an-id"],
        &["runs", "list", "--state", "asleep"],
        &["runs", "list", "--limit", "0"],
        &["start", "w", "--input", "{oops"],
        &["signals", "send", NOBODY, "go", "{oops"],
        &["start", "w", "--from", "no-such-file.jsonl"],
        &["start", "w", "--key", "k", "--from", "x"],
        &["start", "w", "--key-field", "id"],
        &["start", "w", "--key-field", "id", "--input", "{\"id\": 7}"],
        &["start", "w", "--key-field", "id", "--key", "k"],
        &["start", "w", "--tag", "nameless"],
        &["start", "w", "--delay", "soon"],
        &["start", "w", "--key", ""],
        &["start", ""],
        &["prune", "--older-than", "30d", "--state", "queued"],
        &["--store", "mysql://localhost", "runs", "list"],
        &["-o", "ids", "prune", "--older-than", "30d"],
        &["schedules", "put", "s", "w"],
        &["schedules", "put", "s", "w", "--cron", "0 3 * *"],
        &["schedules", "put", "s", "w", "--cron", "0 0 30 2 *"],
        &["schedules", "put", "s", "w", "--cron", "0 3 * * *", "--time-zone", "Mars/Base"],
        &["schedules", "put", "s", "w", "--cron", "0 3 * * *", "--every", "1h"],
        &["schedules", "put", "s", "w", "--every", "1h", "--time-zone", "UTC"],
        &["schedules", "put", "s", "w", "--every", "10ms"],
        &["schedules", "put", "s", "w", "--every", "1h", "--input", "{oops"],
        &["schedules", "put", "s", "w", "--every", "1h", "--overlap", "maybe"],
        &["schedules", "put", "s", "w", "--every", "1h", "--catch-up", "all"],
        &["schedules", "next", "s", "--count", "0"],
        &["-o", "ids", "schedules", "backfill", "s", "--from", "2026-01-01T00:00:00Z"],
    ] {
        let ended = place.onward(args);
        assert_eq!(ended.code, 2, "{args:?}: {}", ended.stderr);
        assert!(ended.stderr.starts_with("error: "), "{}", ended.stderr);
        assert!(ended.stderr.contains("--help"), "{}", ended.stderr);
        assert!(!place.database().exists(), "{args:?} created a database");
    }
}

#[test]
fn the_help_lists_the_states_and_has_one_line_for_the_formats() {
    let help = Place::new().onward(&["runs", "list", "--help"]).stdout;
    let states = "[possible values: queued, running, waiting, completed, failed, cancelled, \
                  stuck, paused]";
    assert!(help.contains(states), "{help}");
    let formats = help.lines().filter(|line| line.contains("json (one object per line)"));
    assert_eq!(formats.count(), 1, "{help}");
    assert!(!help.contains("possible values: table"), "{help}");
}

#[test]
fn a_store_url_is_refused_without_its_password() {
    let place = Place::new();
    for url in ["mysql://root:hunter2@db/app", "Postgres://app:hunter2@db/app", "root:hunter2@db"] {
        let ended = place.onward(&["--store", url, "runs", "list"]);
        assert_eq!(ended.code, 2, "{}", ended.stderr);
        assert!(!ended.stderr.contains("hunter2"), "{}", ended.stderr);
    }
    let parameters = place.onward(&["--store", "sqlite://app.db?mode=rwc", "start", "w"]);
    assert!(parameters.stderr.contains("takes no parameters"), "{}", parameters.stderr);
    let memory = place.onward(&["--store", "sqlite::memory:", "start", "w"]);
    assert!(memory.stderr.contains("written memory:"), "{}", memory.stderr);
    assert_eq!(std::fs::read_dir(place.path("")).unwrap().count(), 0, "no file was made");
}

#[test]
fn an_unknown_store_url_says_which_are_known() {
    let ended = Place::new().onward(&["--store", "mysql://localhost", "runs", "list"]);
    assert!(ended.stderr.contains("unknown_store_url"), "{}", ended.stderr);
    assert!(ended.stderr.contains("sqlite:PATH"), "{}", ended.stderr);
}

#[test]
fn an_empty_variable_for_the_store_is_one_that_is_not_set() {
    let place = Place::new();
    let mut start = place.command(&["start", "w", "-o", "ids"]);
    let started = start.env("ONWARD_STORE", "").output().unwrap();
    assert_eq!(started.status.code(), Some(0), "{}", String::from_utf8_lossy(&started.stderr));
    // The default is `onward.db` where the command is executed, and so is the place's database.
    assert_eq!(place.runs(), 1);
    assert_eq!(place.onward(&["--store", "", "runs", "list"]).code, 2);
}

#[test]
fn a_store_that_cannot_be_opened_is_exit_4() {
    let place = Place::new();
    std::fs::write(place.database(), "this is no database, it is a text\n".repeat(200)).unwrap();
    assert_eq!(place.onward(&["runs", "list"]).code, 4);
    let missing = place.path("no/such/folder/onward.db");
    let url = format!("sqlite:{}", missing.display());
    assert_eq!(place.onward(&["--store", &url, "start", "w"]).code, 4);
}

#[test]
fn a_store_that_another_program_locks_is_exit_4() {
    let place = Place::new();
    let id = place.start(&["w"]);
    let other = rusqlite::Connection::open(place.database()).unwrap();
    other.execute_batch("begin immediate").unwrap();
    let refused = place.onward(&["runs", "cancel", &id]);
    assert_eq!(refused.code, 4, "{}", refused.stderr);
    assert!(refused.stderr.contains("store_locked"), "{}", refused.stderr);
    assert!(refused.stderr.contains("holds a lock on the database"), "{}", refused.stderr);
    assert_eq!(refused.stdout, "");
    // Whoever only looks is not held up.
    assert_eq!(place.onward(&["runs", "list", "-o", "ids"]).stdout, format!("{id}\n"));
    other.execute_batch("rollback").unwrap();
    assert_eq!(place.onward(&["runs", "cancel", &id]).code, 0);
}

#[test]
fn runs_are_printed_as_table_json_and_ids() {
    let place = Place::new();
    let id = place.start(&["w", "--key", "k-1", "--input", "{\"n\": 1}", "--tag", "tenant=acme"]);
    let table = place.onward(&["runs", "list"]).stdout;
    assert!(table.starts_with("ID "), "{table}");
    assert!(table.contains(&id) && table.contains("queued") && table.contains("k-1"), "{table}");

    let json = place.onward(&["runs", "list", "-o", "json"]).stdout;
    let run: Value = serde_json::from_str(json.trim()).unwrap();
    assert_eq!(run["id"], id.as_str());
    assert_eq!(run["input"]["n"], 1);
    assert_eq!(run["tags"]["tenant"], "acme");

    let ids = place.onward(&["runs", "list", "-o", "ids", "--tag", "tenant=acme"]).stdout;
    assert_eq!(ids, format!("{id}\n"));
    let none = place.onward(&["runs", "list", "-o", "ids", "--tag", "tenant=other"]);
    assert_eq!((none.code, none.stdout.as_str()), (0, ""));
}

#[test]
fn a_list_says_on_stderr_how_to_get_the_next_page() {
    let place = Place::new();
    let ids: Vec<_> = (0..3).map(|_| place.start(&["w"])).collect();
    let first = place.onward(&["runs", "list", "-o", "ids", "--limit", "2"]);
    assert_eq!(first.stdout, format!("{}\n{}\n", ids[2], ids[1]));
    assert!(first.stderr.contains(&format!("--before {}", ids[1])), "{}", first.stderr);
    let second = place.onward(&["runs", "list", "-o", "ids", "--before", &ids[1]]);
    assert_eq!(second.stdout, format!("{}\n", ids[0]));
    assert_eq!(second.stderr, "");
}

#[test]
fn ids_and_json_list_every_run_and_a_table_its_page() {
    let place = Place::new();
    let file = place.items(230);
    let from = text(&file);
    assert_eq!(place.onward(&["start", "w", "--from", from, "--key-field", "id"]).code, 0);
    for format in ["ids", "json"] {
        let all = place.onward(&["runs", "list", "-o", format]);
        let mut lines: Vec<_> = all.stdout.lines().collect();
        lines.sort_unstable();
        lines.dedup();
        assert_eq!((lines.len(), all.stderr.as_str()), (230, ""), "{format}");
    }
    let table = place.onward(&["runs", "list"]);
    assert_eq!(table.stdout.lines().count(), 1 + 50);
    assert!(table.stderr.contains("--before"), "{}", table.stderr);

    let queued = place.onward(&["runs", "list", "--state", "queued", "-o", "ids"]).stdout;
    let cancelled = place.onward_with_stdin(&["runs", "cancel", "-", "-o", "ids"], &queued);
    assert_eq!(cancelled.stdout.lines().count(), 230);
    let none = place.onward(&["runs", "list", "--state", "queued", "-o", "ids"]);
    assert_eq!((none.stdout.as_str(), none.stderr.as_str()), ("", "no runs\n"));
}

#[test]
fn a_key_shows_its_run_and_what_it_suppressed() {
    let place = Place::new();
    let id = place.start(&["w", "--key", "k", "--input", "1"]);
    assert_eq!(place.start(&["w", "--key", "k", "--input", "1.0"]), id);
    let other = place.onward(&["start", "w", "--key", "k", "--input", "2"]);
    assert_eq!(other.code, 1);
    assert!(other.stderr.contains("key_conflict"), "{}", other.stderr);
    let json = place.onward(&["keys", "show", "w", "k", "-o", "json"]).stdout;
    let key: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(key["run"]["id"], id.as_str());
    assert_eq!(key["duplicates"]["count"], 2);
    let table = place.onward(&["keys", "show", "w", "k"]).stdout;
    let summary = "2 more starts with this key: 1 with the same input, 1 with another and refused";
    assert!(table.contains(summary), "{table}");
    assert!(table.contains("another"), "{table}");
}

#[test]
fn a_key_that_nobody_has_is_quoted_and_one_in_place_of_an_id_is_led_on() {
    let place = Place::new();
    let id = place.start(&["w"]);
    let missing = place.onward(&["keys", "show", "w", "order-7"]).stderr;
    assert!(missing.contains(r#"key_not_found: "order-7" of workflow "w""#), "{missing}");
    let no_id = place.onward(&["runs", "show", "order-7"]).stderr;
    assert!(no_id.contains("onward keys show WORKFLOW KEY"), "{no_id}");
    let why = |table: &str| table.lines().any(|line| line.starts_with("why"));
    assert!(why(&place.onward(&["runs", "show", &id]).stdout));
    place.onward(&["runs", "cancel", &id]);
    assert!(!why(&place.onward(&["runs", "show", &id]).stdout));
}

#[test]
fn several_runs_are_cancelled_and_what_is_refused_does_not_stop_the_others() {
    let place = Place::new();
    let ids: Vec<_> = (0..3).map(|_| place.start(&["w"])).collect();
    let stdin = format!("{}\n\n{}\n", ids[0], ids[1]);
    let ended = place.onward_with_stdin(&["runs", "cancel", NOBODY, "-", "-o", "ids"], &stdin);
    assert_eq!(ended.code, 3, "{}", ended.stderr);
    assert_eq!(ended.stdout, format!("{}\n{}\n", ids[0], ids[1]));
    let cancelled = place.onward(&["runs", "list", "--state", "cancelled", "-o", "ids"]).stdout;
    assert_eq!(cancelled.lines().count(), 2);
    let refused = place.onward(&["runs", "retry", &ids[2]]);
    assert_eq!(refused.code, 1, "{}", refused.stderr);
    assert!(refused.stderr.contains("run_not_failed"), "{}", refused.stderr);
    let bad = place.onward_with_stdin(&["runs", "cancel", "-"], "nonsense\n");
    assert_eq!(bad.code, 2, "{}", bad.stderr);
}

#[test]
fn watching_a_cancelled_run_ends_at_once_with_1() {
    let place = Place::new();
    let id = place.start(&["w"]);
    place.onward(&["runs", "cancel", &id]);
    let ended = place.onward(&["runs", "watch", &id]);
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    assert!(ended.stdout.starts_with("cancelled"), "{}", ended.stdout);
}

#[test]
fn watching_a_live_run_ends_when_another_process_ends_it() {
    let place = Place::new();
    let id = place.start(&["w"]);
    let mut watching = place.command(&["runs", "watch", &id, "-o", "json"]);
    let mut child = watching.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    assert_eq!(place.onward(&["runs", "cancel", &id]).code, 0);
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let mut stdout = String::new();
    child.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
    let run: Value = serde_json::from_str(stdout.trim()).unwrap();
    assert_eq!(run["state"], "cancelled");
}

#[test]
fn a_dry_run_of_prune_counts_and_deletes_nothing() {
    let place = Place::new();
    let ids: Vec<_> = (0..3).map(|_| place.start(&["w"])).collect();
    place.onward(&["runs", "cancel", &ids[0], &ids[1]]);
    let dry = place.onward(&["prune", "--older-than", "0s", "--dry-run", "-o", "json"]);
    assert_eq!(dry.stdout.trim(), r#"{"runs":2,"dry_run":true}"#);
    let old = place.onward(&["prune", "--older-than", "30d", "--dry-run"]);
    assert_eq!(old.stdout, "would delete 0 runs\n");
    assert_eq!(place.runs(), 3);
    let other = place.onward(&["prune", "--older-than", "0s", "--state", "completed"]);
    assert_eq!(other.stdout, "deleted 0 runs\n");
    let unasked = place.onward(&["prune", "--older-than", "0s"]);
    assert_eq!(unasked.code, 2, "nobody could be asked");
    assert!(unasked.stderr.contains("this would delete 2 runs; add --yes"), "{}", unasked.stderr);
    assert_eq!(place.runs(), 3);
    let real = place.onward(&["prune", "--older-than", "0s", "--state", "cancelled", "--yes"]);
    assert_eq!(real.stdout, "deleted 2 runs\n");
    assert_eq!(place.runs(), 1);
}

#[test]
fn a_prune_on_a_terminal_asks_first() {
    let place = Place::new();
    let id = place.start(&["w"]);
    place.onward(&["runs", "cancel", &id]);
    let typed = format!("{} prune --older-than 0s", env!("CARGO_BIN_EXE_onward"));
    for (answer, code, left) in [("n\n", 1, 1), ("y\n", 0, 0)] {
        // A terminal is what `script` makes; where it is missing, others have seen that it asks.
        let mut script = std::process::Command::new("script");
        script.args(["-qec", &typed, "/dev/null"]).env("ONWARD_STORE", place.url());
        script.stdin(Stdio::piped()).stdout(Stdio::piped());
        let Ok(mut child) = script.spawn() else { return };
        child.stdin.take().unwrap().write_all(answer.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains("delete 1 run? [y/N]"), "{text:?}");
        assert_eq!((output.status.code(), place.runs()), (Some(code), left), "{text:?}");
    }
}

#[test]
fn colours_are_only_for_those_who_want_them() {
    let place = Place::new();
    place.start(&["w"]);
    let plain = place.onward(&["runs", "list"]).stdout;
    assert!(!plain.contains('\u{1b}'), "{plain:?}");
    let mut forced = place.command(&["runs", "list"]);
    let forced = forced.env("CLICOLOR_FORCE", "1").output().unwrap();
    assert!(String::from_utf8(forced.stdout).unwrap().contains('\u{1b}'));
    // A terminal is what `script` makes; where it is missing, the two above still hold.
    let typed = format!("{} runs list", env!("CARGO_BIN_EXE_onward"));
    for (no_color, coloured) in [("", true), ("1", false)] {
        let mut script = std::process::Command::new("script");
        script.args(["-qec", &typed, "/dev/null"]).env("ONWARD_STORE", place.url());
        script.env("TERM", "xterm").env("NO_COLOR", no_color).stdin(Stdio::null());
        if let Ok(output) = script.output() {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert_eq!(text.contains('\u{1b}'), coloured, "NO_COLOR={no_color:?}: {text:?}");
        }
    }
}

#[test]
fn a_reader_that_leaves_early_is_no_error() {
    let place = Place::new();
    let file = place.items(1_500);
    let from = text(&file);
    assert_eq!(place.onward(&["start", "w", "--from", from, "--key-field", "id"]).code, 0);
    let mut list = place.command(&["runs", "list", "-o", "json", "--limit", "1000"]);
    let mut child = list.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    // Dropping the reader closes the pipe, as `head -1` does; the page is larger than a pipe.
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(0));
    assert_eq!(String::from_utf8(ended.stderr).unwrap(), "");
}

#[test]
fn a_signal_with_a_key_is_kept_once() {
    let place = Place::new();
    let run = place.start(&["w"]);
    for _ in 0..2 {
        let sent = place.onward(&["signals", "send", &run, "paid", "{\"n\": 1}", "--key", "e-1"]);
        assert_eq!((sent.code, sent.stdout.as_str()), (0, ""), "{}", sent.stderr);
    }
    let other = place.onward(&["signals", "send", &run, "paid", "2", "--key", "e-1"]);
    assert_eq!(other.code, 1, "{}", other.stderr);
    assert!(other.stderr.contains("key_conflict"), "{}", other.stderr);
    let shown = place.onward(&["-o", "json", "runs", "list"]).stdout;
    let shown: Value = serde_json::from_str(shown.trim()).unwrap();
    assert_eq!(shown["signals"], 1);
    let table = place.onward(&["runs", "show", &run]).stdout;
    let row = table.lines().find(|line| line.starts_with("paid ")).unwrap_or_default();
    assert!(row.contains("ago") && row.ends_with("{\"n\": 1}"), "{table}");
    let shown = place.onward(&["-o", "json", "runs", "show", &run]).stdout;
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["signals_untaken"].as_array().unwrap().len(), 1);
    assert_eq!(shown["signals_untaken"][0]["name"], "paid");
    assert_eq!(shown["signals_untaken"][0]["value"], serde_json::json!({ "n": 1 }));
}

#[test]
fn a_look_makes_no_tables_in_a_database_of_others() {
    let place = Place::new();
    let path = place.path("app.db");
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("create table orders (id integer primary key)").unwrap();
    let url = format!("sqlite:{}", path.display());
    let looked = place.onward(&["--store", &url, "runs", "list"]);
    assert_eq!(looked.code, 2, "{}", looked.stderr);
    assert!(looked.stderr.contains("none of Onward's"), "{}", looked.stderr);
    let tables = "select count(*) from sqlite_master";
    let tables: i64 = other.query_row(tables, [], |row| row.get(0)).unwrap();
    assert_eq!(tables, 1, "it stays as it was");
}
