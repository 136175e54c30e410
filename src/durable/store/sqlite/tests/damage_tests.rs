//! Stored data that cannot be read only costs the tasks that it belongs to.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::join_all;
use tokio::sync::Mutex;

use super::{
    Backend, Clock, DeadFilter, DeadReason, Duration, File, NewTask, SqliteStore, TaskId,
    TaskState, TypeSet, Verdict, Verdicts, Worker, done, id, task,
};
use crate::durable::Key;
use crate::durable::failure::Cause;
use crate::durable::queue::name::QueueName;
use crate::durable::store::Turn;

mod pages_tests;

/// A retention that is longer than any of these tests.
const RETENTION: Duration = Duration::from_secs(1_000_000);
const DELAY: Duration = Duration::from_secs(50);

/// A store with tasks in every state, a worker that holds some of them, and another.
struct DamagedStore {
    file: File,
    clock: Clock,
    holder: Worker,
    other: Worker,
    /// The claim of the running tasks: its epoch and their ids.
    held: Verdicts,
    all: Vec<TaskId>,
}

/// The state of a task at the beginning.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Initial {
    Waiting,
    Delayed,
    Running,
    Kept,
    Dead,
}

const INITIALS: [Initial; 5] = [
    Initial::Kept,
    Initial::Dead,
    Initial::Running,
    Initial::Waiting,
    Initial::Delayed,
];

impl DamagedStore {
    /// Creates a store with `each` tasks in each state. Every third task has large data.
    async fn new(each: u64) -> Self {
        let file = File::new();
        std::fs::write(&file.path, &*file_with(each).await).unwrap();
        let clock = Clock::manual();
        let [holder, other] = [0; 2].map(|_| SqliteStore::open_with(&file.path, clock.clone()));
        let (holder, other) = (
            Arc::new(holder.await.unwrap()),
            Arc::new(other.await.unwrap()),
        );
        let (holder, other) = (Worker::new(&holder).await, Worker::new(&other).await);
        let claim = holder.claim(each as usize).await;
        let ids: Vec<_> = claim.tasks.iter().map(|task| task.id).collect();
        assert_eq!(
            ids,
            ids_of(Initial::Running, each).map(id).collect::<Vec<_>>()
        );
        let all = INITIALS.map(|initial| ids_of(initial, each).map(id));
        let failed = "INSERT INTO throng_error (id, attempt, at, error)
            SELECT id, 1, 0, 'it has failed before' FROM throng_task;
            UPDATE throng_task SET failures = 1;
            INSERT INTO throng_progress (id, epoch, number, bytes)
                SELECT id, 1, 1, zeroblob(30) FROM throng_task WHERE state < 2;
            INSERT INTO throng_step (id, name, number, at, value)
                SELECT id, 'step:a', 1, 0, zeroblob(30) FROM throng_task WHERE state < 2 OR state = 4;
            INSERT INTO throng_workflow (id, steps, bytes, until)
                SELECT id, 1, 36, iif(state = 1, 5, NULL) FROM throng_task WHERE state < 2 OR state = 4;
            INSERT INTO throng_schedule (name, version, needs, time, hand_out, started, skipped, body)
                SELECT hex(id), 1, 1, at, at, 0, 0, zeroblob(30) FROM throng_task;
            INSERT INTO throng_stat (hours, bucket, name, queue, started, done, retried, died, cancelled, micros)
                SELECT 0, 29833333, hex(id), '', 1, 1, 0, 0, 0, 7 FROM throng_task;
            INSERT INTO throng_stat_report (number, at) SELECT 1, 1790000000000 FROM throng_task;
            INSERT INTO throng_damaged (at, found, what) VALUES (0, 1, 'long ago')";
        file.connect().execute_batch(failed).unwrap();
        Self {
            file,
            clock,
            holder,
            other,
            held: done(&claim, vec![]).pop().expect("some tasks run"),
            all: all.into_iter().flatten().collect(),
        }
    }

