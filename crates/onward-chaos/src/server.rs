//! Postgres for tests: a database on the server that all tests share, and a server of one's own to
//! restart and kill.
//!
//! Owns: finding the programs, the data folder, the process and its end. Every setting that makes
//! commits durable stays at its default. Never touches the shared server but to create and drop a
//! database on it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getuid, kill_process};
use tempfile::TempDir;
use tokio_postgres::{Client, NoTls};

/// Where the shared server is, and the programs that it was started with.
const SHARED: &str = "ONWARD_TEST_POSTGRES";
const SHARED_BIN: &str = "ONWARD_TEST_POSTGRES_BIN";

/// Where Debian keeps the programs, a folder for each version.
const DEBIAN: &str = "/usr/lib/postgresql";

/// The user of our own servers.
const USER: &str = "onward";

/// How long a server may take to come up or to end: it may have a log to go through.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often we look whether it did.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Ports that are tried: between our look and the server's start, another program can take one.
const PORT_TRIES: u32 = 5;

/// Connections of all workers and checkers of one test; Postgres's default is 100.
const CONNECTIONS_MAX: u32 = 300;

/// Why there is no server. Tests fail with it: none is left out for want of a server.
///
/// # Errors
/// When no server is given.
pub fn shared_url() -> io::Result<String> {
    match std::env::var(SHARED) {
        Ok(url) if !url.is_empty() => Ok(url),
        _ => Err(io::Error::other(format!(
            "{SHARED} is not set: run ./scripts/test, or scripts/postgres cargo test …, which \
             start a Postgres for the tests"
        ))),
    }
}

/// A connection for a test's own statements. It ends when the client is dropped.
///
/// # Errors
/// When the server does not answer.
pub async fn connect(url: &str) -> Result<Client, tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// The same URL, with another server's address or another database.
pub fn url_at(url: &str, address: Option<SocketAddr>, database: Option<&str>) -> String {
    let (head, rest) = url.split_once("://").unwrap_or(("postgres", url));
    let (place, path) = rest.split_once('/').unwrap_or((rest, "postgres"));
    let (user, host) = place.rsplit_once('@').unwrap_or((USER, place));
    let host = address.map_or_else(|| host.to_owned(), |address| address.to_string());
    let (name, options) = path.split_once('?').map_or((path, None), |(n, o)| (n, Some(o)));
    let options = options.map_or_else(String::new, |options| format!("?{options}"));
    format!("{head}://{user}@{host}/{}{options}", database.unwrap_or(name))
}

/// The address in a URL.
///
/// # Errors
/// When it has none that can be connected to.
pub fn address_of(url: &str) -> io::Result<SocketAddr> {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let place = rest.split('/').next().unwrap_or_default();
    let host = place.rsplit('@').next().unwrap_or_default();
    let host = if host.contains(':') { host.to_owned() } else { format!("{host}:5432") };
    let mut found = std::net::ToSocketAddrs::to_socket_addrs(&host.as_str())?;
    found.find(SocketAddr::is_ipv4).ok_or_else(|| io::Error::other(format!("no address: {url}")))
}

/// A server that belongs to one test. It ends when it is dropped.
#[derive(Debug)]
pub struct Server {
    home: TempDir,
    bin: PathBuf,
    /// The user that the server runs as, where that is not us: Postgres refuses to be root.
    user: Option<(u32, u32)>,
    port: u16,
    process: Option<Child>,
}

impl Server {
    /// Makes an empty cluster and starts it.
    ///
    /// # Errors
    /// When there is no Postgres, or it does not come up.
    pub fn start() -> io::Result<Self> {
        let bin = find_programs()?;
        let home = tempfile::Builder::new().prefix("onward-chaos.").tempdir()?;
        let user = if getuid().is_root() { Some(server_user()?) } else { None };
        if let Some((uid, gid)) = user {
            chown(home.path(), Some(uid), Some(gid))?;
        }
        let mut server = Self { home, bin, user, port: 0, process: None };
        let data = server.data();
        let mut initdb = server.program("initdb");
        initdb.arg("--pgdata").arg(&data).args(["--username", USER, "--auth", "trust"]);
        initdb.args(["--encoding", "UTF8", "--locale", "C", "--no-sync"]);
        let made = initdb.output()?;
        if !made.status.success() {
            let said = String::from_utf8_lossy(&made.stderr).into_owned();
            return Err(io::Error::other(format!("initdb failed: {said}")));
        }
        for _ in 0..PORT_TRIES {
            server.choose_port()?;
            if server.start_again().is_ok() {
                return Ok(server);
            }
        }
        Err(io::Error::other(format!("the server does not come up: {}", server.log())))
    }

