//! `onward tokens`: who gets into a server.
//!
//! Owns: the file of hashes. Never writes a token into it.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};
use onward_server::{NewToken, Role, Tokens};

use crate::problem::{Exit, Problem};

/// Gives tokens for a server
#[derive(Debug, Subcommand)]
pub(crate) enum TokensCommand {
    /// Makes a token, prints it this once, and adds its hash to a file
    #[command(after_help = "\
Example:
  onward tokens create ada --role operate --file tokens
  onward serve --listen 0.0.0.0:7171 --token-file tokens

To take a token away, delete its line; the server notices by itself.")]
    Create {
        /// Whose it is, as the audit names them
        name: String,
        /// What they may do
        #[arg(long, value_enum)]
        role: TokenRole,
        /// The file of token hashes
        #[arg(long, env = "ONWARD_TOKEN_FILE", value_name = "FILE")]
        file: PathBuf,
    },
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
    pub(crate) async fn execute(self) -> Result<Exit, Problem> {
        let TokensCommand::Create { name, role, file } = self;
        if name.is_empty() || name.contains(|c: char| c.is_whitespace() || c == '#') {
            return Err(Problem::Usage("a name has no spaces and no #".to_owned()));
        }
        if file.exists() {
            // A file that the server would refuse is not made longer.
            let what = format!("cannot read {}", file.display());
            Tokens::of_file(&file).map_err(Problem::io(what))?;
        }
        let token = NewToken::make().map_err(Problem::io("cannot make a token"))?;
        append(&file, &token.line(&name, role.into()))?;
        writeln!(std::io::stdout(), "{}", token.secret())?;
        eprintln!("its hash is in {}; the token itself is shown only here", file.display());
        Ok(Exit::Ok)
    }
}

fn append(file: &PathBuf, line: &str) -> Result<(), Problem> {
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
