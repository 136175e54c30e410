//! [`Sqlite`]: the harness of the store in a file.

use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::Harness;
use crate::durable::clock::Clock;
use crate::durable::store::Store;
use crate::durable::store::sqlite::SqliteStore;

pub(super) struct Sqlite {
    clock: Clock,
    path: PathBuf,
    /// All stores that were opened.
    stores: RefCell<Vec<Weak<SqliteStore>>>,
    _folder: tempfile::TempDir,
}

impl Harness for Sqlite {
    fn new() -> Self {
        let folder = super::temp_folder();
        Self {
            clock: Clock::manual(),
            path: folder.path().join("tasks.db"),
            stores: RefCell::default(),
            _folder: folder,
        }
    }

    fn clock(&self) -> &Clock {
        &self.clock
    }

    fn connect(&self) -> Store {
        let opened = SqliteStore::open_with(&self.path, self.clock.clone());
        let opened = futures::executor::block_on(opened);
        let store = Arc::new(opened.expect("the store can be opened"));
        self.stores.borrow_mut().push(Arc::downgrade(&store));
        Store(store)
    }

    fn observe(&self) -> Store {
        let observed = SqliteStore::observe_with(&self.path, self.clock.clone());
        futures::executor::block_on(observed).expect("the store can be observed")
    }

    fn contents(&self) -> Vec<(String, Vec<u8>)> {
        super::contents_of(self.path.parent().expect("it is in a folder"))
    }

    fn kill(&self, process: Store) {
        let dies = Arc::as_ptr(&process.0).cast::<()>();
        let stores = self.stores.borrow();
        let dying = stores.iter().find(|it| it.as_ptr().cast::<()>() == dies);
        let dying = dying.and_then(Weak::upgrade);
        dying
            .expect("a process of this store dies")
            .simulate_crash();
    }

    fn age(&self, time: Duration) {
        let boot = || self.clock.boot().as_millis() as i64;
        let (before, ()) = (boot(), self.clock.advance(time));
        let db = rusqlite::Connection::open(&self.path).expect("the file can be opened");
        let sql = "UPDATE throng_meta SET aged_at = ?1, aged = aged + ?1 - ?2
            + min(max(?2 - aged_at, 0), 60000)";
        db.execute(sql, [boot(), before])
            .expect("it can be written");
    }

    /// Counts the rows of all tables except the statistics, `throng_meta` and `throng_queue`, which are kept.
    fn leftovers(&self) -> u64 {
        let db = rusqlite::Connection::open(&self.path).expect("the file can be opened");
        let count = |name: String| {
            let sql = format!("SELECT count(*) FROM \"{name}\"");
            db.query_row(&sql, [], |row| row.get::<_, i64>(0))
                .expect("rows can be counted")
        };
        let sql = "SELECT name FROM sqlite_schema
            WHERE type = 'table'
                AND name NOT IN ('throng_meta', 'throng_queue', 'throng_stat', 'throng_stat_report')";
        let mut tables = db.prepare(sql).expect("tables can be listed");
        let names = tables
            .query_map([], |row| row.get(0))
            .expect("tables can be listed");
        let rows: i64 = names
            .map(|name| count(name.expect("a table has a name")))
            .sum();
        rows as u64
    }

    fn statistics(&self) -> u64 {
        let db = rusqlite::Connection::open(&self.path).expect("the file can be opened");
        let sql = "SELECT (SELECT count(*) FROM throng_stat)
                + (SELECT count(*) FROM throng_stat_report)";
        let count = db.query_row(sql, [], |row| row.get::<_, i64>(0));
        count.expect("rows can be counted") as u64
    }

    fn broken_invariants(&self) -> Vec<String> {
        let db = rusqlite::Connection::open(&self.path).expect("the file can be opened");
        let mut broken = Vec::new();
        for (what, sql) in INVARIANTS {
            let mut statement = db.prepare(sql).expect("the query is valid");
            let rows = statement.query_map([], |row| row.get::<_, String>(0));
            let rows = rows.expect("the rows can be read");
            broken.extend(rows.map(|row| format!("{what}: {}", row.expect("a text"))));
        }
        broken
    }
}

