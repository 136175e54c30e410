//! [`Site`]: the folder, the store and the client of a test.

use std::collections::HashMap;
use std::fs;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tempfile::TempDir;
use throng::durable::{Counts, DurableClient, DurableHandle, SpawnOptions, TaskId};
use tokio::time::sleep;

use super::child::{Plan, Role, Work};
use super::database::Database;
use super::job::{Folder, Job, Line, Outcome};
use super::keys::Keys;
use super::ledger::assert_balanced;
use super::postgres_proxy::CommitProxy;
use super::postgres_server;
use super::process::{LOOK_INTERVAL, Process, until, until_done};
use super::proxy::Proxy;
use super::redis_server;
use super::store_address::{Service, StoreAddress};
use super::support::TEST_TIMEOUT;

/// Makes a test for each store of functions that take a [`Site`].
macro_rules! on_all_stores {
    ($($name:ident,)*) => {
        mod sqlite {
            $(#[tokio::test]
            async fn $name() {
                super::$name($crate::site::Site::file().await).await;
            })*
        }

        mod redis {
            $(#[tokio::test]
            async fn $name() {
                needs_redis!();
                super::$name($crate::site::Site::server(&$crate::site::EVERYSEC).await).await;
            })*
        }

        mod postgres {
            $(#[tokio::test]
            async fn $name() {
                needs_postgres!();
                super::$name($crate::site::Site::database().await).await;
            })*
        }
    };
}

/// The folder of a test, its store, in the folder or on a server, and a client of it.
pub(crate) struct Site {
    pub(crate) folder: Folder,
    pub(crate) client: DurableClient,
    pub(crate) address: StoreAddress,
    pub(crate) host: Host,
    proxy: Option<Proxy>,
    _dir: TempDir,
}

/// The folder or the server that holds the store of a site.
pub(crate) enum Host {
    Folder,
    Redis(redis_server::Server),
    Postgres(Database),
}

/// A worker whose lease does not end while a test runs, so that only death can end it.
pub(crate) const PATIENT: Work = Work {
    executors: 1,
    max_running: 4,
    lease: 120_000,
    stall_limit: 60_000,
    children: false,
    chores: false,
};

/// A worker whose death is known when its lease is over.
pub(crate) const LEASED: Work = Work {
    lease: 3000,
    ..PATIENT
};

/// The settings of a server that has on its disk whatever it has answered.
pub(crate) const ALWAYS: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];
/// Of one that has it there a second later.
pub(crate) const EVERYSEC: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "everysec"];
/// Of one that forgets everything.
pub(crate) const NOTHING: [&str; 2] = ["--appendonly", "no"];
/// Of a PostgreSQL server that has on its disk whatever it has answered.
pub(crate) const ON_DISK: [&str; 3] = ["fsync=on", "full_page_writes=on", "synchronous_commit=on"];

/// The default answer timeout of the servers of these tests, in milliseconds.
const ANSWER_TIMEOUT: u64 = 5000;

