//! Fills a store.

use std::fmt;
use std::time::Duration;

use throng::durable::{DurableClient, DurableExecutor, Every, ServedQueue, SpawnOptions};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::Result;
use crate::jobs::{Brief, Job, NAMES};

/// The contents of a store. Each worker runs a task.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) waiting: usize,
    delayed: usize,
    dead: usize,
    done: usize,
    schedules: usize,
    workers: usize,
}

/// A store that was filled, and its workers.
#[derive(Debug)]
pub(crate) struct Filled {
    client: DurableClient,
    workers: Vec<DurableExecutor>,
}

/// The number of queues.
const QUEUES: usize = 16;
/// The number of tasks that are spawned at once, so that they do not need much memory.
const CHUNK: usize = 10_000;
/// The number of schedules that are defined at once.
const DEFINED_AT_ONCE: usize = 64;
/// The maximum number of workers.
const MAX_WORKERS: usize = 500;

/// The time limit of each condition.
const MAX_WAIT: Duration = Duration::from_secs(120);
const HOUR: Duration = Duration::from_secs(3600);
/// The time until delayed tasks are due, for which ends are kept, and between two ticks of a schedule: nothing changes meanwhile.
const LONG: Duration = HOUR.saturating_mul(24 * 7);

impl Size {
    /// Returns the contents of a store with this many waiting tasks.
    pub(crate) fn of(waiting: usize) -> Self {
        Self {
            waiting,
            delayed: waiting / 10,
            dead: waiting / 100,
            done: waiting / 100,
            schedules: waiting / 100,
            workers: (waiting / 1_000).clamp(1, MAX_WORKERS),
        }
    }

    /// Returns `true` if the figures are for a quick look only.
    pub(crate) fn is_small(&self) -> bool {
        self.waiting < 1_000_000
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            waiting,
            delayed,
            dead,
            done,
            schedules,
            workers,
        } = self;
        write!(
            f,
            "{waiting} waiting, {delayed} delayed, {dead} dead, {done} done, {schedules} schedules, {workers} workers, {QUEUES} queues"
        )
    }
}

/// Fills a store.
pub(crate) async fn fill(client: DurableClient, size: Size) -> Result<Filled> {
    end_tasks(&client, size).await?;
    define_schedules(&client, size.schedules).await?;
    let workers = start_workers(&client, size.workers).await?;
    // Each worker takes one of them.
    let waiting = size.waiting + size.workers;
    let options = |number| SpawnOptions::new().queue(queue(number));
    spawn_jobs(&client, waiting, options).await?;
    let delayed = |number| options(number).delay(LONG + Duration::from_millis(number as u64));
    spawn_jobs(&client, size.delayed, delayed).await?;
    until("each worker has a task", async || {
        Ok(client.counts().await?.running >= size.workers as u64)
    })
    .await?;
    Ok(Filled { client, workers })
}

/// Runs tasks that succeed and tasks that fail.
async fn end_tasks(client: &DurableClient, size: Size) -> Result<()> {
    let all = size.dead + size.done;
    let tasks = (0..all).map(|number| {
        let task = Brief::new(number, number < size.dead);
        (task, SpawnOptions::new().retention(LONG))
    });
    drop(client.spawn_all_with(tasks).await?);
    let mut builder = DurableExecutor::builder(client.clone());
    let executor = builder.register::<Brief>().start(()).await?;
    let ended = || executor.metrics().completed + executor.metrics().died;
    until("tasks end", async || Ok(ended() >= all as u64)).await?;
    executor.shutdown(Duration::ZERO).await;
    Ok(())
}

async fn define_schedules(client: &DurableClient, count: usize) -> Result<()> {
    let mut defined = JoinSet::new();
    for number in 0..count {
        if defined.len() == DEFINED_AT_ONCE
            && let Some(result) = defined.join_next().await
        {
            result??;
        }
        let client = client.clone();
        defined.spawn(async move {
            let name = format!("schedule-{number:05}");
            // A schedule cannot have a large task.
            let task = Job::<0>::new(1);
            client.schedule(&name, Every::new(LONG), task).await
        });
    }
    while let Some(result) = defined.join_next().await {
        result??;
    }
    Ok(())
}

/// Spawns tasks of all types.
async fn spawn_jobs(
    client: &DurableClient,
    count: usize,
    options: impl Fn(usize) -> SpawnOptions,
) -> Result<()> {
    for first in (0..count).step_by(CHUNK) {
        let numbers = first..count.min(first + CHUNK);
        spawn_type::<0>(client, numbers.clone(), &options).await?;
        spawn_type::<1>(client, numbers.clone(), &options).await?;
        spawn_type::<2>(client, numbers.clone(), &options).await?;
        spawn_type::<3>(client, numbers, &options).await?;
    }
    Ok(())
}

/// Spawns those of these tasks that have the `N`th type.
async fn spawn_type<const N: usize>(
    client: &DurableClient,
    numbers: std::ops::Range<usize>,
    options: impl Fn(usize) -> SpawnOptions,
) -> Result<()> {
    let numbers = numbers.filter(|number| number % NAMES.len() == N);
    let tasks = numbers.map(|number| (Job::<N>::new(number), options(number)));
    drop(client.spawn_all_with(tasks).await?);
    Ok(())
}

/// Returns the queue of a task. Each queue has tasks of all types.
fn queue(number: usize) -> String {
    format!("queue-{:02}", number / NAMES.len() % QUEUES)
}

async fn start_workers(client: &DurableClient, count: usize) -> Result<Vec<DurableExecutor>> {
    let mut workers = Vec::new();
    for number in 0..count {
        let mut builder = DurableExecutor::builder(client.clone());
        builder.register::<Job<0>>().register::<Job<1>>();
        builder.register::<Job<2>>().register::<Job<3>>();
        builder.serve(ServedQueue::new(queue(number * NAMES.len())));
        workers.push(builder.max_running(1).start(Semaphore::new(0)).await?);
    }
    Ok(workers)
}

async fn until(what: &str, condition: impl AsyncFn() -> Result<bool>) -> Result<()> {
    let end = Instant::now() + MAX_WAIT;
    while !condition().await? {
        if Instant::now() > end {
            return Err(format!("this does not happen within {MAX_WAIT:?}: {what}").into());
        }
        sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

impl Filled {
    /// Shuts the workers down, and closes the client.
    pub(crate) async fn close(self) -> Result<()> {
        let ends = self.workers.iter().map(|it| it.shutdown(Duration::ZERO));
        futures_util::future::join_all(ends).await;
        self.client.close().await?;
        Ok(())
    }
}
