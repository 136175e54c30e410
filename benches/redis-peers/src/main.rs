//! The peers of the area `durable` that work with Redis: apalis-redis, oxana and rusty-sidekiq.
//!
//! `redis-peers PEER WORKLOAD URL TASKS [PERMITS]` does a workload once, with an empty server, and prints what it has
//! measured as one line of JSON. A worker runs at most PERMITS tasks at a time, or without PERMITS,
//! as many as the peer runs by default. Then the program does nothing until its input ends, so that the caller can
//! measure what it costs while it is idle.

mod apalis_redis_peer;
mod oxana_peer;
mod sidekiq_peer;

use std::error::Error;
use std::io::Read as _;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use serde::{Deserialize, Serialize};
use tokio::time::{MissedTickBehavior, interval, sleep};

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// Those who store tasks at once in `spawn-1000`.
const SPAWNERS: u64 = 1_000;

/// Tasks that are stored with a call in `spawn-all`.
const CHUNK: u64 = 1_000;

/// Tasks that have run.
static RAN: AtomicU64 = AtomicU64::new(0);

/// The number of tasks that a worker runs at a time, if the caller has chosen it.
static PERMITS: OnceLock<usize> = OnceLock::new();

/// When tasks have begun: their numbers, and nanoseconds.
static STARTS: Mutex<Vec<(u64, u64)>> = Mutex::new(Vec::new());

/// The payload of all tasks: about a hundred bytes, as with the others.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Payload {
    number: u64,
    text: String,
}

impl Payload {
    fn new(number: u64) -> Self {
        Self {
            number,
            text: format!("{number:080}"),
        }
    }
}

/// A queue, its way to store tasks, and a worker.
trait Peer: Clone + Send + Sync + Sized + 'static {
    fn open(url: &str) -> impl Future<Output = Result<Self>> + Send;

    /// Stores one task.
    fn store(&self, number: u64) -> impl Future<Output = Result<()>> + Send;

    /// Stores many; an error if the peer cannot but one by one.
    fn store_all(&self, numbers: std::ops::Range<u64>) -> impl Future<Output = Result<()>> + Send;

    /// Runs tasks until something goes wrong.
    fn work(self) -> impl Future<Output = Result<()>> + Send;

    /// Returns `true` once the store knows that `tasks` have run and that nothing is left.
    fn is_done(
        &self,
        redis: &mut MultiplexedConnection,
        tasks: u64,
    ) -> impl Future<Output = Result<bool>> + Send;
}

