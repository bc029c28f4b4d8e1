//! The file of the database: where it is, who may read it, and whether it is still the same.
//!
//! Owns: what is asked of the file system and not of SQLite. Never reads or writes what is in the file.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use super::fault::Fault;
use crate::store::Outage;

/// File systems that are on another machine, by the beginning of the name that Linux gives them.
const REMOTE: [&str; 9] =
    ["nfs", "cifs", "smb", "9p", "afs", "ceph", "fuse.sshfs", "fuse.glusterfs", "lustre"];

/// The file of a store that is open.
#[derive(Debug)]
pub(super) struct DatabaseFile {
    /// Where it is, whatever the working folder becomes and whichever link led there: SQLite keeps the log
    /// beside it.
    path: PathBuf,
    identity: Option<Identity>,
    replaced: AtomicBool,
}

/// Device and number of a file, which another one under its name does not have.
type Identity = (u64, u64);

impl DatabaseFile {
    /// The file at this path, which is there.
    pub(super) fn at(path: &Path) -> Result<Self, Fault> {
        let path = fs::canonicalize(path).map_err(Fault::data)?;
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        if let Some(system) = file_system(&mounts, &path).filter(|system| is_remote(system)) {
            let path = path.display();
            tracing::warn!(
                %path, system,
                "the database is on a network file system: use it from one machine alone, or use Postgres"
            );
        }
        Ok(Self { identity: identity(&path), path, replaced: AtomicBool::new(false) })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Refuses to go on with a file that was deleted or replaced: nobody else would see what is written, and it
    /// would be gone with this process.
    pub(super) fn check(&self) -> Result<(), Fault> {
        if identity(&self.path) == self.identity {
            return Ok(());
        }
        let path = self.path.display();
        if !self.replaced.swap(true, Ordering::Relaxed) {
            tracing::error!(%path, "the database file was deleted or replaced: nothing is written any more");
        }
        Err(Fault::Outage(Outage::Replaced, path.to_string()))
    }
}

/// Makes a file that SQLite has just created its owner's alone; its log becomes so too. By its name: to open it
/// here and close it again would take the locks away that another connection of this process has.
pub(super) fn keep_private(path: &Path) {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let _ = fs::set_permissions(path, fs::Permissions::from_mode(0o600));
    }
    #[cfg(not(unix))]
    let _ = path;
}

/// Why SQLite could not open a file: it has one code for all that the system may say. The folder is asked,
/// since the file must not be opened.
pub(super) fn cannot_open(path: &Path, fault: Fault) -> Fault {
    let Fault::Outage(Outage::ReadOnly, _) = fault else { return fault };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    match fs::read_dir(folder.unwrap_or(Path::new("."))) {
        // Too many open files, mostly.
        Err(error) if error.kind() != io::ErrorKind::PermissionDenied => {
            Fault::Outage(Outage::NoAnswer, error.to_string())
        }
        _ => fault,
    }
}

#[cfg(unix)]
fn identity(path: &Path) -> Option<Identity> {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

#[cfg(not(unix))]
fn identity(_: &Path) -> Option<Identity> {
    None
}

/// The kind of the file system that a path is on, in what Linux lists of them.
fn file_system<'m>(mounts: &'m str, path: &Path) -> Option<&'m str> {
    let mounted = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (at, kind) = (words.next()?.replace("\\040", " "), words.next()?);
        path.starts_with(&at).then_some((at.len(), kind))
    });
    // The last of those at one place is on top.
    mounted.max_by_key(|(length, _)| *length).map(|(_, kind)| kind)
}

fn is_remote(system: &str) -> bool {
    REMOTE.iter().any(|remote| system.starts_with(remote))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_file_system_is_known_by_its_mount() {
        let mounts = "/dev/vda / ext4 rw 0 0\nhost:/share /mnt/my\\040share nfs4 rw 0 0\n\
                      tmpfs /mnt tmpfs rw 0 0\ndrive /mnt/c 9p rw 0 0\nover /mnt/c ext4 rw 0 0\n";
        let kind = |path: &str| file_system(mounts, Path::new(path));
        assert_eq!(kind("/srv/onward.db"), Some("ext4"));
        assert_eq!(kind("/mnt/my share/onward.db"), Some("nfs4"));
        assert_eq!(kind("/mnt/my shared/onward.db"), Some("tmpfs"));
        assert_eq!(kind("/mnt/c/onward.db"), Some("ext4"));
        assert!(is_remote("nfs4") && is_remote("fuse.sshfs") && is_remote("smb3"));
        assert!(!is_remote("ext4") && !is_remote("overlay") && !is_remote("fuse.bindfs"));
    }
}
