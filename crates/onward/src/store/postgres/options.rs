//! How a store on Postgres is opened.
//!
//! Owns: [`PostgresOptions`] and the parts of a URL that are ours. Never connects.

use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

use crate::{Clock, Code, Error};

/// Connections besides those that commit, renew leases, notify and listen, unless told otherwise.
const POOL_SIZE_DEFAULT: usize = 8;

/// The longest wait for a connection, unless told otherwise.
const CONNECT_TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);

/// The longest wait for an answer, unless told otherwise: shorter than a lease.
const STATEMENT_TIMEOUT_DEFAULT: Duration = Duration::from_secs(8);

/// The schema that the tables are in, unless told otherwise.
pub(super) const SCHEMA_DEFAULT: &str = "onward";

/// The longest name of a schema: with `onward_` before it it names the channel of notifications, and
/// Postgres takes names of less than 64 bytes.
const SCHEMA_BYTES_MAX: usize = 56;

/// How a store on Postgres is opened.
///
/// Each option can stand in the URL too, and the URL counts:
/// `postgres://app@db/shop?schema=flows&pool_size=4&connect_timeout=3&statement_timeout=5`.
///
/// ```no_run
/// # async fn open() -> Result<(), onward::Error> {
/// use onward::store::{PostgresOptions, PostgresStore};
///
/// let options = PostgresOptions { pool_size: 4, ..PostgresOptions::default() };
/// let store = PostgresStore::open_with("postgres://app@db/shop", options).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct PostgresOptions {
    /// The schema that the tables are in; it is created if it is not there. Default: `onward`.
    pub schema: String,
    /// Whether the schema may be created or brought up to date. Default: yes.
    pub create: bool,
    /// Connections for all that is not a group commit. Besides them the store has three that
    /// commit together, one for lone writes, one for leases (two while the first does not answer), one
    /// that notifies and one that listens. Default: 8.
    pub pool_size: usize,
    /// The longest wait for a connection, for each host of the URL. Default: 5 s.
    pub connect_timeout: Duration,
    /// The longest wait for the answer to a statement, after which the connection is given up and
    /// the outcome is unknown. Default: 8 s, less than a lease.
    pub statement_timeout: Duration,
    /// Where times come from; `None`: the database's own clock.
    pub clock: Option<Arc<dyn Clock>>,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            schema: SCHEMA_DEFAULT.to_owned(),
            create: true,
            pool_size: POOL_SIZE_DEFAULT,
            connect_timeout: CONNECT_TIMEOUT_DEFAULT,
            statement_timeout: STATEMENT_TIMEOUT_DEFAULT,
            clock: None,
        }
    }
}

/// How a connection is encrypted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Tls {
    /// Not at all.
    Off,
    /// Against listeners.
    Encrypt,
    /// Against impostors too. `root`: a file of authorities to trust; without it the machine's.
    Verify { root: Option<String> },
}

/// A URL, taken apart.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) config: Config,
    pub(super) tls: Tls,
    pub(super) options: PostgresOptions,
}

impl Target {
    /// Takes a URL apart; what it says of our options counts.
    pub(super) fn of(url: &str, mut options: PostgresOptions) -> Result<Self, Error> {
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let (mut theirs, mut mode, mut root) = (Vec::new(), None, None);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match name {
                "schema" => options.schema = value.to_owned(),
                "create" => options.create = yes_or_no(name, value)?,
                "pool_size" => options.pool_size = number(name, value)? as usize,
                "connect_timeout" => options.connect_timeout = seconds(name, value)?,
                "statement_timeout" => options.statement_timeout = seconds(name, value)?,
                "sslmode" => mode = Some(value.to_owned()),
                "sslrootcert" => root = Some(value.to_owned()),
                _ => theirs.push(pair),
            }
        }
        let rest = if theirs.is_empty() {
            base.to_owned()
        } else {
            format!("{base}?{}", theirs.join("&"))
        };
        let mut config: Config = rest.parse().map_err(unreadable)?;
        if config
            .get_hosts()
            .iter()
            .any(|host| matches!(host, Host::Tcp(name) if name.contains('@')))
        {
            // The host is not shown: it begins with the end of a password.
            let about = "a host with @ in it; write an @ in a password as %40";
            return Err(Error::new(Code::InvalidOption).about(about));
        }
        // For each address of a host, so that a second one is tried as well within its time.
        config.connect_timeout(options.connect_timeout / 2);
        config.tcp_user_timeout(options.statement_timeout);
        config.keepalives_idle(Duration::from_secs(10));
        if config.get_application_name().is_none() {
            config.application_name("onward");
        }
        let tls = tls(mode.as_deref(), root)?;
        config.ssl_mode(if tls == Tls::Off { SslMode::Disable } else { SslMode::Require });
        check_schema(&options.schema)?;
        if options.pool_size == 0 {
            return Err(Error::new(Code::InvalidOption).about("pool_size is 0"));
        }
        Ok(Self { config, tls, options })
    }
}

/// The driver's reason names the option that it does not know or cannot read, and no value.
fn unreadable(error: tokio_postgres::Error) -> Error {
    let why = std::error::Error::source(&error).map(|why| format!(": {why}")).unwrap_or_default();
    Error::new(Code::InvalidOption).about(format!("the Postgres URL cannot be read{why}"))
}

