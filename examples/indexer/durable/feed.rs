//! Feeds the stream of segments: existing ones, and those that tasks will write.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use throng::CompletionStream;
use throng::completion::Submitter;
use throng::durable::{DurableClient, DurableError, DurableHandle, SpawnOptions, TaskId};

use super::Fault;
use super::batch::Batch;
use super::folder::Missing;
use super::segment::Segment;
use super::task::{App, Tally};

/// The end of the stream where segments go in, each under its batch.
pub(crate) type Jobs = Submitter<Result<Segment, NoSegment>, Arc<Planned>>;

/// The stream that yields the segments.
pub(crate) type Segments = CompletionStream<Result<Segment, NoSegment>, Arc<Planned>>;

/// A batch of the tree, and its id.
#[derive(Debug)]
pub(crate) struct Planned {
    /// The id of the task.
    pub(crate) id: TaskId,
    /// The files of the task.
    pub(crate) batch: Batch,
}

/// Why a batch has no segment.
#[derive(Debug)]
pub(crate) enum NoSegment {
    /// There is none that can be used.
    Missing(Missing),
    /// Its task has not ended well.
    Task(DurableError),
}

/// Submits the batches, to have the segments read that are there. Returns how many were in flight at
/// most.
///
/// # Errors
///
/// The reader of the stream is gone.
pub(crate) async fn load(
    app: Arc<App>,
    jobs: Jobs,
    batches: Vec<Arc<Planned>>,
) -> Result<usize, Fault> {
    let mut most_in_flight = 0;
    for planned in batches {
        let (app, batch) = (Arc::clone(&app), Arc::clone(&planned));
        let loaded = async move {
            let loaded = app.load_current(batch.id, &batch.batch).await;
            loaded.map_err(NoSegment::Missing)
        };
        let submitted = jobs.submit(planned, loaded).await;
        submitted.map_err(|_| "nobody reads the stream of segments any more")?;
        most_in_flight = most_in_flight.max(jobs.in_flight());
    }
    Ok(most_in_flight)
}

/// Spawns the batches, so many at a time, as the stream has room, and submits the wait for each.
/// Returns how many were in flight at most.
///
/// # Errors
///
/// The store does not take them, or the reader of the stream is gone.
pub(crate) async fn spawn(
    app: Arc<App>,
    client: DurableClient,
    jobs: Jobs,
    batches: Vec<Arc<Planned>>,
    at_a_time: usize,
) -> Result<usize, Fault> {
    let mut most_in_flight = 0;
    for batches in batches.chunks(at_a_time) {
        let tasks = batches.iter().map(|planned| {
            // No end is kept: a batch whose segment is lost later can be spawned again at once.
            let options = SpawnOptions::new().id(planned.id);
            let options = options.retention(Duration::ZERO);
            (planned.batch.clone(), options)
        });
        let handles = client.spawn_all_with(tasks).await?;
        for (planned, handle) in batches.iter().zip(handles) {
            let made = made(Arc::clone(&app), handle);
            let submitted = jobs.submit(Arc::clone(planned), made).await;
            submitted.map_err(|_| "nobody reads the stream of segments any more")?;
            most_in_flight = most_in_flight.max(jobs.in_flight());
        }
    }
    Ok(most_in_flight)
}

/// Waits for a task, and reads the segment that it has made.
async fn made(app: Arc<App>, handle: DurableHandle<Tally>) -> Result<Segment, NoSegment> {
    let id = handle.id();
    match handle.await {
        Ok(_) => {}
        // It has ended before anybody waited, and no end is kept.
        Err(error) if error.is_expired() => {}
        Err(error) => return Err(NoSegment::Task(error)),
    }
    app.load(id).await.map_err(NoSegment::Missing)
}

impl fmt::Display for NoSegment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(missing) => write!(f, "its segment is needed, but {missing}"),
            Self::Task(error) => error.fmt(f),
        }
    }
}
