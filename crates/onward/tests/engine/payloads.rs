//! Payload codecs: nothing of a payload shows in the database, everything else does, and a run that
//! cannot be read is neither failed nor lost.

mod canary;
mod key_change;
mod page;
mod postgres;
mod tampered;
mod unreadable;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use onward::codec::{Coding, Compression, Encryption, KeyRing, SecretKey};
use onward::store::{CodedStore, Store};
use onward::{Ctx, Failure, Onward, Workflow};

/// A workflow of one step, which is given a text and gives one.
const ECHO: Workflow<String, String> = Workflow::named("echo");

async fn echo(ctx: Ctx, text: String) -> Result<String, Failure> {
    ctx.step("say", async |_| Ok::<_, Failure>(format!("{text}!"))).await
}

fn secret(byte: u8) -> SecretKey {
    SecretKey::new([byte; 32])
}

/// A ring whose keys are named by their bytes, the first of which is current.
fn ring(keys: &[u8]) -> KeyRing {
    let id = |byte: u8| format!("k{byte}");
    let first = KeyRing::new(id(keys[0]), &secret(keys[0]), secret(0)).unwrap();
    keys[1..].iter().fold(first, |ring, byte| ring.and(id(*byte), &secret(*byte)).unwrap())
}

fn coding(keys: &[u8]) -> Coding {
    let (compression, encryption) = (Compression::new(), Encryption::new(ring(keys)));
    Coding::new().and(Arc::new(compression)).and(Arc::new(encryption))
}

/// A client on a store that others share, with these keys.
fn client(store: &Arc<dyn Store>, keys: &[u8]) -> Onward {
    Onward::with_store(Arc::new(CodedStore::around(Arc::clone(store), coding(keys))))
}

/// A file in a folder of its own.
struct File {
    folder: tempfile::TempDir,
}

impl File {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("onward.db")
    }

    fn url(&self) -> String {
        format!("sqlite:{}", self.path().display())
    }

    fn sql(&self) -> onward::rusqlite::Connection {
        onward::rusqlite::Connection::open(self.path()).unwrap()
    }

    /// Every byte of the database, its log included.
    fn bytes(&self) -> Vec<u8> {
        let files = std::fs::read_dir(self.folder.path()).unwrap();
        let files = files.map(|file| file.unwrap().path()).filter(|path| path.is_file());
        files.flat_map(|path| read(&path)).collect()
    }
}

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap()
}

fn holds(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

/// The deadline is only there so that a fault does not hang the suite.
async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while !holds().await {
        assert!(tokio::time::Instant::now() < deadline, "{what}: it never came to hold");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
