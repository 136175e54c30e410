//! The folder in which the processes that share a database find each other, and the names of the files in it.

use std::fs::{self, File, TryLockError};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};

use crate::durable::store::SessionId;
use crate::durable::store::kind::SetId;

/// The subfolders of markers.
const IDLE: &str = "idle";
pub(super) const WATCHERS: &str = "watchers";

/// The id of an endpoint. It is random, so it is never used twice.
pub(in super::super) type EndpointId = i64;

/// Returns the name of a file of an endpoint.
pub(in super::super) fn file_name(id: EndpointId, suffix: &str) -> String {
    format!("{id:016x}{suffix}")
}

/// Creates the folder, and a new lock file in it.
pub(super) fn join(folder: &Path) -> io::Result<(EndpointId, File)> {
    loop {
        let created = create_folder(&folder.join(IDLE))
            .and_then(|()| create_folder(&folder.join(WATCHERS)))
            .and_then(|()| create_lock_file(folder));
        match created {
            // Meanwhile, the last endpoint has left and has removed the folder.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            created => return created,
        }
    }
}

/// Creates a folder and its parents. `create_dir_all` fails if a folder exists when it creates it, and is removed before it looks:
/// the last endpoint may leave at that moment.
fn create_folder(path: &Path) -> io::Result<()> {
    loop {
        match fs::create_dir_all(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && !is_blocked(path) => {}
            created => return created,
        }
    }
}

/// Returns `true` if something else than a folder is in the place of a folder or of its parent.
fn is_blocked(path: &Path) -> bool {
    let is_other = |it: &Path| fs::symlink_metadata(it).is_ok_and(|found| !found.is_dir());
    path.ancestors().take(2).any(is_other)
}

/// Removes the folder if no endpoint is in it. Each step fails if an endpoint has joined meanwhile.
pub(super) fn remove_if_empty(folder: &Path) {
    let is_empty = |suffix| endpoints(folder, suffix).next().is_none();
    if is_empty(".lock") && is_empty(".new") {
        fs::remove_dir(folder.join(IDLE)).ok();
        fs::remove_dir(folder.join(WATCHERS)).ok();
        fs::remove_dir(folder).ok();
    }
}

/// Creates a lock file and returns its id. The file is locked before it gets its final name, so a file with a final name
/// that is not locked belongs to a dead process.
fn create_lock_file(folder: &Path) -> io::Result<(EndpointId, File)> {
    loop {
        let id = RandomState::new().build_hasher().finish() as EndpointId;
        let new = folder.join(file_name(id, ".new"));
        let file = File::create_new(&new)?;
        file.lock()?;
        match fs::rename(&new, folder.join(file_name(id, ".lock"))) {
            // Another process has removed it before it was locked.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            renamed => return renamed.map(|()| (id, file)),
        }
    }
}

/// Removes the lock files of processes that died before they gave the file its final name.
pub(super) fn remove_unfinished_lock_files(folder: &Path) {
    for id in endpoints(folder, ".new") {
        let path = folder.join(file_name(id, ".new"));
        if File::open(&path).is_ok_and(|file| is_unlocked(&file)) {
            fs::remove_file(path).ok();
        }
    }
}

/// Returns `true` if no process has the file locked.
pub(super) fn is_unlocked(file: &File) -> bool {
    match file.try_lock_shared() {
        Ok(()) => file.unlock().is_ok(),
        Err(TryLockError::WouldBlock | TryLockError::Error(_)) => false,
    }
}

/// Creates a marker. If the last endpoint removed the folder while this one joined, creates the folder again.
pub(super) fn create_marker(marker: &Path) -> io::Result<()> {
    let created = File::create(marker).or_else(|error| {
        create_folder(marker.parent().ok_or(error)?)?;
        File::create(marker)
    });
    created.map(drop)
}

pub(super) fn idle_marker(
    folder: &Path,
    id: EndpointId,
    set: SetId,
    session: SessionId,
) -> PathBuf {
    let suffix = format!(".{:016x}.{session:x}", set.number());
    folder.join(IDLE).join(file_name(id, &suffix))
}

/// Returns the idle sessions, each with its endpoint and its set.
pub(super) fn idle_sessions(
    folder: &Path,
) -> impl Iterator<Item = (EndpointId, SetId, SessionId)> + use<> {
    let entries = fs::read_dir(folder.join(IDLE)).into_iter();
    entries.flatten().flatten().filter_map(|entry| {
        let name = entry.file_name();
        let mut numbers = name.to_str()?.split('.');
        let mut number = || u64::from_str_radix(numbers.next()?, 16).ok();
        let (id, set) = (number()? as EndpointId, number()? as i64);
        Some((id, SetId::from_number(set), number()?))
    })
}

/// Returns the endpoints that have a file with this suffix in a folder.
pub(super) fn endpoints(
    folder: &Path,
    suffix: &'static str,
) -> impl Iterator<Item = EndpointId> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(move |entry| {
        let name = entry.file_name();
        let hex = name.to_str()?.strip_suffix(suffix)?;
        u64::from_str_radix(hex, 16).ok().map(|id| id as EndpointId)
    })
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::durable::store::suite::temp_folder;

    #[test]
    fn a_file_in_the_place_of_a_folder_is_an_error() {
        let parent = temp_folder();
        let folder = parent.path().join("tasks.db-throng");
        fs::write(&folder, "").unwrap();
        assert!(join(&folder).is_err());
        fs::remove_file(&folder).unwrap();
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join(IDLE), "").unwrap();
        assert!(join(&folder).is_err());
        fs::remove_file(folder.join(IDLE)).unwrap();
        std::os::unix::fs::symlink("nowhere", folder.join(IDLE)).unwrap();
        assert!(join(&folder).is_err());
        fs::remove_file(folder.join(IDLE)).unwrap();
        assert!(join(&folder).is_ok());
    }

    /// Endpoints join and leave at once, so folders are often removed while others create them.
    #[test]
    fn an_endpoint_can_join_while_the_last_one_leaves() {
        let parent = temp_folder();
        let folder = parent.path().join("tasks.db-throng");
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2_000 {
                        let (id, _file) = join(&folder).unwrap();
                        fs::remove_file(folder.join(file_name(id, ".lock"))).unwrap();
                        remove_if_empty(&folder);
                    }
                });
            }
        });
    }
}
