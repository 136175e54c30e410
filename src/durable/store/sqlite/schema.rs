//! Opens connections, and defines the tables of the file.

use std::cell::Cell;
use std::cmp::Ordering;
use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension};

use super::error::{Fault, cannot_open, io_failure, is_busy};
use super::files::Files;
use super::work::Now;
use crate::durable::failpoint::failpoint;
use crate::durable::failure::Cause;
use crate::sync::{thread, thread_local};

/// The layout that this version of the crate knows.
pub(super) const LAYOUT: i64 = 2;

/// Payloads and outputs up to here are in the row of their task; a row stays within its page.
pub(super) const INLINE: usize = 512;

/// How long a request waits for others to unlock the database.
const PATIENCE: Duration = Duration::from_secs(5);

/// A waiting task has a row in `throng_ready`, in its `list`, at its `place`; places rise over all lists. A running
/// task is held by a claim. Its row is not written when it is claimed, so its `state` is still 0, and its
/// `place` is that where it waited. The view `throng_now` tells the two apart. The column `at` of a delayed
/// task is the time since 1970 at which it is due. In the row of a dead letter, it is the time of death, and in the row of
/// any other end the time until which the end is kept, both in store time (see
/// [`Meta::store_time`](super::meta::Meta::store_time)). The times of claims are measured from the start of the machine.
/// All times are in milliseconds.
///
/// The table `throng_payload` holds the payloads that are too large for the rows of their tasks, and after a success
/// the outputs that are. The column `results` of `throng_meta` counts the ends that are kept, except dead letters.
///
/// The rows of tasks have no hidden number: ids that were made one after the other lie side by side,
/// so a batch of them touches few pages.
const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS throng_meta (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    layout INTEGER NOT NULL,
    birth INTEGER NOT NULL,
    epoch INTEGER NOT NULL DEFAULT 0,
    ceiling INTEGER NOT NULL DEFAULT 0,
    raised INTEGER NOT NULL DEFAULT 0,
    raised_boot INTEGER NOT NULL DEFAULT 0,
    session INTEGER NOT NULL DEFAULT 0,
    aged INTEGER NOT NULL,
    aged_at INTEGER NOT NULL,
    routes TEXT,
    routes_version INTEGER NOT NULL DEFAULT 0,
    waiting INTEGER NOT NULL DEFAULT 0,
    delayed INTEGER NOT NULL DEFAULT 0,
    running INTEGER NOT NULL DEFAULT 0,
    results INTEGER NOT NULL DEFAULT 0,
    dead INTEGER NOT NULL DEFAULT 0,
    stored INTEGER NOT NULL DEFAULT 0,
    claimed INTEGER NOT NULL DEFAULT 0,
    done INTEGER NOT NULL DEFAULT 0,
    retried INTEGER NOT NULL DEFAULT 0,
    snoozed INTEGER NOT NULL DEFAULT 0,
    died INTEGER NOT NULL DEFAULT 0,
    released INTEGER NOT NULL DEFAULT 0,
    crashed INTEGER NOT NULL DEFAULT 0,
    lost INTEGER NOT NULL DEFAULT 0,
    cancelled INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS throng_session (
    id INTEGER PRIMARY KEY,
    endpoint INTEGER NOT NULL,
    types INTEGER,
    number INTEGER NOT NULL DEFAULT 0,
    claim INTEGER,
    first BLOB
);
CREATE TABLE IF NOT EXISTS throng_claim (
    epoch INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    until INTEGER NOT NULL,
    lease INTEGER NOT NULL,
    suspect INTEGER NOT NULL DEFAULT 0,
    delivered INTEGER NOT NULL DEFAULT 0,
    cancels INTEGER NOT NULL DEFAULT 0,
    held BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS throng_ready (
    list INTEGER NOT NULL,
    place INTEGER NOT NULL,
    id BLOB NOT NULL,
    PRIMARY KEY (list, place)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS throng_task (
    id BLOB PRIMARY KEY NOT NULL,
    state INTEGER NOT NULL,
    list INTEGER,
    place INTEGER,
    at INTEGER,
    name TEXT NOT NULL,
    kind INTEGER NOT NULL,
    failures INTEGER NOT NULL DEFAULT 0,
    crashes INTEGER NOT NULL DEFAULT 0,
    lost INTEGER NOT NULL DEFAULT 0,
    cancel INTEGER NOT NULL DEFAULT 0,
    max_crashes INTEGER NOT NULL,
    retention INTEGER NOT NULL,
    endpoint INTEGER NOT NULL,
    payload BLOB,
    output BLOB,
    error TEXT,
    reason INTEGER
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS throng_session_endpoint ON throng_session (endpoint);
CREATE INDEX IF NOT EXISTS throng_claim_session ON throng_claim (session);
CREATE INDEX IF NOT EXISTS throng_claim_until ON throng_claim (until);
CREATE INDEX IF NOT EXISTS throng_task_at ON throng_task (state, at) WHERE at IS NOT NULL;
CREATE VIEW IF NOT EXISTS throng_now AS
    SELECT *, iif(
        state = 0 AND NOT EXISTS (
            SELECT 1 FROM throng_ready AS ready
            WHERE ready.list = throng_task.list AND ready.place = throng_task.place
                AND ready.id = throng_task.id
        ), 2, state
    ) AS now FROM throng_task;
CREATE TABLE IF NOT EXISTS throng_payload (
    id BLOB PRIMARY KEY NOT NULL,
    bytes BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS throng_error (
    id BLOB NOT NULL,
    attempt INTEGER NOT NULL,
    at INTEGER NOT NULL,
    error TEXT NOT NULL,
    PRIMARY KEY (id, attempt)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS throng_damaged (
    number INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    found INTEGER NOT NULL,
    what TEXT NOT NULL
);
";

/// Opens the database for writing, and makes in it what is not there yet.
pub(super) fn create(path: &Path, now: Now) -> Result<(Connection, Files), Fault> {
    // So that there is a file, whose path can be freed of links.
    let made = connect(path, OpenFlags::SQLITE_OPEN_CREATE);
    drop(made.map_err(|error| match error.sqlite_error_code() {
        Some(ErrorCode::CannotOpen) => Fault::Refused(cannot_open(path)),
        _ => Fault::Sqlite(error),
    })?);
    let path = path.canonicalize();
    let path = path.map_err(|error| Fault::Refused(io_failure(error).cause))?;
    Files::open(&path, |path| {
        let mut db = connect(path, OpenFlags::empty())?;
        into_wal(&db)?;
        for_writing(&mut db)?;
        match layout(&db)? {
            Some(found) => known(found)?,
            None => make(&db, now)?,
        }
        Ok(db)
    })
}

/// Opens it again for writing, after it has failed: nothing is made if it is gone.
pub(super) fn reopen(files: &Files) -> Result<(Connection, Files), Fault> {
    files.reopen(|path| {
        let mut db = connect(path, OpenFlags::empty())?;
        // A copy may have none.
        into_wal(&db)?;
        for_writing(&mut db)?;
        Ok(db)
    })
}

/// Opens it for reading.
pub(super) fn read(files: &Files) -> Result<(Connection, Files), Fault> {
    files.reopen(|path| {
        // Not as read-only: such a connection cannot join in the bookkeeping of the log.
        let db = connect(path, OpenFlags::empty())?;
        into_wal(&db)?;
        db.pragma_update(None, "query_only", true)?;
        Ok(db)
    })
}

/// The number that the database was given when it was made.
pub(super) fn birth(db: &Connection) -> Result<i64, rusqlite::Error> {
    db.query_row("SELECT birth FROM throng_meta", [], |row| row.get(0))
}

/// Refuses the layouts of other versions of the crate.
pub(super) fn known(found: i64) -> Result<(), Fault> {
    let known = LAYOUT;
    match found.cmp(&known) {
        Ordering::Less => Err(Fault::Refused(Cause::OlderLayout { found, known })),
        Ordering::Equal => Ok(()),
        Ordering::Greater => Err(Fault::Refused(Cause::NewerLayout { found, known })),
    }
}

/// Refuses if another version has laid the database out since it was opened.
pub(super) fn check_layout(db: &Connection) -> Result<(), Fault> {
    let mut statement = db.prepare_cached("SELECT layout FROM throng_meta")?;
    known(statement.query_row([], |row| row.get(0))?)
}

fn connect(path: &Path, flags: OpenFlags) -> Result<Connection, rusqlite::Error> {
    let flags = flags | OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut db = Connection::open_with_flags(path, flags)?;
    // A function: old versions of rusqlite take no closure.
    db.busy_handler(Some(patience as fn(i32) -> bool))?;
    db.set_prepared_statement_cache_capacity(64);
    db.pragma_update(None, "foreign_keys", false)?;
    // In KiB if below zero.
    db.pragma_update(None, "cache_size", -8192)?;
    Ok(db)
}

/// What a commit costs, and is worth: it is on the disk when it is answered.
fn for_writing(db: &mut Connection) -> Result<(), rusqlite::Error> {
    db.pragma_update(None, "synchronous", "FULL")?;
    db.pragma_update(None, "fullfsync", true)?;
    db.pragma_update(None, "checkpoint_fullfsync", true)?;
    db.pragma_update(None, "journal_size_limit", 64 << 20)?;
    // Old versions of rusqlite return nothing.
    _ = db.commit_hook(Some(|| {
        failpoint("sqlite.in-commit");
        false
    }));
    Ok(())
}

/// Has the database keep a log, unless it does so already.
fn into_wal(db: &Connection) -> Result<(), rusqlite::Error> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        // SQLite does not ask the busy handler here, which would wait for itself.
        match db.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(())) {
            Err(error) if is_busy(&error) && Instant::now() < deadline => rest(),
            done => return done,
        }
    }
}

/// The layout that is in the database, if there is one.
fn layout(db: &Connection) -> Result<Option<i64>, rusqlite::Error> {
    let sql = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'throng_meta'";
    if db.query_row(sql, [], |_| Ok(())).optional()?.is_none() {
        return Ok(None);
    }
    db.query_row("SELECT layout FROM throng_meta", [], |row| row.get(0))
        .optional()
}

/// One transaction, and each step of it only if need be: of several processes that come at the same
/// time, the first makes everything, and the others find it.
fn make(db: &Connection, now: Now) -> Result<(), Fault> {
    let transaction =
        rusqlite::Transaction::new_unchecked(db, rusqlite::TransactionBehavior::Immediate)?;
    if let Some(found) = layout(db)? {
        known(found)?;
    }
    db.execute_batch(SCHEMA)?;
    db.execute(
        "INSERT OR IGNORE INTO throng_meta (one, layout, birth, aged, aged_at)
         VALUES (1, ?1, random(), ?2, ?3)",
        [LAYOUT, now.wall, now.boot],
    )?;
    transaction.commit()?;
    Ok(())
}

/// Waits while others have the database, until it has waited for long enough: in steps that are short, and of
/// random length, so that those who wait do not come back together. SQLite's own steps go up to 100 ms.
fn patience(count: i32) -> bool {
    thread_local! {
        /// When this thread began to wait.
        static SINCE: Cell<Option<Instant>> = const { Cell::new(None) };
    }
    if count == 0 {
        SINCE.set(Some(Instant::now()));
    }
    rest();
    SINCE.get().is_some_and(|since| since.elapsed() < PATIENCE)
}

fn rest() {
    sleep(Duration::from_micros(fastrand::u64(500..2000)));
}

pub(super) fn sleep(time: Duration) {
    let deadline = Instant::now() + time;
    while !thread::park_until(deadline) {}
}