fn tls(mode: Option<&str>, root: Option<String>) -> Result<Tls, Error> {
    match mode {
        None if root.is_some() => {
            let about = "sslrootcert without sslmode; write sslmode=verify-full beside it";
            Err(Error::new(Code::InvalidOption).about(about))
        }
        None | Some("disable") => Ok(Tls::Off),
        // As in libpq: with an authority at hand, `require` verifies by it.
        Some("require") if root.is_none() => Ok(Tls::Encrypt),
        Some("require" | "verify-full") => Ok(Tls::Verify { root }),
        Some(mode) => {
            let about = format!("sslmode={mode}; write disable, require or verify-full");
            Err(Error::new(Code::InvalidOption).about(about))
        }
    }
}

/// A schema's name is written into statements, so only plain names are taken.
fn check_schema(schema: &str) -> Result<(), Error> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let begins = schema.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
    let is_short = schema.len() <= SCHEMA_BYTES_MAX;
    if begins && schema.chars().all(plain) && is_short && !schema.starts_with("pg_") {
        return Ok(());
    }
    let about =
        format!("schema {schema:?}; write small letters, digits and _, at most {SCHEMA_BYTES_MAX}");
    Err(Error::new(Code::InvalidOption).about(about))
}

fn yes_or_no(name: &str, value: &str) -> Result<bool, Error> {
    value.parse().map_err(|_| {
        Error::new(Code::InvalidOption).about(format!("{name}={value}; write true or false"))
    })
}

fn number(name: &str, value: &str) -> Result<u32, Error> {
    value.parse().map_err(|error| {
        Error::new(Code::InvalidOption).about(format!("{name}={value}")).because(error)
    })
}

fn seconds(name: &str, value: &str) -> Result<Duration, Error> {
    match number(name, value)? {
        0 => Err(Error::new(Code::InvalidOption).about(format!("{name} is 0"))),
        seconds => Ok(Duration::from_secs(u64::from(seconds))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(url: &str) -> Result<Target, Error> {
        Target::of(url, PostgresOptions::default())
    }

    #[test]
    fn a_urls_options_are_ours_and_the_rest_is_the_drivers() {
        let url = "postgres://app@db/shop?schema=flows&pool_size=3&connect_timeout=2\
                   &statement_timeout=4&application_name=shop";
        let target = target(url).unwrap();
        let options = target.options;
        assert_eq!((options.schema.as_str(), options.pool_size), ("flows", 3));
        assert_eq!(options.connect_timeout, Duration::from_secs(2));
        assert_eq!(options.statement_timeout, Duration::from_secs(4));
        assert_eq!(target.config.get_application_name(), Some("shop"));
        assert_eq!(target.config.get_dbname(), Some("shop"));
        assert_eq!(target.tls, Tls::Off);
    }

    #[test]
    fn a_url_that_cannot_be_read_says_where_and_shows_no_password() {
        for (url, said) in [
            ("postgres://app:secret@db/shop?search_path=x", "unknown option `search_path`"),
            ("postgres://app:p@secret@db/shop", "%40"),
        ] {
            let error = target(url).unwrap_err();
            assert_eq!(error.code(), Code::InvalidOption);
            let text = format!("{error} {error:?}");
            assert!(text.contains(said) && !text.contains("secret"), "{text}");
        }
    }

    /// They are stated in docs/operations.md.
    #[test]
    fn defaults_are_those_on_the_page() {
        let page = include_str!("../../../../../docs/operations.md");
        let options = target("postgres://app@db/shop").unwrap().options;
        let seconds = |time: Duration| time.as_secs().to_string();
        for (name, value) in [
            ("pool_size", options.pool_size.to_string()),
            ("connect_timeout", seconds(options.connect_timeout)),
            ("statement_timeout", seconds(options.statement_timeout)),
        ] {
            assert!(page.contains(&format!("| `{name}` | {value} |")), "{name} is {value}");
        }
    }

    #[test]
    fn sslmode_says_how_a_connection_is_encrypted() {
        let tls = |query: &str| target(&format!("postgres://db/shop?{query}")).unwrap().tls;
        assert_eq!(tls("sslmode=disable"), Tls::Off);
        assert_eq!(tls("sslmode=require"), Tls::Encrypt);
        assert_eq!(tls("sslmode=verify-full"), Tls::Verify { root: None });
        let root = Some("/ca.pem".to_owned());
        assert_eq!(tls("sslmode=verify-full&sslrootcert=/ca.pem"), Tls::Verify { root });
        assert!(target("postgres://db/shop?sslmode=perhaps").is_err());
        // It would be in clear text though an authority was named.
        assert!(target("postgres://db/shop?sslrootcert=/ca.pem").is_err());
    }

    #[test]
    fn a_schema_that_is_no_plain_name_is_refused() {
        for schema in ["", "Onward", "a-b", "a;b", "1a", "pg_own", &"a".repeat(57)] {
            let options = PostgresOptions { schema: schema.to_owned(), ..Default::default() };
            assert!(Target::of("postgres://db/shop", options).is_err(), "{schema:?}");
        }
    }

    #[test]
    fn an_option_that_cannot_be_read_is_refused() {
        let bad = [
            "pool_size=many",
            "pool_size=0",
            "connect_timeout=0",
            "statement_timeout=-1",
            "create=no",
            "create=",
        ];
        for query in bad {
            let error = target(&format!("postgres://db/shop?{query}")).unwrap_err();
            assert_eq!(error.code(), Code::InvalidOption, "{query}");
        }
    }
}
