//! Tests of the store in Redis, beside those that all stores share. They need `redis-server`.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, sleep, timeout};

use self::proxy::Proxy;
use self::server as redis_server;
use self::server::Server;
pub(in crate::durable::store) use self::server::is_installed as is_server_installed;
use super::{RedisStore, RedisStoreBuilder};
use crate::durable::clock::Clock;
use crate::durable::failure::{Cause, Effect, Failure};
use crate::durable::queue::Priority;
use crate::durable::queue::group::GroupName;
use crate::durable::queue::name::QueueName;
use crate::durable::store::kind::TypeSet;
use crate::durable::store::suite::{id, task};
use crate::durable::store::{
    Backend, Claim, ClaimPushes, Enqueue, Epoch, Event, MAX_BATCH_TASKS, NewTask, Progress,
    ProgressReport, ProgressState, SessionId, TaskState, Turn, TurnAnswer, Verdict, Verdicts,
};
use crate::durable::{DeadFilter, DeadReason, Durability, TaskId};
use crate::sync::{Mutex, Number, lock};

/// Ends a test early if there is no `redis-server`. The test [`redis_server_is_installed`] then fails.
macro_rules! needs_redis {
    () => {
        if !is_server_installed() {
            return;
        }
    };
}

mod arrivals_tests;
mod broken_connections_tests;
mod census_tests;
mod changes_tests;
mod children_tests;
mod clock_tests;
#[path = "../../../../tests/support/redis_cluster.rs"]
pub(in crate::durable::store) mod cluster;
mod cluster_tests;
mod damage_under_load_tests;
mod damaged_rows_tests;
mod details_tests;
mod durability_tests;
mod errors_tests;
mod failing_commands_tests;
mod failover_tests;
mod fake_sentinel;
mod fencing_tokens_tests;
mod fleet_tests;
mod group_repair_tests;
mod groups_tests;
mod health_tests;
mod idle_costs_tests;
pub(in crate::durable::store) mod invariants;
mod keys_tests;
mod late_requests_tests;
mod lists_tests;
mod liveness_tests;
mod lost_answers_tests;
mod maintenance_tests;
mod meter;
mod namespaces_tests;
mod notifications_tests;
mod observers_tests;
mod overview_tests;
mod partitions_tests;
mod parts_tests;
mod proxy;
mod pushes_tests;
mod queues_tests;
mod replicas_tests;
mod retention_tests;
mod rewind_tests;
mod routes_tests;
mod scene;
mod schedules_tests;
mod script_times_tests;
mod scripts_tests;
#[path = "../../../../tests/support/redis_sentinels.rs"]
mod sentinel_group;
mod sentinels_tests;
#[path = "../../../../tests/support/redis_server.rs"]
pub(in crate::durable::store) mod server;
mod settings_tests;
mod sleepers_tests;
mod steps_tests;
#[cfg(feature = "redis-tls")]
mod tls_tests;
mod turns_tests;
mod unreadable_rows_tests;
mod unready_servers_tests;
mod upgrade_tests;
mod workers_tests;

#[test]
fn redis_server_is_installed() {
    assert!(
        is_server_installed(),
        "install redis-server to run the tests of the store in Redis: on Debian, `apt-get install redis-server`"
    );
}

/// The maximum time for anything that must happen eventually.
const DEADLINE: Duration = Duration::from_secs(20);
const LEASE: Duration = Duration::from_secs(9);

/// The timeouts of a store whose requests fail in the test.
const SOON: Duration = Duration::from_millis(300);

/// Opens a store whose requests are answered, however slow the machine is.
async fn open(url: &str) -> RedisStore {
    open_within(&mut RedisStore::builder(url), DEADLINE).await
}

/// Opens a store some of whose requests are not answered.
async fn open_hurried(url: &str) -> RedisStore {
    open_soon(&mut RedisStore::builder(url)).await
}

async fn open_soon(builder: &mut RedisStoreBuilder) -> RedisStore {
    open_within(builder, SOON).await
}

/// Opens a store with these time-outs; on a slow machine, not at the first attempt.
async fn open_within(builder: &mut RedisStoreBuilder, limit: Duration) -> RedisStore {
    builder.answer_timeout(limit).connect_timeout(limit);
    let end = Instant::now() + DEADLINE;
    loop {
        match builder.open().await {
            Ok(store) => return store,
            Err(error) => assert!(Instant::now() < end, "{error}"),
        }
    }
}

/// Runs a test of a module in a process of its own, with these variables.
fn run_apart(module: &str, test: &str, variables: &[(&str, &std::ffi::OsStr)]) {
    let name = format!("{module}::{test}");
    let (_, name) = name.split_once("::").expect("the crate has a name");
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&child.stdout);
    let errors = String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success(), "{output}{errors}");
    assert!(output.contains("1 passed"), "it did not run: {output}");
}

