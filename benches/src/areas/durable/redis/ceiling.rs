//! The peer `ceiling`: what Redis can do at best with tasks that are claimed and acknowledged.
//!
//! A list and a sorted set, two scripts of a few lines, and as few round trips as there can be. Nobody is told of
//! anything, nothing is retried, and a task of a worker that has died waits for somebody to look for it.

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Script, cmd, pipe};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::server::{Fsync, Server, cpu_ns, with_server};
use super::{ROUND, SPAWNERS, STORED};
use crate::areas::durable::latencies;
use crate::areas::durable::ours::PAUSE;
use crate::areas::durable::plain::{decode, encode};
use crate::areas::durable::tasks::Payload;
use crate::areas::{on_worker, two_workers};
use crate::measure::{Rules, Sample, monotonic_ns};

/// Tasks in a request.
const BATCH: u64 = 100;

const READY: &str = "ready";
/// Claimed by a script.
const ACTIVE: &str = "active";
/// Taken one by one.
const RUNNING: &str = "running";
const ENDED: &str = "ended";

/// Acknowledges tasks, if there are any, and claims others.
const TURN: &str = "
    if #ARGV > 2 then redis.call('ZREM', KEYS[2], unpack(ARGV, 3)) end
    local jobs = redis.call('LPOP', KEYS[1], ARGV[1])
    if not jobs then return {} end
    local rows = {}
    for i, job in ipairs(jobs) do rows[2 * i - 1], rows[2 * i] = ARGV[2], job end
    redis.call('ZADD', KEYS[2], unpack(rows))
    return jobs";

const ACK: &str = "return redis.call('ZREM', KEYS[1], unpack(ARGV))";

/// One loop claims and acknowledges what is there.
pub(super) fn drain(rules: &Rules, tasks: u64, bytes: usize, fsync: Fsync) -> Sample {
    with_server(rules, fsync, |server| {
        let (runtime, queue) = begin(server);
        let tasks = rules.scaled(tasks);
        on_worker(&runtime, queue.clone().store(0, tasks, bytes));
        let meter = server.meter();
        on_worker(&runtime, queue.clone().run(tasks));
        meter.end(tasks)
    })
}

/// The same, with so many tasks in a request, which acknowledges the tasks of the one before.
pub(super) fn drain_turns(rules: &Rules, tasks: u64, permits: usize) -> Sample {
    with_server(rules, Fsync::EverySecond, |server| {
        let (runtime, queue) = begin(server);
        let tasks = rules.scaled(tasks);
        on_worker(&runtime, queue.clone().store(0, tasks, 0));
        let meter = server.meter();
        on_worker(&runtime, queue.clone().run_in_turns(tasks, permits));
        meter.end(tasks)
    })
}

/// Bytes of the server for a task that waits.
pub(super) fn memory(rules: &Rules) -> Sample {
    with_server(rules, Fsync::EverySecond, |server| {
        let before = server.memory();
        let tasks = rules.scaled(STORED);
        let meter = server.meter();
        let (runtime, queue) = begin(server);
        on_worker(&runtime, queue.store(0, tasks, 0));
        drop(runtime);
        let sample = meter.end(tasks);
        sample.with_value((server.memory() - before) as f64 / tasks as f64)
    })
}

/// Stores tasks, a hundred with a request.
pub(super) fn spawn_all(rules: &Rules) -> Sample {
    with_server(rules, Fsync::EverySecond, |server| {
        let (runtime, queue) = begin(server);
        let mut stored = 0;
        server.rounds(rules, rules.scaled(ROUND), |tasks| {
            on_worker(&runtime, queue.clone().store(stored, tasks, 0));
            stored += tasks;
        })
    })
}

/// A thousand spawners on one connection, each of which waits for each of its tasks.
pub(super) fn spawn_1000(rules: &Rules) -> Sample {
    with_server(rules, Fsync::EverySecond, |server| {
        let (runtime, queue) = begin(server);
        server.rounds(rules, rules.scaled(ROUND), |tasks| {
            let share = tasks.div_ceil(SPAWNERS);
            let queue = queue.clone();
            on_worker(&runtime, async move {
                let spawner = |queue: Queue, first| async move {
                    for number in first..first + share {
                        queue.store_one(number).await;
                    }
                };
                let spawners = (0..SPAWNERS).map(|spawner| spawner * share);
                let spawners = spawners.map(|first| spawner(queue.clone(), first));
                spawners.collect::<JoinSet<_>>().join_all().await;
            });
        })
    })
}

