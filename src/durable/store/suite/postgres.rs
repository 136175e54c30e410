//! [`Postgres`]: the harness of the store in PostgreSQL.

use std::cell::RefCell;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::Harness;
use crate::durable::clock::Clock;
use crate::durable::store::Store;
use crate::durable::store::postgres::tests::pooler::{Pooler, is_suite_pooled};
use crate::durable::store::postgres::tests::server::Server;
use crate::durable::store::postgres::tests::{ServerConnection, is_server_installed};
use crate::durable::store::postgres::{PostgresStore, PostgresStoreBuilder, ServerTime};
use crate::sync::Number;

/// A schema of a server that all tests share.
pub(super) struct Postgres {
    connection: ServerConnection,
    clock: Clock,
    schema: String,
    /// All stores that were opened.
    stores: RefCell<Vec<Weak<PostgresStore>>>,
}

impl Harness for Postgres {
    fn is_available() -> bool {
        is_server_installed()
    }

    fn new() -> Self {
        static NEXT: Number = Number::new(0);
        Self {
            connection: ServerConnection::to(Server::shared()),
            clock: Clock::manual(),
            schema: format!("test_{}", NEXT.add(1)),
            stores: RefCell::default(),
        }
    }

    fn clock(&self) -> &Clock {
        &self.clock
    }

    fn connect(&self) -> Store {
        let (builder, time) = (self.builder(), ServerTime::manual(self.clock.clone()));
        let opened = futures::executor::block_on(PostgresStore::open_as(&builder, time));
        let store = Arc::new(opened.expect("the store can be opened"));
        self.stores.borrow_mut().push(Arc::downgrade(&store));
        Store(store)
    }

    fn observe(&self) -> Store {
        let (builder, time) = (self.builder(), ServerTime::manual(self.clock.clone()));
        let observed = PostgresStore::observe_as(&builder, time);
        futures::executor::block_on(observed).expect("the store can be observed")
    }

    /// Returns the rows of all tables as texts.
    fn contents(&self) -> Vec<(String, Vec<u8>)> {
        let contents = |table: String| {
            let sql = format!(
                "SELECT t::text FROM {}.\"{table}\" AS t ORDER BY 1",
                self.schema
            );
            let rows = self.connection.ask(&sql).concat().join("\n");
            (table, rows.into_bytes())
        };
        self.tables().into_iter().map(contents).collect()
    }

    /// The store detects a crash after some time. Here, the sessions of the process have been silent for long, and its claims belong to no
    /// session, so a late renewal does not keep them.
    fn kill(&self, process: Store) {
        let address = Arc::as_ptr(&process.0).cast::<()>();
        let stores = self.stores.borrow();
        let dying = stores.iter().find(|it| it.as_ptr().cast::<()>() == address);
        let dying = dying.and_then(Weak::upgrade);
        let endpoint = dying.expect("the process has opened this store").endpoint();
        drop(process);
        // The server frees the lock of a process as soon as it notices that its connection is gone.
        self.connection.ask(&format!(
            "SET lock_timeout = '10s'; SELECT pg_advisory_lock({endpoint}); SELECT pg_advisory_unlock({endpoint})"
        ));
        let schema = &self.schema;
        self.connection.ask(&format!(
            "UPDATE {schema}.claim SET until = 0, suspect = 1, session = -session
                 WHERE session IN (SELECT id FROM {schema}.session WHERE endpoint = {endpoint});
             UPDATE {schema}.session SET seen = 0 WHERE endpoint = {endpoint};
             DELETE FROM {schema}.park WHERE endpoint = {endpoint};
             WITH woken AS (DELETE FROM {schema}.park RETURNING *)
             SELECT pg_notify('throng_' || to_hex(endpoint), 'w' || session) FROM woken"
        ));
    }

    fn age(&self, time: Duration) {
        let boot = || self.clock.boot().as_millis() as i64;
        let (before, ()) = (boot(), self.clock.advance(time));
        let after = boot();
        self.connection.ask(&format!(
            "UPDATE {}.meta SET aged_at = {after}, aged = aged + {after} - {before}
                 + least(greatest({before} - aged_at, 0), 60000)",
            self.schema
        ));
    }

    /// Counts the rows of all tables, except for the totals, the statistics, the queues, the layout, and those who await tasks that are
    /// alive.
    fn leftovers(&self) -> u64 {
        let kept = ["meta", "total", "queue", "stat", "stat_report", "watch"];
        let tables = self.tables().into_iter();
        let tables = tables.filter(|table| !kept.contains(&&**table));
        let schema = &self.schema;
        let count = |table| {
            let sql = format!("SELECT count(*) FROM {schema}.\"{table}\"");
            self.connection.number(&sql) as u64
        };
        let watched = format!(
            "SELECT count(*) FROM {schema}.watch
             WHERE NOT EXISTS (SELECT 1 FROM {schema}.task WHERE task.id = watch.id AND state < 2)"
        );
        tables.map(count).sum::<u64>() + self.connection.number(&watched) as u64
    }

