//! Opening the store that `--store` names.
//!
//! Owns: that a command which only looks never leaves a new database behind.

use std::path::{Path, PathBuf};

use onward::{Code, Onward};

use crate::payloads;
use crate::problem::Problem;

/// Opens a store that must exist.
pub(crate) async fn existing(url: &str) -> Result<Onward, Problem> {
    existing_at(url, "--store sqlite:PATH or ONWARD_STORE").await
}

/// As `existing`, for a store that is named in this way.
pub(crate) async fn existing_at(url: &str, named_by: &'static str) -> Result<Onward, Problem> {
    match sqlite_path(url) {
        Some(path) if !path.exists() => Err(Problem::NoDatabase { path, named_by }),
        Some(path) if is_anothers(&path) => Err(Problem::Usage(format!(
            "{} holds tables, and none of Onward's. Name its file with --store; a worker of yours, or \
             onward serve, makes them where they are to be",
            path.display()
        ))),
        None if is_postgres(url) => created(&format!("{url}{}create=false", joint(url))).await,
        _ => created(url).await,
    }
}

/// Whether a file is a database of somebody else, in which a look must not make tables.
fn is_anothers(path: &Path) -> bool {
    use onward::rusqlite::{Connection, OpenFlags};
    let look = || {
        let file = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        let sql =
            "select count(*), count(*) filter (where name like 'onward_%') from sqlite_master";
        file.query_row(sql, [], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)))
    };
    // What cannot be looked at so is told by whoever opens it.
    look().is_ok_and(|(all, ours)| all > 0 && ours == 0)
}

/// Opens a store or, where there is no database or no schema of one, an empty one in its place.
pub(crate) async fn existing_or_empty(url: &str) -> Result<Onward, Problem> {
    match sqlite_path(url) {
        Some(path) if !path.exists() => return created("memory:").await,
        _ => {}
    }
    match existing(url).await {
        Err(Problem::Library(error)) if error.code() == Code::SchemaMissing => {
            created("memory:").await
        }
        opened => opened,
    }
}

/// Whether two URLs lead to one store, as far as that can be told from them.
pub(crate) fn is_same(one: &str, two: &str) -> bool {
    let place = |url| sqlite_path(url).and_then(|path| path.canonicalize().ok());
    one == two || place(one).is_some_and(|one| Some(one) == place(two))
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
    Ok(payloads::coded(Onward::open(url))?.await?)
}

/// As `created`, and says on stderr which file or schema it made.
pub(crate) async fn created_aloud(url: &str) -> Result<Onward, Problem> {
    if is_postgres(url) {
        return schema_created_aloud(url).await;
    }
    let missing = sqlite_path(url).filter(|path| !path.exists());
    let onward = created(url).await?;
    if let Some(path) = missing.filter(|path| path.exists()) {
        anstream::eprintln!("created {}", path.display());
    }
    Ok(onward)
}

async fn schema_created_aloud(url: &str) -> Result<Onward, Problem> {
    match existing(url).await {
        Err(Problem::Library(error)) if error.code() == Code::SchemaMissing => {
            let onward = created(url).await?;
            anstream::eprintln!("created the tables of a store: {}", shown(url));
            Ok(onward)
        }
        Err(Problem::Library(error)) if error.code() == Code::SchemaTooOld => created(url).await,
        opened => opened,
    }
}

/// A URL that was opened as it may be shown: of one that may hold a password only the kind, the host, the
/// database and the schema.
pub(crate) fn shown(url: &str) -> String {
    let (kind, rest) = url.split_once(':').unwrap_or((url, ""));
    if !is_postgres(url) {
        return if sqlite_path(url).is_some() { url.to_owned() } else { kind.to_owned() };
    }
    let (address, options) = rest.split_once('?').unwrap_or((rest, ""));
    let place = address.trim_start_matches('/');
    let place = place.rsplit('@').next().unwrap_or(place);
    let schema = options.split('&').find_map(|option| option.strip_prefix("schema="));
    format!("{kind} at {place}, schema {}", schema.unwrap_or("onward"))
}

fn sqlite_path(url: &str) -> Option<PathBuf> {
    let path = url.strip_prefix("sqlite:")?;
    let path = path.strip_prefix("//").unwrap_or(path);
    (!path.is_empty()).then(|| path.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_its_user_and_password() {
        for (url, said) in [
            ("sqlite:data/onward.db", "sqlite:data/onward.db"),
            ("memory:", "memory"),
            ("postgres://app:pa55@db:5432/shop", "postgres at db:5432/shop, schema onward"),
            (
                "postgresql://db/shop?pool_size=4&schema=flows",
                "postgresql at db/shop, schema flows",
            ),
            ("postgres://app@a,b/shop?password=pa55", "postgres at a,b/shop, schema onward"),
            ("redis://:pa55@cache", "redis"),
        ] {
            assert_eq!(shown(url), said);
        }
    }
}