/// One spawner, which waits for each of its tasks.
pub(super) fn spawn_awaited(rules: &Rules) -> Sample {
    with_server(rules, Fsync::EverySecond, |server| {
        let (runtime, queue) = begin(server);
        server.rounds(rules, rules.scaled(5_000), |tasks| {
            let queue = queue.clone();
            on_worker(&runtime, async move {
                for number in 0..tasks {
                    queue.store_one(number).await;
                }
            });
        })
    })
}

/// One loop stores tasks, another runs them.
pub(super) fn together(rules: &Rules) -> Sample {
    with_server(rules, Fsync::EverySecond, |server| {
        let (runtime, queue) = begin(server);
        let worker = runtime.block_on(Queue::connect(&server.url()));
        let tasks = rules.scaled(STORED);
        let meter = server.meter();
        let worker = runtime.spawn(worker.run(tasks));
        on_worker(&runtime, queue.store(0, tasks, 0));
        runtime.block_on(worker).expect("a worker panicked");
        meter.end(tasks)
    })
}

/// From before a task is stored until somebody has it who waits for it.
pub(super) fn start_latency(rules: &Rules) -> Sample {
    with_server(rules, Fsync::EverySecond, |server| {
        let (runtime, queue) = begin(server);
        let worker = runtime.block_on(Queue::connect(&server.url()));
        let tasks = rules.scaled(400);
        let meter = server.meter();
        let starts = runtime.spawn(async move {
            let mut starts = Vec::with_capacity(tasks as usize);
            for _ in 0..tasks {
                let job = worker.wait().await;
                starts.push(monotonic_ns());
                worker.end(&job).await;
            }
            // It waits for the next, as a worker does.
            let idle = tokio::spawn(async move { worker.wait().await });
            (starts, idle)
        });
        let begins = on_worker(&runtime, queue.store_paced(tasks));
        let (starts, _idle) = runtime.block_on(starts).expect("a worker panicked");
        let sample = meter.end(tasks);
        let since = starts.iter().zip(&begins);
        let since = since.map(|(start, begin)| start - begin).collect();
        server.with_idle(latencies(sample, since), rules, || {
            cpu_ns(std::process::id())
        })
    })
}

/// One task after another is stored, run by somebody who waits for it, and its end waited for.
pub(super) fn round_trip(rules: &Rules) -> Sample {
    with_server(rules, Fsync::EverySecond, |server| {
        let (runtime, queue) = begin(server);
        let worker = runtime.block_on(Queue::connect(&server.url()));
        runtime.spawn(async move {
            loop {
                let job = worker.wait().await;
                worker.end_and_tell(&job).await;
            }
        });
        let mut took = Vec::new();
        let sample = server.rounds(rules, rules.scaled(200), |tasks| {
            let queue = queue.clone();
            took.extend(on_worker(&runtime, async move {
                let mut took = Vec::with_capacity(tasks as usize);
                for number in 0..tasks {
                    let begin = Instant::now();
                    queue.store_one(number).await;
                    queue.wait_for_end().await;
                    took.push(begin.elapsed().as_nanos() as u64);
                }
                took
            }));
        });
        latencies(sample, took)
    })
}

/// A runtime, and a connection.
fn begin(server: &Server) -> (Runtime, Queue) {
    let runtime = two_workers()
        .enable_io()
        .build()
        .expect("a runtime can be built");
    let queue = runtime.block_on(Queue::connect(&server.url()));
    (runtime, queue)
}

/// Tasks in a list, and those that run in a sorted set.
#[derive(Clone)]
struct Queue {
    connection: MultiplexedConnection,
}

impl Queue {
    async fn connect(url: &str) -> Self {
        let client = Client::open(url).expect("a URL");
        // A waiter of a task waits without a limit.
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let connection = client.get_multiplexed_async_connection_with_config(&config);
        Self {
            connection: connection.await.expect("the server is there"),
        }
    }

