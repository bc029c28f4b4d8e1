//! A server of a test's own, with settings that the tests' server does not have.
//!
//! Owns: its folder, its port, and its end. Made with the programs that `scripts/postgres` found.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

/// How often another port is tried when somebody took the one that was free.
const PORT_TRIES: u32 = 5;

pub(crate) struct Cluster {
    folder: TempDir,
    port: u16,
}

impl Cluster {
    /// A cluster with these lines at the end of its settings.
    pub(crate) fn new(settings: &str) -> Self {
        let mut cluster = Self::made(settings);
        cluster.start();
        cluster
    }

    /// A cluster that is not started yet, so that files can be put into its folder.
    pub(crate) fn made(settings: &str) -> Self {
        let cluster = Self { folder: tempfile::tempdir().unwrap(), port: 0 };
        if let Some(user) = user() {
            let chown = Command::new("chown").arg(user).arg(cluster.folder.path()).output();
            succeeded("chown", &chown.unwrap());
        }
        let data = cluster.data();
        let asked = ["--username=onward", "--auth=trust", "--encoding=UTF8", "--locale=C"];
        let made = program("initdb").arg("--no-sync").args(asked).arg("-D").arg(&data).output();
        succeeded("initdb", &made.unwrap());
        let folder = cluster.folder.path().display();
        let ours = format!(
            "listen_addresses = '127.0.0.1'\nunix_socket_directories = '{folder}'\n{settings}\n"
        );
        cluster.append("postgresql.conf", &ours);
        cluster
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Adds to a file in the data folder.
    pub(crate) fn append(&self, file: &str, text: &str) {
        let path = self.data().join(file);
        let before = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, before + text).unwrap();
    }

    /// Writes a file in the data folder anew.
    pub(crate) fn put_text(&self, file: &str, text: &str) {
        std::fs::write(self.data().join(file), text).unwrap();
    }

    /// Puts a file into the data folder that the server alone may read.
    pub(crate) fn put(&self, file: &str, from: &Path) {
        let path = self.data().join(file);
        std::fs::copy(from, &path).unwrap();
        let owner = user().unwrap_or_default();
        if !owner.is_empty() {
            succeeded("chown", &Command::new("chown").arg(owner).arg(&path).output().unwrap());
        }
        succeeded("chmod", &Command::new("chmod").arg("600").arg(&path).output().unwrap());
    }

    /// Starts the server at a port that nobody has.
    pub(crate) fn start(&mut self) {
        for _ in 0..PORT_TRIES {
            if self.port == 0 {
                self.port = free_port();
            }
            if self.try_start() {
                return;
            }
            self.port = 0;
        }
        let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        panic!("the server did not come up:\n{log}");
    }

    fn try_start(&self) -> bool {
        let log = self.folder.path().join("log");
        let port = format!("-p {}", self.port);
        let mut start = self.pg_ctl();
        start.arg("--log").arg(log).args(["--wait", "--options", &port, "start"]);
        start.output().unwrap().status.success()
    }

    /// A standby of this server, which streams from it.
    pub(crate) fn standby(&self) -> Self {
        let mut standby = Self { folder: tempfile::tempdir().unwrap(), port: 0 };
        if let Some(user) = user() {
            let chown = Command::new("chown").arg(user).arg(standby.folder.path()).output();
            succeeded("chown", &chown.unwrap());
        }
        let copied = program("pg_basebackup")
            .args(["--write-recovery-conf", "--wal-method=stream", "-cfast", "--no-sync"])
            .args(["--dbname", &self.url()])
            .arg("-D")
            .arg(standby.data())
            .output();
        succeeded("pg_basebackup", &copied.unwrap());
        let folder = standby.folder.path().display().to_string();
        standby.append("postgresql.conf", &format!("\nunix_socket_directories = '{folder}'\n"));
        standby.start();
        standby
    }

    /// Lets a standby be the primary.
    pub(crate) fn promote(&self) {
        succeeded("pg_ctl promote", &self.pg_ctl().args(["--wait", "promote"]).output().unwrap());
    }

    /// Takes the server down as a crash does, with nothing written that was not on disk.
    pub(crate) fn crash(&self) {
        let stopped = self.pg_ctl().args(["--mode", "immediate", "--wait", "stop"]).output();
        succeeded("pg_ctl stop", &stopped.unwrap());
    }

    /// The URL of a superuser.
    pub(crate) fn url(&self) -> String {
        format!("postgres://onward@{}/postgres", self.address())
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    fn pg_ctl(&self) -> Command {
        let mut command = program("pg_ctl");
        command.arg("-D").arg(self.data());
        command
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.pg_ctl().args(["--mode", "immediate", "--wait", "stop"]).output();
    }
}

/// A port of this machine that nobody has at the moment.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A program of Postgres, as the user that the tests' server runs as.
fn program(name: &str) -> Command {
    let path = folder().join(name);
    let mut command = match user() {
        None => Command::new(path),
        Some(user) => {
            let mut command = Command::new("runuser");
            command.args(["-u", &user, "--"]).arg(path);
            command
        }
    };
    command.current_dir("/").env("LC_ALL", "C");
    command
}

/// Where Postgres' programs are.
fn folder() -> PathBuf {
    match std::env::var("ONWARD_TEST_POSTGRES_BIN") {
        Ok(folder) if !folder.is_empty() => folder.into(),
        _ => panic!(
            "ONWARD_TEST_POSTGRES_BIN is not set: this test needs a server of its own. Run \
             ./scripts/test with ONWARD_TEST_POSTGRES unset, or set it to the folder of initdb"
        ),
    }
}

/// Whom the server runs as; nobody else where that is us.
pub(crate) fn user() -> Option<String> {
    std::env::var("ONWARD_TEST_POSTGRES_USER").ok().filter(|user| !user.is_empty())
}

pub(crate) fn succeeded(what: &str, output: &Output) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {said}");
}
