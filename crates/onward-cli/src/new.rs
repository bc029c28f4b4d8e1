//! `onward new`: a project to begin with.
//!
//! Owns: the embedded files, and that nothing of yours is overwritten.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::problem::{Exit, Problem};

/// The files of a project, each with its place in it.
const FILES: [(&str, &str); 5] = [
    ("Cargo.toml", include_str!("../templates/new/Cargo.toml.in")),
    ("src/main.rs", include_str!("../templates/new/main.rs")),
    ("src/order.rs", include_str!("../templates/new/order.rs")),
    ("README.md", include_str!("../templates/new/README.md")),
    (".gitignore", "/target\n/onward.db*\n"),
];

/// Where the library was when this command was built: beside it, in a clone of its repository.
const LIBRARY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../onward");

/// The longest name of a project, as registries have it.
const NAME_BYTES_MAX: usize = 64;

/// Makes a project that compiles: a workflow with its test, a worker, and a start
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  onward new shop && cd shop && cargo run
  onward new shop --path ../onward/crates/onward")]
pub(crate) struct NewArgs {
    /// The folder; it must be empty, or not be there
    dir: PathBuf,
    /// The project's name; the folder's when left out
    #[arg(long)]
    name: Option<String>,
    /// Where the library is, which no registry has yet: crates/onward in a clone of its repository. When
    /// left out, the clone that this command was built in
    #[arg(long, value_name = "DIR")]
    path: Option<PathBuf>,
}

impl NewArgs {
    pub(crate) fn execute(self) -> Result<Exit, Problem> {
        let name = self.name()?;
        let library = self.library()?;
        check_empty(&self.dir)?;
        for (place, text) in FILES {
            let text = text.replace("{{name}}", &name).replace("{{onward}}", &library);
            write(&self.dir.join(place), &text)?;
        }
        anstream::eprintln!("made {}. Next: cd {0} && cargo run", self.dir.display());
        Ok(Exit::Ok)
    }

    /// The project's name, as cargo takes one.
    fn name(&self) -> Result<String, Problem> {
        let of_folder = || self.dir.file_name().map(|name| name.to_string_lossy().into_owned());
        let name = self.name.clone().or_else(of_folder).unwrap_or_default();
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let begins = name.starts_with(|c: char| c.is_ascii_alphabetic());
        if begins && name.chars().all(fits) && name.len() <= NAME_BYTES_MAX {
            return Ok(name);
        }
        Err(Problem::Usage(format!(
            "{name:?} is no name of a project: letters, digits, - and _, with a letter first. Say \
             another with --name"
        )))
    }

    /// What stands for the library in `Cargo.toml`, between braces.
    fn library(&self) -> Result<String, Problem> {
        let given = self.path.clone().unwrap_or_else(|| PathBuf::from(LIBRARY));
        if self.path.is_none() && !given.join("Cargo.toml").exists() {
            let why = "the clone that this command was built in is gone: say where the library is, with \
                       --path DIR";
            return Err(Problem::Usage(why.to_owned()));
        }
        let what = format!("cannot find the library at {}", given.display());
        let path = given.canonicalize().map_err(Problem::io(what))?;
        let within = path.join("crates/onward");
        let path = if within.join("Cargo.toml").exists() { within } else { path };
        let manifest = fs::read_to_string(path.join("Cargo.toml")).unwrap_or_default();
        if !manifest.lines().any(|line| line.trim() == "name = \"onward\"") {
            let why =
                format!("{} is not the library: it is crates/onward in a clone", path.display());
            return Err(Problem::Usage(why));
        }
        let text = path.to_string_lossy().replace('\\', "\\\\").replace('"', "\\\"");
        Ok(format!("path = \"{text}\""))
    }
}

/// Refuses a folder that holds anything.
fn check_empty(dir: &Path) -> Result<(), Problem> {
    match fs::read_dir(dir).map(|mut entries| entries.next().is_none()) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Problem::Usage(format!(
            "{} is not empty, and nothing in it is overwritten; name another folder",
            dir.display()
        ))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Problem::Io(format!("cannot look into {}", dir.display()), error)),
    }
}

fn write(path: &Path, text: &str) -> Result<(), Problem> {
    let what = || Problem::io(format!("cannot write {}", path.display()));
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(what())?;
    }
    fs::write(path, text).map_err(what())
}
