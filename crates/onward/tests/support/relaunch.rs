//! This test program, started again as a process that a test can stop or kill.
//!
//! Owns: how a test of this program is named to it. Never starts the process, nor ends it.

use std::process::{Command, Stdio};

/// A process that executes one test of this program: `module` is the caller's `module_path!()`, where
/// the test is too.
pub(crate) fn test(module: &str, name: &str) -> Command {
    let (_, module) = module.split_once("::").unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("{module}::{name}"), "--nocapture", "--test-threads", "1"]);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}