impl Site {
    /// In a file.
    pub(crate) async fn file() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let address = StoreAddress::File(dir.path().join("tasks.db"));
        Self::at(address, dir).await
    }

    /// In a Redis server with these settings.
    pub(crate) async fn server(settings: &[&str]) -> Self {
        Self::server_within(settings, ANSWER_TIMEOUT).await
    }

    /// In a Redis server that must answer in so many milliseconds.
    pub(crate) async fn server_within(settings: &[&str], answer_timeout: u64) -> Self {
        Self::of_server_within(redis_server::Server::with(settings), answer_timeout).await
    }

    pub(crate) async fn of_server(server: redis_server::Server) -> Self {
        Self::of_server_within(server, ANSWER_TIMEOUT).await
    }

    async fn of_server_within(server: redis_server::Server, answer_timeout: u64) -> Self {
        Self::of_partitions(server, 1, answer_timeout).await
    }

    /// In so many partitions of a Redis server.
    pub(crate) async fn partitions(settings: &[&str], partitions: usize) -> Self {
        let server = redis_server::Server::with(settings);
        Self::of_partitions(server, partitions, ANSWER_TIMEOUT).await
    }

    async fn of_partitions(
        server: redis_server::Server,
        partitions: usize,
        answer_timeout: u64,
    ) -> Self {
        let url = format!("redis://127.0.0.1:{}/", server.port());
        let service = Service::Redis { partitions };
        let mut site = Self::reached_by(service, url, answer_timeout).await;
        site.host = Host::Redis(server);
        site
    }

    /// In a Redis server, behind a way to it that can be cut. It needs a runtime with threads.
    pub(crate) async fn behind_proxy(settings: &[&str]) -> Self {
        let server = redis_server::Server::with(settings);
        let proxy = Proxy::to(server.port()).await;
        let service = Service::Redis { partitions: 1 };
        let mut site = Self::reached_by(service, proxy.url(), ANSWER_TIMEOUT).await;
        (site.host, site.proxy) = (Host::Redis(server), Some(proxy));
        site
    }

    /// In a database of the PostgreSQL server that the tests share.
    pub(crate) async fn database() -> Self {
        Self::of_database(Database::shared()).await
    }

    /// In a PostgreSQL server of its own, which has on its disk whatever it has answered.
    pub(crate) async fn durable_database() -> Self {
        Self::durable_database_within(ANSWER_TIMEOUT).await
    }

    /// The same; it must answer in so many milliseconds.
    pub(crate) async fn durable_database_within(answer_timeout: u64) -> Self {
        let server = postgres_server::Server::start_with(&ON_DISK);
        let database = Database::of(server);
        let mut site = Self::reached_by(Service::Postgres, database.url(), answer_timeout).await;
        site.host = Host::Postgres(database);
        site
    }

    pub(crate) async fn of_database(database: Database) -> Self {
        let url = database.url();
        Self::of_database_at(database, url).await
    }

    /// In a database behind a proxy.
    pub(crate) async fn database_behind(database: Database, proxy: &CommitProxy) -> Self {
        let folder = database.server().folder().display().to_string();
        let url = database.url().replace(&folder, &proxy.host());
        Self::of_database_at(database, url).await
    }

    /// In a database that processes reach by this address.
    pub(crate) async fn of_database_at(database: Database, url: String) -> Self {
        let mut site = Self::reached_by(Service::Postgres, url, ANSWER_TIMEOUT).await;
        site.host = Host::Postgres(database);
        site
    }

    async fn reached_by(service: Service, url: String, answer_timeout: u64) -> Self {
        let address = StoreAddress::Server {
            service,
            url,
            answer_timeout,
        };
        Self::at(address, tempfile::tempdir().expect("a folder")).await
    }

    async fn at(address: StoreAddress, dir: TempDir) -> Self {
        Self {
            folder: Folder(dir.path().to_owned()),
            client: address.client().await,
            address,
            host: Host::Folder,
            proxy: None,
            _dir: dir,
        }
    }

    pub(crate) fn redis(&mut self) -> &mut redis_server::Server {
        match &mut self.host {
            Host::Redis(server) => server,
            _ => panic!("this site is not in Redis"),
        }
    }

    /// The Redis server, if this site is in one.
    pub(crate) fn redis_if_any(&self) -> Option<&redis_server::Server> {
        match &self.host {
            Host::Redis(server) => Some(server),
            _ => None,
        }
    }

    pub(crate) fn postgres(&self) -> &Database {
        self.postgres_if_any()
            .expect("this site is in a database of PostgreSQL")
    }

    /// The database, if this site is in PostgreSQL.
    pub(crate) fn postgres_if_any(&self) -> Option<&Database> {
        match &self.host {
            Host::Postgres(database) => Some(database),
            _ => None,
        }
    }

    /// Continues in another PostgreSQL server. Returns the first one.
    pub(crate) fn fail_over(&mut self, server: postgres_server::Server) -> postgres_server::Server {
        match &mut self.host {
            Host::Postgres(database) => database.fail_over(server),
            _ => panic!("this site is not in PostgreSQL"),
        }
    }

    pub(crate) fn proxy(&self) -> &Proxy {
        self.proxy.as_ref().expect("this site is behind a proxy")
    }

    pub(crate) fn is_file(&self) -> bool {
        matches!(self.host, Host::Folder)
    }

    /// A worker, of whose death others know as soon as they can: by its lock, or by its lease.
    pub(crate) fn work(&self) -> Work {
        match self.address {
            StoreAddress::File(_) => PATIENT,
            StoreAddress::Server { .. } => LEASED,
        }
    }

    /// The same; a lease is over sooner, yet later than a worker that lives is heard on a slow machine.
    pub(crate) fn brief_work(&self) -> Work {
        match self.address {
            StoreAddress::File(_) => PATIENT,
            StoreAddress::Server { .. } => Work {
                lease: 1500,
                ..PATIENT
            },
        }
    }

    /// How soon somebody does what there is to do who is told: well before an idle worker looks by
    /// itself, which it does every two seconds with a file, and every minute with a server, if leases
    /// are longer.
    pub(crate) fn soon(&self) -> Duration {
        match self.address {
            StoreAddress::File(_) => Duration::from_millis(1500),
            StoreAddress::Server { .. } => Duration::from_secs(5),
        }
    }

    /// Returns the time within which other workers take over from a dead one.
    pub(crate) fn taken_over_in(&self) -> Duration {
        match self.address {
            StoreAddress::File(_) => self.soon(),
            StoreAddress::Server { .. } => Duration::from_millis(LEASED.lease + 2000),
        }
    }

    pub(crate) fn plan(&self, role: Role) -> Plan {
        Plan {
            folder: self.folder.clone(),
            address: self.address.clone(),
            role,
        }
    }

    /// Starts a worker, and waits until it works.
    pub(crate) async fn worker(&self, work: Work) -> Process {
        let worker = Process::start(&self.plan(Role::Worker(work)));
        worker.wait_for_line("ready").await;
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
        let counts = self.at_rest().await;
        self.assert_sound(&counts);
        counts
    }

    /// The same, but does not look at the store itself. A slow machine takes long for all tasks, but not for one.
    pub(crate) async fn at_rest(&self) -> Counts {
        let look = async || {
            let counts = self.counts().await;
            match counts.waiting + counts.delayed + counts.running {
                0 => Ok(counts),
                _ => Err(counts.done + counts.died + counts.cancelled),
            }
        };
        let counts = until_done("nothing is left to do", look).await;
        assert_balanced(&counts);
        counts
    }

    /// Looks whether the store is as it should be when nothing is left to do.
    fn assert_sound(&self, counts: &Counts) {
        match &self.host {
            Host::Folder => assert_sound(&self.file_connection()),
            Host::Redis(server) => Keys::of(server).assert_sound(counts),
            Host::Postgres(database) => database.assert_sound(counts),
        }
    }

    /// Returns the number of processes that have asked to be woken.
    pub(crate) fn idle_workers(&self) -> usize {
        match &self.host {
            Host::Folder => {
                let markers = self.folder.0.join("tasks.db-throng").join("idle");
                fs::read_dir(markers).expect("a folder").count()
            }
            Host::Redis(server) => Keys::of(server).idle(),
            Host::Postgres(database) => database.sizes()["park"],
        }
    }

    /// A connection of the test's own to the file.
    pub(crate) fn file_connection(&self) -> Connection {
        Connection::open(self.folder.0.join("tasks.db")).expect("a database")
    }

    /// Each of these has come to its end in some run.
    pub(crate) fn assert_all_finished(&self, ids: &[TaskId]) {
        let runs = Runs::of(&self.folder.ledger());
        for id in ids {
            assert!(runs.ends.contains_key(id), "{id} never came to its end");
        }
    }

    /// Each of these has run once, and to its end.
    pub(crate) fn assert_ran_once(&self, ids: &[TaskId]) {
        let runs = Runs::of(&self.folder.ledger());
        for id in ids {
            let (starts, ends) = (runs.starts.get(id), runs.ends.get(id));
            let pids = (starts.map(Vec::len), ends.map(Vec::len));
            assert_eq!(pids, (Some(1), Some(1)), "{id}: {starts:?}, {ends:?}");
        }
    }

    /// Ends with the client, when all workers have ended: nothing is left in the server but what is
    /// said to stay of processes that were killed, of which there were so many, with one session each.
    pub(crate) async fn ends(self, killed: usize) {
        let counts = self.settled().await;
        drop(self.client);
        let deadline = Instant::now() + TEST_TIMEOUT;
        loop {
            let (is_baseline, found) = match &self.host {
                Host::Folder => panic!("this site is a server's"),
                Host::Redis(server) => {
                    let keys = Keys::of(server);
                    (keys.are_baseline(&counts, killed), format!("{keys:?}"))
                }
                Host::Postgres(database) => {
                    let is_baseline = database.is_baseline(&counts, killed);
                    (is_baseline, format!("{:?}", database.sizes()))
                }
            };
            if is_baseline {
                return;
            }
            assert!(Instant::now() < deadline, "this is left: {found}");
            sleep(LOOK_INTERVAL).await;
        }
    }
}

