//! The name of the build that this process executes.
//!
//! Owns: how an executable is told from another: by what is in it, so that the same file is the same build
//! on every machine. Never looks at when or where the file was written.

use std::fs::File;
use std::hash::{DefaultHasher, Hasher};
use std::io::Read;
use std::path::Path;
use std::sync::OnceLock;

use tokio::task::spawn_blocking;

/// Bytes at the beginning of an executable among which its linker's note is.
const HEAD_BYTES: u64 = 4096;

/// Bytes that are read at once where there is no note.
const CHUNK_BYTES: usize = 1 << 20;

/// What a note with a hash of the executable looks like behind the length of that hash: its kind, and
/// whose note it is.
const NOTE: [u8; 8] = *b"\x03\0\0\0GNU\0";

/// A name derived from the executable, once in a process.
pub(super) async fn of_executable() -> &'static str {
    static BUILD: OnceLock<String> = OnceLock::new();
    if let Some(build) = BUILD.get() {
        return build;
    }
    // Off the runtime: to read a large executable without a note takes a quarter of a second.
    let named = spawn_blocking(|| {
        let named = std::env::current_exe().and_then(|path| name(&path));
        named.unwrap_or_else(|_| "unknown".to_owned())
    });
    let named = named.await.unwrap_or_else(|_| "unknown".to_owned());
    BUILD.get_or_init(|| named)
}

/// A name for what is in a file. Linkers on Linux leave a hash of all that they wrote at its beginning;
/// without one, the file is hashed here.
fn name(path: &Path) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let mut head = Vec::new();
    Read::by_ref(&mut file).take(HEAD_BYTES).read_to_end(&mut head)?;
    let mut hasher = DefaultHasher::new();
    if let Some(hash) = linkers_hash(&head) {
        hasher.write(hash);
    } else {
        hasher.write(&head);
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            match file.read(&mut chunk)? {
                0 => break,
                read => hasher.write(&chunk[..read]),
            }
        }
    }
    Ok(format!("{:016x}", hasher.finish()))
}

/// The hash in a linker's note: behind its length, the kind and the owner of the note.
fn linkers_hash(head: &[u8]) -> Option<&[u8]> {
    let at = head.windows(NOTE.len()).position(|bytes| bytes == NOTE)?;
    let length = head[..at].last_chunk().copied().map(u32::from_le_bytes)?;
    let hash = head[at + NOTE.len()..].get(..usize::try_from(length).ok()?)?;
    (!hash.is_empty()).then_some(hash)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::time::{Duration, SystemTime};

    use super::*;

    fn file(content: &[u8]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(content).unwrap();
        file
    }

    fn name_of(content: &[u8]) -> String {
        name(file(content).path()).unwrap()
    }

    /// Two megabytes that start as an executable does whose linker left this hash, if any.
    fn executable(hash: &[u8], rest: u8) -> Vec<u8> {
        let mut content = b"\x7fELF".to_vec();
        content.resize(800, 0);
        if !hash.is_empty() {
            content.extend([4, 0, 0, 0, u8::try_from(hash.len()).unwrap(), 0, 0, 0]);
            content.extend(NOTE);
            content.extend(hash);
        }
        content.resize(2 << 20, rest);
        content
    }

    #[test]
    fn the_same_file_is_the_same_build_whenever_it_was_written() {
        for content in [executable(b"", 1), executable(b"0123456789", 1)] {
            let (one, other) = (file(&content), file(&content));
            let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
            other.as_file().set_modified(long_ago).unwrap();
            assert_eq!(name(one.path()).unwrap(), name(other.path()).unwrap());
        }
    }

    #[test]
    fn a_byte_makes_another_build() {
        let content = executable(b"", 1);
        for place in [0, 5_000, 1_000_001, content.len() - 1] {
            let mut other = content.clone();
            other[place] ^= 1;
            assert_ne!(name_of(&content), name_of(&other), "byte {place}");
        }
        assert_ne!(name_of(&content), name_of(&content[1..]));
    }

    #[test]
    fn what_the_linker_hashed_is_not_read_again() {
        let content = executable(b"0123456789", 1);
        assert_eq!(linkers_hash(&content[..4096]), Some(b"0123456789".as_slice()));
        // A program that was stripped of its symbols is the same code.
        assert_eq!(name_of(&content), name_of(&content[..content.len() / 2]));
        assert_ne!(name_of(&content), name_of(&executable(b"0123456780", 1)));
    }

    #[test]
    fn a_note_that_is_cut_off_is_none() {
        let mut content = executable(b"0123456789", 1);
        content.truncate(820);
        assert_eq!(linkers_hash(&content), None);
        assert_eq!(linkers_hash(&NOTE), None);
        assert_eq!(linkers_hash(b""), None);
    }
}