    /// Runs all tasks, and returns how each of them has ended.
    async fn work_to_the_end(&mut self) -> BTreeMap<TaskId, TaskState> {
        for _ in 0..3 {
            for worker in [&self.holder, &self.other] {
                worker.store.maintain(1000).await.unwrap();
            }
        }
        let held = Verdicts {
            epoch: self.held.epoch,
            tasks: self.held.tasks.clone(),
        };
        self.holder.sound_turn(vec![held], 0).await;
        // Claims without a live session are taken back.
        for wait in [DELAY, DELAY, DELAY, DELAY] {
            self.other.claim_all().await;
            self.clock.advance(wait);
        }
        self.other.claim_all().await;
        let mut ends = BTreeMap::new();
        for ids in self.all.chunks(200) {
            let seen = self.other.store.status(ids.to_vec()).await.unwrap();
            ends.extend(ids.iter().copied().zip(seen));
        }
        ends
    }

    /// Asserts that the store behaves like an undamaged one.
    async fn assert_sound(&mut self) {
        let store = Arc::clone(&self.other.store);
        assert!(!store.maintain(1000).await.unwrap());
        // All at once, so that the reader does not wait for each of the next ones.
        let reads = self.all.iter().map(async |&id| {
            let errors = store.errors(id).await;
            assert!(errors.is_ok_and(|errors| errors.len() <= 1), "{id}");
            store.dead_letter_payload(id).await.unwrap();
            store.find(id).await.unwrap();
        });
        join_all(reads).await;
        let found = store.damage();
        for n in [1, 600] {
            let new = task(90_000 + n).payload(vec![1; n as usize * 5]).0;
            self.other.sound_enqueue(new).await;
        }
        assert_eq!(self.other.claim_all().await, 2);
        store.dead_letters(DeadFilter::all(), 10_000).await.unwrap();
        store.maintain(1000).await.unwrap();
        assert_eq!(store.damage(), found, "no more damage is found");
        let counts = store.counts().await.unwrap();
        assert_eq!((counts.waiting, counts.delayed, counts.running), (0, 0, 0));
        let ends = counts.done + counts.retried + counts.snoozed + counts.died + counts.released;
        let ends = ends + counts.crashed + counts.lost + counts.cancelled;
        assert_eq!(counts.claimed, ends, "{counts:?}");
        for (sql, count) in [("state = 4", counts.dead), ("state IN (3, 5)", counts.kept)] {
            let sql = format!("SELECT count(*) FROM throng_task WHERE {sql}");
            assert_eq!(self.file.number(&sql), count as i64);
        }
    }
}

impl Worker {
    /// Makes a turn, in a new session if the store has lost the old one.
    async fn sound_turn(&mut self, verdicts: Vec<Verdicts>, want: usize) -> Option<super::Claim> {
        let mut request = self.request_turn(verdicts, want, false);
        loop {
            match self.store.turn(Arc::new(request.clone())).await {
                Ok(turned) => return turned.claim,
                Err(failure) => assert_eq!(failure.cause, Cause::NoSession, "{failure}"),
            }
            self.reopen().await;
            request = Turn {
                session: self.session,
                number: self.next(),
                ..request
            };
        }
    }

    async fn sound_enqueue(&mut self, task: NewTask) {
        while let Err(failure) = self.try_enqueue([task.clone()]).await {
            assert_eq!(failure.cause, Cause::NoSession, "{failure}");
            self.reopen().await;
        }
    }

    async fn reopen(&mut self) {
        self.session = self.store.open_session(TypeSet::of_tests()).await.unwrap();
    }

    /// Claims and ends all waiting tasks. Returns their number.
    async fn claim_all(&mut self) -> usize {
        let (mut count, mut verdicts) = (0, vec![]);
        loop {
            let Some(claim) = self.sound_turn(std::mem::take(&mut verdicts), 200).await else {
                return count;
            };
            count += claim.tasks.len();
            let ends = claim.tasks.iter().map(|task| match &task.payload {
                Ok(_) => (task.id, output(task.id)),
                Err(_) => (task.id, dead(DeadReason::Damaged)),
            });
            verdicts.push(Verdicts {
                epoch: claim.epoch,
                tasks: ends.collect(),
            });
        }
    }
}

