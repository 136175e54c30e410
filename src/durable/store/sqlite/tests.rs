//! Faults that only a store in a file can have.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use tempfile::TempDir;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::timeout;

use super::SqliteStore;
use crate::durable::clock::Clock;
use crate::durable::failure::{Cause, Effect, Failure};
use crate::durable::queue::Priority;
use crate::durable::queue::name::QueueName;
use crate::durable::store::kind::TypeSet;
use crate::durable::store::layouts::Layouts;
use crate::durable::store::memory::MemoryStore;
use crate::durable::store::suite::temp_folder;
use crate::durable::store::{
    Backend, Claim, ClaimPushes, DeadReason, Enqueue, Epoch, Event, NewTask, SessionId, Store,
    TaskState, Turn, TurnAnswer, Verdict, Verdicts,
};
use crate::durable::{DeadFilter, Durability, TaskId};

/// The maximum time until an event that must happen.
const DEADLINE: Duration = Duration::from_secs(20);
const LEASE: Duration = Duration::from_secs(9);

mod changes_tests;
mod clock_tests;
mod damage_tests;
mod details_tests;
mod files_tests;
mod groups_tests;
mod idle_checks_tests;
mod keys_tests;
mod lists_tests;
mod model_tests;
mod observers_tests;
mod overview_tests;
mod peers_tests;
mod processes_tests;
mod queues_tests;
mod retention_tests;
mod schedules_tests;
mod steps_tests;
mod tokens_tests;
mod upgrade_tests;
mod workers_tests;
mod writer_tests;

// ===== Files =====

#[tokio::test]
async fn tasks_survive_a_restart() {
    let file = File::new();
    let (small, large) = (task(1).payload(vec![1; 5]), task(2).payload(vec![2; 5000]));
    let worker = Worker::new(&file.open().await).await;
    worker.enqueue([small.0.clone(), large.0.clone()]).await;
    drop(worker);

    let worker = Worker::new(&file.open().await).await;
    let claim = worker.claim(10).await;
    let payloads: Vec<_> = claim
        .tasks
        .iter()
        .map(|task| task.payload.clone().unwrap())
        .collect();
    assert_eq!(payloads, [small.0.payload, large.0.payload]);
    assert_eq!(worker.store.probe().await.unwrap(), Durability::Synced);
}

#[tokio::test]
async fn a_file_of_a_newer_layout_is_refused() {
    let file = File::new();
    drop(file.open().await);
    file.sql("UPDATE throng_meta SET layout = 99");

    let error = SqliteStore::open(&file.path).await.unwrap_err();
    assert!(error.is_newer_layout(), "{error}");
    assert!(!error.is_unknown(), "{error}");
}

#[tokio::test]
async fn a_file_of_an_older_layout_is_refused() {
    let file = File::new();
    file.sql("CREATE TABLE throng_meta (one INTEGER PRIMARY KEY, layout INTEGER NOT NULL)");
    file.sql("INSERT INTO throng_meta VALUES (1, 1)");

    let error = SqliteStore::open(&file.path).await.unwrap_err();
    assert!(error.is_older_layout(), "{error}");
    assert!(!error.is_newer_layout() && !error.is_unknown(), "{error}");
    assert_eq!(file.number("SELECT count(*) FROM sqlite_schema"), 1);
}

#[tokio::test]
async fn a_file_that_becomes_one_of_a_newer_layout_is_not_touched() {
    let file = File::new();
    let worker = Worker::new(&file.open().await).await;
    worker.enqueue([task(1).0]).await;
    file.sql("UPDATE throng_meta SET layout = 99");

    let newer = Cause::NewerLayout {
        found: 99,
        known: Layouts::KNOWN.newest,
    };
    assert_fails(worker.try_enqueue([task(2).0]).await, &newer);
    assert_fails(worker.try_turn(vec![], 1, false).await, &newer);
    assert_fails(worker.store.status(vec![id(1)]).await, &newer);
    let known = Layouts::KNOWN.newest;
    file.sql(&format!("UPDATE throng_meta SET layout = {known}"));
    assert_eq!(worker.claim(9).await.tasks.len(), 1);
}

