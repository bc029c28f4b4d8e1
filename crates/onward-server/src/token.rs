//! Bearer tokens: made once, kept as hashes in a file.
//!
//! Owns: the file's form, and the comparison. Never keeps a token itself, nor logs one.
//!
//! A line of the file is `NAME ROLE SHA256`; what follows a `#` is left out. The file is read again
//! when it changes, so a token is given and taken away without a restart.

use std::fmt;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use onward::Fingerprint;
use subtle::ConstantTimeEq;

use crate::limits::TOKENS_MAX;
use crate::options::{Caller, Role};

/// What every token begins with, so that a scanner of secrets knows one.
const PREFIX: &str = "onw_";

/// The tokens that a server takes.
///
/// ```
/// use onward_server::{NewToken, Role, Tokens};
///
/// let token = NewToken::make()?;
/// let tokens = Tokens::none().with("ada", Role::Operate, token.secret());
/// assert_eq!(tokens.caller(token.secret()).unwrap().who, "ada");
/// assert!(tokens.caller("onw_0000").is_none());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct Tokens {
    given: Vec<Entry>,
    file: Option<Arc<File>>,
}

#[derive(Clone)]
struct Entry {
    who: String,
    role: Role,
    hash: [u8; 32],
}

struct File {
    path: PathBuf,
    read: Mutex<(Option<SystemTime>, Vec<Entry>)>,
}

impl Tokens {
    /// No tokens: nobody gets in.
    pub fn none() -> Self {
        Self { given: Vec::new(), file: None }
    }

    /// The tokens whose hashes this file has.
    ///
    /// # Errors
    /// When the file cannot be read, or a line of it makes no sense.
    pub fn of_file(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        let read = read(&path)?;
        Ok(Self { given: Vec::new(), file: Some(Arc::new(File { path, read: Mutex::new(read) })) })
    }

    /// These tokens and one more.
    #[must_use]
    pub fn with(mut self, who: impl Into<String>, role: Role, secret: &str) -> Self {
        self.given.push(Entry { who: who.into(), role, hash: hash(secret) });
        self
    }

    /// Whose token this is. Every token is compared whole, so the time that it takes says nothing.
    pub fn caller(&self, secret: &str) -> Option<Caller> {
        let (hash, mut found) = (hash(secret), None);
        let of_file = self.file.as_ref().map(|file| file.entries()).unwrap_or_default();
        for entry in self.given.iter().chain(&of_file) {
            if bool::from(entry.hash.ct_eq(&hash)) {
                found = Some(Caller { who: entry.who.clone(), role: entry.role });
            }
        }
        found
    }
}

impl File {
    /// What the file says. After a change that cannot be read it lets nobody in: a token may have been
    /// taken away.
    fn entries(&self) -> Vec<Entry> {
        let mut known = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = fs::metadata(&self.path).and_then(|data| data.modified()).ok();
        if changed != known.0 {
            match read(&self.path) {
                Ok(fresh) => *known = fresh,
                Err(error) => {
                    tracing::error!(%error, "the token file cannot be read: it lets nobody in");
                    known.1.clear();
                }
            }
        }
        known.1.clone()
    }
}

fn read(path: &PathBuf) -> io::Result<(Option<SystemTime>, Vec<Entry>)> {
    let changed = fs::metadata(path)?.modified().ok();
    let text = fs::read_to_string(path)?;
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    let mut entries = Vec::new();
    for (number, line) in lines.enumerate().filter(|(_, line)| !line.is_empty()) {
        let entry = entry(line).ok_or_else(|| {
            let text = format!("{}:{}: not NAME ROLE SHA256", path.display(), number + 1);
            io::Error::new(io::ErrorKind::InvalidData, text)
        })?;
        entries.push(entry);
    }
    if entries.len() > TOKENS_MAX {
        let text = format!("{}: more than {TOKENS_MAX} tokens", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    Ok((changed, entries))
}

fn entry(line: &str) -> Option<Entry> {
    let mut words = line.split_whitespace();
    let (who, role, hex) = (words.next()?, Role::named(words.next()?)?, words.next()?);
    if words.next().is_some() || hex.len() != 64 || !hex.is_ascii() {
        return None;
    }
    let mut hash = [0; 32];
    for (at, byte) in hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(hex.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(Entry { who: who.to_owned(), role, hash })
}

fn hash(secret: &str) -> [u8; 32] {
    Fingerprint::of(secret.as_bytes()).0
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.given.iter().map(|entry| &entry.who).collect();
        f.debug_struct("Tokens").field("given", &names).finish_non_exhaustive()
    }
}

/// A token that was just made. It can be seen this once; only its hash is kept.
pub struct NewToken(String);

impl NewToken {
    /// A fresh token, of 256 random bits.
    ///
    /// # Errors
    /// When the system gives no random bits.
    pub fn make() -> io::Result<Self> {
        let mut bits = [0_u8; 32];
        getrandom::fill(&mut bits).map_err(io::Error::other)?;
        Ok(Self(bits.iter().fold(PREFIX.to_owned(), |text, byte| format!("{text}{byte:02x}"))))
    }

    /// The token.
    pub fn secret(&self) -> &str {
        &self.0
    }

    /// The line of a token file that lets it in.
    pub fn line(&self, who: &str, role: Role) -> String {
        format!("{who} {role} {}", Fingerprint::of(self.0.as_bytes()))
    }
}

impl fmt::Debug for NewToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NewToken")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_file_counts_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokens");
        let (one, two) = (NewToken::make().unwrap(), NewToken::make().unwrap());
        fs::write(&path, format!("# ours\n{} # ada's\n\n", one.line("ada", Role::Read))).unwrap();
        let tokens = Tokens::of_file(&path).unwrap();
        assert_eq!(tokens.caller(one.secret()).unwrap().role, Role::Read);
        assert!(tokens.caller(two.secret()).is_none());
        fs::write(&path, two.line("bob", Role::Admin)).unwrap();
        let later = SystemTime::now() + std::time::Duration::from_secs(5);
        fs::File::options().write(true).open(&path).unwrap().set_modified(later).unwrap();
        assert_eq!(tokens.caller(two.secret()).unwrap().who, "bob");
        assert!(tokens.caller(one.secret()).is_none(), "it was taken away");
    }

    #[test]
    fn a_line_that_makes_no_sense_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokens");
        for line in ["ada", "ada read", "ada king 00", "ada read 00ff", "ada read é"] {
            fs::write(&path, format!("\n{line}\n")).unwrap();
            let error = Tokens::of_file(&path).unwrap_err().to_string();
            assert!(error.contains("tokens:2:"), "{error}");
        }
    }

    #[test]
    fn a_token_is_not_shown() {
        let token = NewToken::make().unwrap();
        let tokens = Tokens::none().with("ada", Role::Read, token.secret());
        let shown = format!("{token:?} {tokens:?}");
        assert!(!shown.contains(token.secret()) && !shown.contains("onw_"), "{shown}");
        assert!(!token.line("ada", Role::Read).contains(token.secret()));
    }
}