/// A session, which numbers its requests.
struct Worker {
    store: Arc<RedisStore>,
    session: SessionId,
    number: Number,
    /// The claim with which the last turn was answered.
    seen: Mutex<Option<Epoch>>,
}

impl Worker {
    async fn new(store: RedisStore) -> Self {
        Self::of(&Arc::new(store)).await
    }

    async fn of(store: &Arc<RedisStore>) -> Self {
        Self::of_set(store, TypeSet::of_tests()).await
    }

    /// A worker that has registered types with these names.
    async fn of_names(store: &Arc<RedisStore>, names: &[&'static str]) -> Self {
        let set = TypeSet::of_names(names.iter().copied());
        Self::of_set(store, set.ok()).await
    }

    /// A worker that serves a named queue.
    async fn of_queue(store: &Arc<RedisStore>, queue: &str) -> Self {
        let set = TypeSet::of_tests().map(|set| set.in_queue(queue_name(queue)));
        Self::of_set(store, set).await
    }

    async fn of_set(store: &Arc<RedisStore>, set: Option<TypeSet>) -> Self {
        Self {
            session: settled(|| store.open_session(set.clone())).await.unwrap(),
            store: Arc::clone(store),
            number: Number::new(0),
            seen: Mutex::new(None),
        }
    }

    fn next_number(&self) -> u64 {
        self.number.add(1) as u64 + 1
    }

    fn new_enqueue(&self, tasks: impl IntoIterator<Item = NewTask>) -> Arc<Enqueue> {
        Arc::new(Enqueue {
            session: self.session,
            number: self.next_number(),
            batch: Arc::new(tasks.into_iter().collect::<Vec<_>>().into()),
        })
    }

    fn new_turn(&self, verdicts: Vec<Verdicts>, want: usize) -> Arc<Turn> {
        Arc::new(Turn {
            session: self.session,
            number: self.next_number(),
            verdicts,
            received: lock(&self.seen).take(),
            floor: 0,
            want,
            want_bytes: 1 << 20,
            quarantined: true,
            lease: LEASE,
            go_idle: want > 0,
            pushes: ClaimPushes::default(),
        })
    }

    async fn enqueue(&self, tasks: impl IntoIterator<Item = NewTask>) {
        let request = self.new_enqueue(tasks);
        settled(|| self.store.enqueue(Arc::clone(&request)))
            .await
            .unwrap();
    }

    async fn turn(&self, verdicts: Vec<Verdicts>, want: usize) -> TurnAnswer {
        let request = self.new_turn(verdicts, want);
        let turned = settled(|| self.store.turn(Arc::clone(&request))).await;
        let turned = turned.unwrap();
        *lock(&self.seen) = turned.claim.as_ref().map(|claim| claim.epoch);
        turned
    }

    async fn claim(&self, want: usize) -> Claim {
        let turned = self.turn(Vec::new(), want).await;
        turned.claim.expect("there is something to claim")
    }
}

/// Sends a request again until it is known what has become of it, as the engine does.
async fn settled<T, F>(send: impl Fn() -> F) -> Result<T, Failure>
where
    F: Future<Output = Result<T, Failure>>,
{
    let end = Instant::now() + DEADLINE;
    loop {
        match send().await {
            Err(failure) if failure.cause == Cause::Unavailable && Instant::now() < end => {
                sleep(Duration::from_millis(20)).await;
            }
            answer => return answer,
        }
    }
}

/// Advances the clock, and store time as regular maintenance does, but removes nothing.
pub(in crate::durable::store) fn age(
    server: &Server,
    namespace: &str,
    clock: &Clock,
    time: Duration,
) {
    let wall = || clock.wall().as_millis().to_string();
    let before = wall();
    clock.advance(time);
    let meta = format!("throng:{{{namespace}:0}}:meta");
    server.ask(&["EVAL", AGE, "1", &meta, &before, &wall()]);
}

/// Advances store time by the difference of two times of the server.
const AGE: &str = "
local before, after = tonumber(ARGV[1]), tonumber(ARGV[2])
local aged, at = struct.unpack('>I6I6', redis.call('HGET', KEYS[1], 'aged'))
aged = aged + math.min(math.max(before - at, 0), 60000) + after - before
redis.call('HSET', KEYS[1], 'aged', struct.pack('>I6I6I6', aged, after, aged + after))
return 0";

fn named(number: u64, name: &'static str) -> NewTask {
    NewTask {
        name: name.into(),
        ..task(number)
    }
}

fn queue_name(name: &str) -> QueueName {
    QueueName::new(name).expect("it is a name")
}

/// A task in a named queue.
fn queued(number: u64, queue: &str) -> NewTask {
    NewTask {
        queue: queue_name(queue),
        ..task(number)
    }
}

/// A task in a group of a named queue.
fn grouped(number: u64, queue: &str, group: &str) -> NewTask {
    NewTask {
        group: Some(GroupName::new(group).expect("it is a name")),
        ..queued(number, queue)
    }
}

fn verdicts(claim: &Claim, verdict: impl Fn() -> Verdict) -> Vec<Verdicts> {
    let tasks = claim.tasks.iter().map(|task| (task.id, verdict()));
    vec![Verdicts {
        epoch: claim.epoch,
        tasks: tasks.collect(),
    }]
}

fn done(claim: &Claim) -> Vec<Verdicts> {
    verdicts(claim, || Verdict::Done(b"output".to_vec()))
}

/// All tasks of a claim have failed, and run again at once.
fn retry(claim: &Claim) -> Vec<Verdicts> {
    verdicts(claim, || Verdict::Retry {
        after: Duration::ZERO,
        error: "error".into(),
        took: None,
    })
}

/// All tasks of a claim become dead letters.
fn dead(claim: &Claim, reason: DeadReason, error: &str) -> Vec<Verdicts> {
    verdicts(claim, || Verdict::Dead {
        reason,
        error: error.into(),
        took: None,
    })
}

async fn until(events: &mut UnboundedReceiver<Event>, wanted: &Event) {
    let found = async {
        while let Some(event) = events.recv().await {
            // A wake-up names the session that is woken.
            if event == *wanted || event.is_wake() && wanted.is_wake() {
                return;
            }
        }
        panic!("there are no more events");
    };
    timeout(DEADLINE, found)
        .await
        .unwrap_or_else(|_| panic!("{wanted:?} has not come"));
}

#[track_caller]
fn assert_fails<T: std::fmt::Debug>(answer: Result<T, Failure>, cause: &Cause, effect: Effect) {
    let failure = answer.expect_err("it should have failed");
    assert_eq!(
        (&failure.cause, failure.effect),
        (cause, effect),
        "{failure}"
    );
}

/// A connection for a test that asks its server often: to connect takes longer than most answers.
pub(in crate::durable::store) struct ServerConnection(Mutex<redis::Connection>);

impl ServerConnection {
    pub(in crate::durable::store) fn to(server: &Server) -> Self {
        let client = redis::Client::open(server.url()).expect("a URL");
        let connection = client.get_connection().expect("the server answers");
        Self(Mutex::new(connection))
    }

