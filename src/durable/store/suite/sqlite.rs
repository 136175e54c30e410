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

    /// Counts the rows of all tables except `throng_meta` and `throng_queue`, which are kept.
    fn leftovers(&self) -> u64 {
        let db = rusqlite::Connection::open(&self.path).expect("the file can be opened");
        let count = |name: String| {
            let sql = format!("SELECT count(*) FROM \"{name}\"");
            db.query_row(&sql, [], |row| row.get::<_, i64>(0))
                .expect("rows can be counted")
        };
        let sql = "SELECT name FROM sqlite_schema
            WHERE type = 'table' AND name NOT IN ('throng_meta', 'throng_queue')";
        let mut tables = db.prepare(sql).expect("tables can be listed");
        let names = tables
            .query_map([], |row| row.get(0))
            .expect("tables can be listed");
        let rows: i64 = names
            .map(|name| count(name.expect("a table has a name")))
            .sum();
        rows as u64
    }
}
