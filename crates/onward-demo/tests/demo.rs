//! The demo, for real: the program of this package, whose worker process is killed with SIGKILL.
#![allow(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::path::Path;
use std::process::{Command, Stdio};

const README: &str = include_str!("../../../README.md");

/// What the program did.
struct Ended {
    code: i32,
    stdout: String,
    stderr: String,
}

fn program(args: &[&str], temporary: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onward-demo"));
    command.args(args).current_dir(temporary).env("TMPDIR", temporary).stdin(Stdio::null());
    command.env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE");
    command
}

fn demo(args: &[&str], temporary: &Path) -> Ended {
    ended(program(args, temporary))
}

fn ended(mut command: Command) -> Ended {
    let output = command.output().unwrap();
    Ended {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// The folders that a demo left.
fn left(temporary: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(temporary).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn the_demo_loses_nothing_and_says_what_it_leaves() {
    let temporary = tempfile::tempdir().unwrap();
    let ended = demo(&["--runs", "40", "--seed", "7"], temporary.path());
    assert_eq!(ended.code, 0, "{}\n{}", ended.stdout, ended.stderr);
    assert_eq!(ended.stdout.lines().last(), Some("lost 0, recorded twice 0"));
    assert!(ended.stdout.contains("40  of 40: 36 indexed, 4 skipped"), "{}", ended.stdout);
    assert!(ended.stdout.lines().all(|line| line.chars().count() <= 80), "{}", ended.stdout);
    // The README shows the demo as it is: the same rows in the same order.
    let shown = README.split_once("Counted from").unwrap().1.split_once("```").unwrap().0;
    let rows = |text: &str| -> Vec<String> {
        let rows = text.lines().filter(|line| line.starts_with("  "));
        rows.map(|line| line.chars().take(25).collect::<String>().trim().to_owned()).collect()
    };
    assert_eq!(rows(&ended.stdout), rows(shown));
    assert!(ended.stderr.contains("seed 7"), "{}", ended.stderr);
    // Each phase has its line where there is no terminal, and the kill is one of them.
    for phase in ["  start ", "  worker 1, pid ", "  kill -9 ", "  worker 2, pid ", "  count "] {
        assert!(ended.stderr.contains(phase), "{phase}: {}", ended.stderr);
    }
    // What it leaves is one folder, and the line that says so names it.
    let [folder] = &left(temporary.path())[..] else { panic!("{:?}", left(temporary.path())) };
    let path = temporary.path().canonicalize().unwrap().join(folder);
    let line = format!(
        "The database and logs are left in {0} for that. To delete them: rm -r {0}",
        path.display()
    );
    assert!(ended.stderr.contains(&line), "{}", ended.stderr);
    // The command for the dashboard works from the folder that the user is in.
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let command = format!(
        "cargo run --manifest-path {}/Cargo.toml -p onward-cli -- dev --open --store sqlite:{}/onward.db",
        root.display(),
        path.display(),
    );
    assert!(ended.stderr.contains(&command), "{}", ended.stderr);
}

#[test]
fn pipes_and_no_color_get_no_escape_codes() {
    let temporary = tempfile::tempdir().unwrap();
    let piped = demo(&["--runs", "4"], temporary.path());
    assert!(!(piped.stdout + &piped.stderr).contains('\u{1b}'));
    let mut forced = program(&["--runs", "4"], temporary.path());
    forced.env("CLICOLOR_FORCE", "1");
    assert!(ended(forced).stdout.contains('\u{1b}'), "the check above can fail");
    let mut plain = program(&["--runs", "4"], temporary.path());
    plain.env("NO_COLOR", "1").env("CLICOLOR_FORCE", "1");
    let plain = ended(plain);
    assert!(!(plain.stdout + &plain.stderr).contains('\u{1b}'));
}

#[test]
fn a_folder_that_exists_is_refused_and_left_as_it_is() {
    let temporary = tempfile::tempdir().unwrap();
    let mine = temporary.path().join("mine");
    std::fs::create_dir(&mine).unwrap();
    let ended = demo(&["--keep", mine.to_str().unwrap()], temporary.path());
    assert_eq!(ended.code, 2, "{}", ended.stderr);
    assert!(ended.stderr.contains("exists already"), "{}", ended.stderr);
    assert!(left(&mine).is_empty());
}

#[test]
fn a_terminal_gets_a_bar_for_each_phase() {
    let temporary = tempfile::tempdir().unwrap();
    // `script` gives the demo a terminal.
    let on_terminal = |no_color: bool| {
        let demo = format!("{} --runs 40", env!("CARGO_BIN_EXE_onward-demo"));
        let mut command = Command::new("script");
        command.args(["-qec", &demo, "/dev/null"]).stdin(Stdio::null());
        command.env("TMPDIR", temporary.path()).env("TERM", "xterm").env_remove("NO_COLOR");
        if no_color {
            command.env("NO_COLOR", "1");
        }
        let ended = ended(command);
        assert_eq!(ended.code, 0, "{}", ended.stdout);
        ended.stdout
    };
    let shown = on_terminal(false);
    // The last drawing of each phase, which stays: its bar is full, and behind it stands the result.
    let full = "━".repeat(28);
    for phase in ["start ", "worker 2, pid ", "count "] {
        let drawn = shown.lines().rfind(|line| line.contains(phase)).unwrap_or_default();
        assert!(drawn.contains(&full), "{phase}: {drawn:?}");
    }
    assert!(shown.contains("of 40 runs completed"), "{shown}");
    let colours = |text: &str| text.contains("\u{1b}[32m") || text.contains("\u{1b}[1m");
    assert!(colours(&shown), "{shown:?}");
    let plain = on_terminal(true);
    assert!(plain.contains(&full) && !colours(&plain), "{plain:?}");
}

#[test]
fn an_interrupted_demo_leaves_nothing_behind() {
    for signal in ["INT", "TERM", "HUP"] {
        leaves_nothing_behind(signal);
    }
}

fn leaves_nothing_behind(signal: &str) {
    let temporary = tempfile::tempdir().unwrap();
    let mut command = program(&["--runs", "20000"], temporary.path());
    let mut demo = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = std::io::BufReader::new(demo.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("worker 1") {
        line.clear();
        assert_ne!(std::io::BufRead::read_line(&mut said, &mut line).unwrap(), 0, "it ended");
    }
    let pid = line.split_once("pid ").unwrap().1.split(' ').next().unwrap().to_owned();
    let sent = Command::new("kill").args(["-s", signal, &demo.id().to_string()]).status();
    assert!(sent.unwrap().success());
    assert_eq!(demo.wait().unwrap().code(), Some(130));
    assert!(left(temporary.path()).is_empty(), "{:?}", left(temporary.path()));
    let is_gone = || !Path::new("/proc").join(&pid).exists();
    let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !is_gone() {
        assert!(std::time::Instant::now() < end, "the worker {pid} is still there");
        std::thread::yield_now();
    }
}
