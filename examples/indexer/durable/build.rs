//! [`build`]: what is there is loaded, what is missing is made.
//!
//! ```text
//! Survey --> batches --> load ----------------------------> CompletionStream --> Gatherer
//!                  |                                         ^
//!                  +---> spawn --> store --> handle.await --> load
//!                                   |  ^
//!                                   v  |
//!                     DurableExecutor: read, tokenise, write the segment
//! ```

use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use throng::completion::Completed;
use throng::durable::{DeadFilter, DurableExecutor, DurableTask, TaskId};
use throng::{CompletionStream, Retry};
use tokio::time::{sleep, timeout};

use super::Fault;
use super::batch::{Batch, cut};
use super::feed::{self, Jobs, NoSegment, Planned, Segments};
use super::folder::Missing;
use super::ledger::Ledger;
use super::name::Name;
use super::segment::Segment;
use super::state::{State, StoreAddress};
use super::survey::Survey;
use super::task::App;
use crate::indexer::escape::Escaped;
use crate::indexer::gather::Gatherer;
use crate::indexer::options::Options;
use crate::indexer::pipeline::{Event, Outcome};
use crate::indexer::reading::Reader;

/// An index that was made of durable tasks.
#[derive(Debug)]
pub(crate) struct Built {
    /// The index, and how it came about.
    pub(crate) outcome: Outcome,
    /// The number of batches of the tree.
    pub(crate) batches: usize,
    /// The number of batches that were done in this run.
    pub(crate) indexed: usize,
    /// The number of batches that have failed.
    pub(crate) failed: usize,
    /// The store's counts.
    pub(crate) ledger: Ledger,
}

/// The progress of a build.
#[derive(Debug)]
pub(crate) enum Progress<'a> {
    /// The number of entries of the tree. Each will have an [`Event`].
    Found(usize),
    /// A batch was added to the index.
    Batch {
        /// The number of batches in the index.
        done: usize,
        /// The number of all batches.
        of: usize,
    },
    /// A segment was there, and cannot be used: its batch is done again.
    Unusable(&'a Path, &'a Missing),
    /// A batch has failed.
    Failed(&'a Batch, &'a NoSegment),
}

/// The time for which running tasks may continue when the program is told to stop.
const GRACE: Duration = Duration::from_secs(20);
/// With a server, the time after which the running tasks of a killed run can run again.
const LEASE: Duration = Duration::from_secs(3);
/// The maximum wait for tasks that an earlier run has left in the store, which is longer than a lease;
/// and the interval of the checks.
const LEFTOVERS: Duration = Duration::from_secs(5);
const INTERVAL: Duration = Duration::from_millis(10);

