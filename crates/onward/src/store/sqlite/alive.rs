//! Who is alive on this machine: a locked file per worker.
//!
//! Owns: the folder beside the database in which each worker of this machine has a file that its
//! process keeps locked. The system lets go of the lock when the process dies, however it dies,
//! so a file whose lock can be taken belongs to a dead worker. Never the fence: a missing file
//! says nothing, and only the mark `lost_at` takes a lease away.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::WorkerId;

/// How often a worker's file is locked anew if somebody else has it at that moment.
const SHOW_TRIES: usize = 5;

/// The pause between: a look at a lock takes microseconds.
const SHOW_PAUSE: Duration = Duration::from_millis(1);

/// The lock files of a store.
#[derive(Debug)]
pub(super) struct Alive {
    folder: PathBuf,
    /// The files that this store keeps locked.
    held: Mutex<HashMap<WorkerId, File>>,
}

impl Alive {
    /// The lock files beside this database.
    pub(super) fn beside(database: &Path) -> Self {
        let mut folder = database.as_os_str().to_owned();
        folder.push("-workers");
        let alive = Self { folder: folder.into(), held: Mutex::default() };
        // Without it no worker can be shown, and says so when it joins.
        let _ = alive.create_folder();
        alive
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Shows that the worker is alive, from here on until it is forgotten or the process ends.
    /// Where the system has no locks, the lease alone decides.
    pub(super) fn show(&self, worker: WorkerId) -> io::Result<()> {
        if self.held().contains_key(&worker) {
            return Ok(());
        }
        self.create_folder()?;
        let path = self.path(worker);
        for _ in 0..SHOW_TRIES {
            let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path)?;
            match file.try_lock() {
                Ok(()) if is_at(&file, &path) => {
                    self.held().insert(worker, file);
                    return Ok(());
                }
                // Somebody who looked whether it is alive has removed the file, or looks just now.
                Ok(()) | Err(TryLockError::WouldBlock) => thread::sleep(SHOW_PAUSE),
                // A file without a lock would say that the worker is dead.
                Err(TryLockError::Error(_)) => return fs::remove_file(&path),
            }
        }
        // Somebody else shows it: it is alive.
        Ok(())
    }

    /// Creates the folder for its owner alone: its files say which workers there are.
    fn create_folder(&self) -> io::Result<()> {
        let mut folder = DirBuilder::new();
        folder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut folder, 0o700);
        folder.create(&self.folder)
    }

    /// Removes the worker's file and lets go of its lock.
    pub(super) fn forget(&self, worker: WorkerId) {
        if let Some(file) = self.held().remove(&worker) {
            // Without its file the worker is merely unknown, which is what an ended one is.
            let _ = fs::remove_file(self.path(worker));
            drop(file);
        }
    }

    /// Whether the worker's process is known to be gone.
    pub(super) fn is_dead(&self, worker: WorkerId) -> bool {
        if self.held().contains_key(&worker) {
            return false;
        }
        let file = OpenOptions::new().write(true).open(self.path(worker));
        file.is_ok_and(|file| file.try_lock().is_ok())
    }

    /// Removes the files of workers that are dead and not among these: those have runs to be taken first.
    pub(super) fn bury(&self, live: &[WorkerId]) {
        let Ok(files) = fs::read_dir(&self.folder) else { return };
        let names = files.filter_map(|file| file.ok()?.file_name().into_string().ok());
        let workers = names.filter_map(|name| name.parse::<WorkerId>().ok());
        for worker in workers.filter(|worker| !live.contains(worker) && self.is_dead(*worker)) {
            let _ = fs::remove_file(self.path(worker));
        }
    }

    fn path(&self, worker: WorkerId) -> PathBuf {
        self.folder.join(worker.to_string())
    }

    fn held(&self) -> MutexGuard<'_, HashMap<WorkerId, File>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether an open file is still the one in this place.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let same = |there: fs::Metadata| {
        file.metadata().is_ok_and(|here| (here.dev(), here.ino()) == (there.dev(), there.ino()))
    };
    fs::metadata(path).is_ok_and(same)
}

#[cfg(not(unix))]
fn is_at(_: &File, path: &Path) -> bool {
    path.exists()
}