    fn data(&self) -> PathBuf {
        self.home.path().join("data")
    }

    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.bin.join(name));
        command.current_dir("/").env("LC_ALL", "C").stdin(Stdio::null());
        if let Some((uid, gid)) = self.user {
            command.uid(uid).gid(gid);
        }
        command
    }

    fn choose_port(&mut self) -> io::Result<()> {
        self.port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let mut settings =
            OpenOptions::new().append(true).open(self.data().join("postgresql.conf"))?;
        writeln!(settings, "listen_addresses = '127.0.0.1'\nport = {}", self.port)?;
        writeln!(settings, "unix_socket_directories = '{}'", self.home.path().display())?;
        writeln!(settings, "max_connections = {CONNECTIONS_MAX}")
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// The URL of its first database.
    pub fn url(&self) -> String {
        format!("postgres://{USER}@{}/postgres", self.address())
    }

    /// The end of its log.
    pub fn log(&self) -> String {
        let text = fs::read_to_string(self.home.path().join("log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().rev().take(50).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }

    /// Starts a server that was stopped or killed, and waits until it takes connections.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn start_again(&mut self) -> io::Result<()> {
        let begun = Instant::now();
        self.spawn()?;
        while begun.elapsed() < PATIENCE {
            if self.is_ready() {
                return Ok(());
            }
            // The processes of a killed server hold its memory until they have noticed.
            if let Some(process) = &mut self.process
                && process.try_wait()?.is_some()
            {
                if self.log().contains("could not create any TCP/IP sockets") {
                    break;
                }
                self.spawn()?;
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Err(io::Error::other(format!("the server does not come up: {}", self.log())))
    }

    fn spawn(&mut self) -> io::Result<()> {
        let log = self.home.path().join("log");
        let log = File::options().append(true).create(true).open(log)?;
        let mut postgres = self.program("postgres");
        postgres.arg("-D").arg(self.data()).stdout(log.try_clone()?).stderr(log);
        // A group of its own: a key on the terminal must not end it before its test.
        self.process = Some(postgres.process_group(0).spawn()?);
        Ok(())
    }

    /// Whether its own status file says that it takes connections.
    fn is_ready(&self) -> bool {
        let Some(process) = &self.process else { return false };
        let status = fs::read_to_string(self.data().join("postmaster.pid")).unwrap_or_default();
        let mut lines = status.lines().map(str::trim);
        let own = lines.next() == Some(process.id().to_string().as_str());
        own && lines.next_back().is_some_and(|line| line.starts_with("ready"))
    }

    /// Stops it as `pg_ctl stop -m fast` does: connections are ended, and the log is closed.
    ///
    /// # Errors
    /// When it does not end.
    pub fn stop(&mut self) -> io::Result<()> {
        self.end(Signal::INT)
    }

    /// Kills it, with all that it had not written.
    ///
    /// # Errors
    /// When it does not end.
    pub fn kill(&mut self) -> io::Result<()> {
        self.end(Signal::KILL)
    }

    fn end(&mut self, signal: Signal) -> io::Result<()> {
        let Some(mut process) = self.process.take() else { return Ok(()) };
        let pid = Pid::from_raw(process.id().cast_signed()).ok_or(io::ErrorKind::NotFound)?;
        kill_process(pid, signal)?;
        let begun = Instant::now();
        while process.try_wait()?.is_none() {
            if begun.elapsed() > PATIENCE {
                process.kill()?;
                process.wait()?;
                return Err(io::Error::other("the server does not end"));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.end(Signal::QUIT);
    }
}

/// The folder of the programs: the one that the shared server was started from, else the one in
/// `PATH`, else the newest of Debian's.
fn find_programs() -> io::Result<PathBuf> {
    let given = std::env::var_os(SHARED_BIN).filter(|bin| !bin.is_empty()).map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&path).find(|folder| has_programs(folder));
    let version = |folder: &PathBuf| {
        let name = folder.parent()?.file_name()?.to_str()?;
        name.parse::<u32>().ok()
    };
    let debian = fs::read_dir(DEBIAN).into_iter().flatten().flatten();
    let debian = debian.map(|entry| entry.path().join("bin")).filter(|bin| has_programs(bin));
    let found = given.or(in_path).or_else(|| debian.max_by_key(version));
    found.ok_or_else(|| {
        io::Error::other(
            "there is no Postgres here: install version 14 or later (Debian: apt-get install \
             postgresql; elsewhere: with initdb in PATH)",
        )
    })
}

fn has_programs(folder: &Path) -> bool {
    ["initdb", "postgres"].iter().all(|program| folder.join(program).is_file())
}

/// The ids of the user that runs the server when we are root.
fn server_user() -> io::Result<(u32, u32)> {
    let name = ["postgres", "nobody"]
        .into_iter()
        .find_map(|name| Some((ask_id("-u", name)?, ask_id("-g", name)?)));
    name.ok_or_else(|| io::Error::other("there is no user to run the server as"))
}

fn ask_id(which: &str, name: &str) -> Option<u32> {
    let said = Command::new("id").args([which, name]).output().ok()?;
    String::from_utf8(said.stdout).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_keeps_what_is_not_replaced() {
        let url = "postgres://ada@db.example:6543/orders?application_name=x";
        let there: SocketAddr = ([127, 0, 0, 1], 7).into();
        assert_eq!(url_at(url, None, None), url);
        assert_eq!(
            url_at(url, Some(there), Some("other")),
            "postgres://ada@127.0.0.1:7/other?application_name=x"
        );
    }

    #[test]
    fn address_is_read_from_a_url() {
        let address = address_of("postgres://onward@127.0.0.1:2345/postgres").unwrap();
        assert_eq!(address, ([127, 0, 0, 1], 2345).into());
    }
}
