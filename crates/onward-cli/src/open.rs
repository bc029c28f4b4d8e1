//! Opening the store that `--store` names.
//!
//! Owns: that a command which only looks never leaves a new database behind.

use std::path::{Path, PathBuf};

use onward::Onward;

use crate::problem::Problem;

/// Opens a store that must exist.
pub(crate) async fn existing(url: &str) -> Result<Onward, Problem> {
    match sqlite_path(url) {
        Some(path) if !path.exists() => Err(Problem::NoDatabase(path)),
        None if is_postgres(url) => created(&format!("{url}{}create=false", joint(url))).await,
        _ => created(url).await,
    }
}

fn is_postgres(url: &str) -> bool {
    url.starts_with("postgres:") || url.starts_with("postgresql:")
}

/// What stands between a URL and one more parameter.
fn joint(url: &str) -> char {
    if url.contains('?') { '&' } else { '?' }
}

/// Opens a store, and creates its database if there is none.
pub(crate) async fn created(url: &str) -> Result<Onward, Problem> {
    Ok(Onward::open(url).await?)
}

/// As `created`, and says on stderr which file it made.
pub(crate) async fn created_aloud(url: &str) -> Result<Onward, Problem> {
    let missing = sqlite_path(url).filter(|path| !path.exists());
    let onward = created(url).await?;
    if let Some(path) = missing.filter(|path| path.exists()) {
        anstream::eprintln!("created {}", path.display());
    }
    Ok(onward)
}

/// The URL of the database at this path.
pub(crate) fn sqlite_url(path: &Path) -> String {
    format!("sqlite:{}", path.display())
}

fn sqlite_path(url: &str) -> Option<PathBuf> {
    let path = url.strip_prefix("sqlite:")?;
    let path = path.strip_prefix("//").unwrap_or(path);
    (!path.is_empty()).then(|| path.into())
}
