//! Rows that are missing and fields that are garbled: requests end in time, with an answer or an error that says so, and other tasks go on.
//!
//! The constraints of the tables exclude some damage: a field that must not be `NULL` is not. The short test tries some of the cases, each
//! time others; with `THRONG_LONG=1`, it tries all of them.

use std::time::Duration;

use tokio::time::timeout;

use super::needs_postgres;
use super::scene::*;
use crate::durable::failure::{Cause, Failure};
use crate::durable::queue::name::QueueName;
use crate::durable::store::suite::{id, task};
use crate::durable::store::{
    Backend, CheckedFilter, Claim, DeadReason, ListTasks, NewTask, Progress, ProgressReport,
    TaskState, Verdict, Verdicts,
};
use crate::durable::{DeadFilter, Status, TaskId};

/// The longest time that a request may take.
const LIMIT: Duration = Duration::from_secs(10);

const HOUR: Duration = Duration::from_secs(3600);

/// Of each of these pairs of tasks, the first one is damaged.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Pair {
    Kept = 1,
    Dead = 3,
    Delayed = 5,
    Running = 7,
    Waiting = 9,
}

const PAIRS: [Pair; 5] = [
    Pair::Kept,
    Pair::Dead,
    Pair::Delayed,
    Pair::Running,
    Pair::Waiting,
];

impl Pair {
    fn numbers(self) -> [u64; 2] {
        [self as u64, self as u64 + 1]
    }

    /// Returns the verdict on the tasks, or `None` if they are not claimed or run still.
    fn verdict(self) -> Option<Verdict> {
        match self {
            Self::Kept => Some(Verdict::Done(b"output".to_vec())),
            Self::Dead => Some(Verdict::Dead {
                reason: DeadReason::Fatal,
                error: String::from("as intended"),
                took: None,
            }),
            Self::Delayed => Some(Verdict::Retry {
                after: HOUR,
                error: String::from("not yet"),
                took: None,
            }),
            Self::Running | Self::Waiting => None,
        }
    }
}

/// Rows of the tables that no task needs.
const OTHER_ROWS: &str = "
    INSERT INTO $S.schedule (name, version, needs, time, hand_out, started, skipped, body)
        VALUES ('one', 1, 1, 1, 1, 0, 0, '\\x00'), ('two', 1, 1, 1, 1, 0, 0, '\\x00');
    INSERT INTO $S.stat SELECT false, 29833333, n::text, '', 1, 1, 0, 0, 0, 7 FROM generate_series(1, 2) AS n;
    INSERT INTO $S.stat_report SELECT n, 1, 1 FROM generate_series(1, 2) AS n;
    INSERT INTO $S.queue (name, max_running) VALUES ('q', 5), ('r', 5);
    INSERT INTO $S.group_hold VALUES ('q', 'g', 1), ('q', 'h', 1);
    INSERT INTO $S.paused VALUES ('never'), ('ever');
    INSERT INTO $S.step SELECT id, 'step:a', 1, 0, '\\x00' FROM $S.task WHERE state < 2;
    INSERT INTO $S.workflow SELECT id, 1, 7, CASE WHEN state = 1 THEN 5 END, NULL FROM $S.task WHERE state < 2;
    INSERT INTO $S.park SELECT id, endpoint, '{1}' FROM $S.session";

/// A store with tasks in every state, a worker that holds some of them, and another.
struct DamagedScene {
    scene: PostgresScene,
    holder: Caller,
    other: Caller,
    held: Claim,
}

impl DamagedScene {
    async fn new() -> Self {
        let scene = PostgresScene::new();
        let (holder, other) = (scene.open().await, scene.open().await);
        let mut held = None;
        for pair in PAIRS {
            let new = pair.numbers().map(task);
            holder.store.enqueue(holder.new_enqueue(new)).await.unwrap();
            if pair == Pair::Waiting {
                continue;
            }
            let claim = holder.claim(2).await;
            match pair.verdict() {
                Some(verdict) => drop(holder.turn(verdicts(&claim, &verdict), 0).await),
                None => held = Some(claim),
            }
        }
        let held = held.expect("some tasks run");
        let reports = held.tasks.iter().map(|task| ProgressReport {
            id: task.id,
            progress: Progress {
                epoch: held.epoch,
                number: 1,
                bytes: b"half".to_vec(),
            },
        });
        let reported = holder.store.report_progress(reports.collect()).await;
        reported.unwrap();
        holder
            .store
            .status(PAIRS.map(|pair| id(pair as u64)).to_vec())
            .await
            .unwrap();
        scene.ask(OTHER_ROWS);
        Self {
            scene,
            holder,
            other,
            held,
        }
    }

    /// Damages the store. Returns `false` if the server does not allow that.
    fn damage(&self, case: &Case) -> bool {
        self.scene.try_ask(&case.damage).is_ok()
    }

