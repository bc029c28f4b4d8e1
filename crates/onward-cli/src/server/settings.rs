//! The settings of a server: flag, environment, `onward.toml`, default, in this order.
//!
//! Owns: where each setting comes from. Never takes a token from the command line.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::FalseyValueParser;
use onward_server::{Access, Options, Role, ServeOptions, Tokens};
use serde::Deserialize;

use crate::args::Global;
use crate::problem::Problem;

/// Where settings are looked for when no file is named.
const FILE: &str = "onward.toml";

/// The flags of a server.
#[derive(Clone, Debug, Args)]
pub(crate) struct Settings {
    /// Where it listens; without an address, 127.0.0.1
    #[arg(long, env = "ONWARD_LISTEN", value_name = "ADDRESS:PORT")]
    listen: Option<String>,
    /// The file of token hashes, one NAME ROLE SHA256 in a line; read again when it changes
    #[arg(long, env = "ONWARD_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// A name that the server is reached by, as app.example.com, or * for any; may be repeated
    #[arg(long = "host", env = "ONWARD_HOSTS", value_delimiter = ',', value_name = "NAME")]
    hosts: Vec<String>,
    /// Lets everybody in who reaches its address
    #[arg(long, env = "ONWARD_INSECURE", value_parser = FalseyValueParser::new())]
    insecure: bool,
    /// Refuses every change
    #[arg(long, env = "ONWARD_READ_ONLY", value_parser = FalseyValueParser::new())]
    read_only: bool,
    /// Shows no inputs, outputs and results
    #[arg(long, env = "ONWARD_HIDE_PAYLOADS", value_parser = FalseyValueParser::new())]
    hide_payloads: bool,
    /// Lets browsers send the cookie over HTTPS only, where a proxy speaks it
    #[arg(long, env = "ONWARD_SECURE_COOKIE", value_parser = FalseyValueParser::new())]
    secure_cookie: bool,
    /// The file of settings [default: onward.toml, if it is there]
    #[arg(long, env = "ONWARD_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
}

/// What the file says.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct File {
    store: Option<String>,
    server: FileServer,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct FileServer {
    listen: Option<String>,
    token_file: Option<PathBuf>,
    hosts: Vec<String>,
    insecure: bool,
    read_only: bool,
    hide_payloads: bool,
    secure_cookie: bool,
}

/// What a server is started with.
pub(super) struct Settled {
    pub(super) store: String,
    pub(super) serve: ServeOptions,
}

impl Settings {
    /// Puts together what flags, environment and file say.
    pub(super) fn settle(self, global: &Global) -> Result<Settled, Problem> {
        let file = File::read(self.config.as_deref())?;
        let store = store(global, file.store);
        let listen = self.listen.or(file.server.listen);
        let listen = listen.map_or(Ok(ServeOptions::new(open()).listen), |text| address(&text))?;
        let token_file = self.token_file.or(file.server.token_file);
        let hosts = if self.hosts.is_empty() { file.server.hosts } else { self.hosts };
        let mut options = Options::new(access(token_file.as_deref())?).hosts(hosts);
        if self.read_only || file.server.read_only {
            options = options.read_only();
        }
        if self.hide_payloads || file.server.hide_payloads {
            options = options.hide_payloads();
        }
        if self.secure_cookie || file.server.secure_cookie {
            options = options.secure_cookie();
        }
        let insecure = self.insecure || file.server.insecure;
        let serve = ServeOptions { listen, insecure, ..ServeOptions::new(options) };
        Ok(Settled { store, serve })
    }
}

fn open() -> Options {
    Options::new(Access::Open(Role::Admin))
}

/// The store: `--store`, `ONWARD_STORE`, the file, `DATABASE_URL`, the default.
fn store(global: &Global, of_file: Option<String>) -> String {
    if !global.store_is_default {
        return global.store.clone();
    }
    let of_environment = || std::env::var("DATABASE_URL").ok().filter(|url| !url.is_empty());
    of_file.or_else(of_environment).unwrap_or_else(|| global.store.clone())
}

fn address(text: &str) -> Result<SocketAddr, Problem> {
    let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let port = text.strip_prefix(':').unwrap_or(text).parse().ok();
    let parsed = text.parse().ok().or_else(|| port.map(|port| SocketAddr::new(local, port)));
    parsed.ok_or_else(|| Problem::Usage(format!("--listen {text:?} is not ADDRESS:PORT")))
}

/// Who gets in: those with a token of the file or with `ONWARD_TOKEN`, else whoever reaches it.
fn access(token_file: Option<&Path>) -> Result<Access, Problem> {
    let given = std::env::var("ONWARD_TOKEN").ok().filter(|token| !token.is_empty());
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

impl File {
    fn read(named: Option<&Path>) -> Result<Self, Problem> {
        let path = named.unwrap_or(Path::new(FILE));
        if named.is_none() && !path.exists() {
            return Ok(Self::default());
        }
        let what = format!("cannot read {}", path.display());
        let text = std::fs::read_to_string(path).map_err(Problem::io(what))?;
        toml::from_str(&text)
            .map_err(|error| Problem::Usage(format!("{}: {error}", path.display())))
    }
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
    fn a_setting_that_is_not_known_is_refused() {
        assert!(toml::from_str::<File>("[server]\nlisten = \"1\"\nhosts = [\"a\"]").is_ok());
        assert!(toml::from_str::<File>("[server]\nlisen = \"1\"").is_err());
    }
}
