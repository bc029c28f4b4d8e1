//! The command line.

use std::path::PathBuf;

use crate::bench::Fallible;

const USAGE: &str = "usage: onward-bench sqlite [--json] [--only NAME]… [--quick] [--dir FOLDER]";

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
    /// Where the databases are made; the current folder unless set, since a folder for temporary
    /// files may be in memory.
    pub(crate) folder: PathBuf,
    only: Vec<String>,
}

impl Arguments {
    pub(crate) fn read(given: impl Iterator<Item = String>, names: &[&str]) -> Fallible<Self> {
        let mut given = given;
        if given.next().as_deref() != Some("sqlite") {
            return Err(USAGE.into());
        }
        let folder = std::env::current_dir()?;
        let mut read = Self { format: Format::Table, quick: false, folder, only: Vec::new() };
        while let Some(argument) = given.next() {
            match argument.as_str() {
                "--json" => read.format = Format::Json,
                "--quick" => read.quick = true,
                "--dir" => read.folder = given.next().ok_or(USAGE)?.into(),
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