    /// Makes all kinds of requests, and then lets other tasks run. Returns the problems.
    async fn work(&self) -> Vec<String> {
        let mut seen = Seen::default();
        let verdicts = verdicts(&self.held, &Verdict::Done(Vec::new()));
        self.read_all(&mut seen).await;
        seen.add("renewal", self.holder.store.renew(vec![self.held.epoch]))
            .await;
        let request = self.holder.new_turn(verdicts, 0);
        seen.add("verdicts", self.holder.store.turn(request)).await;
        self.take_all(&mut seen).await;
        // All leases are over, and nobody has renewed them.
        self.scene.ask("UPDATE $S.claim SET until = 0, suspect = 1");
        self.take_all(&mut seen).await;
        let (store, first) = (&self.other.store, id(1));
        seen.add("maintenance", store.maintain(1000)).await;
        seen.add("cancel", store.cancel(vec![id(Pair::Waiting as u64)]))
            .await;
        seen.add("replay", store.replay_dead_letters(DeadFilter::all()))
            .await;
        seen.add("steps", store.steps(first)).await;
        self.read_all(&mut seen).await;
        self.take_all(&mut seen).await;
        self.run_others(&mut seen).await;
        seen.problems
    }

    async fn read_all(&self, seen: &mut Seen) {
        let store = &self.other.store;
        let ids: Vec<TaskId> = (1..=10).map(id).collect();
        seen.add("status", store.status(ids.clone())).await;
        seen.add("progress", store.progress(ids.clone())).await;
        for id in ids {
            seen.add("find", store.find(id)).await;
            seen.add("errors", store.errors(id)).await;
            seen.add("payload", store.dead_letter_payload(id)).await;
        }
        use Status::{Cancelled, Dead, Delayed, Done, Running, Waiting};
        for status in [Waiting, Delayed, Running, Done, Dead, Cancelled] {
            let list = ListTasks {
                filter: CheckedFilter::new(status),
                after: None,
                limit: 100,
            };
            seen.add("list", store.list(list)).await;
        }
        seen.add("counts", store.counts()).await;
        seen.add("overview", store.overview()).await;
        seen.add("diagnosis", store.diagnose()).await;
        seen.add("head", store.head(QueueName::DEFAULT, 10)).await;
        seen.add("dead letters", store.dead_letters(DeadFilter::all(), 10))
            .await;
        seen.add("workers", store.workers(None, 10)).await;
        seen.add("schedules", store.schedules(None, 10)).await;
        seen.add("paused types", store.paused_types()).await;
        seen.add("layout", store.layout()).await;
        seen.add("retention", store.retention()).await;
        seen.add("hand out", store.hand_out(u8::MAX)).await;
    }

    /// Claims and ends all tasks that wait.
    async fn take_all(&self, seen: &mut Seen) {
        let mut ends = Vec::new();
        for _ in 0..4 {
            let request = self.other.new_turn(std::mem::take(&mut ends), 100);
            let turned = seen.add("turn", self.other.store.turn(request)).await;
            let Some(claim) = turned.and_then(|turned| turned.claim) else {
                break;
            };
            ends = verdicts(&claim, &Verdict::Done(Vec::new()));
        }
    }

    /// Stores new tasks, which a new worker runs.
    async fn run_others(&self, seen: &mut Seen) {
        let worker = timeout(LIMIT, self.scene.try_open()).await;
        let worker = match worker {
            Ok(Ok(worker)) => worker,
            Ok(Err(error)) => {
                return seen.problems.push(format!("{UNOPENED}: {error}"));
            }
            Err(_) => return seen.problems.push(String::from("opening the store hangs")),
        };
        let numbers = [101, 102, 103];
        let new = numbers.map(|number| NewTask {
            name: "b".into(),
            ..task(number)
        });
        let request = worker.new_enqueue(new);
        seen.add("enqueue", worker.store.enqueue(request)).await;
        let mut ends = Vec::new();
        for _ in 0..4 {
            let request = worker.new_turn(std::mem::take(&mut ends), 100);
            let turned = seen
                .add("turn of a new worker", worker.store.turn(request))
                .await;
            let claim = turned.and_then(|turned| turned.claim);
            ends = claim.map_or(Vec::new(), |it| verdicts(&it, &Verdict::Done(Vec::new())));
        }
        let ends = worker.store.status(numbers.map(id).to_vec());
        let ends = seen
            .add("status of new tasks", ends)
            .await
            .unwrap_or_default();
        let is_done = |end: &TaskState| matches!(end, TaskState::Done(_));
        if ends.len() < numbers.len() || !ends.iter().all(is_done) {
            seen.problems
                .push(format!("other tasks do not go on: {ends:?}"));
        }
    }
}

/// The begin of the problem that a store which is damaged cannot be opened.
const UNOPENED: &str = "nobody can open the store";

