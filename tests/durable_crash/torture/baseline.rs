//! [`Baseline`]: what is in a store of which no task is left.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use throng::durable::DeadFilter;
use tokio::time::sleep;

use super::chore::Lane;
use super::fleet::Record;
use crate::database::Database;
use crate::keys::{BASE, Keys};
use crate::redis_server::Server;
use crate::site::{PATIENT, Site};
use crate::support::rounds;

/// The number of entries of each key or table, by name. Of the keys whose fields have different meanings, each field is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Baseline(BTreeMap<String, usize>);

/// The keys whose fields are listed.
const LISTED: [&str; 4] = ["meta", "queues", "groups", "routes"];

impl Baseline {
    pub(super) fn of(site: &Site) -> Self {
        let mut sizes = match (site.redis_if_any(), site.postgres_if_any()) {
            (Some(server), _) => keys(server),
            (_, Some(database)) => tables(database),
            _ => rows(&site.file_connection())
                .into_iter()
                .chain(files(site))
                .collect(),
        };
        sizes.retain(|name, size| *size > 0 && !stays(name));
        Self(sizes)
    }

    /// Returns the entries that are not the same in both, with their numbers.
    fn difference<'a>(&'a self, other: &'a Self) -> BTreeMap<&'a str, [Option<usize>; 2]> {
        let names = self.0.keys().chain(other.0.keys());
        let both = |name: &str| [self, other].map(|it| it.0.get(name).copied());
        let all = names.map(|name| (name.as_str(), both(name)));
        all.filter(|(_, [own, other])| own != other).collect()
    }
}

/// Returns `true` if an entry may stay, or be added, although no task is left.
fn stays(name: &str) -> bool {
    match name.split_once('/') {
        // The totals, the progress of maintenance, and the time of the store.
        Some(("meta", field)) => field != "schedules",
        // The last turn that was issued to a group of the queue.
        Some(("groups", field)) => field.starts_with('t'),
        // The time up to which a rate is used, and the turns of priorities, also those of the default queue.
        Some(("queues", field)) => field.starts_with('r') || field.starts_with('p'),
        // The routes of a store without workers.
        Some(("routes", field)) => ["sets", "text", "version"].contains(&field),
        // The clients that await tasks, such as that of the test, for a minute after the last request, the names of types, and statistics.
        _ => [
            "awaiting",
            "types",
            "stats",
            "throng_stat",
            "throng_stat_report",
            "stat",
            "stat_report",
            "total",
            "watch",
        ]
        .contains(&name),
    }
}

fn keys(server: &Server) -> BTreeMap<String, usize> {
    let mut sizes = Keys::of(server).sizes().clone();
    for key in LISTED {
        sizes.remove(key);
        let fields = server.ask(&["HKEYS", &format!("{BASE}{key}")]);
        let fields: Vec<Vec<u8>> = redis::from_redis_value(fields).expect("names");
        let fields = fields.iter().map(|field| String::from_utf8_lossy(field));
        sizes.extend(fields.map(|field| (format!("{key}/{field}"), 1)));
    }
    sizes
}

fn tables(database: &Database) -> BTreeMap<String, usize> {
    let mut sizes = database.sizes();
    // The default queue has a row only for the turns of priorities.
    let named = database.number("SELECT count(*) FROM throng.queue WHERE name <> ''");
    sizes.insert(String::from("queue"), named as usize);
    sizes
}

fn rows(db: &Connection) -> BTreeMap<String, usize> {
    let tables = "SELECT name FROM sqlite_schema WHERE type = 'table'";
    let mut tables = db.prepare(tables).expect("a query");
    let tables = tables.query_map([], |row| row.get::<_, String>(0));
    let count = |table: String| {
        // The default queue has a row only for the turns of priorities.
        let named = if table == "throng_queue" {
            "WHERE name <> ''"
        } else {
            ""
        };
        let count = format!("SELECT count(*) FROM \"{table}\" {named}");
        let count = db.query_row(&count, [], |row| row.get::<_, i64>(0));
        (table, count.expect("a number") as usize)
    };
    let tables = tables.expect("names");
    tables.map(|table| count(table.expect("a name"))).collect()
}

