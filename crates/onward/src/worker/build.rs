//! The name of the build that this process executes.
//!
//! Owns: how an executable is told from another. Never reads all of it.

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{Read, Seek, SeekFrom};
use std::sync::OnceLock;

/// Places in the executable that are looked at, and bytes at each: a rebuild moves code around,
/// so a sample finds it without reading a hundred megabytes at each start.
const SAMPLES: u64 = 64;
const SAMPLE_BYTES: usize = 4096;

/// A name derived from the executable: its length, its time, and samples of its content. Two
/// builds that are told apart needlessly cost nothing but a milder check on replay.
pub(super) fn of_executable() -> &'static str {
    static BUILD: OnceLock<String> = OnceLock::new();
    BUILD.get_or_init(|| match hash_executable() {
        Ok(hash) => format!("{hash:016x}"),
        Err(_) => "unknown".to_owned(),
    })
}

fn hash_executable() -> std::io::Result<u64> {
    let mut file = File::open(std::env::current_exe()?)?;
    let meta = file.metadata()?;
    let mut hasher = DefaultHasher::new();
    meta.len().hash(&mut hasher);
    meta.modified()?.hash(&mut hasher);
    let mut sample = [0; SAMPLE_BYTES];
    for place in 0..SAMPLES {
        file.seek(SeekFrom::Start(meta.len() / SAMPLES * place))?;
        let read = file.read(&mut sample)?;
        sample[..read].hash(&mut hasher);
    }
    Ok(hasher.finish())
}
