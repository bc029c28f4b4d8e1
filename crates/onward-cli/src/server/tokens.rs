//! `onward tokens`: who gets into a server.
//!
//! Owns: the file of hashes, as far as it is written. Never keeps a token, nor prints one twice.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use onward_server::{NewToken, Role, Tokens};
use serde::Serialize;

use crate::args::Global;
use crate::output;
use crate::problem::{Exit, Problem, print_note};
use crate::table::Table;
use crate::text;

/// Gives tokens for a server, lists them and takes them away
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum TokensCommand {
    /// Makes a token, prints it this once, and adds its hash to a file
    #[command(after_help = "\
Example:
  onward tokens create ada --role operate --file tokens
  onward serve --listen 0.0.0.0:7171 --host app.example.com --token-file tokens")]
    Create {
        /// Whose it is, as the audit names them
        name: String,
        /// What they may do
        #[arg(long, value_enum)]
        role: TokenRole,
        #[command(flatten)]
        at: At,
    },
    /// Lists whose tokens a file takes, and what each may do
    #[command(after_help = "Example:\n  onward tokens list --file tokens")]
    List {
        #[command(flatten)]
        at: At,
    },
    /// Takes every token of these names away; a server that is up notices by itself
    #[command(after_help = "Example:\n  onward tokens revoke ada --file tokens")]
    Revoke {
        /// Whose tokens
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
        #[command(flatten)]
        at: At,
    },
}

/// Where the hashes are.
#[derive(Clone, Debug, Args)]
pub(crate) struct At {
    /// The file of token hashes
    #[arg(long, env = "ONWARD_TOKEN_FILE", value_name = "FILE")]
    file: PathBuf,
}

/// A token as it is listed: never the token, nor its hash.
#[derive(Serialize)]
struct Listed {
    name: String,
    role: String,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum TokenRole {
    /// Look
    Read,
    /// Start runs and steer them
    Operate,
    /// Delete, release keys, change limits, see the audit
    Admin,
}

impl TokensCommand {
    pub(crate) fn execute(self, global: &Global) -> Result<Exit, Problem> {
        match self {
            TokensCommand::Create { name, role, at } => create(&name, role, &at.file)?,
            TokensCommand::List { at } => {
                let rows: Vec<_> = read(&at.file)?.lines().filter_map(listed).collect();
                output::print_rows(global.output, &rows, table, |row| row.name.clone())?;
            }
            TokensCommand::Revoke { names, at } => revoke(&names, &at.file)?,
        }
        Ok(Exit::Ok)
    }
}

fn create(name: &str, role: TokenRole, file: &Path) -> Result<(), Problem> {
    if name.is_empty() || name.contains(|c: char| c.is_whitespace() || c == '#') {
        return Err(Problem::Usage("a name has no spaces and no #".to_owned()));
    }
    // A file that the server would refuse is not made longer.
    let text = if file.exists() { read(file)? } else { String::new() };
    let there: Vec<_> = text.lines().filter_map(listed).filter(|it| it.name == name).collect();
    let token = NewToken::make().map_err(Problem::io("cannot make a token"))?;
    append(file, &token.line(name, role.into()))?;
    writeln!(std::io::stdout(), "{}", token.secret())?;
    eprintln!("its hash is in {}; the token itself is shown only here", file.display());
    if !there.is_empty() {
        let roles: Vec<_> = there.iter().map(|it| it.role.as_str()).collect();
        let had =
            format!("{} before ({})", text::count(there.len() as u64, "token"), roles.join(", "));
        print_note(&format!(
            "{name} had {had}, and each of them goes on. 'onward tokens revoke {name}' takes all of \
             them away, this one too"
        ));
    }
    Ok(())
}

/// The file's text, if a server would take it.
fn read(file: &Path) -> Result<String, Problem> {
    let what = || Problem::io(format!("cannot read {}", file.display()));
    Tokens::of_file(file).map_err(what())?;
    fs::read_to_string(file).map_err(what())
}

/// Whose token a line is, if it is one.
fn listed(line: &str) -> Option<Listed> {
    let mut words = line.split('#').next()?.split_whitespace();
    Some(Listed { name: words.next()?.to_owned(), role: words.next()?.to_owned() })
}

fn table(rows: &[Listed]) -> Table<2> {
    let mut table = Table::new(["NAME", "ROLE"]);
    for row in rows {
        table.row([text::line(&row.name).into(), row.role.as_str().into()]);
    }
    table
}

fn revoke(names: &[String], file: &Path) -> Result<(), Problem> {
    let text = read(file)?;
    let is_of = |line: &str, name: &str| listed(line).is_some_and(|it| it.name == name);
    for name in names {
        if !text.lines().any(|line| is_of(line, name)) {
            let whose = "Whose there are: onward tokens list";
            let at = file.display();
            return Err(Problem::NotThere(format!("{at} has no token of {name:?}. {whose}")));
        }
    }
    let stays = |line: &&str| !names.iter().any(|name| is_of(line, name));
    let left: String = text.lines().filter(stays).map(|line| format!("{line}\n")).collect();
    replace(file, &left)?;
    eprintln!("revoked: {}", names.join(", "));
    Ok(())
}

/// Replaces a file at once, so that a server never reads half of it.
fn replace(file: &Path, text: &str) -> Result<(), Problem> {
    let what = || Problem::io(format!("cannot write {}", file.display()));
    let beside = file.with_added_extension("new");
    // What an interrupted one left behind would be appended to.
    drop(fs::remove_file(&beside));
    append(&beside, text.trim_end_matches('\n'))?;
    keep_access(file, &beside).map_err(what())?;
    fs::rename(&beside, file).map_err(what())
}

/// Lets those read the new file who could read the old one: a server of another user must see at once
/// what was taken away.
#[cfg(unix)]
fn keep_access(old: &Path, new: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::MetadataExt;
    let of = fs::metadata(old)?;
    let is = fs::metadata(new)?;
    if (of.uid(), of.gid()) != (is.uid(), is.gid()) {
        std::os::unix::fs::chown(new, Some(of.uid()), Some(of.gid()))?;
    }
    fs::set_permissions(new, of.permissions())
}

#[cfg(not(unix))]
fn keep_access(_: &Path, _: &Path) -> std::io::Result<()> {
    Ok(())
}

fn append(file: &Path, line: &str) -> Result<(), Problem> {
    let what = || Problem::io(format!("cannot write {}", file.display()));
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut open = options.open(file).map_err(what())?;
    writeln!(open, "{line}").map_err(what())?;
    open.sync_all().map_err(what())
}

impl From<TokenRole> for Role {
    fn from(role: TokenRole) -> Self {
        match role {
            TokenRole::Read => Role::Read,
            TokenRole::Operate => Role::Operate,
            TokenRole::Admin => Role::Admin,
        }
    }
}
