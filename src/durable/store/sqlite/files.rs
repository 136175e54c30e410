//! [`Files`]: checks that a database is still where it was opened.
//!
//! A file that is removed, or replaced by another, stays open in the processes that have opened it. Their later
//! writes are lost when they exit, although every commit succeeds. So after each commit, before its
//! requests are answered, the identities of the file and of its log are compared with those of the files at their
//! paths.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use super::error::{Fault, io_failure, is_busy};
use crate::durable::failure::{Cause, Effect, Failure};
use crate::sync::{Mutex, lock};

/// Held while a connection is opened, and for as long as an [observer](super::observed_file) has one open. All connections of this process
/// to a database share the index of its log. If the first of them was only allowed to read the index, the others cannot write to it.
pub(super) static OPENING: Mutex<()> = Mutex::new(());

/// The files of a database, as a connection has them open.
#[derive(Clone, Debug)]
pub(super) struct Files {
    path: PathBuf,
    log_path: PathBuf,
    database: Identity,
    /// The write-ahead log, which alone contains the last commits.
    log: Identity,
    /// A number that the database was given when it was created.
    birth: i64,
}

/// The identity of a file, regardless of its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    device: u64,
    inode: u64,
}

impl Files {
    /// Opens the database at `path`, which must not contain links, with `connect`.
    pub(super) fn open(
        path: &Path,
        connect: impl FnOnce(&Path) -> Result<Connection, Fault>,
    ) -> Result<(Connection, Self), Fault> {
        let log_path = beside(path, "-wal");
        let _alone = lock(&OPENING);
        let database = identity(path).ok_or_else(replaced)?;
        let db = connect(path)?;
        // SQLite opens the log when it reads for the first time.
        let birth = read_birth(&db)?;
        let files = Self {
            path: path.to_owned(),
            log: identity(&log_path).ok_or_else(replaced)?,
            log_path,
            database,
            birth,
        };
        // The files are the same before and after, so these were opened.
        files.check()?;
        Ok((db, files))
    }

    /// Opens the database again after a connection to these files has failed: the same files, or a copy
    /// of the database that was put in their place.
    pub(super) fn reopen(
        &self,
        connect: impl FnOnce(&Path) -> Result<Connection, Fault>,
    ) -> Result<(Connection, Self), Fault> {
        let is_same = identity(&self.path) == Some(self.database);
        // Other processes may have the old log open, and SQLite would use its index for the new one.
        if is_same && identity(&self.log_path) != Some(self.log) {
            return Err(replaced());
        }
        match Self::open(&self.path, connect) {
            Ok((_, files)) if files.birth != self.birth => Err(replaced()),
            // For instance, the file has none of throng's tables.
            Err(Fault::Sqlite(error)) if !is_same && !is_busy(&error) => Err(replaced()),
            opened => opened,
        }
    }

    /// The path of the database, which is the same for all processes.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Fails unless both files are still at their paths.
    pub(super) fn check(&self) -> Result<(), Fault> {
        let are_there = identity(&self.path) == Some(self.database)
            && identity(&self.log_path) == Some(self.log);
        are_there.then_some(()).ok_or_else(replaced)
    }
}

/// Returns the path of a file that SQLite keeps beside a database.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut path = OsString::from(path);
    path.push(suffix);
    PathBuf::from(path)
}

/// Returns the identity of the file at a path, if there is one.
pub(super) fn identity(path: &Path) -> Option<Identity> {
    let found = fs::metadata(path).ok()?;
    Some(Identity {
        device: found.dev(),
        inode: found.ino(),
    })
}

/// Returns the number that the database was given when it was created.
pub(super) fn read_birth(db: &Connection) -> Result<i64, rusqlite::Error> {
    db.query_row("SELECT birth FROM throng_meta", [], |row| row.get(0))
}

pub(super) fn replaced() -> Fault {
    Fault::Refused(Cause::Replaced)
}

/// Returns the absolute path of a database, unless SQLite takes the path for something else.
pub(super) fn checked(path: &Path, name: &str) -> Result<PathBuf, Failure> {
    if name.is_empty() || name == ":memory:" || name.starts_with("file:") {
        let advice = format!("`{name}` is not a path: name a file on a disk of this machine");
        return Err(Failure::new(Effect::None, Cause::Invalid(advice)));
    }
    std::path::absolute(path).map_err(io_failure)
}
