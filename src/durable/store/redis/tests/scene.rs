//! [`Scene`]: a store with a manual clock and a worker, and means to damage the store.

use super::super::time::Time;
use super::invariants::INVARIANTS;
use super::*;
use crate::durable::clock::Clock;
use crate::durable::store::kind::Kind;
use crate::durable::{DeadReason, DurableError};

pub(super) const SECOND: Duration = Duration::from_secs(1);
pub(super) const HOUR: Duration = Duration::from_secs(3600);

/// A store with a manual clock, and a worker.
pub(super) struct Scene {
    pub(super) server: Arc<Server>,
    connection: ServerConnection,
    pub(super) namespace: String,
    pub(super) clock: Clock,
    evicts: bool,
    pub(super) worker: Worker,
}

impl Scene {
    pub(super) async fn new() -> Self {
        Self::with(false).await
    }

    pub(super) async fn with(evicts: bool) -> Self {
        static NEXT: Number = Number::new(0);
        let server = Server::shared();
        let namespace = format!("census-{}", NEXT.add(1));
        let clock = Clock::manual();
        let store = open_at(&server, &namespace, &clock, evicts).await.unwrap();
        Self {
            worker: Worker::new(store).await,
            connection: ServerConnection::to(&server),
            server,
            namespace,
            clock,
            evicts,
        }
    }

    /// Opens the store again, as another process does.
    pub(super) async fn open(&self) -> RedisStore {
        self.try_open().await.expect("the store can be opened")
    }

    pub(super) async fn try_open(&self) -> Result<RedisStore, DurableError> {
        open_at(&self.server, &self.namespace, &self.clock, self.evicts).await
    }

    pub(super) async fn worker_of(&self, names: &[&'static str]) -> Worker {
        Worker::of_names(&Arc::new(self.open().await), names).await
    }

    pub(super) fn key(&self, name: &str) -> String {
        format!("throng:{{{}:0}}:{name}", self.namespace)
    }

    pub(super) fn ask(&self, command: &[&str]) -> redis::Value {
        self.connection.ask(command)
    }

    /// Runs a script that can use `call(command, key, ..)` and `id(number)`.
    pub(super) fn run(&self, script: &str) -> redis::Value {
        let before = "local function call(command, key, ...) return redis.call(command, ARGV[1] .. key, ...) end
            local function id(n) return string.rep('\\0', 8) .. struct.pack('>I4I4', 0, n) end ";
        self.ask(&["EVAL", &(before.to_owned() + script), "0", &self.key("")])
    }

    /// Creates orphans: tasks that are alive and in no list.
    pub(super) fn orphan(&self, numbers: std::ops::Range<u64>) {
        let kind = Kind::of("job").to_bytes();
        let kind: String = kind.iter().map(|byte| format!("\\{byte:03}")).collect();
        self.run(&format!(
            "for n = {}, {} do call('HSET', 'alive', id(n), 'A-client' .. string.rep('\\0', 6) .. '{kind}') end",
            numbers.start,
            numbers.end - 1
        ));
    }

    pub(super) async fn maintain(&self) {
        while self.worker.store.maintain(1_000).await.unwrap() {}
    }

    pub(super) async fn status_of(&self, number: u64) -> TaskState {
        let states = self.worker.store.status(vec![id(number)]).await;
        states.unwrap().remove(0)
    }

    pub(super) async fn is_damaged(&self, number: u64) -> bool {
        matches!(self.status_of(number).await, TaskState::Dead { reason, .. } if reason == DeadReason::Damaged)
    }

    #[track_caller]
    pub(super) fn check(&self) {
        let found = self.ask(&["EVAL", INVARIANTS, "0", &self.key("")]);
        assert_eq!(found, redis::Value::Array(Vec::new()));
    }

    /// Claims and completes all tasks. Returns their ids.
    pub(super) async fn run_all(&self, worker: &Worker) -> Vec<TaskId> {
        let mut all = Vec::new();
        loop {
            let turned = worker.turn(Vec::new(), MAX_BATCH_TASKS).await;
            match turned.claim {
                Some(claim) => {
                    all.extend(claim.tasks.iter().map(|task| task.id));
                    worker.turn(done(&claim), 0).await;
                }
                None if turned.more => {}
                None => return all,
            }
        }
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.run("for _, key in ipairs(redis.call('KEYS', ARGV[1] .. '*')) do redis.call('DEL', key) end");
    }
}

async fn open_at(
    server: &Server,
    namespace: &str,
    clock: &Clock,
    evicts: bool,
) -> Result<RedisStore, DurableError> {
    let mut builder = RedisStore::builder(&server.url());
    builder.namespace(namespace).allow_eviction(evicts);
    RedisStore::open_as(&builder, Time::manual(clock.clone())).await
}

pub(super) fn later(number: u64, delay: Duration) -> NewTask {
    NewTask {
        delay,
        ..task(number)
    }
}