#[tokio::test]
async fn a_file_that_is_not_a_database_is_rejected() {
    let file = File::new();
    std::fs::write(&file.path, vec![7; 10_000]).unwrap();
    let error = SqliteStore::open(&file.path).await.unwrap_err();
    assert!(error.is_corrupt(), "{error}");
}

#[tokio::test]
async fn a_special_path_is_rejected() {
    let file = File::new();
    let folder = file.path.parent().unwrap();
    let missing = folder.join("missing").join("tasks.db");
    let special = [":memory:", "file:tasks.db?mode=memory", "file::memory:", ""];
    let special = special.into_iter().map(PathBuf::from);
    for path in special.chain([folder.to_owned(), missing]) {
        let error = SqliteStore::open(&path).await.unwrap_err();
        assert!(error.is_invalid() && !error.is_unknown(), "{error}");
    }
    assert!(!Path::new(":memory:").exists());
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_folder_that_cannot_be_written_is_read_only() {
    // Not even root can create a file there.
    let error = SqliteStore::open("/sys/tasks.db").await.unwrap_err();
    assert!(error.is_read_only(), "{error}");
}

#[tokio::test]
async fn a_full_disk_loses_nothing() {
    let file = File::new();
    let worker = Worker::new(&file.open().await).await;
    worker.enqueue((0..100).map(|n| task(n).0)).await;
    let claim = worker.claim(10).await;
    let pages = worker.pragma("page_count").await;
    worker
        .pragma(&format!("max_page_count = {}", pages + 2))
        .await;

    let large = (1000..1100).map(|n| task(n).payload(vec![1; 4000]).0);
    assert_fails(worker.try_enqueue(large.clone()).await, &Cause::Full);
    // Requests that free space succeed.
    let done = done(&claim, Vec::new());
    assert_eq!(worker.turn(done, 0).await.refused, []);
    worker.pragma("max_page_count = 1000000").await;
    worker.enqueue(large).await;
    let counts = worker.store.counts().await.unwrap();
    assert_eq!((counts.waiting, counts.done), (190, 10));
}

#[tokio::test]
async fn a_file_that_cannot_be_written_can_be_read() {
    let file = File::new();
    let worker = Worker::new(&file.open().await).await;
    worker.enqueue([task(1).0]).await;
    worker.pragma("query_only = 1").await;

    assert_fails(worker.try_enqueue([task(2).0]).await, &Cause::ReadOnly);
    let seen = worker.store.status(vec![id(1), id(2)]).await;
    assert_eq!(seen.unwrap(), [TaskState::Waiting, TaskState::Absent]);
}

#[tokio::test]
async fn a_locked_file_is_busy() {
    let file = File::new();
    let worker = Worker::new(&file.open().await).await;
    let other = file.connect();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let failure = worker.try_enqueue([task(1).0]).await.unwrap_err();
    assert_eq!(
        (&failure.cause, failure.effect),
        (&Cause::Busy, Effect::None)
    );
    if cfg!(target_os = "linux") {
        let holder = format!("process {} ", std::process::id());
        assert!(failure.to_string().contains(&holder), "{failure}");
    }
    // A request that writes nothing does not wait.
    assert_eq!(worker.turn(vec![], 1).await, TurnAnswer::default());
    other.execute_batch("COMMIT").unwrap();
    worker.enqueue([task(1).0]).await;
}

#[tokio::test]
async fn many_processes_can_create_the_file_at_once() {
    let file = File::new();
    let opening = (0..8).map(|_| tokio::spawn(SqliteStore::open(file.path.clone())));
    let opening: Vec<_> = opening.collect();
    for (n, opened) in opening.into_iter().enumerate() {
        let worker = Worker::new(&Arc::new(opened.await.unwrap().unwrap())).await;
        worker.enqueue([task(n as u64).0]).await;
    }
    let worker = Worker::new(&file.open().await).await;
    assert_eq!(worker.claim(99).await.tasks.len(), 8);
}

#[tokio::test]
async fn a_long_path_has_sockets_too() {
    let folder = tempfile::tempdir().unwrap();
    let long = folder.path().join("a".repeat(100)).join("b".repeat(100));
    std::fs::create_dir_all(&long).unwrap();
    let path = long.join("tasks.db");
    let [one, two] = [0; 2].map(|_| SqliteStore::open(path.clone()));
    let (one, two) = (Arc::new(one.await.unwrap()), Arc::new(two.await.unwrap()));
    assert_eq!(
        one.shared.endpoint.is_reachable(),
        cfg!(target_os = "linux")
    );
    if one.shared.endpoint.is_reachable() {
        assert_wakes(&one, &two).await;
    }
}

#[tokio::test]
async fn epochs_rise_when_the_file_is_restored_from_a_copy() {
    let file = File::new();
    let worker = Worker::new(&file.open().await).await;
    worker.enqueue([task(1).0, task(2).0]).await;
    let first = worker.claim(1).await.epoch;
    file.sql("UPDATE throng_meta SET epoch = 0");
    assert!(worker.claim(1).await.epoch > first);
}

// ===== Tools =====

struct File {
    _folder: TempDir,
    path: PathBuf,
}

impl File {
    fn new() -> Self {
        let folder = temp_folder();
        let path = folder.path().join("tasks.db");
        Self {
            _folder: folder,
            path,
        }
    }

    async fn open(&self) -> Arc<SqliteStore> {
        Arc::new(SqliteStore::open(&self.path).await.unwrap())
    }

    fn connect(&self) -> Connection {
        Connection::open(&self.path).unwrap()
    }

    fn sql(&self, sql: &str) {
        self.connect().execute_batch(sql).unwrap();
    }

    fn number(&self, sql: &str) -> i64 {
        self.connect().query_row(sql, [], |row| row.get(0)).unwrap()
    }

    fn numbers(&self, sql: &str) -> Vec<i64> {
        let db = self.connect();
        let mut statement = db.prepare(sql).unwrap();
        let numbers = statement.query_map([], |row| row.get(0)).unwrap();
        numbers.collect::<Result<_, _>>().unwrap()
    }

    fn texts(&self, sql: &str) -> Vec<String> {
        let db = self.connect();
        let mut statement = db.prepare(sql).unwrap();
        let texts = statement.query_map([], |row| row.get(0)).unwrap();
        texts.collect::<Result<_, _>>().unwrap()
    }

    /// The files of all endpoints.
    fn files(&self) -> Vec<String> {
        let mut found = Vec::new();
        let folder = self.path.with_file_name("tasks.db-throng");
        for folder in [folder.clone(), folder.join("idle"), folder.join("watchers")] {
            let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
            let files = entries
                .map(|entry| entry.path())
                .filter(|path| !path.is_dir());
            found.extend(files.map(|path| path.display().to_string()));
        }
        found
    }

    /// Returns the length of the log.
    fn log(&self) -> u64 {
        let log = self.path.with_file_name("tasks.db-wal");
        Path::new(&log).metadata().unwrap().len()
    }
}

/// A process with one session.
struct Worker {
    store: Arc<SqliteStore>,
    events: UnboundedReceiver<Event>,
    session: SessionId,
    number: std::cell::Cell<u64>,
    /// The claim in the answer to the last turn.
    seen: std::cell::Cell<Option<Epoch>>,
}

impl Worker {
    async fn new(store: &Arc<SqliteStore>) -> Self {
        Self {
            store: Arc::clone(store),
            events: store.events(),
            session: store.open_session(TypeSet::of_tests()).await.unwrap(),
            number: std::cell::Cell::new(0),
            seen: std::cell::Cell::new(None),
        }
    }

    fn request(&self, tasks: impl IntoIterator<Item = NewTask>) -> Arc<Enqueue> {
        Arc::new(Enqueue {
            session: self.session,
            number: self.next(),
            batch: Arc::new(tasks.into_iter().collect::<Vec<_>>().into()),
        })
    }

    async fn try_enqueue(&self, tasks: impl IntoIterator<Item = NewTask>) -> Result<(), Failure> {
        self.store.enqueue(self.request(tasks)).await.map(drop)
    }

    async fn enqueue(&self, tasks: impl IntoIterator<Item = NewTask>) {
        self.try_enqueue(tasks).await.unwrap();
    }

    fn request_turn(&self, verdicts: Vec<Verdicts>, want: usize, go_idle: bool) -> Turn {
        Turn {
            session: self.session,
            number: self.next(),
            verdicts,
            received: self.seen.take(),
            floor: 0,
            want,
            want_bytes: 1 << 20,
            lease: LEASE,
            quarantined: true,
            go_idle,
            pushes: ClaimPushes::default(),
        }
    }

    async fn try_turn(
        &self,
        verdicts: Vec<Verdicts>,
        want: usize,
        go_idle: bool,
    ) -> Result<TurnAnswer, Failure> {
        let turn = self.request_turn(verdicts, want, go_idle);
        let turned = self.store.turn(Arc::new(turn)).await?;
        let claim = turned.claim.as_ref();
        self.seen.set(claim.map(|claim| claim.epoch));
        Ok(turned)
    }

    async fn turn(&self, verdicts: Vec<Verdicts>, want: usize) -> TurnAnswer {
        self.try_turn(verdicts, want, false).await.unwrap()
    }

    async fn claim(&self, want: usize) -> Claim {
        let turned = self.turn(vec![], want).await;
        turned.claim.expect("a task can be claimed")
    }

    async fn go_idle(&self) {
        let turned = self.try_turn(vec![], 5, true).await.unwrap();
        assert_eq!((turned.claim, turned.more), (None, false));
    }

    async fn event(&mut self) -> Event {
        let event = timeout(DEADLINE, self.events.recv()).await;
        event.expect("an event arrives").unwrap()
    }

    async fn expect(&mut self, is: impl Fn(Event) -> bool) {
        while !is(self.event().await) {}
    }

    /// Returns the number that a pragma selects, or zero.
    async fn pragma(&self, pragma: &str) -> i64 {
        let sql = format!("PRAGMA {pragma}");
        let said = self.store.writer.run(0, move |tx| Ok(tx.number(&sql, [])?));
        said.await.unwrap().unwrap_or_default()
    }

    fn next(&self) -> u64 {
        self.number.set(self.number.get() + 1);
        self.number.get()
    }
}

async fn assert_wakes(one: &Arc<SqliteStore>, two: &Arc<SqliteStore>) {
    let producer = Worker::new(one).await;
    let mut worker = Worker::new(two).await;
    worker.go_idle().await;
    producer
        .enqueue([NewTask {
            id: TaskId::new(),
            ..task(0).0
        }])
        .await;
    // A store has one stream of events. Only the first worker has it.
    if !worker.events.is_closed() {
        worker.expect(|event| event.is_wake()).await;
    }
    assert_eq!(worker.claim(9).await.tasks.len(), 1);
}

struct Task(NewTask);

fn task(n: u64) -> Task {
    Task(NewTask {
        id: id(n),
        name: "name".into(),
        envelope: 1,
        version: 1,
        queue: QueueName::DEFAULT,
        priority: Priority::Normal,
        group: None,
        key: None,
        payload: Vec::new(),
        delay: Duration::ZERO,
        retention: Duration::ZERO,
        max_crashes: 3,
        parent: None,
    })
}

impl Task {
    fn payload(mut self, payload: Vec<u8>) -> Self {
        self.0.payload = payload;
        self
    }

    fn delay(mut self, seconds: u64) -> Self {
        self.0.delay = Duration::from_secs(seconds);
        self
    }
}

fn id(n: u64) -> TaskId {
    TaskId::from_bytes(u128::from(n).to_be_bytes())
}

fn verdicts(claim: &Claim, verdict: impl Fn(TaskId) -> Verdict) -> Vec<Verdicts> {
    let tasks = claim.tasks.iter().map(|task| (task.id, verdict(task.id)));
    vec![Verdicts {
        epoch: claim.epoch,
        tasks: tasks.collect(),
    }]
}

fn done(claim: &Claim, output: Vec<u8>) -> Vec<Verdicts> {
    verdicts(claim, |_| Verdict::Done(output.clone()))
}

#[track_caller]
fn assert_fails<T: std::fmt::Debug>(result: Result<T, Failure>, cause: &Cause) {
    let failure = result.unwrap_err();
    assert_eq!((&failure.cause, failure.effect), (cause, Effect::None));
}

async fn until(is: impl Fn() -> bool) {
    let wait = async {
        while !is() {
            tokio::task::yield_now().await;
        }
    };
    timeout(DEADLINE, wait)
        .await
        .expect("the condition becomes true");
}
