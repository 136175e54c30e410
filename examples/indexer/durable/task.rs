//! The task of a batch: it reads and tokenises the files, and writes them as a segment.

use std::collections::{BTreeMap, HashSet};
use std::error::Error;
use std::io;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use throng::CompletionStream;
use throng::durable::{Run, TaskContext, TaskError, TaskId};

use super::batch::Batch;
use super::folder::{Folder, Missing};
use super::name::Name;
use super::segment::{self, Segment};
use crate::indexer::reading::{Reader, Reading};
use crate::indexer::source::Skip;

/// The context of the tasks.
#[derive(Debug)]
pub(crate) struct App {
    /// Reads files.
    pub(crate) reader: Arc<Reader>,
    /// Where segments go.
    pub(crate) folder: Folder,
    /// The batches of the tree as it is now.
    pub(crate) current: HashSet<TaskId>,
}

/// The output of a task: a summary of its work.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tally {
    /// Files in the segment.
    files: u64,
    /// Bytes that they have.
    bytes: u64,
    /// The number of skipped files, by the kind of reason.
    skipped: BTreeMap<String, u64>,
}

impl Run<App> for Batch {
    async fn run(self, cx: TaskContext<App>) -> Result<Tally, TaskError> {
        let app = cx.app();
        // It waited since an earlier run of the program, and the tree is not what it was then.
        if !app.current.contains(&cx.id()) {
            return Ok(Tally::default());
        }
        // An earlier run of it got so far, and the store does not know.
        if let Ok(segment) = app.load_current(cx.id(), &self).await {
            return Ok(Tally::of(segment.files.iter().map(|(_, reading)| reading)));
        }
        let readings = self.read(&app.reader).await?;
        let tally = Tally::of(&readings);
        let named = self.files.into_iter().map(|file| file.path).zip(readings);
        app.write(cx.id(), cx.fencing_token(), named.collect())
            .await?;
        Ok(tally)
    }
}

impl Batch {
    /// Reads the files, as many at once as the reader lets. If this is dropped, nothing goes on.
    async fn read(&self, reader: &Arc<Reader>) -> Result<Vec<Reading>, TaskError> {
        let (jobs, mut done) = CompletionStream::builder()
            .max_outstanding(self.files.len().max(1))
            .build()?;
        let root = self.root.path();
        for (n, file) in self.files.iter().enumerate() {
            let path: Arc<Path> = root.join(file.path.path()).into();
            let reading = Arc::clone(reader).read(path);
            // There is room for all of them.
            let submitted = jobs.submit(n, reading).await;
            submitted.map_err(|_| "the stream of files is closed")?;
        }
        jobs.close();
        // In the order of the batch: the same files make the same segment.
        let mut readings = BTreeMap::new();
        while let Some(read) = done.next().await {
            readings.insert(read.tag, read.outcome?);
        }
        Ok(readings.into_values().collect())
    }
}

impl App {
    /// Reads the segment of a batch, on the pool.
    ///
    /// # Errors
    ///
    /// There is none that can be used.
    pub(crate) async fn load(&self, id: TaskId) -> Result<Segment, Missing> {
        let folder = self.folder.clone();
        let permit = self.reader.pool.reserve().await.map_err(lost)?;
        let read = permit.spawn_blocking(move || folder.read(id));
        read.await.map_err(lost)?
    }

    /// The same, unless a file can be opened now that could not be read then.
    ///
    /// # Errors
    ///
    /// There is none that can be used.
    pub(crate) async fn load_current(&self, id: TaskId, batch: &Batch) -> Result<Segment, Missing> {
        let segment = self.load(id).await?;
        let root = batch.root.path();
        let paths = segment.unreadable().map(|path| root.join(path));
        let paths: Vec<_> = paths.collect();
        if paths.is_empty() {
            return Ok(segment);
        }
        let source = Arc::clone(&self.reader.source);
        let permit = self.reader.pool.reserve().await.map_err(lost)?;
        let opens = move || paths.iter().any(|path| source.open(path).is_ok());
        match permit.spawn_blocking(opens).await.map_err(lost)? {
            true => Err(Missing::Outdated),
            false => Ok(segment),
        }
    }

    /// Writes the segment of a batch, on the pool.
    async fn write(
        &self,
        id: TaskId,
        run: u64,
        files: Vec<(Name, Reading)>,
    ) -> Result<(), TaskError> {
        let folder = self.folder.clone();
        let permit = self.reader.pool.reserve().await?;
        let written = permit.spawn_blocking(move || {
            // A file that may be readable the next time is not stored: the task is retried.
            let unsettled = |skip: Skip| TaskError::retry(skip.to_string());
            let bytes = segment::encode(id, files).map_err(unsettled)?;
            folder.write(id, run, &bytes).map_err(TaskError::retry)
        });
        written.await?
    }
}

fn lost(error: impl Error + Send + Sync + 'static) -> Missing {
    Missing::Unreadable(io::Error::other(error))
}

impl Tally {
    fn of<'r>(readings: impl IntoIterator<Item = &'r Reading>) -> Self {
        let mut tally = Self::default();
        for reading in readings {
            match reading {
                Ok(parsed) => {
                    tally.files += 1;
                    tally.bytes += parsed.bytes;
                }
                Err(skip) => *tally.skipped.entry(skip.kind().to_owned()).or_default() += 1,
            }
        }
        tally
    }
}
