//! `onward completions` and `onward man`: what a shell and a manual need to know of the commands.
//!
//! Owns: where these go. What they say is made from the flags themselves.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, Command};
use clap_complete::Shell;

use crate::output;
use crate::problem::{Exit, Problem};

/// Prints a script that completes commands and flags in a shell
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  onward completions bash > ~/.local/share/bash-completion/completions/onward
  onward completions zsh > ~/.zfunc/_onward
  onward completions fish > ~/.config/fish/completions/onward.fish")]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the manual page, or writes one for each command into a folder
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  onward man | man -l -
  onward man ~/.local/share/man/man1")]
pub(crate) struct ManArgs {
    /// The folder; created if it is not there
    dir: Option<PathBuf>,
}

impl CompletionsArgs {
    pub(crate) fn execute(self, mut command: Command) -> Result<Exit, Problem> {
        // Made in memory: the generator ends the process where it cannot write.
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut command, "onward", &mut script);
        output::stdout().write_all(&script)?;
        Ok(Exit::Ok)
    }
}

impl ManArgs {
    pub(crate) fn execute(self, command: Command) -> Result<Exit, Problem> {
        let Some(dir) = self.dir else {
            let mut page = Vec::new();
            clap_mangen::Man::new(command).render(&mut page)?;
            output::stdout().write_all(&page)?;
            return Ok(Exit::Ok);
        };
        let what = || Problem::io(format!("cannot write manual pages into {}", dir.display()));
        std::fs::create_dir_all(&dir).map_err(what())?;
        clap_mangen::generate_to(command, &dir).map_err(what())?;
        anstream::eprintln!("wrote manual pages into {}", dir.display());
        Ok(Exit::Ok)
    }
}