/// Builds the index of the tree at `dir`, with what the state has of it that is at `place`.
///
/// # Errors
///
/// The tree cannot be listed, or something is wrong with the state, or there are no threads. What
/// concerns one file is an [`Event`], and what concerns one batch is a [`Progress`].
///
/// # Cancel safety
///
/// If the future is dropped, what was done stays, and the next run goes on from there.
pub(crate) async fn build(
    dir: &Path,
    place: StoreAddress<'_>,
    options: &Options,
    observe: impl FnMut(Event<'_>),
    progress: impl FnMut(Progress<'_>),
) -> Result<Built, Fault> {
    let root = std::fs::canonicalize(dir).map_err(|error| at(dir, &error))?;
    let state = State::open(place).await?;
    let built = build_in(dir, &root, &state, options, observe, progress).await;
    // Also after an error: nothing of the store is left but its file.
    let closed = state.client.close().await;
    let built = built?;
    closed?;
    Ok(built)
}

async fn build_in(
    dir: &Path,
    root: &Path,
    state: &State,
    options: &Options,
    observe: impl FnMut(Event<'_>),
    mut progress: impl FnMut(Progress<'_>),
) -> Result<Built, Fault> {
    let reader = Arc::new(Reader::new(options)?);
    let survey = Survey::of(dir, state, &reader, options.stop.clone()).await;
    let survey = survey.map_err(|error| at(dir, &error))?;

    progress(Progress::Found(survey.files.len() + survey.skipped.len()));
    let mut gatherer = Gatherer::new(observe);
    for (path, skip) in survey.skipped {
        gatherer.take(path.into(), Err(skip)).await?;
    }
    // A tree that was not read completely cannot be divided into batches: they would be different
    // ones.
    let files = match options.stop.is_set() {
        true => Vec::new(),
        false => survey.files,
    };
    let batches = plan(cut(&Name::from(root), files))?;
    let app = App {
        reader,
        folder: state.folder.clone(),
        current: batches.iter().map(|planned| planned.id).collect(),
    };
    let work = Work {
        dir,
        state,
        options,
        app: Arc::new(app),
        batches,
        loaded: HashSet::new(),
        failed: 0,
        most_in_flight: 0,
        gatherer,
        progress,
    };
    work.run().await
}

fn plan(batches: Vec<Batch>) -> Result<Vec<Arc<Planned>>, Fault> {
    let planned = batches.into_iter().map(|batch| {
        let id = batch.id()?;
        Ok(Arc::new(Planned { id, batch }))
    });
    planned.collect()
}

fn at(path: &Path, error: &dyn std::fmt::Display) -> Fault {
    format!("{}: {error}", Escaped(path)).into()
}

/// The batches of a tree, on their way into the index.
struct Work<'a, F, P> {
    dir: &'a Path,
    state: &'a State,
    options: &'a Options,
    app: Arc<App>,
    batches: Vec<Arc<Planned>>,
    loaded: HashSet<TaskId>,
    failed: usize,
    most_in_flight: usize,
    gatherer: Gatherer<F>,
    progress: P,
}

impl<F: FnMut(Event<'_>), P: FnMut(Progress<'_>)> Work<'_, F, P> {
    async fn run(mut self) -> Result<Built, Fault> {
        self.load().await?;
        let found = self.loaded.len();
        if !self.options.stop.is_set() {
            self.index().await?;
        }
        let stopped = self.options.stop.is_set();
        if !stopped && self.failed == 0 {
            self.app.folder.keep_only(&self.app.current)?;
        }
        let ledger = Ledger(self.state.client.counts().await?);
        let outcome = self.gatherer;
        let outcome = outcome.finish(&self.app.reader, stopped, self.most_in_flight);
        Ok(Built {
            outcome: outcome.await?,
            batches: self.batches.len(),
            indexed: self.loaded.len() - found,
            failed: self.failed,
            ledger,
        })
    }

    /// Loads what is there of the batches that are not in the index.
    async fn load(&mut self) -> Result<(), Fault> {
        let (jobs, mut done) = self.stream()?;
        let feeding = tokio::spawn(feed::load(Arc::clone(&self.app), jobs, self.missing()));
        while let Some(Completed { tag, outcome, .. }) = done.next().await {
            match outcome? {
                Ok(segment) => self.take(&tag, segment).await?,
                Err(NoSegment::Missing(Missing::Absent | Missing::Outdated)) => {}
                Err(NoSegment::Missing(missing)) => {
                    let path = self.app.folder.segment(tag.id);
                    (self.progress)(Progress::Unusable(&path, &missing));
                }
                Err(NoSegment::Task(error)) => return Err(error.into()),
            }
        }
        self.most_in_flight = self.most_in_flight.max(feeding.await??);
        Ok(())
    }

    /// Has the batches done that are not in the index, and what an earlier run has left in the store.
    async fn index(&mut self) -> Result<(), Fault> {
        let client = self.state.client.clone();
        let batches = DeadFilter::name(Batch::NAME);
        client.dead_letters().replay(batches).await?;
        let before = client.counts().await?;
        let left_over = before.waiting + before.delayed + before.running > 0;
        if self.missing().is_empty() && !left_over {
            return Ok(());
        }
        let executor = self.start().await?;
        let indexed = self.spawn_and_load().await;
        if left_over && !self.options.stop.is_set() {
            timeout(LEFTOVERS, self.leftovers()).await.ok();
        }
        executor.shutdown(GRACE).await;
        indexed?;
        match self.options.stop.is_set() {
            // Some have been finished in the meantime.
            true => self.load().await,
            false => Ok(()),
        }
    }

    async fn start(&self) -> Result<DurableExecutor, Fault> {
        let retry = Retry::exponential()
            .attempts(3)
            .base(Duration::from_millis(100));
        let mut builder = DurableExecutor::builder(self.state.client.clone());
        builder
            .register::<Batch>()
            .max_running(self.options.threads)
            .lease(LEASE)
            .retry(retry);
        Ok(builder.start(Arc::clone(&self.app)).await?)
    }

    async fn spawn_and_load(&mut self) -> Result<(), Fault> {
        let (jobs, mut done) = self.stream()?;
        let (app, client) = (Arc::clone(&self.app), self.state.client.clone());
        let at_a_time = 2 * self.options.threads;
        let feeding = tokio::spawn(feed::spawn(app, client, jobs, self.missing(), at_a_time));
        loop {
            let next = tokio::select! {
                biased;
                () = self.options.stop.wait() => return Ok(()),
                next = done.next() => next,
            };
            let Some(Completed { tag, outcome, .. }) = next else {
                break;
            };
            match outcome? {
                Ok(segment) => self.take(&tag, segment).await?,
                Err(why) => self.fail(&tag, why)?,
            }
        }
        self.most_in_flight = self.most_in_flight.max(feeding.await??);
        Ok(())
    }

    /// Waits until the executor has nothing left to do. Nobody has handles of tasks that an earlier
    /// run has left behind.
    async fn leftovers(&self) {
        while let Ok(counts) = self.state.client.counts().await {
            if counts.waiting + counts.delayed + counts.running == 0 {
                break;
            }
            sleep(INTERVAL).await;
        }
    }

    /// Adds the files of a batch to the index.
    async fn take(&mut self, planned: &Planned, segment: Segment) -> Result<(), Fault> {
        for (path, reading) in segment.files {
            let path = self.dir.join(path).into();
            self.gatherer.take(path, reading).await?;
        }
        self.loaded.insert(planned.id);
        let (done, of) = (self.loaded.len(), self.batches.len());
        (self.progress)(Progress::Batch { done, of });
        Ok(())
    }

    /// Notes that a batch has failed; the others go on, unless it is the store that has failed.
    fn fail(&mut self, planned: &Planned, why: NoSegment) -> Result<(), Fault> {
        match why {
            NoSegment::Task(error) if !error.is_dead() => Err(error.into()),
            why => {
                self.failed += 1;
                (self.progress)(Progress::Failed(&planned.batch, &why));
                Ok(())
            }
        }
    }

    /// The batches that are not in the index.
    fn missing(&self) -> Vec<Arc<Planned>> {
        let batches = self.batches.iter();
        let missing = batches.filter(|planned| !self.loaded.contains(&planned.id));
        missing.cloned().collect()
    }

    /// A stream with room for twice what the executor runs and what is spawned at a time.
    fn stream(&self) -> io::Result<(Jobs, Segments)> {
        CompletionStream::builder()
            .max_outstanding(4 * self.options.threads)
            .build()
    }
}
