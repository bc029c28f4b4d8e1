//! The command line.
//!
//! Owns: its forms, and where a store is when none is named. Never measures.

use std::path::PathBuf;

use crate::bench::Fallible;
use crate::place::Kind;

const USAGE: &str = "usage: onward-bench sqlite [--dir FOLDER] [OPTION]…
       onward-bench postgres [URL] [OPTION]…
options: [--json] [--only NAME]… [--quick] [--finished COUNT]";

/// Where the server's URL is when the command line has none.
const URL_VARIABLES: [&str; 2] = ["ONWARD_BENCH_POSTGRES", "ONWARD_TEST_POSTGRES"];

const NO_URL: &str = "no Postgres is named: give its URL, or set ONWARD_BENCH_POSTGRES to it, or \
                      let `scripts/postgres cargo run --release -p onward-bench -- postgres` start \
                      a temporary one";

/// How figures are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// A line for people each.
    Table,
    /// An object each.
    Json,
}

/// What the caller asked for.
#[derive(Debug)]
pub(crate) struct Arguments {
    pub(crate) kind: Kind,
    pub(crate) format: Format,
    pub(crate) quick: bool,
    /// Finished runs that each measure finds in its store.
    pub(crate) finished: usize,
    only: Vec<String>,
}

impl Arguments {
    pub(crate) fn read(given: impl Iterator<Item = String>) -> Fallible<Self> {
        let mut given = given.peekable();
        let kind = match given.next().as_deref() {
            // A folder for temporary files may be in memory.
            Some("sqlite") => Kind::Sqlite { folder: std::env::current_dir()? },
            Some("postgres") => {
                let url = given.next_if(|argument| !argument.starts_with("--"));
                Kind::Postgres { url: url.or_else(url_of_environment).ok_or(NO_URL)? }
            }
            _ => return Err(USAGE.into()),
        };
        let mut read =
            Self { kind, format: Format::Table, quick: false, finished: 0, only: Vec::new() };
        while let Some(argument) = given.next() {
            match (argument.as_str(), &mut read.kind) {
                ("--json", _) => read.format = Format::Json,
                ("--quick", _) => read.quick = true,
                ("--dir", Kind::Sqlite { folder }) => {
                    *folder = PathBuf::from(given.next().ok_or(USAGE)?);
                }
                ("--finished", _) => read.finished = given.next().ok_or(USAGE)?.parse()?,
                ("--only", _) => read.only.push(given.next().ok_or(USAGE)?),
                _ => return Err(USAGE.into()),
            }
        }
        Ok(read)
    }

    /// Those of the measures that the caller wants, in their order.
    pub(crate) fn wanted(&self, mut names: Vec<String>) -> Fallible<Vec<String>> {
        if let Some(name) = self.only.iter().find(|only| !names.contains(only)) {
            return Err(format!("no measure {name:?}; there are {names:?}").into());
        }
        names.retain(|name| self.only.is_empty() || self.only.contains(name));
        Ok(names)
    }
}

fn url_of_environment() -> Option<String> {
    let set = URL_VARIABLES.iter().find_map(|name| std::env::var(name).ok());
    set.filter(|url| !url.is_empty())
}
