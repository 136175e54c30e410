//! Opens connections, and defines the tables of the file.

use std::cell::Cell;
use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension};

use super::error::{Fault, cannot_open, io_failure, is_busy};
use super::files::Files;
use super::time::{Now, sleep};
use crate::durable::failpoint::failpoint;
use crate::durable::store::layouts::Layouts;
use crate::sync::thread_local;

/// The time for which a request waits until other processes unlock the database.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// The tables.
///
/// The column `state` of a task says whether it is active (0), delayed (1), done (3), dead (4) or cancelled (5). An
/// active task either waits or runs. If it waits, it has a row in `throng_ready`, in its `list`, at its `place`;
/// places rise over all lists. If it runs, it is in the column `held` of a claim, and `list` and `place` say where it
/// waited. The row of a task does not change when it is claimed, so it does not say which of the two applies: the column
/// `now` of the view `throng_now` does (0 for a task that waits, 2 for one that runs).
///
/// The column `at` of a delayed task is the time since 1970 at which it is due. In the row of a dead letter, it is the
/// time of death, and in the row of any other ended task the end of its retention, both in store time (see
/// `Meta::store_time`). The times of claims are measured from the start of the machine. All times are in milliseconds.
///
/// The column `ready_at` of a task is the time since 1970 at which it became ready to run, or is due. It does not change when the task is
/// claimed or given back.
///
/// The column `took` of a task that has succeeded, or of a dead letter, is the duration of its last run in milliseconds. It is `NULL` if
/// there was no such run. The column `took` of an error is that of the run that has failed. The column `claimed_at` of a claim is the time
/// of the claim since 1970.
///
/// The column `failing_since` of a task is the time at which its first attempt failed, since 1970, or `NULL` if no attempt has failed.
///
/// A task with a group (`group_name`) waits in a sublist of its list: see `groups.rs`. The sublist of the others is 0. A row of
/// `throng_group` is a sublist in which tasks wait, a row of `throng_group_run` is a running task with a group, and a row of
/// `throng_group_hold` is a group that is held until a time since 1970. The column `group_turn` of `throng_meta` is the last turn
/// that was issued. The columns `group_max` and `quantum` of `throng_queue` are those of `Groups`.
///
/// The columns `layout` and `process` of a session contain the newest layout that its process knows, and the id of the process. The
/// column `opened` is the time since 1970 at which the session was opened. A session that claims has a `card`: see `WorkerCard`.
///
/// The table `throng_payload` contains the payloads that are too large for the rows of their tasks, and after a success
/// the outputs that are. The column `results` of `throng_meta` counts the ended tasks whose retention is not over,
/// except dead letters.
///
/// The columns `dead_for`, `dead_most`, `kept_most` and `dead_since` of `throng_meta` limit what is kept of ended tasks: see `limits.rs`.
///
/// The table `throng_progress` contains the last progress that a run of a task has reported: the epoch of the run, the number of the
/// report, and the progress. The transaction that ends a task removes its row.
///
/// The table `throng_step` contains the steps of tasks, which never change, apart from the last nonce of a replay. The column `number`
/// rises in the order in which the steps of a task were stored, and `at` is the time of that since 1970. The table `throng_workflow` has a
/// row for each task that has steps or waits for some: the number of its steps, the size of their names and values in bytes, and, in
/// `until`, the number of steps that makes the task ready while it is delayed, with a description of its waits in `waits_for`. The rows are
/// removed when the task has succeeded or is cancelled, or with its dead letter. The column `parent` of a task is the task that has spawned
/// it as a child, if there is one: the transaction that ends the child stores a step of the parent.
///
/// The column `queue` of a task or a claim is the name of its queue, or `NULL` for the default queue. The column `priority` of a
/// task is 0 for a high one, 1 for a normal one, and 2 for a low one. Both are part of the column `kind`, too, which
/// determines the list.
///
/// The column `key` of a task is its key. If it holds the key only until a worker claims it, it was stored at `key_since`, and the claim
/// sets both columns to `NULL`. If it has a window, that ends at `key_until`. Both times are since 1970. Without a key, all three are
/// `NULL`. The column `answer` of a session is the number of its last enqueue that had conflicts, and the answer to it.
///
/// The table `throng_queue` has a row for each queue that has limits, is paused, or has claimed tasks while tasks have
/// priorities. The columns `interval` and `burst` are the rate, and `used_until` is the time up to which it is used. These times
/// are in microseconds. The columns `since_normal` and `since_low` are those of `PriorityTurns`. The name of the default queue is
/// empty.
///
/// The table `throng_schedule` contains the schedules: see `ScheduleRow`. The column `hand_out` is the time at which a schedule
/// is handed out next, in milliseconds since 1970. It is `NULL` if `time` is `NULL`. It is later than `time` after the schedule
/// was handed out, until a change replaces the row.
///
/// The table `throng_stat` contains the statistics of runs: see `store/stats.rs`. The column `bucket` is the number of the minute or, if
/// `hours` is 1, of the hour since 1970. The column `micros` is the total duration of the runs in microseconds. The column `name` is empty
/// in the row of all other types, and the column `queue` is empty for the default queue. The table `throng_stat_report` contains the number
/// and the time, in milliseconds since 1970, of the last report of each process.
///
/// The table of tasks has no row ids: ids that were created one after the other lie side by side, so a batch of them
/// touches few pages.
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
    group_turn INTEGER NOT NULL DEFAULT 0,
    dead_for INTEGER NOT NULL DEFAULT 2592000000,
    dead_most INTEGER NOT NULL DEFAULT 10000,
    kept_most INTEGER NOT NULL DEFAULT 4611686018427387904,
    dead_since INTEGER NOT NULL DEFAULT 0,
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
    layout INTEGER NOT NULL,
    process INTEGER NOT NULL,
    types INTEGER,
    number INTEGER NOT NULL DEFAULT 0,
    claim INTEGER,
    first BLOB,
    answer BLOB,
    opened INTEGER NOT NULL DEFAULT 0,
    card BLOB
);
CREATE TABLE IF NOT EXISTS throng_claim (
    epoch INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    until INTEGER NOT NULL,
    lease INTEGER NOT NULL,
    suspect INTEGER NOT NULL DEFAULT 0,
    delivered INTEGER NOT NULL DEFAULT 0,
    cancels INTEGER NOT NULL DEFAULT 0,
    queue TEXT,
    claimed_at INTEGER NOT NULL DEFAULT 0,
    held BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS throng_ready (
    list INTEGER NOT NULL,
    sublist INTEGER NOT NULL,
    place INTEGER NOT NULL,
    id BLOB NOT NULL,
    PRIMARY KEY (list, sublist, place)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS throng_group (
    list INTEGER NOT NULL,
    sublist INTEGER NOT NULL,
    queue TEXT NOT NULL,
    name TEXT NOT NULL,
    turn INTEGER,
    PRIMARY KEY (list, sublist)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS throng_group_run (
    id BLOB PRIMARY KEY NOT NULL,
    queue TEXT NOT NULL,
    name TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS throng_group_hold (
    queue TEXT NOT NULL,
    name TEXT NOT NULL,
    until INTEGER NOT NULL,
    PRIMARY KEY (queue, name)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS throng_task (
    id BLOB PRIMARY KEY NOT NULL,
    state INTEGER NOT NULL,
    list INTEGER,
    sublist INTEGER NOT NULL DEFAULT 0,
    place INTEGER,
    at INTEGER,
    ready_at INTEGER,
    name TEXT NOT NULL,
    kind INTEGER NOT NULL,
    failures INTEGER NOT NULL DEFAULT 0,
    failing_since INTEGER,
    crashes INTEGER NOT NULL DEFAULT 0,
    lost INTEGER NOT NULL DEFAULT 0,
    cancel INTEGER NOT NULL DEFAULT 0,
    max_crashes INTEGER NOT NULL,
    retention INTEGER NOT NULL,
    endpoint INTEGER NOT NULL,
    queue TEXT,
    group_name TEXT,
    priority INTEGER NOT NULL DEFAULT 1,
    key BLOB,
    key_since INTEGER,
    key_until INTEGER,
    parent BLOB,
    payload BLOB,
    output BLOB,
    error TEXT,
    reason INTEGER,
    took INTEGER
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS throng_session_endpoint ON throng_session (endpoint);
CREATE INDEX IF NOT EXISTS throng_session_card ON throng_session (id) WHERE card IS NOT NULL;
CREATE INDEX IF NOT EXISTS throng_claim_session ON throng_claim (session);
CREATE INDEX IF NOT EXISTS throng_claim_until ON throng_claim (until);
CREATE INDEX IF NOT EXISTS throng_claim_queue ON throng_claim (queue) WHERE queue IS NOT NULL;
CREATE UNIQUE INDEX IF NOT EXISTS throng_group_name ON throng_group (queue, name, list);
CREATE INDEX IF NOT EXISTS throng_group_turn ON throng_group (list, turn, name) WHERE turn IS NOT NULL;
CREATE INDEX IF NOT EXISTS throng_group_run_name ON throng_group_run (queue, name);
CREATE INDEX IF NOT EXISTS throng_group_hold_until ON throng_group_hold (queue, until);
CREATE INDEX IF NOT EXISTS throng_task_at ON throng_task (state, at) WHERE at IS NOT NULL;
CREATE INDEX IF NOT EXISTS throng_task_key ON throng_task (key)
    WHERE key IS NOT NULL AND state < 2;
CREATE INDEX IF NOT EXISTS throng_task_window ON throng_task (key, key_until)
    WHERE key IS NOT NULL AND key_until IS NOT NULL;
CREATE VIEW IF NOT EXISTS throng_now AS
    SELECT *, iif(
        state = 0 AND NOT EXISTS (
            SELECT 1 FROM throng_ready AS ready
            WHERE ready.list = throng_task.list AND ready.sublist = throng_task.sublist
                AND ready.place = throng_task.place AND ready.id = throng_task.id
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
    took INTEGER,
    PRIMARY KEY (id, attempt)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS throng_progress (
    id BLOB PRIMARY KEY NOT NULL,
    epoch INTEGER NOT NULL,
    number INTEGER NOT NULL,
    bytes BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS throng_step (
    id BLOB NOT NULL,
    name TEXT NOT NULL,
    number INTEGER NOT NULL,
    at INTEGER NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (id, name)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS throng_workflow (
    id BLOB PRIMARY KEY NOT NULL,
    steps INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    until INTEGER,
    waits_for TEXT
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS throng_queue (
    name TEXT PRIMARY KEY NOT NULL,
    paused INTEGER NOT NULL DEFAULT 0,
    max_running INTEGER,
    interval INTEGER,
    burst INTEGER,
    group_max INTEGER,
    quantum INTEGER NOT NULL DEFAULT 1,
    revision INTEGER NOT NULL DEFAULT 0,
    used_until INTEGER NOT NULL DEFAULT 0,
    since_normal INTEGER NOT NULL DEFAULT 0,
    since_low INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS throng_schedule (
    name TEXT PRIMARY KEY NOT NULL,
    version INTEGER NOT NULL,
    needs INTEGER NOT NULL,
    time INTEGER,
    hand_out INTEGER,
    started INTEGER NOT NULL,
    skipped INTEGER NOT NULL,
    last_task BLOB,
    body BLOB NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS throng_schedule_hand_out ON throng_schedule (needs, hand_out)
    WHERE hand_out IS NOT NULL;
CREATE TABLE IF NOT EXISTS throng_stat (
    hours INTEGER NOT NULL,
    bucket INTEGER NOT NULL,
    name TEXT NOT NULL,
    queue TEXT NOT NULL,
    started INTEGER NOT NULL,
    done INTEGER NOT NULL,
    retried INTEGER NOT NULL,
    died INTEGER NOT NULL,
    cancelled INTEGER NOT NULL,
    micros INTEGER NOT NULL,
    PRIMARY KEY (hours, bucket, name, queue)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS throng_stat_report (
    reporter INTEGER PRIMARY KEY,
    number INTEGER NOT NULL,
    at INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS throng_damaged (
    number INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    found INTEGER NOT NULL,
    what TEXT NOT NULL
);
";

/// Opens the database for writing. Creates the file and the tables if they do not exist.
pub(super) fn create(
    path: &Path,
    layouts: Layouts,
    now: Now,
) -> Result<(Connection, Files), Fault> {
    // The file must exist before the links in its path can be resolved.
    let created = connect(path, OpenFlags::SQLITE_OPEN_CREATE);
    drop(created.map_err(|error| match error.sqlite_error_code() {
        Some(ErrorCode::CannotOpen) => Fault::Refused(cannot_open(path)),
        _ => Fault::Sqlite(error),
    })?);
    let path = path.canonicalize();
    let path = path.map_err(|error| Fault::Refused(io_failure(error).cause))?;
    Files::open(&path, |path| {
        let mut db = connect(path, OpenFlags::empty())?;
        use_wal(&db)?;
        set_durability(&mut db)?;
        match layout(&db)? {
            Some(found) => layouts.check(found).map_err(Fault::Refused)?,
            None => create_tables(&db, layouts, now)?,
        }
        add_missing(&db)?;
        Ok(db)
    })
}

/// Opens the database for writing again after a failure. Creates no file.
pub(super) fn reopen(files: &Files) -> Result<(Connection, Files), Fault> {
    files.reopen(|path| {
        let mut db = connect(path, OpenFlags::empty())?;
        // A copy may use another journal mode.
        use_wal(&db)?;
        set_durability(&mut db)?;
        add_missing(&db)?;
        Ok(db)
    })
}

/// Opens the database for reading.
pub(super) fn read(files: &Files) -> Result<(Connection, Files), Fault> {
    files.reopen(|path| {
        // A read-only connection could not take part in the bookkeeping of the log.
        let db = connect(path, OpenFlags::empty())?;
        use_wal(&db)?;
        db.pragma_update(None, "query_only", true)?;
        Ok(db)
    })
}

/// Fails if another process has raised the layout above these since the database was opened.
pub(super) fn check_layout(db: &Connection, layouts: Layouts) -> Result<(), Fault> {
    let mut statement = db.prepare_cached("SELECT layout FROM throng_meta")?;
    let found = statement.query_row([], |row| row.get(0))?;
    layouts.check(found).map_err(Fault::Refused)
}

fn connect(path: &Path, flags: OpenFlags) -> Result<Connection, rusqlite::Error> {
    open(path, flags | OpenFlags::SQLITE_OPEN_READ_WRITE)
}

/// Opens a connection, and sets it up.
pub(super) fn open(path: &Path, flags: OpenFlags) -> Result<Connection, rusqlite::Error> {
    let flags = flags | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    #[allow(unused_mut, reason = "some versions of rusqlite need it below")]
    let mut db = Connection::open_with_flags(path, flags)?;
    // Old versions of rusqlite take only a function pointer.
    db.busy_handler(Some(wait_for_lock as fn(i32) -> bool))?;
    db.set_prepared_statement_cache_capacity(64);
    db.pragma_update(None, "foreign_keys", false)?;
    // A negative number is in KiB.
    db.pragma_update(None, "cache_size", -8192)?;
    Ok(db)
}

/// Has each commit wait until it is on the disk.
fn set_durability(db: &mut Connection) -> Result<(), rusqlite::Error> {
    db.pragma_update(None, "synchronous", "FULL")?;
    db.pragma_update(None, "fullfsync", true)?;
    db.pragma_update(None, "checkpoint_fullfsync", true)?;
    db.pragma_update(None, "journal_size_limit", 64 << 20)?;
    // Old versions of rusqlite return `()`.
    _ = db.commit_hook(Some(|| {
        failpoint("sqlite.in-commit");
        false
    }));
    Ok(())
}

/// Has the database use a write-ahead log.
fn use_wal(db: &Connection) -> Result<(), rusqlite::Error> {
    let deadline = Instant::now() + LOCK_TIMEOUT;
    loop {
        // SQLite does not call the busy handler here.
        match db.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(())) {
            Err(error) if is_busy(&error) && Instant::now() < deadline => pause(),
            done => return done,
        }
    }
}

/// Returns the layout of the tables, if they exist.
pub(super) fn layout(db: &Connection) -> Result<Option<i64>, rusqlite::Error> {
    let sql = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'throng_meta'";
    if db.query_row(sql, [], |_| Ok(())).optional()?.is_none() {
        return Ok(None);
    }
    db.query_row("SELECT layout FROM throng_meta", [], |row| row.get(0))
        .optional()
}

/// Creates the tables in one transaction. If several processes do this at the same time, the first one succeeds, and
/// the others find the tables.
fn create_tables(db: &Connection, layouts: Layouts, now: Now) -> Result<(), Fault> {
    let transaction =
        rusqlite::Transaction::new_unchecked(db, rusqlite::TransactionBehavior::Immediate)?;
    if let Some(found) = layout(db)? {
        layouts.check(found).map_err(Fault::Refused)?;
    }
    db.execute_batch(SCHEMA)?;
    db.execute(
        "INSERT OR IGNORE INTO throng_meta (one, layout, birth, aged, aged_at)
         VALUES (1, ?1, random(), ?2, ?3)",
        [layouts.newest, now.wall, now.boot],
    )?;
    transaction.commit()?;
    Ok(())
}

/// Adds the tables and columns that files of an earlier version of this layout lack. Processes of that version ignore them.
fn add_missing(db: &Connection) -> Result<(), Fault> {
    if has_steps(db)? {
        return Ok(());
    }
    let transaction =
        rusqlite::Transaction::new_unchecked(db, rusqlite::TransactionBehavior::Immediate)?;
    db.execute_batch(SCHEMA)?;
    let column = "SELECT 1 FROM pragma_table_info('throng_task') WHERE name = 'parent'";
    // Another process may have added it meanwhile.
    if db.query_row(column, [], |_| Ok(())).optional()?.is_none() {
        db.execute_batch("ALTER TABLE throng_task ADD COLUMN parent BLOB")?;
    }
    transaction.commit()?;
    Ok(())
}

/// Returns `true` if the file has the tables and the column of steps. If only processes of an earlier version have written to it, it has
/// not.
pub(super) fn has_steps(db: &Connection) -> Result<bool, rusqlite::Error> {
    let mut statement = db.prepare_cached(
        "SELECT count(*) = 2 AND EXISTS (
             SELECT 1 FROM pragma_table_info('throng_task') WHERE name = 'parent')
         FROM sqlite_schema WHERE type = 'table' AND name IN ('throng_step', 'throng_workflow')",
    )?;
    statement.query_row([], |row| row.get(0))
}

/// Returns `true` if a user has created the outbox.
pub(super) fn has_outbox(db: &Connection) -> Result<bool, rusqlite::Error> {
    let mut statement = db.prepare_cached(
        "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'throng_outbox'",
    )?;
    statement.exists([])
}

/// Waits while other processes have locked the database, until the time is up. The pauses are short and of random
/// length, so that waiting processes do not return together. SQLite's own pauses last up to 100 ms.
fn wait_for_lock(count: i32) -> bool {
    thread_local! {
        /// When this thread began to wait.
        static SINCE: Cell<Option<Instant>> = const { Cell::new(None) };
    }
    if count == 0 {
        SINCE.set(Some(Instant::now()));
    }
    pause();
    SINCE
        .get()
        .is_some_and(|since| since.elapsed() < LOCK_TIMEOUT)
}

fn pause() {
    sleep(Duration::from_micros(fastrand::u64(500..2000)));
}