/// Returns the number of files beside a database, by their folder.
fn files(site: &Site) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    let mut folders = vec![site.folder.0.join("tasks.db-throng")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("a folder").path();
            match path.is_dir() {
                true => folders.push(path),
                false => *counts.entry(folder.display().to_string()).or_default() += 1,
            }
        }
    }
    counts
}

/// Removes all ends, as if their time were over, and waits until the store is back at its baseline. In Redis, only the sessions of
/// processes that were killed may be left.
pub(super) async fn assert_reached(site: &Site, baseline: &Baseline, record: &Record) {
    let deleted = site.client.dead_letters().delete(DeadFilter::all()).await;
    deleted.expect("the store answers");
    let deadline = Instant::now() + Duration::from_secs(rounds(20, 300) as u64);
    loop {
        expire(site);
        // A worker maintains the store when it starts.
        let mut worker = site.worker(PATIENT).await;
        worker.stop(1000).await;
        let mut found = Baseline::of(site);
        if site.redis_if_any().is_some() {
            found
                .0
                .retain(|name, size| !is_of_killed(name, *size, record));
        }
        if found == *baseline {
            return;
        }
        let left = found.difference(baseline);
        assert!(Instant::now() < deadline, "this is left: {left:?}");
        sleep(Duration::from_millis(50)).await;
    }
}

/// Returns `true` if an entry belongs to the sessions of processes that were killed. A server forgets those of workers after
/// three minutes, for which only the long test waits, and those of producers after a day.
fn is_of_killed(name: &str, size: usize, record: &Record) -> bool {
    let is_long = rounds(0, 1) == 1;
    let workers = if is_long { 0 } else { record.killed_workers() };
    let sessions = workers * WORKER_SESSIONS + record.killed_storers * CLIENT_SESSIONS;
    match name.split_once([':', '/']) {
        Some(("idle" | "routes", _)) => !is_long,
        _ => ["cards", "sessions"].contains(&name) && size <= sessions,
    }
}

/// Each client has two sessions to spawn tasks.
const CLIENT_SESSIONS: usize = 2;
/// The sessions of a worker: each executor has one for each queue.
const WORKER_SESSIONS: usize = 2 * Lane::ALL.len() + CLIENT_SESSIONS;

/// Lets the time of all ends be over, so that the next pass of maintenance removes them. In PostgreSQL, it also removes the sessions of
/// processes that were killed.
fn expire(site: &Site) {
    if let Some(database) = site.postgres_if_any() {
        database.ask(EXPIRE_ROWS);
        return;
    }
    match site.redis_if_any() {
        None => {
            let expire = "UPDATE throng_task SET at = 0 WHERE state IN (3, 5)";
            site.file_connection()
                .execute(expire, [])
                .expect("it is written");
        }
        Some(server) => _ = server.ask(&["EVAL", EXPIRE, "0", BASE]),
    }
}

/// Makes all ends and all sessions old. The processes of some sessions live.
const EXPIRE_ROWS: &str = "UPDATE throng.task SET at = 0 WHERE state IN (3, 5);
    UPDATE throng.session SET seen = 0; UPDATE throng.meta SET passed = NULL";

/// Rewrites the time at which each result expires, in the result and in the index.
const EXPIRE: &str = "
local base = ARGV[1]
for _, id in ipairs(redis.call('HKEYS', base .. 'results')) do
  local row = redis.call('HGET', base .. 'results', id)
  redis.call('HSET', base .. 'results', id, string.rep('\\0', 6) .. string.sub(row, 7))
end
for _, bin in ipairs(redis.call('ZRANGE', base .. 'expiry', 0, -1)) do
  redis.call('ZADD', base .. 'expiry', 0, bin)
end
return 0";
