//! What only a store in a file can get wrong.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use tempfile::TempDir;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::timeout;

use super::SqliteStore;
use super::schema::LAYOUT;
use crate::durable::clock::Clock;
use crate::durable::error::{Cause, Effect, Failure};
use crate::durable::store::kind::TypeSet;
use crate::durable::store::memory::MemoryStore;
use crate::durable::store::{
    Backend, Claim, DeadReason, Enqueue, Epoch, Event, NewTask, Seen, SessionId, Store, Turn,
    Turned, Verdict, Verdicts,
};
use crate::durable::{DeadFilter, Durability, TaskId};

/// How long anything may take that is bound to happen.
const DEADLINE: Duration = Duration::from_secs(20);
const LEASE: Duration = Duration::from_secs(9);

mod clock_tests;
mod damage_tests;
mod files_tests;
mod looks_tests;
mod model_tests;
mod peers_tests;
mod tokens_tests;
mod writer_tests;

// ===== Files =====

#[tokio::test]
async fn what_was_stored_is_there_after_a_restart() {
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
        known: LAYOUT,
    };
    assert_fails(worker.try_enqueue([task(2).0]).await, &newer);
    assert_fails(worker.try_turn(vec![], 1, false).await, &newer);
    assert_fails(worker.store.look(vec![id(1)]).await, &newer);
    file.sql(&format!("UPDATE throng_meta SET layout = {LAYOUT}"));
    assert_eq!(worker.claim(9).await.tasks.len(), 1);
}

#[tokio::test]
async fn what_is_no_database_is_refused() {
    let file = File::new();
    std::fs::write(&file.path, vec![7; 10_000]).unwrap();
    let error = SqliteStore::open(&file.path).await.unwrap_err();
    assert!(error.is_corrupt(), "{error}");
}

#[tokio::test]
async fn what_is_no_path_is_refused() {
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
    // Not even root can make a file there.
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
    // What makes room goes on.
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
    let seen = worker.store.look(vec![id(1), id(2)]).await;
    assert_eq!(seen.unwrap(), [Seen::Waiting, Seen::Absent]);
}

#[tokio::test]
async fn a_file_that_others_keep_locked_is_busy() {
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
    // What writes nothing waits for nobody.
    assert_eq!(worker.turn(vec![], 1).await, Turned::default());
    other.execute_batch("COMMIT").unwrap();
    worker.enqueue([task(1).0]).await;
}

#[tokio::test]
async fn many_can_make_the_file_at_once() {
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
    assert_eq!(one.endpoint.is_reachable(), cfg!(target_os = "linux"));
    if one.endpoint.is_reachable() {
        assert_wakes(&one, &two).await;
    }
}

#[tokio::test]
async fn epochs_rise_when_the_file_is_put_back_from_a_copy() {
    let file = File::new();
    let worker = Worker::new(&file.open().await).await;
    worker.enqueue([task(1).0, task(2).0]).await;
    let first = worker.claim(1).await.epoch;
    file.sql("UPDATE throng_meta SET epoch = 0");
    assert!(worker.claim(1).await.epoch > first);
}

// ===== Processes =====

#[tokio::test]
async fn the_tasks_of_a_dead_process_come_back_at_once() {
    let file = File::new();
    let (dead, alive) = (file.open().await, file.open().await);
    let (dead, alive) = (Worker::new(&dead).await, Worker::new(&alive).await);
    dead.enqueue([task(1).0, task(2).0]).await;
    let lost = dead.claim(1).await;
    let known = dead.claim(1).await;
    dead.store.beat(vec![known.epoch]).await.unwrap();

    let turned = alive.turn(vec![], 9).await;
    assert_eq!((turned.claim, turned.more), (None, false));
    assert!(turned.next.unwrap() <= Duration::from_millis(100));
    dead.store.abandon();
    let claim = alive.claim(9).await;
    let counted = claim
        .tasks
        .iter()
        .map(|task| (task.id, task.lost, task.crashes));
    let counted: Vec<_> = counted.collect();
    // The claims in their order, each before those that wait.
    assert_eq!(counted, [(id(2), 0, 1), (id(1), 0, 1)]);
    // What it says now comes too late.
    let late = dead.turn(done(&lost, vec![]), 0).await;
    assert_eq!(late.refused, [id(1)]);
}

#[tokio::test]
async fn a_lock_file_that_is_gone_is_no_death() {
    let file = File::new();
    let (held, other) = (file.open().await, file.open().await);
    let (held, other) = (Worker::new(&held).await, Worker::new(&other).await);
    held.enqueue([task(1).0]).await;
    let claim = held.claim(1).await;
    held.store.endpoint.lose_lock_file();

    assert_eq!(other.turn(vec![], 9).await.claim, None);
    let told = held.turn(done(&claim, vec![]), 0).await;
    assert_eq!(told.refused, []);
}