/// The numbers of the tasks in a state.
fn ids_of(initial: Initial, each: u64) -> std::ops::Range<u64> {
    let nth = INITIALS.iter().position(|it| *it == initial);
    let first = 1000 * (nth.expect("it is one of them") as u64 + 1);
    first..first + each
}

/// Returns the content of a file with `each` tasks in each state. Those that are to run are the first to be claimed. Many
/// tests and cases begin with a copy of the same file, which takes time to make.
async fn file_with(each: u64) -> Arc<Vec<u8>> {
    static MADE: Mutex<BTreeMap<u64, Arc<Vec<u8>>>> = Mutex::const_new(BTreeMap::new());
    let mut made = MADE.lock().await;
    if let Some(content) = made.get(&each) {
        return Arc::clone(content);
    }
    let file = File::new();
    let store = SqliteStore::open_with(&file.path, Clock::manual()).await;
    let worker = Worker::new(&Arc::new(store.unwrap())).await;
    for initial in INITIALS {
        let new = ids_of(initial, each).map(|n| new_task(n, initial));
        worker.enqueue(new).await;
        let verdict: fn(TaskId) -> Verdict = match initial {
            Initial::Kept => output,
            Initial::Dead => |_| dead(DeadReason::Fatal),
            Initial::Running | Initial::Waiting | Initial::Delayed => continue,
        };
        let claim = worker.claim(each as usize).await;
        worker.turn(super::verdicts(&claim, verdict), 0).await;
    }
    worker.store.close_session(worker.session).await.unwrap();
    worker.store.close().await.unwrap();
    let content = Arc::new(std::fs::read(&file.path).unwrap());
    made.insert(each, Arc::clone(&content));
    content
}

fn new_task(n: u64, initial: Initial) -> NewTask {
    let delay = if initial == Initial::Delayed {
        DELAY
    } else {
        Duration::ZERO
    };
    let payload = vec![7; if n.is_multiple_of(3) { 700 } else { 10 }];
    let key = Key::new(n.to_string()).throttle(RETENTION);
    let key = key.of("name", &QueueName::DEFAULT).unwrap();
    NewTask {
        delay,
        payload,
        retention: RETENTION,
        key: n.is_multiple_of(2).then_some(key),
        ..task(n).0
    }
}

fn output(id: TaskId) -> Verdict {
    let len = if id.to_bytes()[15].is_multiple_of(3) {
        700
    } else {
        10
    };
    Verdict::Done(vec![8; len])
}

fn dead(reason: DeadReason) -> Verdict {
    let error = String::from("as intended");
    Verdict::Dead {
        reason,
        error,
        took: None,
    }
}

fn is_damaged(seen: &TaskState) -> bool {
    matches!(
        seen,
        TaskState::Dead {
            reason: DeadReason::Damaged,
            ..
        }
    )
}

fn is_final(seen: &TaskState) -> bool {
    matches!(
        seen,
        TaskState::Done(_) | TaskState::Dead { .. } | TaskState::Absent
    )
}

// ===== Rows =====

const GARBAGE: [&str; 4] = [
    "x'00ff'",
    "CAST(x'ff' AS TEXT)",
    "-1",
    "9223372036854775807",
];

/// Garbles a column of a few rows in each way.
async fn garble(table: &str, column: &str) {
    for garbage in GARBAGE {
        let mut damaged = DamagedStore::new(4).await;
        let name = format!("{table}.{column} = {garbage}");
        let is_one = match table {
            "throng_task" => "id IN (SELECT min(id) FROM throng_now GROUP BY now)",
            _ => "true",
        };
        let sql = format!("SELECT hex(id) FROM {table} WHERE {is_one}");
        let garbled: Vec<String> = match table {
            "throng_task" => damaged.file.texts(&sql),
            _ => vec![],
        };
        let rows = match table {
            "throng_ready" | "throng_payload" | "throng_error" | "throng_progress"
            | "throng_step" | "throng_workflow" => format!(
                "UPDATE OR IGNORE {table} SET {column} = {garbage}
                 WHERE id = (SELECT min(id) FROM {table})"
            ),
            _ => format!("UPDATE OR IGNORE {table} SET {column} = {garbage} WHERE {is_one}"),
        };
        // Not every value can be written into every column.
        if damaged.file.connect().execute(&rows, []).unwrap_or(0) == 0 {
            continue;
        }
        let ends = damaged.work_to_the_end().await;
        for (id, end) in &ends {
            let is_garbled = garbled.iter().any(|it| it.eq_ignore_ascii_case(&hex(*id)));
            // A time in the far future and an unknown type are valid.
            let is_sense = matches!(
                (column, end),
                ("at", TaskState::Delayed) | ("name" | "kind", TaskState::Waiting)
            );
            assert!(is_final(end) || is_sense, "{name}: {id} {end:?}");
            let is_sound = !is_damaged(end) && *end != TaskState::Absent;
            let may_be_lost = is_garbled || matches!(table, "throng_payload" | "throng_step");
            assert!(is_sound || may_be_lost, "{name}: {id} {end:?}");
        }
        if ends.values().all(is_final) {
            damaged.assert_sound().await;
        }
    }
}

