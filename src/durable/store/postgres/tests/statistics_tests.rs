//! The plans of all statements, whatever the server believes about the sizes of the tables. The tables of a queue are empty at one time and
//! large at another, and nobody analyzes them in between.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::Value;

use super::ServerConnection;
use super::needs_postgres;
use super::server::Server;
use crate::durable::store::postgres::PostgresStore;

/// The settings of the connections of a store, as far as they concern plans.
const SETTINGS: &str = "SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_seqscan = off;
    SET jit = off; SET max_parallel_workers_per_gather = 0; SET plan_cache_mode = force_generic_plan";

/// The tables that grow with the number of tasks, groups or schedules. The others have a row for each process, queue or type.
const LARGE: [&str; 12] = [
    "error",
    "group_hold",
    "group_line",
    "group_run",
    "progress",
    "ready",
    "schedule",
    "stat",
    "step",
    "task",
    "watch",
    "workflow",
];

/// The statements that read a whole table: those of maintenance, which runs once a minute.
const READS_ALL: [(&str, &str); 2] = [
    ("silent_sessions.REMOVE_WATCHES", "watch"),
    ("schedules.CORRECT", "schedule"),
];

/// Fills all large tables. The rows are like those of tasks in all states.
const FILL: &str = "
    INSERT INTO throng.task (id, state, place, at, ready_at, name, kind, max_crashes, retention, queue, group_name,
            priority, key, key_until, parent, payload)
        SELECT md5(n::text)::uuid, (ARRAY[0, 0, 1, 3, 4, 5])[n % 6 + 1], n, CASE WHEN n % 6 > 1 THEN n END, n,
            'job', n % 3, 3, 1000, CASE WHEN n % 2 = 0 THEN 'q' END,
            CASE WHEN n % 2 = 0 THEN (n % 500)::text END, 1,
            CASE WHEN n % 10 = 0 THEN decode(md5(n::text), 'hex') END, CASE WHEN n % 20 = 0 THEN n END,
            CASE WHEN n % 7 = 0 THEN md5((n / 7)::text)::uuid END, '\\x00'
        FROM generate_series(1, 12000) AS n;
    INSERT INTO throng.ready SELECT kind, coalesce(group_name, ''), place, id FROM throng.task
        WHERE state = 0 AND place % 6 = 0;
    INSERT INTO throng.error SELECT id, 1, 1, 'error', 1 FROM throng.task WHERE place % 4 = 0;
    INSERT INTO throng.progress SELECT id, 1, 1, '\\x00' FROM throng.task WHERE place % 4 = 1;
    INSERT INTO throng.workflow SELECT id, 2, 2, 3, '' FROM throng.task WHERE place % 4 = 2;
    INSERT INTO throng.step SELECT id, n::text, n, 1, '\\x00' FROM throng.workflow, generate_series(1, 2) AS n;
    INSERT INTO throng.watch SELECT id, 1 FROM throng.task WHERE place % 4 = 3;
    INSERT INTO throng.group_line SELECT n % 3, n::text, 'q', 1, CASE WHEN n % 2 = 0 THEN n END
        FROM generate_series(1, 3000) AS n;
    INSERT INTO throng.group_run SELECT id, 'q', group_name FROM throng.task WHERE group_name IS NOT NULL;
    INSERT INTO throng.group_hold SELECT 'q', n::text, n FROM generate_series(1, 3000) AS n;
    INSERT INTO throng.schedule (name, version, needs, time, hand_out, started, skipped, body)
        SELECT n::text, 1, n % 2, n, n, 0, 0, '\\x00' FROM generate_series(1, 3000) AS n;
    INSERT INTO throng.stat SELECT n % 2 = 0, n / 10, (n % 10)::text, '', 1, 1, 1, 1, 1, 1
        FROM generate_series(1, 5000) AS n;
    INSERT INTO throng.session (id, endpoint, layout, process, types, opened, seen)
        SELECT n + 100, n, 1, n, ARRAY[1, 2], 0, 0 FROM generate_series(1, 300) AS n;
    INSERT INTO throng.park SELECT n + 100, n, ARRAY[1, 2] FROM generate_series(1, 200) AS n;
    INSERT INTO throng.claim (epoch, session, until, lease, claimed_at, held)
        SELECT n, n + 100, n, 1, 1, ARRAY[md5(n::text)::uuid] FROM generate_series(1, 300) AS n";

/// The name of a table, and that of the index by which its rows are found, if there is one.
type Access = (String, Option<String>);

/// The accesses to tables of each statement, by its name.
type Plans = BTreeMap<String, BTreeSet<Access>>;

/// Returns all statements of the store, by the names of their files and their own.
fn statements() -> BTreeMap<String, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/durable/store/postgres");
    let mut statements = BTreeMap::new();
    for file in fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_none_or(|it| it != "rs") {
            continue;
        }
        let (stem, source) = (
            path.file_stem().unwrap(),
            fs::read_to_string(&path).unwrap(),
        );
        for part in source.split("const ").skip(1) {
            let Some((name, text)) = part.split_once(": &str =") else {
                continue;
            };
            let Some(text) = text.trim_start().strip_prefix('"') else {
                continue;
            };
            let text = &text[..text.find('"').unwrap()];
            let kinds = ["SELECT ", "INSERT ", "UPDATE ", "DELETE ", "WITH "];
            if kinds.iter().any(|kind| text.starts_with(kind)) {
                let name = format!("{}.{name}", stem.to_string_lossy());
                statements.insert(name, text.to_owned());
            }
        }
    }
    statements
}

