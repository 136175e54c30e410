//! [`Site`]: where a test takes place.

use std::fs;
use std::time::Duration;

use rusqlite::Connection;
use tempfile::TempDir;
use throng::durable::{Counts, DurableClient, DurableHandle, SpawnOptions, SqliteStore, TaskId};

use super::child::{Plan, Role, Work};
use super::job::{Folder, Job, Line, Outcome};
use super::ledger::assert_balanced;
use super::process::{Process, until};

/// Where a test takes place: a folder, and a client of the store in it.
pub(crate) struct Site {
    pub(crate) folder: Folder,
    pub(crate) client: DurableClient,
    _dir: TempDir,
}

/// A worker whose lease does not end while a test runs, so that only death can end it.
pub(crate) const WORK: Work = Work {
    executors: 1,
    concurrency: 4,
    lease: 120_000,
    stall_limit: 60_000,
};

/// How soon somebody does what there is to do: well before a lease is over, and before an idle worker
/// looks by itself.
pub(crate) const SOON: Duration = Duration::from_millis(1500);

impl Site {
    pub(crate) async fn new() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let folder = Folder(dir.path().to_owned());
        let store = SqliteStore::open(folder.store()).await;
        Self {
            folder,
            client: DurableClient::open(store.expect("a store")),
            _dir: dir,
        }
    }

    pub(crate) fn plan(&self, role: Role) -> Plan {
        let folder = self.folder.clone();
        Plan { folder, role }
    }

    /// Starts a worker, and waits until it works.
    pub(crate) async fn worker(&self, work: Work) -> Process {
        let worker = Process::start(&self.plan(Role::Worker(work)));
        worker.hears("ready").await;
        worker
    }

    pub(crate) async fn spawn(&self, job: Job) -> DurableHandle<Outcome> {
        self.spawn_with(job, SpawnOptions::new()).await
    }

    pub(crate) async fn spawn_with(
        &self,
        job: Job,
        options: SpawnOptions,
    ) -> DurableHandle<Outcome> {
        let stored = self.client.spawn_with(job, options).await;
        stored.expect("it is stored")
    }

    pub(crate) async fn spawn_all(&self, job: Job, count: usize) -> Vec<DurableHandle<Outcome>> {
        let stored = self.client.spawn_all(vec![job; count]).await;
        stored.expect("they are stored")
    }

    /// The same; each may cost so many workers.
    pub(crate) async fn spawn_all_with(
        &self,
        job: Job,
        count: usize,
        max_crashes: u32,
    ) -> Vec<DurableHandle<Outcome>> {
        let options = SpawnOptions::new().max_crashes(max_crashes);
        let stored = self.client.spawn_all_with(vec![(job, options); count]);
        stored.await.expect("they are stored")
    }

    // ===== What tasks have done =====

    /// How often a task did something.
    pub(crate) fn lines(&self, what: &str, id: TaskId) -> Vec<Line> {
        let mut lines = self.folder.ledger();
        lines.retain(|line| line.what == what && line.id == id);
        lines
    }

    /// Waits until a task has begun in a process, and gives its line.
    pub(crate) async fn begun(&self, id: TaskId, process: &Process) -> Line {
        self.did("start", id, process).await
    }

    /// Waits until a task did something in a process, and gives its line.
    pub(crate) async fn did(&self, what: &str, id: TaskId, process: &Process) -> Line {
        let pid = process.pid();
        let what_for = format!("process {pid} writes `{what} {id}`");
        let look = async || {
            let lines = self.lines(what, id);
            lines.into_iter().find(|line| line.pid == pid)
        };
        until(&what_for, look).await
    }

    pub(crate) async fn counts(&self) -> Counts {
        self.client.counts().await.expect("the store answers")
    }

    /// Waits until nothing waits, is delayed or runs, and looks whether the sums are right.
    pub(crate) async fn settled(&self) -> Counts {
        let look = async || {
            let counts = self.counts().await;
            let left = counts.waiting + counts.delayed + counts.running;
            (left == 0).then_some(counts)
        };
        let counts = until("nothing is left to do", look).await;
        assert_balanced(&counts);
        self.assert_sound();
        counts
    }

    /// Asks SQLite whether the file is as it should be, and compares what is counted with what is there.
    fn assert_sound(&self) {
        let db = self.database();
        let check = db.query_row("PRAGMA integrity_check", [], |row| row.get::<_, String>(0));
        assert_eq!(check.expect("an answer"), "ok");
        let counted = "SELECT kept, dead FROM throng_meta";
        let there =
            "SELECT count(*) FILTER (WHERE state IN (3, 5)), count(*) FILTER (WHERE state = 4)
             FROM throng_task";
        let [counted, there] = [counted, there].map(|sql| {
            let row = db.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?)));
            let row: (i64, i64) = row.expect("a row");
            row
        });
        assert_eq!(counted, there);
        let left =
            "SELECT (SELECT count(*) FROM throng_line) + (SELECT count(*) FROM throng_claim)";
        let left: i64 = db.query_row(left, [], |row| row.get(0)).expect("a row");
        assert_eq!(left, 0, "nothing waits, and nothing runs");
    }

    /// How many processes have put down a marker to be woken.
    pub(crate) fn parked(&self) -> usize {
        let markers = self.folder.0.join("tasks.db-throng").join("parked");
        fs::read_dir(markers).expect("a folder").count()
    }

    /// A connection of the test's own.
    pub(crate) fn database(&self) -> Connection {
        Connection::open(self.folder.store()).expect("a database")
    }
}

/// Awaits tasks, which must all succeed.
pub(crate) async fn outcomes(
    handles: impl IntoIterator<Item = DurableHandle<Outcome>>,
) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    for handle in handles {
        let outcome = super::support::within(handle).await;
        outcomes.push(outcome.expect("it succeeds"));
    }
    outcomes
}