    fn statistics(&self) -> u64 {
        let schema = &self.schema;
        let sql = format!(
            "SELECT (SELECT count(*) FROM {schema}.stat) + (SELECT count(*) FROM {schema}.stat_report)"
        );
        self.connection.number(&sql) as u64
    }

    fn broken_invariants(&self) -> Vec<String> {
        let mut broken = Vec::new();
        for (what, sql) in INVARIANTS {
            let sql = sql.replace("throng.", &format!("{}.", self.schema));
            let rows = self.connection.ask(&sql);
            broken.extend(rows.concat().iter().map(|row| format!("{what}: {row}")));
        }
        broken
    }
}

impl Postgres {
    fn builder(&self) -> PostgresStoreBuilder {
        let server = Server::shared().url();
        let mut builder = PostgresStore::builder(&server);
        if is_suite_pooled() {
            builder = PostgresStore::builder(&Pooler::shared().url());
            builder.listen_url(server);
        }
        builder.schema(&*self.schema);
        builder
    }

    fn tables(&self) -> Vec<String> {
        let sql = format!(
            "SELECT relname FROM pg_class WHERE relnamespace = '{}'::regnamespace AND relkind = 'r' ORDER BY 1",
            self.schema
        );
        self.connection.ask(&sql).concat()
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        let drop = format!(
            "SET lock_timeout = '10s'; DROP SCHEMA IF EXISTS {} CASCADE",
            self.schema
        );
        self.connection.ask(&drop);
    }
}

/// Queries that select the rows which break an invariant.
const INVARIANTS: [(&str, &str); 8] = [
    (
        "a task waits in another line than its own",
        "SELECT task.id FROM throng.ready JOIN throng.task USING (id)
         WHERE task.kind <> ready.kind OR coalesce(task.group_name, '') <> ready.group_name
             OR task.place <> ready.place OR state <> 0",
    ),
    (
        "a task is missing",
        "SELECT id FROM throng.ready
         WHERE NOT EXISTS (SELECT 1 FROM throng.task WHERE task.id = ready.id)",
    ),
    (
        "a task waits twice",
        "SELECT id FROM throng.ready GROUP BY id HAVING count(*) > 1",
    ),
    (
        "a task neither waits nor is held by one claim",
        "SELECT id FROM throng.task_now WHERE now = 2
             AND (SELECT count(*) FROM throng.claim WHERE task_now.id = ANY (held)) <> 1",
    ),
    (
        "a group waits without a line, or has an empty one",
        "SELECT coalesce(line.name, own.group_name) FROM (
             SELECT DISTINCT kind, group_name FROM throng.ready WHERE group_name <> ''
         ) AS own FULL JOIN throng.group_line AS line
             ON line.kind = own.kind AND line.name = own.group_name
         WHERE own.kind IS NULL OR line.kind IS NULL",
    ),
    (
        "a group has a turn although none of its tasks may start, or the other way round",
        "SELECT line.name FROM throng.group_line AS line WHERE (turn IS NULL) = (
             NOT EXISTS (
                 SELECT 1 FROM throng.group_hold AS hold
                 WHERE hold.queue = line.queue AND hold.name = line.name
             ) AND (
                 SELECT count(*) FROM throng.group_run AS run
                 WHERE run.queue = line.queue AND run.name = line.name
             ) < coalesce((
                 SELECT group_max FROM throng.queue AS limits WHERE limits.name = line.queue
             ), 1::bigint << 40)
         )",
    ),
    (
        "the lines of a group have different turns",
        "SELECT name FROM throng.group_line GROUP BY queue, priority, name
         HAVING count(DISTINCT turn) > 1 OR count(turn) NOT IN (0, count(*))",
    ),
    (
        "the running tasks of a group are others than those that claims hold",
        "SELECT coalesce(run.id, own.id) FROM throng.group_run AS run FULL JOIN (
             SELECT task.id, task.queue, group_name FROM throng.claim
             CROSS JOIN LATERAL unnest(held) AS held (id) JOIN throng.task ON task.id = held.id
             WHERE group_name IS NOT NULL
         ) AS own ON own.id = run.id AND own.queue = run.queue AND own.group_name = run.name
         WHERE own.id IS NULL OR run.id IS NULL",
    ),
];