/// The result of one run.
#[derive(Debug, Default, Serialize)]
struct Report {
    tasks: u64,
    seconds: f64,
    cpu_seconds: f64,
    redis_cpu_seconds: f64,
    latencies_ns: Vec<u64>,
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [peer, workload, url, tasks, permits @ ..] = args.as_slice() else {
        return Err("usage: redis-peers PEER WORKLOAD URL TASKS [PERMITS]".into());
    };
    let tasks = tasks.parse()?;
    if let Some(permits) = permits.first() {
        PERMITS.get_or_init(|| permits.parse().expect("PERMITS is a number"));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let report = runtime.block_on(async {
        match peer.as_str() {
            "apalis-redis" => run::<apalis_redis_peer::Apalis<true>>(workload, url, tasks).await,
            "apalis-no-locks" => {
                run::<apalis_redis_peer::Apalis<false>>(workload, url, tasks).await
            }
            "oxana" => run::<oxana_peer::Oxana>(workload, url, tasks).await,
            "rusty-sidekiq" => run::<sidekiq_peer::Sidekiq>(workload, url, tasks).await,
            _ => Err("no such peer".into()),
        }
    })?;
    println!("{}", serde_json::to_string(&report)?);
    std::io::stdin().read_to_end(&mut Vec::new())?;
    // Workers that are still there are not waited for.
    std::process::exit(0);
}

async fn run<P: Peer>(workload: &str, url: &str, tasks: u64) -> Result<Report> {
    let peer = P::open(url).await?;
    let client = redis::Client::open(url)?;
    let mut redis = client.get_multiplexed_async_connection().await?;
    match workload {
        "drain" => drain(peer, &mut redis, tasks).await,
        "spawn-all" => spawn_all(peer, &mut redis, tasks).await,
        "spawn-1000" => spawn_by(SPAWNERS, peer, &mut redis, tasks).await,
        "spawn-awaited" => spawn_by(1, peer, &mut redis, tasks).await,
        "together" => together(peer, &mut redis, tasks).await,
        "start-latency" => start_latency(peer, &mut redis, tasks).await,
        _ => Err("no such workload".into()),
    }
}

/// One worker, and tasks that are there already.
async fn drain<P: Peer>(peer: P, redis: &mut MultiplexedConnection, tasks: u64) -> Result<Report> {
    fill(&peer, tasks).await?;
    let meter = Meter::start(redis).await?;
    let worker = tokio::spawn(peer.clone().work());
    until_done(&peer, redis, tasks, || worker.is_finished()).await?;
    meter.stop(redis, tasks).await
}

async fn spawn_all<P: Peer>(
    peer: P,
    redis: &mut MultiplexedConnection,
    tasks: u64,
) -> Result<Report> {
    let meter = Meter::start(redis).await?;
    for first in (0..tasks).step_by(CHUNK as usize) {
        peer.store_all(first..tasks.min(first + CHUNK)).await?;
    }
    meter.stop(redis, tasks).await
}

/// Spawners, each of which waits for each of its tasks.
async fn spawn_by<P: Peer>(
    spawners: u64,
    peer: P,
    redis: &mut MultiplexedConnection,
    tasks: u64,
) -> Result<Report> {
    let share = tasks.div_ceil(spawners);
    let meter = Meter::start(redis).await?;
    store_at_once(&peer, spawners, share).await?;
    meter.stop(redis, share * spawners).await
}

async fn store_at_once<P: Peer>(peer: &P, spawners: u64, share: u64) -> Result<()> {
    let spawners = (0..spawners).map(|spawner| {
        let peer = peer.clone();
        tokio::spawn(async move {
            for number in spawner * share..(spawner + 1) * share {
                peer.store(number).await?;
            }
            Ok::<_, Box<dyn Error + Send + Sync>>(())
        })
    });
    for spawner in spawners.collect::<Vec<_>>() {
        spawner.await??;
    }
    Ok(())
}

/// One worker that runs what is stored meanwhile.
async fn together<P: Peer>(
    peer: P,
    redis: &mut MultiplexedConnection,
    tasks: u64,
) -> Result<Report> {
    let worker = tokio::spawn(peer.clone().work());
    let meter = Meter::start(redis).await?;
    fill(&peer, tasks).await?;
    until_done(&peer, redis, tasks, || worker.is_finished()).await?;
    meter.stop(redis, tasks).await
}

/// From before a task is stored until it begins.
async fn start_latency<P: Peer>(
    peer: P,
    redis: &mut MultiplexedConnection,
    tasks: u64,
) -> Result<Report> {
    let worker = tokio::spawn(peer.clone().work());
    sleep(Duration::from_millis(500)).await;
    let mut ticks = interval(Duration::from_millis(5));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut begins = Vec::new();
    let meter = Meter::start(redis).await?;
    for number in 0..tasks {
        ticks.tick().await;
        begins.push(monotonic_ns());
        peer.store(number).await?;
    }
    until_done(&peer, redis, tasks, || worker.is_finished()).await?;
    let report = meter.stop(redis, tasks).await?;
    let starts = STARTS.lock().map_err(|_| "a task panicked")?;
    let since = |(number, begun): &(u64, u64)| begun - begins[*number as usize];
    let latencies_ns = starts.iter().map(since).collect();
    Ok(Report {
        latencies_ns,
        ..report
    })
}

/// Stores tasks as fast as the peer can.
async fn fill<P: Peer>(peer: &P, tasks: u64) -> Result<()> {
    if peer.store_all(0..0).await.is_err() {
        return store_at_once(peer, 100.min(tasks), tasks.div_ceil(100)).await;
    }
    for first in (0..tasks).step_by(CHUNK as usize) {
        peer.store_all(first..tasks.min(first + CHUNK)).await?;
    }
    Ok(())
}

/// Waits until so many have run, and the store knows it.
async fn until_done<P: Peer>(
    peer: &P,
    redis: &mut MultiplexedConnection,
    tasks: u64,
    has_ended: impl Fn() -> bool,
) -> Result<()> {
    while RAN.load(Relaxed) < tasks || !peer.is_done(redis, tasks).await? {
        if has_ended() {
            return Err("the worker has ended".into());
        }
        sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

/// The work of every task.
fn ran(payload: &Payload) {
    let now = monotonic_ns();
    RAN.fetch_add(1, Relaxed);
    // A few only, in `start-latency`; else nobody reads them.
    if let Ok(mut starts) = STARTS.lock()
        && starts.len() < 1_000
    {
        starts.push((payload.number, now));
    }
}

/// The number of tasks that a worker runs at a time.
fn permits(by_default: usize) -> usize {
    PERMITS.get().copied().unwrap_or(by_default)
}

/// Time, and CPU time of this process and of the server.
struct Meter {
    begin: Instant,
    cpu: Duration,
    redis_cpu: f64,
}

impl Meter {
    async fn start(redis: &mut MultiplexedConnection) -> Result<Self> {
        Ok(Self {
            redis_cpu: redis_cpu(redis).await?,
            cpu: clock(libc::CLOCK_PROCESS_CPUTIME_ID),
            begin: Instant::now(),
        })
    }

    async fn stop(self, redis: &mut MultiplexedConnection, tasks: u64) -> Result<Report> {
        let seconds = self.begin.elapsed().as_secs_f64();
        let cpu = clock(libc::CLOCK_PROCESS_CPUTIME_ID) - self.cpu;
        Ok(Report {
            tasks,
            seconds,
            cpu_seconds: cpu.as_secs_f64(),
            redis_cpu_seconds: redis_cpu(redis).await? - self.redis_cpu,
            latencies_ns: Vec::new(),
        })
    }
}

/// CPU time of the server so far, in seconds.
async fn redis_cpu(redis: &mut MultiplexedConnection) -> Result<f64> {
    let info: String = redis::cmd("INFO").arg("cpu").query_async(redis).await?;
    let of = |key: &str| {
        let mut lines = info.lines();
        lines.find_map(|line| line.strip_prefix(key)?.parse::<f64>().ok())
    };
    let both = of("used_cpu_sys:").zip(of("used_cpu_user:"));
    let (sys, user) = both.ok_or("INFO does not say how much CPU time was used")?;
    Ok(sys + user)
}

fn monotonic_ns() -> u64 {
    clock(libc::CLOCK_MONOTONIC).as_nanos() as u64
}

fn clock(id: libc::clockid_t) -> Duration {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is ours, and of the type that the call writes.
    unsafe { libc::clock_gettime(id, &raw mut now) };
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}