    pub(in crate::durable::store) fn ask(&self, command: &[&str]) -> redis::Value {
        let mut asked = redis::Cmd::new();
        command.iter().for_each(|part| _ = asked.arg(part));
        let answer = asked.query(&mut *lock(&self.0));
        answer.expect("the server answers")
    }
}

impl Server {
    /// Returns the keys with a prefix, and their values.
    pub(in crate::durable::store) fn contents(&self, prefix: &str) -> Vec<(String, Vec<u8>)> {
        // Reading may change the order in which Redis dumps the fields of a hash.
        let script = "
            local function sorted(all, width)
              local rows = {}
              for i = 1, #all, width do rows[#rows + 1] = cmsgpack.pack({ unpack(all, i, i + width - 1) }) end
              table.sort(rows)
              return table.concat(rows)
            end
            local read = {
              hash = function(key) return sorted(redis.call('HGETALL', key), 2) end,
              set = function(key) return sorted(redis.call('SMEMBERS', key), 1) end,
              zset = function(key) return sorted(redis.call('ZRANGE', key, 0, -1, 'WITHSCORES'), 2) end,
              list = function(key) return cmsgpack.pack(redis.call('LRANGE', key, 0, -1)) end,
              string = function(key) return redis.call('GET', key) end,
            }
            local found = {}
            for _, key in ipairs(redis.call('KEYS', ARGV[1] .. '*')) do
              local kind = redis.call('TYPE', key).ok
              found[#found + 1], found[#found + 2] = key, kind .. read[kind](key) .. redis.call('PTTL', key)
            end
            return found";
        let redis::Value::Array(found) = self.ask(&["EVAL", script, "0", prefix]) else {
            panic!("the script returns a list");
        };
        let bytes = |value: &redis::Value| match value {
            redis::Value::BulkString(bytes) => bytes.clone(),
            other => panic!("{other:?}"),
        };
        let pairs = found.chunks(2);
        let pairs = pairs.map(|it| {
            (
                String::from_utf8_lossy(&bytes(&it[0])).into_owned(),
                bytes(&it[1]),
            )
        });
        let mut pairs: Vec<_> = pairs.collect();
        pairs.sort();
        pairs
    }
}
