//! A server of the real program, on a port of its own.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::Place;

/// Longer than a server takes to start on a slow machine.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// A server that is up.
pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) address: String,
}

impl Server {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("http://").unwrap_or_default().to_owned();
        assert!(!address.is_empty(), "it printed {line:?}");
        Self { child, address }
    }

    /// The status and the body of an answer.
    pub(crate) fn ask(&self, head: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        write!(stream, "{head}\r\nHost: {}\r\nConnection: close\r\n\r\n", self.address).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        let body = answer.split_once("\r\n\r\n").unwrap().1.to_owned();
        (status, body)
    }

    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        self.ask(&format!("GET {path} HTTP/1.1"))
    }

    /// Sends it a signal, and gives its exit code.
    pub(crate) fn stop(mut self, signal: &str) -> i32 {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code().unwrap_or(-1);
            }
            assert!(begun.elapsed() < SOON, "it did not stop");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `onward serve` on any free port, not started yet.
pub(crate) fn serve(place: &Place, args: &[&str]) -> Command {
    let mut command = place.command(&[&["serve", "--listen", "127.0.0.1:0"], args].concat());
    command.env_remove("ONWARD_TOKEN").env_remove("DATABASE_URL");
    command
}

impl Server {
    /// A server of this store that lets everybody in.
    pub(crate) fn of(place: &Place) -> Self {
        Self::start(serve(place, &[]))
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}
