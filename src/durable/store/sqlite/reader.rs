//! The thread that reads. Its queries take no lock, and do not wait for a write to the disk.

use std::cell::Cell;
use std::sync::{Arc, mpsc};

use rusqlite::Connection;
use tokio::sync::{oneshot, watch};

use super::error::{Fault, io_failure, is_damaged_page, no_answer};
use super::files::Files;
use super::schema;
use super::shared::Shared;
use super::time::Now;
use crate::durable::clock::Clock;
use crate::durable::failure::{Cause, Effect, Failure};
use crate::durable::store::Answer;
use crate::sync::{Mutex, lock, thread};
use crate::unwind::contain;

type Query = Box<dyn FnOnce(&mut dyn Source) + Send>;

/// The handle of the reading thread, which exits when this is closed or dropped.
pub(super) struct Reader {
    queries: Mutex<Option<mpsc::Sender<Query>>>,
    /// Closed when the thread has exited.
    ended: watch::Receiver<()>,
}

/// Provides the reading thread with a connection for each query.
pub(super) trait Source: Send {
    /// Runs a query, possibly several times. Only the result of the last time counts.
    fn read(
        &mut self,
        query: &mut dyn FnMut(&ReadConnection) -> Result<(), Fault>,
    ) -> Result<(), Fault>;
}

/// A connection to a database.
pub(super) struct ReadConnection {
    pub(super) db: Connection,
    pub(super) shared: Arc<Shared>,
    pub(super) clock: Clock,
    /// The state in which this connection last found the outbox empty. `None` if it may have rows.
    pub(super) empty_outbox: Cell<Option<EmptyOutbox>>,
}

/// The state of the file when the outbox was last empty.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct EmptyOutbox {
    /// The value of `PRAGMA data_version`, which changes with each commit of another connection.
    pub(super) data_version: i64,
    /// `true` if no user has created the outbox.
    pub(super) is_missing: bool,
}

/// A connection that stays open.
struct OpenDatabase {
    files: Files,
    connection: ReadConnection,
}

impl Reader {
    pub(super) async fn start(
        files: Files,
        shared: Arc<Shared>,
        clock: Clock,
    ) -> Result<Self, Failure> {
        let open = move || {
            let (db, files) = schema::read(&files)?;
            let connection = ReadConnection {
                db,
                shared,
                clock,
                empty_outbox: Cell::default(),
            };
            connection.load_damage();
            Ok(OpenDatabase { files, connection })
        };
        Self::start_with(open).await
    }

    /// Starts the thread, which opens the database: that may take seconds while other processes have locked it.
    pub(super) async fn start_with<S: Source>(
        open: impl FnOnce() -> Result<S, Fault> + Send + 'static,
    ) -> Result<Self, Failure> {
        let (queries, received) = mpsc::channel::<Query>();
        let (reply, opened) = oneshot::channel();
        let (end, ended) = watch::channel(());
        let thread = thread::Builder::new().name(String::from("throng-sqlite-reader"));
        let started = thread.spawn(move || match open() {
            Ok(mut source) => {
                reply.send(Ok(())).ok();
                for query in received {
                    contain(|| query(&mut source));
                }
                drop(source);
                drop(end);
            }
            Err(fault) => drop(reply.send(Err(fault.without_effect()))),
        });
        started.map_err(io_failure)?;
        opened.await.unwrap_or_else(|_| Err(no_answer()))?;
        let queries = Mutex::new(Some(queries));
        Ok(Self { queries, ended })
    }

    /// Has the thread exit when it has answered all queries, and waits until it has closed the database.
    pub(super) async fn close(&self) {
        drop(lock(&self.queries).take());
        let mut ended = self.ended.clone();
        // Nothing is ever sent. This returns an error when the thread has exited.
        ended.changed().await.ok();
    }

    /// Runs a query on the thread, possibly several times.
    pub(super) fn run<T: Send + 'static>(
        &self,
        query: impl Fn(&ReadConnection) -> Result<T, Fault> + Send + 'static,
    ) -> Answer<'static, T> {
        let (reply, answer) = oneshot::channel();
        let query: Query = Box::new(move |source| {
            let mut found = Err(no_answer());
            let read = source.read(&mut |connection| {
                found = Ok(query(connection)?);
                Ok(())
            });
            let found = read.map_err(Fault::without_effect).and(found);
            reply.send(found).ok();
        });
        let queries = lock(&self.queries);
        let is_sent = queries.as_ref().is_some_and(|it| it.send(query).is_ok());
        drop(queries);
        Box::pin(async move {
            match is_sent {
                true => answer.await.unwrap_or_else(|_| Err(no_answer())),
                false => Err(Failure::new(Effect::None, Cause::Unavailable)),
            }
        })
    }
}

impl ReadConnection {
    /// Reads from a snapshot of the database.
    pub(super) fn snapshot<T>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        self.db.prepare_cached("BEGIN")?.execute([])?;
        let found =
            schema::check_layout(&self.db, self.shared.layouts).and_then(|()| read(&self.db));
        match self.db.prepare_cached("COMMIT")?.execute([]) {
            Ok(_) => {}
            // SQLite reports once more that a page could not be read. The rows that were read are valid.
            Err(error) if is_damaged_page(&error) && self.db.is_autocommit() => {}
            Err(error) => return Err(error.into()),
        }
        found
    }

    /// Loads the reports of damage that other processes have found. If they cannot be read, the first query fails.
    pub(super) fn load_damage(&self) {
        let damage = &self.shared.damage;
        damage.load(&self.db, Now::read(&self.clock)).ok();
    }
}

impl Source for OpenDatabase {
    fn read(
        &mut self,
        query: &mut dyn FnMut(&ReadConnection) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let answer = self.check_files().and_then(|()| query(&self.connection));
        let answer = answer.map_err(Fault::explained);
        if matches!(answer, Err(Fault::Sqlite(_))) {
            self.reconnect().ok();
        }
        answer
    }
}

impl OpenDatabase {
    /// Checks that the database is still at its path. Opens it again if a copy was put in its place.
    fn check_files(&mut self) -> Result<(), Fault> {
        self.files.check().or_else(|_| self.reconnect())
    }

    /// Replaces a connection that may be unusable.
    fn reconnect(&mut self) -> Result<(), Fault> {
        (self.connection.db, self.files) = schema::read(&self.files)?;
        // A `data_version` is only valid for the connection that has read it.
        self.connection.empty_outbox.set(None);
        Ok(())
    }
}
