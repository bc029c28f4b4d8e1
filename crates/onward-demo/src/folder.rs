//! Where the demo keeps its database and logs.

use std::path::{Path, PathBuf};

use crate::{Error, now_millis};

#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn create(keep: Option<PathBuf>) -> Result<Self, Error> {
        let (path, created) = match keep {
            Some(path) if path.exists() => {
                let why = format!("{} exists already; name a new folder", path.display());
                return Err(Error::Usage(why));
            }
            Some(path) => {
                let parents = path.parent().map_or(Ok(()), std::fs::create_dir_all);
                (path.clone(), parents.and_then(|()| std::fs::create_dir(path)))
            }
            None => {
                // Not created if it exists, so that nobody can prepare the folder beforehand.
                let path = std::env::temp_dir().join(format!("onward-demo-{}", now_millis()));
                (path.clone(), std::fs::create_dir(path))
            }
        };
        created.map_err(Error::io(format!("cannot create {}", path.display())))?;
        // Printed in commands that are typed in other folders.
        Ok(Self(path.canonicalize().unwrap_or(path)))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.0.join("onward.db")
    }

    pub(crate) fn store_url(&self) -> String {
        store_url(&self.database())
    }

    /// Removes the folder; what cannot be removed is left to the system's temporary files.
    pub(crate) fn remove(&self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A path as it can be pasted into a shell.
#[must_use]
pub fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-:".contains(c);
    if text.chars().all(is_plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

/// The URL of the database at this path.
pub(crate) fn store_url(path: &Path) -> String {
    format!("sqlite:{}", path.display())
}
