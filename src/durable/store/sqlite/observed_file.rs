//! [`ObservedFile`]: reads a database without writing to any file.
//!
//! Reading a database with a write-ahead log usually leaves traces: SQLite creates the log and its index if they do not exist, and records
//! each reader in the index. An observer avoids this in two ways:
//!
//! - If a process has the database open, there are a log and an index. The observer opens the index read-only. It relies on the record of
//!   another reader there, and if there is none, it tries again. After a crash, the log and the index also exist, but no process maintains
//!   the index. SQLite then builds another index in memory.
//! - If no process has the database open, the file contains everything. The observer reads it like a file that never changes. Afterwards,
//!   it checks whether the file has changed, and if so, reads it again.
//!
//! An observer opens a connection for each query, and closes it afterwards. While there is another connection, the last process that closes
//! the database cannot remove the log.

use std::cell::Cell;
use std::fmt::Write;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::{ErrorCode, OpenFlags};

use super::error::{Fault, io_failure};
use super::files::{OPENING, beside, read_birth, replaced};
use super::reader::{ReadConnection, Source};
use super::schema;
use super::shared::Shared;
use super::time::sleep;
use crate::durable::clock::Clock;
use crate::durable::failure::Cause;
use crate::sync::lock;

/// The time after which there is no further attempt to read while other processes change the files. One attempt may take several seconds.
const ATTEMPT_TIME: Duration = Duration::from_secs(2);
/// The pause before another attempt.
const PAUSE: Duration = Duration::from_millis(10);

/// A database that is opened read-only.
pub(super) struct ObservedFile {
    path: PathBuf,
    shared: Arc<Shared>,
    clock: Clock,
    /// A number that the database was given when it was created.
    birth: i64,
}

/// The way in which the database can be read, and the state of the files on which that depends.
#[derive(Debug, PartialEq, Eq)]
enum Access {
    /// There are a log and an index.
    WithLog,
    /// There is only this file.
    FileOnly(Stamp),
}

/// The identity of a file, its size, and the times of its last changes.
#[derive(Debug, PartialEq, Eq)]
struct Stamp {
    file: [u64; 3],
    times: [i64; 4],
}

impl ObservedFile {
    /// Opens the database at a path, which must contain a store.
    pub(super) fn open(path: PathBuf, shared: Arc<Shared>, clock: Clock) -> Result<Self, Fault> {
        let mut file = Self {
            path,
            shared,
            clock,
            birth: 0,
        };
        let mut birth = 0;
        file.attempt(&mut |connection| {
            check_store(connection, &file.path)?;
            connection.load_damage();
            birth = read_birth(&connection.db)?;
            Ok(())
        })?;
        file.birth = birth;
        Ok(file)
    }

    /// Runs a query, and repeats it if the files have changed meanwhile.
    fn attempt(
        &self,
        query: &mut dyn FnMut(&ReadConnection) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let deadline = Instant::now() + ATTEMPT_TIME;
        loop {
            match self.read_if_stable(query) {
                Ok(answer) => return answer,
                Err(fault) if Instant::now() >= deadline => return Err(fault),
                Err(_) => sleep(PAUSE),
            }
        }
    }

    /// Returns the answer to a query if the files have not changed meanwhile, and otherwise the failure if there is no further attempt.
    fn read_if_stable(
        &self,
        query: &mut dyn FnMut(&ReadConnection) -> Result<(), Fault>,
    ) -> Result<Result<(), Fault>, Fault> {
        let access = match Access::of(&self.path) {
            Ok(access) => access,
            // The last process that closes the database removes the index before the log.
            Err(unfit @ Fault::Refused(Cause::Unfit(_))) => return Err(unfit),
            Err(fault) => return Ok(Err(fault)),
        };
        let answer = self.read_once(&access, query);
        let is_stable = match access {
            Access::WithLog => !answer.as_ref().is_err_and(is_in_transition),
            Access::FileOnly(_) => Access::of(&self.path).is_ok_and(|it| it == access),
        };
        match answer.map_err(denied) {
            answer if is_stable => Ok(answer),
            Err(refused @ Fault::Refused(_)) => Err(refused),
            _ => Err(Fault::Refused(Cause::Busy)),
        }
    }