fn verdicts(claim: &Claim, verdict: &Verdict) -> Vec<Verdicts> {
    let tasks = claim.tasks.iter().map(|task| (task.id, verdict.clone()));
    vec![Verdicts {
        epoch: claim.epoch,
        tasks: tasks.collect(),
    }]
}

/// The problems of requests so far.
#[derive(Default)]
struct Seen {
    problems: Vec<String>,
}

impl Seen {
    /// Awaits an answer. An error must say that the stored data or a session is lost.
    async fn add<T>(
        &mut self,
        what: &str,
        request: impl Future<Output = Result<T, Failure>>,
    ) -> Option<T> {
        let Ok(answer) = timeout(LIMIT, request).await else {
            self.problems.push(format!("{what} hangs"));
            return None;
        };
        match answer {
            Ok(answer) => Some(answer),
            Err(failure) => {
                let is_named = matches!(
                    failure.cause,
                    Cause::Corrupt
                        | Cause::NoSession
                        | Cause::NewerLayout { .. }
                        | Cause::OlderLayout { .. }
                );
                if !is_named {
                    self.problems.push(format!("{what}: {failure}"));
                }
                None
            }
        }
    }
}

/// A way to damage the store.
#[derive(Debug)]
struct Case {
    table: String,
    damage: String,
}

/// Returns all cases.
fn cases(scene: &PostgresScene) -> Vec<Case> {
    let columns = scene.ask(
        "SELECT relname, attname, format_type(atttypid, NULL) FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid
         WHERE relnamespace = '$S'::regnamespace AND relkind = 'r' AND attnum > 0 ORDER BY 1, attnum",
    );
    let mut cases = Vec::new();
    for column in columns {
        let [table, column, kind] = column.try_into().expect("three columns");
        if cases.last().is_none_or(|case: &Case| case.table != table) {
            for rows in [victims(&table), String::from("true")] {
                cases.push(Case {
                    damage: format!("DELETE FROM $S.\"{table}\" WHERE {rows}"),
                    table: table.clone(),
                });
            }
        }
        for garbage in garbage(&kind) {
            let rows = victims(&table);
            cases.push(Case {
                damage: format!("UPDATE $S.\"{table}\" SET \"{column}\" = {garbage} WHERE {rows}"),
                table: table.clone(),
            });
        }
    }
    cases
}

/// Returns a condition that selects the rows to damage.
fn victims(table: &str) -> String {
    match table {
        "task" => {
            let ids = PAIRS.map(|pair| format!("'{}'", id(pair as u64)));
            format!("id IN ({})", ids.join(", "))
        }
        "ready" | "error" | "progress" | "step" | "workflow" => {
            format!("id = (SELECT min(id::text)::uuid FROM $S.\"{table}\")")
        }
        _ => format!("ctid IN (SELECT ctid FROM $S.\"{table}\" LIMIT 1)"),
    }
}

/// Returns values of a type that do not belong where they are.
fn garbage(kind: &str) -> Vec<&'static str> {
    let own: &[&str] = match kind {
        "bigint" => &["-1", "9223372036854775807", "-9223372036854775808"],
        "integer" => &["-1", "2147483647"],
        "smallint" => &["-1", "7", "32767"],
        "boolean" => &["true", "false"],
        "text" => &["''", r"E'\x01\x7f'"],
        "bytea" => &["''", r"'\x00ff'"],
        "uuid" => &["'ffffffff-ffff-ffff-ffff-ffffffffffff'"],
        "bigint[]" => &["'{}'", "'{NULL}'"],
        "uuid[]" => &[
            "'{}'",
            "'{NULL}'",
            "'{ffffffff-ffff-ffff-ffff-ffffffffffff}'",
        ],
        other => panic!("what is garbage in a column of the type {other}?"),
    };
    own.iter().copied().chain(["NULL"]).collect()
}

/// The number of cases of which the short test tries one.
const SAMPLED: usize = 12;

#[tokio::test]
async fn damage_is_named_and_other_tasks_go_on() {
    needs_postgres!();
    let all = cases(&DamagedScene::new().await.scene);
    let is_long = std::env::var_os("THRONG_LONG").is_some();
    let (first, step) = match is_long {
        true => (0, 1),
        false => (0, SAMPLED),
    };
    let (mut problems, mut tried) = (Vec::new(), 0);
    for case in all.iter().skip(first).step_by(step) {
        let damaged = DamagedScene::new().await;
        if damaged.damage(case) {
            tried += 1;
            let mut found = damaged.work().await;
            // Without the row about the whole store, nobody can open it.
            found.retain(|problem| case.table != "meta" || !problem.starts_with(UNOPENED));
            if !found.is_empty() {
                problems.push(format!("{}: {found:#?}", case.damage));
            }
        }
    }
    println!("{tried} of {} cases", all.len());
    assert!(tried > all.len() / step / 2, "{tried} of {}", all.len());
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
