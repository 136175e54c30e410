//! The peers of the area `durable` that work with PostgreSQL: apalis-postgres and underway.
//!
//! `postgres-peers PEER WORKLOAD URL TASKS PERMITS` does a workload once, with an empty database. A worker runs at most
//! PERMITS tasks at a time. The program prints three numbers: the tasks that were done, the seconds that this took, and the
//! seconds of CPU time.

mod apalis_postgres_peer;
mod underway_peer;

use std::error::Error;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::time::sleep;

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// Those who store tasks at once.
const SPAWNERS: u64 = 64;

/// Tasks that have run.
static RAN: AtomicU64 = AtomicU64::new(0);

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
    /// The migrations of underway cannot be sent to another thread.
    fn open(url: &str) -> impl Future<Output = Result<Self>>;

    /// Stores one task.
    fn store(&self, number: u64) -> impl Future<Output = Result<()>> + Send;

    /// Stores many tasks.
    fn store_all(&self, numbers: Range<u64>) -> impl Future<Output = Result<()>> + Send;

    /// Runs so many tasks at a time, until something goes wrong.
    fn work(self, permits: usize) -> impl Future<Output = Result<()>> + Send;

    /// Returns the number of tasks that have ended, as the database knows it.
    fn done(&self) -> impl Future<Output = Result<u64>> + Send;
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [peer, workload, url, tasks, permits] = args.as_slice() else {
        return Err("usage: postgres-peers PEER WORKLOAD URL TASKS PERMITS".into());
    };
    let (tasks, permits) = (tasks.parse()?, permits.parse()?);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let (done, took, cpu) = runtime.block_on(async {
        match peer.as_str() {
            "apalis-postgres" => {
                run::<apalis_postgres_peer::Apalis>(workload, url, tasks, permits).await
            }
            "underway" => run::<underway_peer::Underway>(workload, url, tasks, permits).await,
            _ => Err("no such peer".into()),
        }
    })?;
    println!("{done} {} {}", took.as_secs_f64(), cpu.as_secs_f64());
    // Workers that are still there are not waited for.
    std::process::exit(0);
}

async fn run<P: Peer>(
    workload: &str,
    url: &str,
    tasks: u64,
    permits: usize,
) -> Result<(u64, Duration, Duration)> {
    let peer = P::open(url).await?;
    match workload {
        "drain" => drain(peer, tasks, permits).await,
        "spawn-64" => spawn(peer, tasks).await,
        _ => Err("no such workload".into()),
    }
}

/// One worker, and tasks that are there already.
async fn drain<P: Peer>(peer: P, tasks: u64, permits: usize) -> Result<(u64, Duration, Duration)> {
    peer.store_all(0..tasks).await?;
    let meter = Meter::start();
    let worker = tokio::spawn(peer.clone().work(permits));
    while RAN.load(Relaxed) < tasks || peer.done().await? < tasks {
        if worker.is_finished() {
            let ended = worker.await?;
            return Err(format!("the worker has stopped: {ended:?}").into());
        }
        sleep(Duration::from_millis(5)).await;
    }
    Ok(meter.stop(tasks))
}

/// Spawners, each of which waits until a task is stored before it spawns the next.
async fn spawn<P: Peer>(peer: P, tasks: u64) -> Result<(u64, Duration, Duration)> {
    let share = tasks.div_ceil(SPAWNERS);
    let meter = Meter::start();
    let spawners = (0..SPAWNERS).map(|spawner| {
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
    Ok(meter.stop(share * SPAWNERS))
}

/// The work of every task.
fn ran() {
    RAN.fetch_add(1, Relaxed);
}

/// Time, and CPU time.
struct Meter {
    begin: Instant,
    cpu: Duration,
}

impl Meter {
    fn start() -> Self {
        Self {
            cpu: cpu(),
            begin: Instant::now(),
        }
    }

    fn stop(self, tasks: u64) -> (u64, Duration, Duration) {
        (tasks, self.begin.elapsed(), cpu() - self.cpu)
    }
}

/// Returns the CPU time of this process so far.
fn cpu() -> Duration {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is ours, and of the type that the call writes.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut now) };
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}
