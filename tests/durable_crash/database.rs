//! [`Database`]: a database in PostgreSQL that holds the store of a test.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use throng::durable::Counts;

use super::postgres_connection::ServerConnection;
use super::postgres_server::Server;
use super::store_address::application_name;

/// A database of its own, in a server that the tests share or in one that this test ends.
pub(crate) struct Database {
    server: Host,
    name: String,
}

enum Host {
    Shared(&'static Server),
    Own(Server),
}

impl Database {
    /// Creates a database in the server that the tests share.
    pub(crate) fn shared() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let (server, number) = (Server::shared(), NEXT.fetch_add(1, Ordering::Relaxed));
        let name = format!("site_{number}");
        ServerConnection::to(server.url()).ask(&format!("CREATE DATABASE {name}"));
        Self {
            server: Host::Shared(server),
            name,
        }
    }

    /// The only database of a server.
    pub(crate) fn of(server: Server) -> Self {
        Self {
            server: Host::Own(server),
            name: String::from("postgres"),
        }
    }

    pub(crate) fn server(&self) -> &Server {
        match &self.server {
            Host::Shared(server) => server,
            Host::Own(server) => server,
        }
    }

    pub(crate) fn url(&self) -> String {
        let url = self.server().url();
        url.replace("dbname=postgres", &format!("dbname={}", self.name))
    }

    /// Continues in another server, which has a copy of this database. Returns the first one.
    pub(crate) fn fail_over(&mut self, server: Server) -> Server {
        match std::mem::replace(&mut self.server, Host::Own(server)) {
            Host::Own(first) => first,
            Host::Shared(_) => panic!("other tests need the server"),
        }
    }

    /// Runs statements on a new connection. Returns the rows of all of them, as texts.
    pub(crate) fn ask(&self, sql: &str) -> Vec<Vec<String>> {
        ServerConnection::to(self.url()).ask(sql)
    }

    pub(crate) fn number(&self, sql: &str) -> i64 {
        self.ask(sql)[0][0].parse().expect("it is a number")
    }

    /// Returns the number of rows of each table.
    pub(crate) fn sizes(&self) -> BTreeMap<String, usize> {
        let connection = ServerConnection::to(self.url());
        let tables = connection.ask(TABLES).concat().into_iter();
        let size = |table: String| {
            let size = connection.number(&format!("SELECT count(*) FROM throng.\"{table}\""));
            (table, size as usize)
        };
        tables.map(size).collect()
    }

    /// Returns the ids of the tasks that match.
    pub(crate) fn ids(&self, condition: &str) -> Vec<String> {
        self.ask(&format!("SELECT id FROM throng.task WHERE {condition}"))
            .concat()
    }

    /// Ends some connections of the processes of the test.
    pub(crate) fn cut_some(&self) {
        self.ask(CUT_SOME);
    }

    /// Ends the connections on which the processes of the test receive notifications. Returns their number.
    pub(crate) fn cut_listeners(&self) -> i64 {
        self.number(CUT_LISTENERS)
    }

    /// Returns `true` if a process has a transaction open. If it is stopped now, others may have to wait.
    pub(crate) fn is_in_transaction(&self, pid: u32) -> bool {
        let name = application_name(pid);
        self.number(&format!(
            "SELECT count(*) FROM pg_stat_activity
             WHERE application_name = '{name}' AND state <> 'idle'"
        )) > 0
    }

    /// Nothing waits, is delayed or runs. What is there besides belongs to ends that are kept, and to processes.
    pub(crate) fn assert_sound(&self, counts: &Counts) {
        let sizes = self.sizes();
        for (table, &size) in &sizes {
            assert!(size == 0 || MAY_STAY.contains(&&**table), "{sizes:?}");
        }
        let connection = ServerConnection::to(self.url());
        for (what, sql) in BROKEN {
            let rows = connection.ask(sql);
            assert!(rows.is_empty(), "{what}: {rows:?}");
        }
        let there = connection.ask(ENDS).concat();
        assert_eq!(there, [counts.kept, counts.dead].map(|it| it.to_string()));
        let deadlocks = connection.number(DEADLOCKS);
        assert_eq!(deadlocks, 0, "transactions have waited for one another");
        connection.ask(CHECK_INDEXES);
    }