/// Returns the plan of a statement that does not depend on its parameters.
fn plan(connection: &ServerConnection, sql: &str) -> Value {
    let parameters = (1..).take_while(|number| sql.contains(&format!("${number}")));
    let nulls = vec!["NULL"; parameters.count()].join(", ");
    let execute = match nulls.as_str() {
        "" => String::from("it"),
        nulls => format!("it ({nulls})"),
    };
    let rows = connection.ask(&format!(
        "{SETTINGS}; PREPARE it AS {sql}; EXPLAIN (FORMAT JSON) EXECUTE {execute}; DEALLOCATE it"
    ));
    serde_json::from_str(&rows.concat().join("\n")).unwrap()
}

/// The accesses of a plan.
#[derive(Default)]
struct Accesses {
    all: BTreeSet<Access>,
    /// The tables that are read as a whole.
    whole: Vec<String>,
}

impl Accesses {
    /// Adds those of a node of a plan. A limit ends a search in an order.
    fn add(&mut self, node: &Value, is_limited: bool) {
        let kind = text(node, "Node Type").unwrap_or_default();
        let table = text(node, "Relation Name").filter(|_| kind != "ModifyTable");
        if let Some(table) = table {
            let indexes = indexes(node);
            let is_found = indexes.iter().any(|(_, has_condition)| *has_condition)
                || node.get("TID Cond").is_some();
            let may_end = is_limited && kind != "Seq Scan";
            if !is_found && !may_end && LARGE.contains(&&*table) {
                self.whole.push(table.clone());
            }
            let first = indexes.into_iter().map(|(index, _)| index).next();
            self.all.insert((table, first));
        }
        let is_limited = match kind.as_str() {
            "Limit" => true,
            // It reads all rows before the first one is known.
            "Sort" | "Aggregate" | "WindowAgg" | "Hash" => false,
            _ => is_limited,
        };
        for part in parts(node) {
            self.add(part, is_limited);
        }
    }
}

fn text(node: &Value, key: &str) -> Option<String> {
    node[key].as_str().map(str::to_owned)
}

fn parts(node: &Value) -> impl Iterator<Item = &Value> {
    node["Plans"].as_array().into_iter().flatten()
}

/// Returns the indexes by which a node finds the rows of its table, and whether each has a condition.
fn indexes(node: &Value) -> Vec<(String, bool)> {
    let own = text(node, "Index Name").map(|index| (index, node.get("Index Cond").is_some()));
    let is_bitmap = |node: &&Value| {
        let kind = text(node, "Node Type").unwrap_or_default();
        kind.starts_with("Bitmap")
    };
    let of_parts = parts(node).filter(is_bitmap).flat_map(indexes);
    own.into_iter().chain(of_parts).collect()
}

/// Returns the accesses of all statements, and adds the problems to a list.
fn plans(connection: &ServerConnection, situation: &str, problems: &mut BTreeSet<String>) -> Plans {
    let mut plans = Plans::new();
    for (name, sql) in statements() {
        let mut accesses = Accesses::default();
        accesses.add(&plan(connection, &sql)[0]["Plan"], false);
        let Accesses { all, mut whole } = accesses;
        let is_intended = |table: &String| READS_ALL.contains(&(name.as_str(), table.as_str()));
        whole.retain(|table| !is_intended(table));
        if !whole.is_empty() {
            problems.insert(format!("{situation}: {name} reads all of {whole:?}"));
        }
        plans.insert(name, all);
    }
    plans
}

/// Runs a command, whose parts are before and after the name of a table, for each table.
fn each_table(connection: &ServerConnection, [before, after]: &[&str; 2]) {
    let tables = "SELECT relname FROM pg_class WHERE relnamespace = 'throng'::regnamespace AND relkind = 'r'";
    for table in connection.ask(tables).concat() {
        connection.ask(&format!("{before} throng.\"{table}\" {after}"));
    }
}

#[tokio::test]
async fn no_statement_reads_a_whole_table_and_no_plan_depends_on_statistics() {
    needs_postgres!();
    // The transactions of other tests would keep the server from removing dead rows, and those of its own workers could, too.
    let server = Server::start_with(&["autovacuum=off"]);
    let _store = PostgresStore::open(&server.url()).await.unwrap();
    let connection = ServerConnection::to(server.url());
    let mut problems = BTreeSet::new();
    let expected = plans(&connection, "never analyzed", &mut problems);
    assert!(expected.len() > 150, "{} statements", expected.len());
    let situations: [(&str, &dyn Fn()); 4] = [
        ("filled, and never analyzed", &|| drop(connection.ask(FILL))),
        ("analyzed", &|| each_table(&connection, &["ANALYZE", ""])),
        ("analyzed while it was full", &|| {
            drop(connection.ask(EMPTY))
        }),
        ("analyzed while it was empty", &|| {
            each_table(&connection, &["VACUUM ANALYZE", ""]);
            connection.ask(FILL);
        }),
    ];
    for (situation, prepare) in situations {
        prepare();
        for (name, accesses) in plans(&connection, situation, &mut problems) {
            if accesses != expected[&name] {
                let before = &expected[&name];
                problems.insert(format!(
                    "{situation}: {name}: {accesses:?} instead of {before:?}"
                ));
            }
        }
    }
    assert!(problems.is_empty(), "{problems:#?}");
}

/// Empties all tables that [`FILL`] has filled.
const EMPTY: &str = "DELETE FROM throng.task; DELETE FROM throng.ready; DELETE FROM throng.error; DELETE FROM throng.progress;
    DELETE FROM throng.workflow; DELETE FROM throng.step; DELETE FROM throng.watch; DELETE FROM throng.group_line;
    DELETE FROM throng.group_run; DELETE FROM throng.group_hold; DELETE FROM throng.schedule; DELETE FROM throng.stat;
    DELETE FROM throng.park; DELETE FROM throng.claim; DELETE FROM throng.session WHERE id > 100";