#[tokio::test]
async fn sessions_of_a_process_rest_each_for_itself() {
    let file = File::new();
    let store = file.open().await;
    let mut resting = Worker::new(&store).await;
    let busy = Worker::new(&store).await;
    resting.park().await;
    busy.park().await;
    // The marker is that of both: one that gets up leaves it to the other.
    store.endpoint.unpark(busy.session);
    let producer = Worker::new(&file.open().await).await;
    resting.park().await;
    store.endpoint.unpark(busy.session);
    producer.enqueue([task(1).0]).await;
    resting.expect(|event| event == Event::Wake).await;
}

#[tokio::test]
async fn what_the_dead_leave_behind_is_swept() {
    let file = File::new();
    let alive = Worker::new(&file.open().await).await;
    let dead = Worker::new(&file.open().await).await;
    dead.park().await;
    let name = super::endpoint::file_name(dead.store.endpoint.id, "");
    dead.store.abandon();
    drop(dead);

    for _ in 0..2 {
        assert!(!alive.store.maintain(100).await.unwrap());
    }
    let left = file.files();
    assert!(!left.iter().any(|path| path.contains(&name)), "{left:?}");
    let sessions = "SELECT count(*) FROM throng_session";
    assert_eq!(file.number(sessions), 1);
}

#[tokio::test]
async fn a_store_that_is_dropped_leaves_no_files() {
    let file = File::new();
    let worker = Worker::new(&file.open().await).await;
    worker.park().await;
    assert_ne!(file.files(), [""; 0]);
    drop(worker);
    until(|| file.files().is_empty()).await;
}

