//! Ours, with a queue of the same name.

use std::error::Error;
use std::io::{self, Read as _};
use std::sync::Arc;
use std::time::Duration;

use futures::future::try_join_all;
use throng::durable::{
    DurableClient, DurableError, DurableExecutor, Every, Overlap, Priority, QueueSettings,
    ScheduleOptions, ServedQueue, SpawnOptions,
};
use tokio::runtime::Runtime;

use super::{Jobs, PERIOD, QUEUE, System, due_ms, since_1970};
use crate::areas::durable::redis::CHUNK;
use crate::areas::durable::redis::ours::{begin, count, open};
use crate::areas::durable::redis::server::Server;
use crate::areas::durable::tasks::{Stamp, Starts, Tick};
use crate::areas::durable::worker::Worker;
use crate::areas::{on_worker, two_workers};
use crate::measure::Rules;

/// The number of calls at a time that store a single task or schedule.
const CALLS: u64 = 50;

const PRIORITIES: [Priority; 3] = [Priority::High, Priority::Normal, Priority::Low];

pub(super) struct Throng {
    runtime: Runtime,
    client: DurableClient,
    url: String,
}

impl System for Throng {
    fn open(_: &Rules, server: &Server) -> Self {
        let (runtime, client) = begin(server);
        Self {
            runtime,
            client,
            url: server.url(),
        }
    }

    fn store(&self, jobs: Jobs) {
        let client = self.client.clone();
        let stored = on_worker(&self.runtime, async move { store(&client, jobs).await });
        stored.expect("jobs can be stored");
    }

    fn worker(&self, permits: usize) -> Worker {
        Worker::start_stamped(&self.url, permits, Some(QUEUE))
    }

    fn done(&self, _: &Server) -> u64 {
        count(&self.runtime, &self.client).done
    }
}

async fn store(client: &DurableClient, jobs: Jobs) -> Result<(), DurableError> {
    match jobs {
        Jobs::Delayed {
            tasks,
            first_ms,
            spread_ms,
        } => {
            let due = move |number| due_ms(number, tasks, first_ms, spread_ms);
            for numbers in chunks(tasks, CALLS) {
                try_join_all(numbers.map(|number| delayed(client, number, due(number)))).await?;
            }
        }
        Jobs::Plain { tasks } => store_all(client, tasks, |_| options()).await?,
        Jobs::Prioritized { tasks } => {
            let priority = |number: u64| PRIORITIES[number as usize % PRIORITIES.len()];
            store_all(client, tasks, |number| options().priority(priority(number))).await?;
        }
        Jobs::Limited { tasks, limit } => {
            let settings = QueueSettings::new().max_running(limit);
            assert!(client.queue(QUEUE).set(settings).await?);
            store_all(client, tasks, |_| options()).await?;
        }
        Jobs::Scheduled {
            tasks,
            first_ms,
            spread_ms,
        } => {
            let first = move |number| due_ms(number, tasks, first_ms, spread_ms);
            for numbers in chunks(tasks, CALLS) {
                try_join_all(numbers.map(|number| schedule(client, number, first(number)))).await?;
            }
        }
    }
    Ok(())
}

fn chunks(tasks: u64, size: u64) -> impl Iterator<Item = std::ops::Range<u64>> {
    let chunks = (0..tasks).step_by(size as usize);
    chunks.map(move |first| first..tasks.min(first + size))
}

fn options() -> SpawnOptions {
    SpawnOptions::new().queue(QUEUE)
}

async fn store_all(
    client: &DurableClient,
    tasks: u64,
    options: impl Fn(u64) -> SpawnOptions,
) -> Result<(), DurableError> {
    for numbers in chunks(tasks, CHUNK) {
        let tasks = numbers.map(|number| (Stamp::new(number), options(number)));
        drop(client.spawn_all_with(tasks).await?);
    }
    Ok(())
}

async fn delayed(client: &DurableClient, number: u64, due_ms: u64) -> Result<(), DurableError> {
    let left = Duration::from_millis(due_ms).saturating_sub(since_1970());
    // The store ignores fractions of a millisecond: no task may become due before its time.
    let left = Duration::from_millis(left.as_nanos().div_ceil(1_000_000) as u64);
    let stored = client.spawn_with(Stamp::new(number), options().delay(left));
    stored.await.map(drop)
}

async fn schedule(client: &DurableClient, number: u64, first_ms: u64) -> Result<(), DurableError> {
    let name = format!("schedule-{number}");
    let first = std::time::UNIX_EPOCH + Duration::from_millis(first_ms);
    let every = Every::new(Duration::from_millis(PERIOD)).anchor(first);
    let with = ScheduleOptions::new()
        .overlap(Overlap::Allow)
        .spawn(options());
    let defined = client.schedule_with(&name, every, Tick::new(number), with);
    defined.await.map(drop)
}

/// Runs tasks in this process: from when there is a line in its input until that ends. Then it prints when they have begun.
pub(in crate::areas::durable) fn work_stamped(
    url: &str,
    max_running: usize,
    queue: Option<&str>,
) -> Result<(), Box<dyn Error>> {
    let runtime = two_workers().enable_io().build()?;
    let client = runtime.block_on(open(url));
    println!("ready");
    io::stdin().read_line(&mut String::new())?;
    let starts = Arc::new(Starts::default());
    let mut builder = DurableExecutor::builder(client);
    builder.register::<Stamp>().register::<Tick>();
    builder.max_running(max_running);
    if let Some(queue) = queue {
        builder.serve(ServedQueue::new(queue));
    }
    let executor = runtime.block_on(builder.start(Arc::clone(&starts)))?;
    io::stdin().read_to_end(&mut Vec::new())?;
    drop(executor);
    starts.print();
    Ok(())
}