    /// Returns `true` if of processes, only those have left something that were killed.
    pub(crate) fn is_baseline(&self, counts: &Counts, killed: usize) -> bool {
        self.assert_sound(counts);
        let sizes = self.sizes();
        let [sessions, parked] = ["session", "park"].map(|table| sizes[table]);
        sessions <= killed && parked <= sessions
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if let Host::Shared(server) = self.server {
            let drop = format!("DROP DATABASE {} WITH (FORCE)", self.name);
            ServerConnection::to(server.url()).try_ask(&drop).ok();
        }
    }
}

const CUT_SOME: &str = "SELECT count(pg_terminate_backend(pid)) FROM (
        SELECT pid FROM pg_stat_activity
        WHERE datname = current_database() AND application_name LIKE 'throng-%'
        ORDER BY random() LIMIT 3
    ) AS chosen";

/// Each process that listens holds the lock of its endpoint on that connection.
const CUT_LISTENERS: &str = "SELECT count(pg_terminate_backend(pid)) FROM pg_locks JOIN (
        SELECT DISTINCT endpoint FROM throng.session
    ) AS own ON (classid::bigint << 32) | objid::bigint = endpoint
    WHERE locktype = 'advisory' AND objsubid = 1 AND granted
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";

const TABLES: &str = "SELECT relname FROM pg_class
    WHERE relnamespace = 'throng'::regnamespace AND relkind = 'r' ORDER BY 1";

/// The tables that may have rows although nothing is left to do. Dead letters keep their errors and steps, and a turn ends the holds of groups.
const MAY_STAY: [&str; 14] = [
    "error",
    "group_hold",
    "meta",
    "park",
    "paused",
    "queue",
    "session",
    "stat",
    "stat_report",
    "step",
    "task",
    "total",
    "watch",
    "workflow",
];

/// Queries for rows that must not exist.
const BROKEN: [(&str, &str); 5] = [
    (
        "an error, a progress or a step belongs to no task, or to one that has succeeded",
        "SELECT id FROM (
             SELECT id FROM throng.error UNION SELECT id FROM throng.progress
             UNION SELECT id FROM throng.step UNION SELECT id FROM throng.workflow
         ) AS part WHERE NOT EXISTS (SELECT 1 FROM throng.task WHERE task.id = part.id AND state = 4)",
    ),
    (
        "a task is neither waiting, delayed, ended nor held by a claim",
        "SELECT id FROM throng.task_now WHERE now = 2
             AND (SELECT count(*) FROM throng.claim WHERE task_now.id = ANY (held)) <> 1",
    ),
    (
        "a session that is idle does not exist",
        "SELECT session FROM throng.park
         WHERE NOT EXISTS (SELECT 1 FROM throng.session WHERE session.id = park.session)",
    ),
    (
        "the sums differ from the tables",
        "SELECT summed.*, counted.* FROM (
             SELECT sum(waiting), sum(delayed), sum(running), sum(results), sum(dead) FROM throng.total
         ) AS summed (waiting, delayed, running, results, dead), (
             SELECT count(*) FILTER (WHERE now = 0), count(*) FILTER (WHERE now = 1),
                 count(*) FILTER (WHERE now = 2), count(*) FILTER (WHERE now IN (3, 5)),
                 count(*) FILTER (WHERE now = 4)
             FROM throng.task_now
         ) AS counted (waiting, delayed, running, results, dead)
         WHERE (summed.waiting, summed.delayed, summed.running, summed.results, summed.dead)
             <> (counted.waiting, counted.delayed, counted.running, counted.results, counted.dead)",
    ),
    (
        "a task that has ended has a payload",
        "SELECT id FROM throng.task WHERE state IN (3, 5) AND payload IS NOT NULL",
    ),
];

const ENDS: &str =
    "SELECT count(*) FILTER (WHERE state IN (3, 5)), count(*) FILTER (WHERE state = 4)
    FROM throng.task";

const DEADLOCKS: &str = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";

/// Compares all indexes with their tables.
const CHECK_INDEXES: &str =
    "SET client_min_messages = warning; CREATE EXTENSION IF NOT EXISTS amcheck;
    SELECT bt_index_check(pg_index.indexrelid, true) FROM pg_index
    JOIN pg_class ON pg_class.oid = indrelid WHERE relnamespace = 'throng'::regnamespace";

/// More often than a task of Tokio may go on without a wait.
#[tokio::test]
async fn a_test_can_ask_any_number_of_times() {
    needs_postgres!();
    let database = Database::shared();
    for number in 0..300 {
        assert_eq!(database.number(&format!("SELECT {number}")), number);
    }
}