/// The tasks that each process has run, according to the ledger.
pub(crate) struct Runs {
    pub(crate) starts: HashMap<TaskId, Vec<Line>>,
    pub(crate) ends: HashMap<TaskId, Vec<Line>>,
}

impl Runs {
    pub(crate) fn of(ledger: &[Line]) -> Self {
        let of = |what: &str| {
            let mut lines = HashMap::<_, Vec<_>>::new();
            for line in ledger.iter().filter(|line| line.what == what) {
                lines.entry(line.id).or_default().push(line.clone());
            }
            lines
        };
        Self {
            starts: of("start"),
            ends: of("end"),
        }
    }
}

/// Asks SQLite whether the file is as it should be, and compares what is counted with what is there.
fn assert_sound(db: &Connection) {
    let check = db.query_row("PRAGMA integrity_check", [], |row| row.get::<_, String>(0));
    assert_eq!(check.expect("an answer"), "ok");
    let counted = "SELECT results, dead FROM throng_meta";
    let there = "SELECT count(*) FILTER (WHERE state IN (3, 5)), count(*) FILTER (WHERE state = 4)
         FROM throng_task";
    let [counted, there] = [counted, there].map(|sql| {
        let row = db.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?)));
        let row: (i64, i64) = row.expect("a row");
        row
    });
    assert_eq!(counted, there);
    let left = "SELECT (SELECT count(*) FROM throng_ready) + (SELECT count(*) FROM throng_claim)";
    let left: i64 = db.query_row(left, [], |row| row.get(0)).expect("a row");
    assert_eq!(left, 0, "nothing waits, and nothing runs");
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
