//! [`LockHolder`]: the process that holds the write lock of the database.

use std::error::Error;
use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rusqlite::Error as SqliteError;

use super::error::{failure, is_busy};
use super::files::beside;
use crate::durable::failure::{Effect, Failure};

/// A process that holds the write lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LockHolder {
    process: u32,
    name: String,
    is_stopped: bool,
}

/// The offset of the byte that a writer locks, in the index of the log.
const WRITE_LOCK_BYTE: u64 = 120;

/// The maximum number of reads of the list of locks. The system returns it in pieces, so a read may miss a line if other
/// locks are taken and released meanwhile.
const MAX_READS: u32 = 5;

/// Returns the failure of a request that has had no effect. If another process has locked the database for writing, the
/// failure names it.
pub(super) fn busy_failure(error: SqliteError, path: Option<&Path>) -> Failure {
    let holder = path.filter(|_| is_busy(&error)).and_then(find);
    let failure = failure(Effect::None, error);
    match holder {
        Some(holder) => failure.with_source(holder),
        None => failure,
    }
}

/// Returns the process that currently holds the write lock of the database at a path. Only Linux reports it.
fn find(path: &Path) -> Option<LockHolder> {
    // The file whose locks determine which process may write.
    let inode = fs::metadata(beside(path, "-shm")).ok()?.ino();
    let process = (0..MAX_READS).find_map(|_| writer_of(inode))?;
    let status = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    parse(process, &status)
}

fn writer_of(inode: u64) -> Option<u32> {
    let locks = fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| holder_in(line, inode))
}

/// Returns the process in a line of `/proc/locks` that describes the write lock. Such a line is
/// `1: POSIX  ADVISORY  WRITE 4711 fd:01:1234567 120 120`.
fn holder_in(line: &str, inode: u64) -> Option<u32> {
    let mut fields = line.split_whitespace().skip(3);
    if fields.next()? != "WRITE" {
        return None;
    }
    let process = fields.next()?.parse().ok()?;
    let file: u64 = fields.next()?.rsplit(':').next()?.parse().ok()?;
    let first: u64 = fields.next()?.parse().ok()?;
    let last = fields.next()?.parse().unwrap_or(u64::MAX);
    (file == inode && (first..=last).contains(&WRITE_LOCK_BYTE)).then_some(process)
}

/// Parses `/proc/4711/stat`, which begins with `4711 (name) S`.
fn parse(process: u32, status: &str) -> Option<LockHolder> {
    let (start, rest) = status.rsplit_once(") ")?;
    let (_, name) = start.split_once('(')?;
    Some(LockHolder {
        process,
        name: name.to_owned(),
        is_stopped: rest.starts_with(['T', 't']),
    })
}

impl fmt::Display for LockHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { process, name, .. } = self;
        write!(f, "process {process} ({name}) holds the lock")?;
        match self.is_stopped {
            true => f.write_str(", and is stopped"),
            false => Ok(()),
        }
    }
}

impl Error for LockHolder {}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use rustix::fs::{FlockOperation, fcntl_lock};

    use super::*;
    use crate::sync::{AtomicBool, Ordering};

    /// The list of locks is long, and changes while it is read.
    #[test]
    #[cfg(target_os = "linux")]
    fn the_lock_holder_is_found_while_other_locks_are_taken_and_released() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: String| File::create(folder.path().join(name)).unwrap();
        let held = file(String::from("db-shm"));
        fcntl_lock(&held, FlockOperation::LockExclusive).unwrap();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let files: Vec<_> = (0..150).map(|n| file(format!("{thread}-{n}"))).collect();
                let is_over = &is_over;
                scope.spawn(move || {
                    while !is_over.load(Ordering::Relaxed) {
                        for operation in [FlockOperation::LockExclusive, FlockOperation::Unlock] {
                            files
                                .iter()
                                .for_each(|file| fcntl_lock(file, operation).unwrap());
                        }
                    }
                });
            }
            let missed = (0..600).filter(|_| find(&folder.path().join("db")).is_none());
            let missed = missed.count();
            is_over.store(true, Ordering::Relaxed);
            assert_eq!(missed, 0);
        });
    }

    #[test]
    fn the_write_lock_is_distinguished_from_other_locks() {
        let line = "12: POSIX  ADVISORY  WRITE 4711 fd:01:99 120 120";
        assert_eq!(holder_in(line, 99), Some(4711));
        assert_eq!(holder_in(line, 9), None);
        assert_eq!(
            holder_in("1: POSIX ADVISORY WRITE 5 00:2a:99 0 EOF", 99),
            Some(5)
        );
        for other in [
            "1: POSIX  ADVISORY  READ 5 fd:01:99 120 120",
            "1: POSIX  ADVISORY  WRITE 5 fd:01:99 121 127",
            "1: -> POSIX  ADVISORY  WRITE 5 fd:01:99 120 120",
            "garbage",
        ] {
            assert_eq!(holder_in(other, 99), None, "{other}");
        }
    }

    #[test]
    fn a_process_name_may_contain_spaces_and_parentheses() {
        let holder = parse(7, "7 (a) b (c) T 1 7 7").unwrap();
        assert_eq!(
            holder.to_string(),
            "process 7 (a) b (c) holds the lock, and is stopped"
        );
        let holder = parse(7, "7 (worker) S 1 7 7").unwrap();
        assert_eq!(holder.to_string(), "process 7 (worker) holds the lock");
        assert_eq!(parse(7, ""), None);
    }
}
