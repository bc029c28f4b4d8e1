//! The file of settings, `onward.toml`.
//!
//! Owns: what may stand in it, and where it is looked for. Never decides what counts before it.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::problem::Problem;

/// Where settings are looked for when no file is named.
const FILE: &str = "onward.toml";

/// What the file says.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Config {
    pub(crate) store: Option<String>,
    #[cfg_attr(not(feature = "server"), allow(dead_code, reason = "only a server asks"))]
    pub(crate) server: ServerConfig,
}

/// What it says about a server.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(not(feature = "server"), allow(dead_code, reason = "only a server asks"))]
pub(crate) struct ServerConfig {
    pub(crate) listen: Option<String>,
    pub(crate) token_file: Option<PathBuf>,
    pub(crate) hosts: Vec<String>,
    pub(crate) insecure: bool,
    pub(crate) read_only: bool,
    pub(crate) hide_payloads: bool,
    pub(crate) secure_cookie: bool,
    pub(crate) require_key: Vec<String>,
    pub(crate) stop_delay: Option<String>,
}

impl Config {
    /// What the file says that is named, or else the one of this folder, if it is there.
    pub(crate) fn read(named: Option<&Path>) -> Result<Self, Problem> {
        // An empty variable is one that is not set.
        let named = named.filter(|path| !path.as_os_str().is_empty());
        let path = named.unwrap_or(Path::new(FILE));
        if named.is_none() && !path.exists() {
            return Ok(Self::default());
        }
        let what = format!("cannot read {}", path.display());
        let text = std::fs::read_to_string(path).map_err(Problem::io(what))?;
        toml::from_str(&text).map_err(|error| {
            // Not the line itself, as the error has it: it may hold a password.
            let before = error.span().and_then(|span| text.get(..span.start));
            let line = before.map_or(1, |before| before.lines().count().max(1));
            let (path, message) = (path.display(), error.message());
            Problem::Usage(format!("{path}, line {line}: {message}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_cannot_be_read_is_named_and_not_shown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("onward.toml");
        std::fs::write(&path, "# mine\nstore = \"postgres://app:secret@db/app\n").unwrap();
        let said = format!("{:?}", Config::read(Some(&path)).unwrap_err());
        assert!(said.contains("line 2") && !said.contains("secret"), "{said}");
    }

    #[test]
    fn a_setting_that_is_not_known_is_refused() {
        assert!(toml::from_str::<Config>("[server]\nlisten = \"1\"\nhosts = [\"a\"]").is_ok());
        assert!(toml::from_str::<Config>("[server]\nlisen = \"1\"").is_err());
    }
}
