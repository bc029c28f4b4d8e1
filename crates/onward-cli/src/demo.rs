//! `onward demo`: the demo of the package `onward-demo`.
//!
//! Owns: what the flags of every command mean for it.

use std::path::{Path, PathBuf};

use clap::{Arg, Args};
use onward_demo::Form;

use crate::args::Global;
use crate::output::Format;
use crate::problem::{Exit, Problem};

#[derive(Clone, Debug, Args)]
#[command(about = onward_demo::ABOUT, after_help = onward_demo::AFTER_HELP)]
// Takes the place of the flag of every command, which the demo refuses and should not show.
#[command(arg = Arg::new("store").long("store").value_name("URL").hide(true))]
pub(crate) struct DemoCommand {
    #[command(flatten)]
    demo: onward_demo::DemoArgs,
}

impl DemoCommand {
    pub(crate) async fn execute(self, global: &Global) -> Result<Exit, Problem> {
        let form = match global.output {
            Format::Table => Form::Table,
            Format::Json => Form::Json,
            Format::Ids => {
                return Err(Problem::Usage("the demo prints counts, not ids".to_owned()));
            }
        };
        if global.store_is_typed {
            let why = "the demo has a store of its own; choose where it is kept with --keep DIR";
            return Err(Problem::Usage(why.to_owned()));
        }
        let findings = self.demo.execute(form, &program()).await?;
        Ok(if findings.is_clean() { Exit::Ok } else { Exit::No })
    }
}

/// This program, as it can be typed.
fn program() -> String {
    let typed = std::env::args_os().next().map(PathBuf::from);
    onward_demo::quoted(typed.as_deref().unwrap_or(Path::new("onward")))
}
