//! The settings of a server: flag, environment, `onward.toml`, default, in this order.
//!
//! Owns: where each setting comes from. Never takes a token from the command line.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use onward_server::{Access, Options, Role, ServeOptions, Tokens};

use crate::args::{self, Global};
use crate::config::Config;
use crate::problem::Problem;

/// The flags of a server.
#[derive(Clone, Debug, Args)]
pub(crate) struct Settings {
    /// Where it listens; without an address, 127.0.0.1
    #[arg(long, env = "ONWARD_LISTEN", value_name = "ADDRESS:PORT")]
    listen: Option<String>,
    /// The file of token hashes, one NAME ROLE SHA256 in a line; read again when it changes
    #[arg(long, env = "ONWARD_TOKEN_FILE", value_name = "FILE", value_parser = args::path())]
    token_file: Option<PathBuf>,
    /// A name that the server is reached by, as app.example.com, or * for any; may be repeated
    #[arg(long = "host", env = "ONWARD_HOSTS", value_delimiter = ',', value_name = "NAME")]
    hosts: Vec<String>,
    /// Lets everybody in who reaches its address
    #[arg(long, env = "ONWARD_INSECURE", value_parser = said, value_name = "YES")]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "yes")]
    insecure: Option<Said>,
    /// Refuses every change
    #[arg(long, env = "ONWARD_READ_ONLY", value_parser = said, value_name = "YES")]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "yes")]
    read_only: Option<Said>,
    /// Shows no inputs, outputs and results
    #[arg(long, env = "ONWARD_HIDE_PAYLOADS", value_parser = said, value_name = "YES")]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "yes")]
    hide_payloads: Option<Said>,
    /// Lets browsers send the cookie over HTTPS only, where a proxy speaks it
    #[arg(long, env = "ONWARD_SECURE_COOKIE", value_parser = said, value_name = "YES")]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "yes")]
    secure_cookie: Option<Said>,
    /// A workflow that is started over HTTP with an Idempotency-Key only, or * for all; may be repeated
    #[arg(long, env = "ONWARD_REQUIRE_KEY", value_delimiter = ',', value_name = "WORKFLOW")]
    require_key: Vec<String>,
    /// How long it serves on after SIGTERM while /readyz says that it stops, as 5s; none when left out
    #[arg(long, env = "ONWARD_STOP_DELAY", value_name = "DURATION")]
    stop_delay: Option<String>,
}

/// What a flag or a variable says: yes, no, or, where the variable is empty, nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Said(Option<bool>);

/// Anything but a no is a yes, as everywhere.
fn said(text: &str) -> Result<Said, Infallible> {
    let no = ["0", "n", "no", "f", "false", "off"];
    Ok(Said((!text.is_empty()).then(|| !no.contains(&text.to_lowercase().as_str()))))
}

/// A flag or a variable counts before the file, whichever of the two it says.
fn settled(said: Option<Said>, of_file: bool) -> bool {
    said.and_then(|said| said.0).unwrap_or(of_file)
}

/// What a server is started with.
pub(super) struct Settled {
    pub(super) store: String,
    pub(super) serve: ServeOptions,
}

impl Settings {
    /// Puts together what flags, environment and file say.
    pub(super) fn settle(self, global: &Global) -> Result<Settled, Problem> {
        let file = Config::read(global.config.as_deref())?.server;
        // An empty variable is one that is not set.
        let set = |text: &String| !text.is_empty();
        let listen = self.listen.filter(set).or(file.listen);
        let listen = listen.map_or(Ok(ServeOptions::new(open()).listen), |text| address(&text))?;
        let empty = self.token_file.as_ref().is_some_and(|path| path.as_os_str().is_empty());
        let by_variable = || std::env::var_os("ONWARD_TOKEN_FILE").is_some_and(|it| it.is_empty());
        if empty && !by_variable() {
            // What was meant to be a file must not let everybody in.
            return Err(Problem::Usage(
                "--token-file is empty: name the file of tokens".to_owned(),
            ));
        }
        let token_file = self.token_file.filter(|_| !empty).or(file.token_file);
        let first = |named: Vec<String>, of_file| match named.iter().any(set) {
            true => named,
            false => of_file,
        };
        let mut options = Options::new(access(token_file.as_deref())?)
            .hosts(trimmed(first(self.hosts, file.hosts)))
            .require_key(trimmed(first(self.require_key, file.require_key)));
        if settled(self.read_only, file.read_only) {
            options = options.read_only();
        }
        if settled(self.hide_payloads, file.hide_payloads) {
            options = options.hide_payloads();
        }
        if settled(self.secure_cookie, file.secure_cookie) {
            options = options.secure_cookie();
        }
        let insecure = settled(self.insecure, file.insecure);
        let stop_delay = match self.stop_delay.filter(set).or(file.stop_delay) {
            Some(text) => args::duration(&text)
                .map_err(|why| Problem::Usage(format!("--stop-delay {text:?}: {why}")))?,
            None => Duration::ZERO,
        };
        let serve = ServeOptions { listen, insecure, stop_delay, ..ServeOptions::new(options) };
        Ok(Settled { store: global.store()?, serve })
    }
}

fn open() -> Options {
    Options::new(Access::Open(Role::Admin))
}

fn address(text: &str) -> Result<SocketAddr, Problem> {
    let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let port = text.strip_prefix(':').unwrap_or(text).parse().ok();
    let parsed = text.parse().ok().or_else(|| port.map(|port| SocketAddr::new(local, port)));
    parsed.ok_or_else(|| Problem::Usage(format!("--listen {text:?} is not ADDRESS:PORT")))
}

/// Names without the blanks that a list may have around its commas.
fn trimmed(names: Vec<String>) -> Vec<String> {
    names.iter().map(|name| name.trim().to_owned()).collect()
}

/// Who gets in: those with a token of the file or with `ONWARD_TOKEN`, else whoever reaches it. A token
/// that was read from a file often ends with its line, and no caller sends that.
fn access(token_file: Option<&Path>) -> Result<Access, Problem> {
    let given = std::env::var("ONWARD_TOKEN").ok().map(|token| token.trim().to_owned());
    let given = given.filter(|token| !token.is_empty());
    let mut tokens = match token_file {
        Some(path) => {
            let what = format!("cannot read the tokens of {}", path.display());
            Tokens::of_file(path).map_err(Problem::io(what))?
        }
        None if given.is_none() => return Ok(Access::Open(Role::Admin)),
        None => Tokens::none(),
    };
    if let Some(token) = given {
        tokens = tokens.with("ONWARD_TOKEN", Role::Admin, &token);
    }
    Ok(Access::Tokens(tokens))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_be_a_port() {
        assert_eq!(address("8080").unwrap().to_string(), "127.0.0.1:8080");
        assert_eq!(address(":8080").unwrap().to_string(), "127.0.0.1:8080");
        assert_eq!(address("0.0.0.0:1").unwrap().to_string(), "0.0.0.0:1");
        assert_eq!(address("[::1]:1").unwrap().to_string(), "[::1]:1");
        assert!(address("here").is_err());
    }

    #[test]
    fn a_variable_that_says_no_counts_before_the_file() {
        assert!(!settled(Some(said("0").unwrap()), true));
        assert!(!settled(Some(said("False").unwrap()), true));
        assert!(settled(Some(said("1").unwrap()), false));
        assert!(settled(Some(said("").unwrap()), true), "an empty one says nothing");
        assert!(settled(None, true) && !settled(None, false));
    }
}