    fn read_once(
        &self,
        access: &Access,
        query: &mut dyn FnMut(&ReadConnection) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let _alone = lock(&OPENING);
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
        let db = schema::open(Path::new(&access.uri(&self.path)), flags);
        let connection = ReadConnection {
            db: db.map_err(|error| Fault::Sqlite(error).explained())?,
            shared: Arc::clone(&self.shared),
            clock: self.clock.clone(),
            empty_outbox: Cell::default(),
        };
        query(&connection).map_err(Fault::explained)
    }
}

impl Source for ObservedFile {
    fn read(
        &mut self,
        query: &mut dyn FnMut(&ReadConnection) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        self.attempt(&mut |connection| match read_birth(&connection.db)? {
            birth if birth == self.birth => query(connection),
            _ => Err(replaced()),
        })
    }
}

impl Access {
    /// Determines how the database at a path can be read.
    fn of(path: &Path) -> Result<Self, Fault> {
        let file = fs::metadata(path).map_err(|error| missing(path, error))?;
        let len_of = |suffix| fs::metadata(beside(path, suffix)).map(|found| found.len());
        match (len_of("-wal"), len_of("-shm")) {
            (Ok(_), Ok(_)) => Ok(Self::WithLog),
            // For example, the file and the log were copied.
            (Ok(1..), Err(_)) => Err(Fault::Refused(Cause::Unfit(String::from(
                "its log has no index, which an observer cannot create: open the store with `open` once",
            )))),
            _ => Ok(Self::FileOnly(Stamp {
                file: [file.dev(), file.ino(), file.len()],
                times: [
                    file.mtime(),
                    file.mtime_nsec(),
                    file.ctime(),
                    file.ctime_nsec(),
                ],
            })),
        }
    }

    /// Returns the address by which SQLite opens the database.
    fn uri(&self, path: &Path) -> String {
        let mut uri = String::from("file:");
        for &byte in path.as_os_str().as_bytes() {
            match byte {
                b'/' | b'.' | b'-' | b'_' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => {
                    uri.push(char::from(byte));
                }
                _ => drop(write!(uri, "%{byte:02x}")),
            }
        }
        uri + match self {
            Self::WithLog => "?mode=ro&readonly_shm=1",
            Self::FileOnly(_) => "?mode=ro&immutable=1",
        }
    }
}

/// Returns `true` if a failure may be due to another process that is opening, closing or checkpointing the database.
fn is_in_transition(fault: &Fault) -> bool {
    let is_passing = |code| {
        use ErrorCode::{CannotOpen, FileLockingProtocolFailed, ReadOnly};
        matches!(code, CannotOpen | FileLockingProtocolFailed | ReadOnly)
    };
    code_of(fault).is_some_and(is_passing)
}

/// Explains why SQLite cannot open a file, which exists.
fn denied(fault: Fault) -> Fault {
    match code_of(&fault) {
        Some(ErrorCode::CannotOpen) => Fault::Refused(Cause::Denied),
        _ => fault,
    }
}

fn code_of(fault: &Fault) -> Option<ErrorCode> {
    match fault {
        Fault::Sqlite(error) => error.sqlite_error_code(),
        Fault::Refused(_) => None,
    }
}

/// Returns the path of an existing file with its links resolved, which is the same for all processes.
pub(super) fn existing(path: &Path) -> Result<PathBuf, Fault> {
    path.canonicalize().map_err(|error| missing(path, error))
}

fn missing(path: &Path, error: io::Error) -> Fault {
    Fault::Refused(match error.kind() {
        io::ErrorKind::NotFound => Cause::Invalid(format!(
            "there is no file {}: check the path, or start a program that creates the store with `open`",
            path.display()
        )),
        _ => io_failure(error).cause,
    })
}

/// Fails if the database does not contain a store with a known layout.
fn check_store(connection: &ReadConnection, path: &Path) -> Result<(), Fault> {
    match schema::layout(&connection.db)? {
        Some(found) => {
            let layouts = connection.shared.layouts;
            layouts.check(found).map_err(Fault::Refused)
        }
        None => Err(Fault::Refused(Cause::Invalid(format!(
            "the database {} contains no store: check the path, or start a program that creates the store with `open`",
            path.display()
        )))),
    }
}