/// Queries that select the rows which break an invariant.
const INVARIANTS: [(&str, &str); 14] = [
    (
        "a sublist has no group",
        "SELECT list || ' ' || sublist FROM throng_ready AS ready
         WHERE sublist <> 0 AND NOT EXISTS (SELECT 1 FROM throng_group AS it
             WHERE it.list = ready.list AND it.sublist = ready.sublist)",
    ),
    (
        "no task of a group waits",
        "SELECT list || ' ' || name FROM throng_group AS it
         WHERE NOT EXISTS (SELECT 1 FROM throng_ready AS ready
             WHERE it.list = ready.list AND it.sublist = ready.sublist)",
    ),
    (
        "a group has a turn and may not start, or has none and may",
        "SELECT list || ' ' || it.name FROM throng_group AS it
         LEFT JOIN throng_queue AS queue ON queue.name = it.queue
         WHERE (turn IS NOT NULL) <> (
             (group_max IS NULL OR group_max > (SELECT count(*) FROM throng_group_run AS run
                 WHERE run.queue = it.queue AND run.name = it.name))
             AND NOT EXISTS (SELECT 1 FROM throng_group_hold AS hold
                 WHERE hold.queue = it.queue AND hold.name = it.name))",
    ),
    (
        "a task waits in another sublist than its group",
        "SELECT hex(task.id) FROM throng_ready AS ready JOIN throng_task AS task ON task.id = ready.id
         LEFT JOIN throng_group AS it ON it.list = ready.list AND it.sublist = ready.sublist
         WHERE it.name IS NOT task.group_name OR task.group_name IS NOT NULL AND it.queue IS NOT task.queue
             OR task.list IS NOT ready.list OR task.sublist IS NOT ready.sublist
             OR task.place IS NOT ready.place",
    ),
    (
        "a task is missing",
        "SELECT hex(id) FROM throng_ready AS ready
         WHERE NOT EXISTS (SELECT 1 FROM throng_task AS task WHERE task.id = ready.id)",
    ),
    (
        "a task waits twice",
        "SELECT hex(id) FROM throng_ready GROUP BY id HAVING count(*) > 1",
    ),
    (
        "a task has a permit and does not run",
        "SELECT hex(run.id) FROM throng_group_run AS run LEFT JOIN throng_now AS task ON task.id = run.id
         WHERE now IS NOT 2 OR group_name IS NOT run.name OR task.queue IS NOT run.queue",
    ),
    (
        "a task runs without a permit",
        "SELECT hex(task.id) FROM throng_now AS task WHERE now = 2 AND group_name IS NOT NULL
             AND NOT EXISTS (SELECT 1 FROM throng_group_run AS run WHERE run.id = task.id)",
    ),
    (
        "a task has progress and has ended",
        "SELECT hex(id) FROM throng_progress
         WHERE NOT EXISTS (SELECT 1 FROM throng_task AS task
             WHERE task.id = throng_progress.id AND state < 2)",
    ),
    (
        "a task has steps and has ended",
        "SELECT hex(id) FROM throng_workflow
         WHERE NOT EXISTS (SELECT 1 FROM throng_task AS task
             WHERE task.id = throng_workflow.id AND (state < 2 OR state = 4))",
    ),
    (
        "the steps of a task are not counted",
        "SELECT hex(id) FROM throng_workflow AS own
         WHERE (steps, bytes) <> (SELECT count(*),
                 coalesce(sum(length(CAST(name AS BLOB)) + length(value)), 0)
             FROM throng_step AS step WHERE step.id = own.id)",
    ),
    (
        "a suspended task has as many steps as it waits for",
        "SELECT hex(id) FROM throng_workflow JOIN throng_task AS task USING (id)
         WHERE task.state = 1 AND until <= steps",
    ),
    (
        "a step is of no workflow",
        "SELECT hex(id) || ' ' || name FROM throng_step WHERE id NOT IN (SELECT id FROM throng_workflow)",
    ),
    (
        "a turn was never issued",
        "SELECT list || ' ' || name FROM throng_group
         WHERE turn > (SELECT group_turn FROM throng_meta)",
    ),
];
