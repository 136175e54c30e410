//! [`Load`]: somebody who stores tasks all the time, and awaits them.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use throng::durable::{DurableClient, DurableError, SpawnOptions, TaskId};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::job::Job;
use super::process::{Process, until};
use super::site::Site;
use super::support::within;

/// Some who store one task after the other, and await each.
pub(crate) struct Load {
    seen: Arc<Seen>,
    spawners: JoinSet<Result<(), DurableError>>,
}

/// Their observations so far.
#[derive(Default)]
struct Seen {
    is_over: AtomicBool,
    stored: Mutex<Vec<TaskId>>,
    ended: AtomicUsize,
}

/// The number of tasks that each of them awaits at a time.
const AWAITED: usize = 50;

impl Load {
    /// So many spawners, whose tasks `make` makes.
    pub(crate) fn start(
        client: &DurableClient,
        spawners: usize,
        make: impl Fn() -> (Job, SpawnOptions) + Clone + Send + 'static,
    ) -> Self {
        let seen = Arc::<Seen>::default();
        let spawn = |_| spawn(client.clone(), Arc::clone(&seen), make.clone());
        let spawners = (0..spawners).map(spawn).collect();
        Self { seen, spawners }
    }

    /// Returns the numbers of tasks that were stored, and that have succeeded.
    pub(crate) fn counts(&self) -> [usize; 2] {
        let stored = self.seen.stored.lock().expect("nobody panics here").len();
        [stored, self.seen.ended.load(Ordering::SeqCst)]
    }

    /// Waits until so many more have been stored, and so many more have succeeded.
    pub(crate) async fn goes_on(&mut self, by: usize) {
        let before = self.counts();
        let what = format!("{by} more tasks have been stored and have ended than {before:?}");
        let look = async || {
            self.assert_no_error();
            let now = self.counts();
            let mut both = now.iter().zip(before);
            both.all(|(&now, before)| now >= before + by).then_some(())
        };
        until(&what, look).await;
    }

    /// None of them ends before that is over.
    fn assert_no_error(&mut self) {
        if let Some(ended) = self.spawners.try_join_next() {
            panic!("a task was not stored, or has not ended well: {ended:?}");
        }
    }

    /// Ends the load, then the workers, and the site: each task has been claimed and run once, and nothing
    /// is left.
    pub(crate) async fn ends_well(self, site: Site, workers: &mut [Process]) {
        let ids = self.end().await;
        site.assert_ran_once(&ids);
        for worker in workers {
            worker.stop(0).await;
        }
        let counts = site.settled().await;
        let count = ids.len() as u64;
        assert_eq!(
            (counts.stored, counts.done, counts.claimed),
            (count, count, count),
            "{counts:?}"
        );
        site.ends(0).await;
    }

    /// Stores no more, waits until all that was stored has succeeded, and says what that was.
    pub(crate) async fn end(mut self) -> Vec<TaskId> {
        self.seen.is_over.store(true, Ordering::SeqCst);
        while let Some(ended) = within(self.spawners.join_next()).await {
            let ended = ended.expect("nobody panics");
            ended.expect("all tasks were stored, and have ended well");
        }
        std::mem::take(&mut *self.seen.stored.lock().expect("nobody panics here"))
    }
}

/// Stores tasks until that is over, and awaits them.
async fn spawn(
    client: DurableClient,
    seen: Arc<Seen>,
    make: impl Fn() -> (Job, SpawnOptions),
) -> Result<(), DurableError> {
    let permits = Arc::new(Semaphore::new(AWAITED));
    let mut awaited = JoinSet::new();
    while !seen.is_over.load(Ordering::SeqCst) {
        let permit = Arc::clone(&permits).acquire_owned().await;
        let (job, options) = make();
        let handle = client.spawn_with(job, options).await?;
        seen.stored
            .lock()
            .expect("nobody panics here")
            .push(handle.id());
        let seen = Arc::clone(&seen);
        awaited.spawn(async move {
            let ended = handle.await;
            seen.ended.fetch_add(1, Ordering::SeqCst);
            drop(permit);
            ended.map(drop)
        });
        while let Some(ended) = awaited.try_join_next() {
            ended.expect("nobody panics")?;
        }
    }
    while let Some(ended) = awaited.join_next().await {
        ended.expect("nobody panics")?;
    }
    Ok(())
}
