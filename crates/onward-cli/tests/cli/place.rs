//! The real `onward` program, on a database of its own.

#[cfg(feature = "server")]
pub(crate) mod server;

use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use tempfile::TempDir;

/// A folder with a database that does not exist yet.
pub(crate) struct Place {
    folder: TempDir,
}

/// What the program did.
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.path("onward.db")
    }

    pub(crate) fn url(&self) -> String {
        format!("sqlite:{}", self.database().display())
    }

    /// The program with these arguments, not started yet.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_onward"));
        command.args(args).env("ONWARD_STORE", self.url()).current_dir(self.folder.path());
        for name in ["DATABASE_URL", "ONWARD_SERVER", "ONWARD_TOKEN", "ONWARD_TOKEN_FILE"] {
            command.env_remove(name);
        }
        command.env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE").stdin(Stdio::null());
        command
    }

    /// Executes the program to its end.
    pub(crate) fn onward(&self, args: &[&str]) -> Ended {
        self.command(args).output().unwrap().into()
    }

    /// Executes the program to its end with this on stdin.
    pub(crate) fn onward_with_stdin(&self, args: &[&str], stdin: &str) -> Ended {
        let mut command = self.command(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(stdin.as_bytes()).unwrap();
        child.wait_with_output().unwrap().into()
    }

    /// Starts a worker process of the demo, all of whose services are this one.
    pub(crate) fn demo_worker(&self, service: &TcpListener, lease: Duration) -> Child {
        let address = service.local_addr().unwrap();
        let (services, lease) =
            (format!("{address},{address},{address}"), lease.as_millis().to_string());
        let database = self.database();
        let args = ["demo-worker", "--database", text(&database), "--process", "1"];
        let args = [&args[..], &["--services", &services, "--lease-ms", &lease]].concat();
        self.command(&args).stdin(Stdio::piped()).spawn().unwrap()
    }

    /// Starts a run and gives its id.
    pub(crate) fn start(&self, args: &[&str]) -> String {
        let ended = self.onward(&[&["start", "-o", "ids"], args].concat());
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        ended.stdout.trim().to_owned()
    }

    /// How many runs there are.
    pub(crate) fn runs(&self) -> usize {
        let (mut ids, mut before) = (Vec::new(), String::new());
        loop {
            let mut args = vec!["runs", "list", "-o", "ids", "--limit", "1000"];
            if !before.is_empty() {
                args.extend(["--before", &before]);
            }
            let page: Vec<String> = self.onward(&args).stdout.lines().map(str::to_owned).collect();
            let Some(last) = page.last().cloned() else {
                ids.sort_unstable();
                ids.dedup();
                return ids.len();
            };
            before = last;
            ids.extend(page);
        }
    }

    /// A file of `lines` items with ids from 1.
    pub(crate) fn items(&self, lines: usize) -> PathBuf {
        let path = self.path("items.jsonl");
        let text: String = (1..=lines).map(|id| format!("{{\"id\":{id},\"x\":\"y\"}}\n")).collect();
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
