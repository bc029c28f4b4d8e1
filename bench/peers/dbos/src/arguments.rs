//! The command line.
//!
//! Owns: what the caller may ask for, and its defaults.

use crate::bench::Fallible;

const USAGE: &str =
    "usage: onward-bench-dbos URL [--json] [--only NAME]… [--quick] [--connections COUNT]";

/// The size of the pool that dbos has unless told otherwise.
const CONNECTIONS: u32 = 10;

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
    pub(crate) format: Format,
    pub(crate) quick: bool,
    /// The database in which everything is measured.
    pub(crate) url: String,
    /// The size of the peer's pool.
    pub(crate) connections: u32,
    only: Vec<String>,
}

impl Arguments {
    pub(crate) fn read(given: impl Iterator<Item = String>, names: &[&str]) -> Fallible<Self> {
        let mut given = given;
        let url = given.next().filter(|url| url.starts_with("postgres")).ok_or(USAGE)?;
        let (format, only) = (Format::Table, Vec::new());
        let mut read = Self { format, quick: false, url, connections: CONNECTIONS, only };
        while let Some(argument) = given.next() {
            match argument.as_str() {
                "--json" => read.format = Format::Json,
                "--quick" => read.quick = true,
                "--connections" => read.connections = given.next().ok_or(USAGE)?.parse()?,
                "--only" => {
                    let name = given.next().ok_or(USAGE)?;
                    if !names.contains(&name.as_str()) {
                        return Err(format!("no measure {name:?}; there are {names:?}").into());
                    }
                    read.only.push(name);
                }
                _ => return Err(USAGE.into()),
            }
        }
        Ok(read)
    }

    pub(crate) fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }
}