    async fn store(mut self, first: u64, tasks: u64, bytes: usize) {
        let end = first + tasks;
        for from in (first..end).step_by(BATCH as usize) {
            let mut batch = pipe();
            for number in from..end.min(from + BATCH) {
                let job = encode(&Payload::sized(number, bytes));
                batch.cmd("RPUSH").arg(READY).arg(job).ignore();
            }
            let stored = batch.query_async::<()>(&mut self.connection).await;
            stored.expect("tasks can be stored");
        }
    }

    async fn store_one(&self, number: u64) {
        let mut connection = self.connection.clone();
        let mut push = cmd("RPUSH");
        push.arg(READY).arg(encode(&Payload::new(number)));
        let stored = push.query_async::<()>(&mut connection).await;
        stored.expect("a task can be stored");
    }

    /// Returns when each was about to be stored.
    async fn store_paced(self, tasks: u64) -> Vec<u64> {
        let mut ticks = interval(PAUSE);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut begins = Vec::with_capacity(tasks as usize);
        for number in 0..tasks {
            ticks.tick().await;
            begins.push(monotonic_ns());
            self.store_one(number).await;
        }
        begins
    }

    /// Runs so many tasks; if there is nothing, it looks again at once.
    async fn run(mut self, tasks: u64) {
        let claim = Script::new(TURN);
        let mut ran = 0;
        while ran < tasks {
            let mut claim = claim.key(READY);
            let claim = claim.key(ACTIVE).arg(BATCH).arg(0);
            let jobs = claim.invoke_async::<Vec<Vec<u8>>>(&mut self.connection);
            let jobs = jobs.await.expect("the script runs");
            jobs.iter().for_each(|job| decode(job));
            ran += jobs.len() as u64;
            if !jobs.is_empty() {
                self.acknowledge(&jobs).await;
            }
        }
    }

    /// Runs so many tasks, which are there already.
    async fn run_in_turns(mut self, tasks: u64, permits: usize) {
        let turn = Script::new(TURN);
        let (mut jobs, mut ran) = (Vec::<Vec<u8>>::new(), 0);
        loop {
            let mut turn = turn.key(READY);
            let turn = turn.key(ACTIVE).arg(permits).arg(0).arg(&jobs);
            jobs = turn
                .invoke_async(&mut self.connection)
                .await
                .expect("the script runs");
            if jobs.is_empty() {
                break;
            }
            jobs.iter().for_each(|job| decode(job));
            ran += jobs.len() as u64;
        }
        assert_eq!(ran, tasks);
    }

    async fn acknowledge(&self, jobs: &[Vec<u8>]) {
        let ack = Script::new(ACK);
        let mut ack = ack.key(ACTIVE);
        let mut connection = self.connection.clone();
        let gone = ack.arg(jobs).invoke_async::<usize>(&mut connection).await;
        assert_eq!(gone.expect("the script runs"), jobs.len());
    }

    /// Takes the next task, if need be when there is one.
    async fn wait(&self) -> Vec<u8> {
        let mut connection = self.connection.clone();
        let mut take = cmd("BLMOVE");
        take.arg(READY).arg(RUNNING).arg("LEFT").arg("RIGHT").arg(0);
        let job: Vec<u8> = take.query_async(&mut connection).await.expect("it comes");
        decode(&job);
        job
    }

    /// A task that was waited for has ended.
    async fn end(&self, job: &[u8]) {
        let mut connection = self.connection.clone();
        let mut remove = cmd("LREM");
        remove.arg(RUNNING).arg(1).arg(job);
        let gone: u64 = remove.query_async(&mut connection).await.expect("it ends");
        assert_eq!(gone, 1);
    }

    /// The same, and who waits for that is told.
    async fn end_and_tell(&self, job: &[u8]) {
        let mut connection = self.connection.clone();
        let mut both = pipe();
        both.cmd("LREM").arg(RUNNING).arg(1).arg(job).ignore();
        both.cmd("RPUSH").arg(ENDED).arg(job).ignore();
        let ended = both.query_async::<()>(&mut connection).await;
        ended.expect("it ends");
    }

    async fn wait_for_end(&self) {
        let mut connection = self.connection.clone();
        let mut take = cmd("BLPOP");
        take.arg(ENDED).arg(0);
        let ended = take.query_async::<()>(&mut connection).await;
        ended.expect("it comes");
    }
}