fn hex(id: TaskId) -> String {
    id.to_bytes()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

async fn garble_all(table: &str, but: &[&str]) {
    let file = File::new();
    drop(file.open().await);
    let columns = file.texts(&format!("SELECT name FROM pragma_table_info('{table}')"));
    for column in columns.iter().filter(|it| !but.contains(&&***it)) {
        garble(table, column).await;
    }
}

#[tokio::test]
async fn garbled_tasks_become_dead_letters_and_others_continue() {
    garble_all("throng_task", &[]).await;
}

#[tokio::test]
async fn garbled_ready_queue_entries_cost_nothing() {
    garble_all("throng_ready", &[]).await;
}

#[tokio::test]
async fn garbled_sessions_and_claims_cost_nothing() {
    garble_all("throng_session", &[]).await;
    garble_all("throng_claim", &[]).await;
}

#[tokio::test]
async fn garbled_payloads_and_outputs_cost_their_own_task() {
    garble_all("throng_payload", &[]).await;
}

#[tokio::test]
async fn garbled_errors_cost_nothing() {
    garble_all("throng_error", &[]).await;
}

#[tokio::test]
async fn garbled_progress_costs_nothing() {
    garble_all("throng_progress", &[]).await;
}

#[tokio::test]
async fn garbled_steps_cost_their_own_task() {
    garble_all("throng_step", &[]).await;
    garble_all("throng_workflow", &[]).await;
}

#[tokio::test]
async fn garbled_statistics_cost_nothing() {
    garble_all("throng_stat", &[]).await;
    garble_all("throng_stat_report", &[]).await;
}

#[tokio::test]
async fn garbled_reports_of_damage_cost_nothing() {
    for garbage in ["'many', 'a row'", "-1, 'a row'", "1, x'ff'"] {
        let mut damaged = DamagedStore::new(4).await;
        damaged.file.sql(&format!(
            "INSERT INTO throng_damaged (at, found, what) VALUES (1 << 60, {garbage})"
        ));
        let ends = damaged.work_to_the_end().await;
        assert!(ends.values().all(|end| is_final(end) && !is_damaged(end)));
        let damage = damaged.other.store.damage();
        assert_eq!(damage.map(|damage| damage.0), Some(1), "{garbage}");
        damaged.assert_sound().await;
    }
}

/// The view `throng_now` has this state for tasks that a claim holds. It is not valid in a row.
#[tokio::test]
async fn a_task_in_the_state_running_becomes_a_dead_letter() {
    let mut damaged = DamagedStore::new(4).await;
    damaged.file.sql(
        "UPDATE throng_task SET state = 2
         WHERE id IN (SELECT min(id) FROM throng_task WHERE at IS NOT NULL GROUP BY state)",
    );
    let ends = damaged.work_to_the_end().await;
    assert!(ends.values().all(is_final), "{ends:?}");
    assert_eq!(ends.values().filter(|end| is_damaged(end)).count(), 3);
    damaged.assert_sound().await;
}

#[tokio::test]
async fn a_garbled_meta_row_costs_nothing() {
    // Without these two, the store cannot be repaired.
    garble_all("throng_meta", &["layout", "birth"]).await;
}