#[tokio::test]
async fn what_was_asked_before_the_drop_is_done() {
    let file = File::new();
    let worker = Worker::new(&file.open().await).await;
    let pending = worker.store.enqueue(worker.request([task(1).0]));
    drop(pending);
    drop(worker);
    let worker = Worker::new(&file.open().await).await;
    let seen = || async { worker.store.look(vec![id(1)]).await.unwrap() };
    while seen().await != [Seen::Waiting] {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn two_stores_on_a_file_wake_one_another() {
    let file = File::new();
    let (one, two) = (file.open().await, file.open().await);
    assert_wakes(&one, &two).await;
    assert_wakes(&two, &one).await;
}

#[tokio::test]
async fn the_dead_do_not_take_a_wake_up_along() {
    let file = File::new();
    let producer = Worker::new(&file.open().await).await;
    let mut workers = Vec::new();
    for _ in 0..6 {
        workers.push(Worker::new(&file.open().await).await);
    }
    for worker in &workers {
        worker.park().await;
    }
    let mut alive = workers.pop().unwrap();
    for dead in workers {
        dead.store.abandon();
        drop(dead);
    }
    // The sockets close when the threads end that read them.
    until(|| {
        file.files()
            .iter()
            .filter(|it| it.ends_with(".sock"))
            .count()
            == 2
    })
    .await;
    producer.enqueue([task(1).0]).await;
    alive.expect(|event| event == Event::Wake).await;
}

#[tokio::test]
async fn one_who_rests_learns_of_those_who_come() {
    let file = File::new();
    let mut resting = Worker::new(&file.open().await).await;
    assert_eq!(resting.try_turn(vec![], 1, true).await.unwrap().next, None);
    let newcomer = Worker::new(&file.open().await).await;
    resting.expect(|event| event == Event::Wake).await;

    // From here on, it looks often enough to see it die.
    newcomer.enqueue([task(1).0]).await;
    newcomer.claim(1).await;
    let next = resting.try_turn(vec![], 1, true).await.unwrap().next;
    assert!(next.unwrap() <= Duration::from_millis(100));
}

#[tokio::test]
async fn one_who_parks_while_a_task_is_stored_misses_nothing() {
    let file = File::new();
    let producer = Worker::new(&file.open().await).await;
    let mut worker = Worker::new(&file.open().await).await;
    for n in 0..200 {
        let stored = producer.enqueue([task(n).0]);
        let parked = worker.try_turn(vec![], 1, true);
        let (_, turned) = tokio::join!(stored, parked);
        let mut turned = turned.unwrap();
        let is_told = turned.more || turned.next == Some(Duration::ZERO);
        if turned.claim.is_none() && !is_told {
            worker.expect(|event| event == Event::Wake).await;
        }
        if turned.claim.is_none() {
            turned = worker.turn(vec![], 1).await;
        }
        let claim = turned.claim.expect("there is something to claim");
        worker.turn(done(&claim, vec![]), 0).await;
    }
}

#[tokio::test]
async fn an_end_is_told_to_who_stored_the_task_and_to_who_looked() {
    let file = File::new();
    let mut owner = Worker::new(&file.open().await).await;
    let mut other = Worker::new(&file.open().await).await;
    let runner = Worker::new(&file.open().await).await;
    owner.enqueue((0..100).map(|n| task(n).0)).await;
    let ids: Vec<_> = (0..100).map(id).collect();
    other.store.look(ids.clone()).await.unwrap();

    let claim = runner.claim(100).await;
    runner.turn(done(&claim, vec![]), 0).await;
    for worker in [&mut owner, &mut other] {
        let mut ended = Vec::new();
        while ended.len() < ids.len() {
            match worker.event().await {
                Event::Ended(ids) => ended.extend(ids),
                Event::Ready | Event::Wake => {}
                event => panic!("{event:?}"),
            }
        }
        assert_eq!(ended, ids);
    }
}

#[tokio::test]
async fn a_worker_is_told_what_it_is_to_cancel() {
    let file = File::new();
    let canceller = Worker::new(&file.open().await).await;
    let mut runner = Worker::new(&file.open().await).await;
    canceller.enqueue([task(1).0, task(2).0]).await;
    let claim = runner.claim(1).await;
    assert_eq!(
        canceller
            .store
            .cancel(vec![id(1), id(2), id(3)])
            .await
            .unwrap(),
        2
    );

    runner
        .expect(|event| event == Event::Cancel(vec![id(1)]))
        .await;
    let beaten = runner.store.beat(vec![claim.epoch]).await.unwrap();
    assert_eq!(beaten.cancelled, [id(1)]);
    let verdicts = verdicts(&claim, |_| Verdict::Release);
    runner.turn(verdicts, 0).await;
    let counts = runner.store.counts().await.unwrap();
    assert_eq!(
        (counts.cancelled, counts.released, counts.waiting),
        (1, 0, 0)
    );
}

#[tokio::test]
async fn idle_turns_write_nothing() {
    let file = File::new();
    let worker = Worker::new(&file.open().await).await;
    worker.enqueue([task(1).delay(3600).0]).await;
    let version = || file.number("SELECT number FROM throng_session");
    let before = (version(), file.log());
    for _ in 0..10 {
        worker.park().await;
        worker.turn(vec![], 5).await;
    }
    assert_eq!((version(), file.log()), before);
}

// ===== Tools =====

struct File {
    _folder: TempDir,
    path: PathBuf,
}

impl File {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
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

    /// How long the log is.
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
    /// The claim with which the last turn was answered.
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
            tasks: Arc::new(tasks.into_iter().collect::<Vec<_>>().into()),
        })
    }

    async fn try_enqueue(&self, tasks: impl IntoIterator<Item = NewTask>) -> Result<(), Failure> {
        self.store.enqueue(self.request(tasks)).await
    }

    async fn enqueue(&self, tasks: impl IntoIterator<Item = NewTask>) {
        self.try_enqueue(tasks).await.unwrap();
    }

    fn request_turn(&self, verdicts: Vec<Verdicts>, want: usize, park: bool) -> Turn {
        Turn {
            session: self.session,
            number: self.next(),
            verdicts,
            seen: self.seen.take(),
            floor: 0,
            want,
            want_bytes: 1 << 20,
            lease: LEASE,
            risky: true,
            park,
        }
    }

    async fn try_turn(
        &self,
        verdicts: Vec<Verdicts>,
        want: usize,
        park: bool,
    ) -> Result<Turned, Failure> {
        let turn = self.request_turn(verdicts, want, park);
        let turned = self.store.turn(Arc::new(turn)).await?;
        let claim = turned.claim.as_ref();
        self.seen.set(claim.map(|claim| claim.epoch));
        Ok(turned)
    }

    async fn turn(&self, verdicts: Vec<Verdicts>, want: usize) -> Turned {
        self.try_turn(verdicts, want, false).await.unwrap()
    }

    async fn claim(&self, want: usize) -> Claim {
        let turned = self.turn(vec![], want).await;
        turned.claim.expect("there is something to claim")
    }

    async fn park(&self) {
        let turned = self.try_turn(vec![], 5, true).await.unwrap();
        assert_eq!((turned.claim, turned.more), (None, false));
    }

    async fn event(&mut self) -> Event {
        let event = timeout(DEADLINE, self.events.recv()).await;
        event.expect("there is an event").unwrap()
    }

    async fn expect(&mut self, is: impl Fn(Event) -> bool) {
        while !is(self.event().await) {}
    }

    /// What a pragma says; zero if nothing.
    async fn pragma(&self, pragma: &str) -> i64 {
        let sql = format!("PRAGMA {pragma}");
        let said = self
            .store
            .writer
            .ask(0, move |work| Ok(work.number(&sql, [])?));
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
    worker.park().await;
    producer
        .enqueue([NewTask {
            id: TaskId::new(),
            ..task(0).0
        }])
        .await;
    // Asked for once: of the second look at a store, the first has the events.
    if !worker.events.is_closed() {
        worker.expect(|event| event == Event::Wake).await;
    }
    assert_eq!(worker.claim(9).await.tasks.len(), 1);
}

struct Task(NewTask);

fn task(n: u64) -> Task {
    Task(NewTask {
        id: id(n),
        name: "name".into(),
        envelope: 1,
        payload: Vec::new(),
        delay: Duration::ZERO,
        retention: Duration::ZERO,
        max_crashes: 3,
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
    timeout(DEADLINE, wait).await.expect("it comes about");
}
