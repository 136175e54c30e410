//! The thread that writes: what was asked until it has to wait for the disk is written together, with
//! one wait.

use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use rusqlite::Connection;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{oneshot, watch};

use super::endpoint::Endpoint;
use super::error::{Fault, failure, io_failure, is_busy, is_full, is_sound, no_answer};
use super::files::Files;
use super::holder;
use super::schema;
use super::work::{Notes, Now, Work};
use crate::durable::clock::Clock;
use crate::durable::error::{Cause, Effect, Failure};
use crate::durable::point::point;
use crate::durable::store::{Answer, Event};
use crate::sync::{Mutex, lock, thread};
use crate::unwind::contain;

/// How many requests are written together, and how many bytes.
const MAX_GROUP: usize = 64;
const MAX_GROUP_BYTES: usize = 8 << 20;

/// The handle of the writing thread, which finishes its requests and ends when this is closed or dropped.
pub(super) struct Writer {
    requests: Mutex<Option<mpsc::Sender<Box<dyn Request>>>>,
    /// The result of the thread.
    ended: watch::Receiver<Option<Result<(), Failure>>>,
}

/// What the thread has found when it opened the database.
pub(super) struct Opened {
    pub(super) files: Files,
    pub(super) endpoint: Arc<Endpoint>,
}

impl Writer {
    /// Opens the database on a new thread, which serves it from then on.
    pub(super) async fn start(
        path: PathBuf,
        clock: Clock,
        events: UnboundedSender<Event>,
    ) -> Result<(Self, Opened), Failure> {
        let (requests, asked) = mpsc::channel();
        let (reply, opened) = oneshot::channel();
        let (end, ended) = watch::channel(None);
        let thread = thread::Builder::new().name(String::from("throng-sqlite"));
        let started = thread.spawn(move || match open(&path, clock, events) {
            Ok((desk, opened)) => {
                reply.send(Ok(opened)).ok();
                let closed = desk.serve(&asked);
                end.send(Some(closed)).ok();
            }
            Err(failure) => drop(reply.send(Err(failure))),
        });
        started.map_err(io_failure)?;
        let opened = opened.await.unwrap_or_else(|_| Err(no_answer()))?;
        let requests = Mutex::new(Some(requests));
        Ok((Self { requests, ended }, opened))
    }

    /// Ends the thread when it has done what it was asked, and waits until it has closed the database.
    pub(super) async fn close(&self) -> Result<(), Failure> {
        drop(lock(&self.requests).take());
        let mut ended = self.ended.clone();
        match ended.wait_for(Option::is_some).await {
            Ok(closed) => closed.clone().unwrap_or(Ok(())),
            Err(_) => Err(no_answer()),
        }
    }

    /// Has the thread do something in a transaction: as a whole or not at all. It may be done
    /// several times, of which the last counts.
    pub(super) fn ask<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnMut(&mut Work<'_>) -> Result<T, Fault> + Send + 'static,
    ) -> Answer<'static, T> {
        self.ask_and(bytes, work, |_| ())
    }

    /// The same; and when it is written, or has failed, has the thread call `then` first of all.
    pub(super) fn ask_and<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnMut(&mut Work<'_>) -> Result<T, Fault> + Send + 'static,
        then: impl FnOnce(&Result<T, Failure>) + Send + 'static,
    ) -> Answer<'static, T> {
        let (reply, answer) = oneshot::channel();
        let request = Box::new(Call {
            bytes,
            work,
            answer: Err(no_answer()),
            then,
            reply,
        });
        let requests = lock(&self.requests);
        let is_sent = requests.as_ref().is_some_and(|it| it.send(request).is_ok());
        drop(requests);
        Box::pin(async move {
            match is_sent {
                true => answer.await.unwrap_or_else(|_| Err(no_answer())),
                false => Err(Failure::new(Effect::None, Cause::Unavailable)),
            }
        })
    }
}

/// Something that is done in a transaction.
trait Request: Send {
    fn bytes(&self) -> usize;

    /// Does it; an error takes the transaction along.
    fn run(&mut self, work: &mut Work<'_>) -> Result<(), rusqlite::Error>;

    fn fail(&mut self, failure: Failure);

    fn reply(self: Box<Self>);
}

struct Call<T, F, G> {
    bytes: usize,
    work: F,
    answer: Result<T, Failure>,
    then: G,
    reply: oneshot::Sender<Result<T, Failure>>,
}

impl<T, F, G> Request for Call<T, F, G>
where
    T: Send,
    F: FnMut(&mut Work<'_>) -> Result<T, Fault> + Send,
    G: FnOnce(&Result<T, Failure>) + Send,
{
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn run(&mut self, work: &mut Work<'_>) -> Result<(), rusqlite::Error> {
        self.answer = match (self.work)(work) {
            Err(Fault::Sqlite(error)) => return Err(error),
            answer => answer.map_err(Fault::without_effect),
        };
        Ok(())
    }

    fn fail(&mut self, failure: Failure) {
        self.answer = Err(failure);
    }

    fn reply(self: Box<Self>) {
        let Self {
            answer,
            then,
            reply,
            ..
        } = *self;
        then(&answer);
        // Who waits is woken by code of the user.
        contain(|| drop(reply.send(answer)));
    }
}

fn open(
    path: &Path,
    clock: Clock,
    events: UnboundedSender<Event>,
) -> Result<(Desk, Opened), Failure> {
    let (db, files) = schema::create(path).map_err(Fault::without_effect)?;
    let endpoint = Endpoint::new(files.path(), events).map_err(io_failure)?;
    let endpoint = Arc::new(endpoint);
    let opened = Opened {
        files: files.clone(),
        endpoint: Arc::clone(&endpoint),
    };
    let desk = Desk {
        files,
        clock,
        db: Some(db),
        endpoint,
    };
    Ok((desk, opened))
}

/// What is written together.
struct Group<'a> {
    requests: Vec<Box<dyn Request>>,
    bytes: usize,
    /// Whence more come, until the group is written.
    asked: Option<&'a mpsc::Receiver<Box<dyn Request>>>,
}

impl<'a> Group<'a> {
    fn of(first: Box<dyn Request>, asked: Option<&'a mpsc::Receiver<Box<dyn Request>>>) -> Self {
        let mut group = Self {
            bytes: first.bytes(),
            requests: vec![first],
            asked,
        };
        group.gather();
        group
    }

    /// Takes what is asked now, up to the limits.
    fn gather(&mut self) {
        while self.requests.len() < MAX_GROUP
            && self.bytes < MAX_GROUP_BYTES
            && let Some(asked) = self.asked
            && let Ok(next) = asked.try_recv()
        {
            self.bytes += next.bytes();
            self.requests.push(next);
        }
    }
}

/// What the thread writes with.
struct Desk {
    /// The files of the current or the last connection.
    files: Files,
    clock: Clock,
    /// Nothing after a failure of which nobody knows what it has left behind.
    db: Option<Connection>,
    /// Behind the connection, which is closed before others believe us dead.
    endpoint: Arc<Endpoint>,
}

/// Why a group was not written.
enum Broken {
    /// One request was at fault, perhaps. Nothing has taken effect.
    One(rusqlite::Error),
    All(Failure),
}

impl Broken {
    fn before(error: rusqlite::Error) -> Self {
        Self::All(failure(Effect::None, error))
    }

    /// Whether the connection can be used again; closing it undoes what was done, too.
    fn is_sound(&self) -> bool {
        match self {
            Self::One(error) => is_sound(error),
            Self::All(_) => true,
        }
    }

    fn into_failure(self) -> Failure {
        match self {
            Self::One(error) => failure(Effect::None, error),
            Self::All(failure) => failure,
        }
    }
}

impl Desk {
    /// Serves requests until the channel is closed, and then closes the database.
    fn serve(mut self, asked: &mpsc::Receiver<Box<dyn Request>>) -> Result<(), Failure> {
        while let Ok(first) = asked.recv() {
            let group = Group::of(first, Some(asked));
            let mut is_done = false;
            contain(|| {
                self.write(group);
                is_done = true;
            });
            if !is_done {
                self.db = None;
            }
        }
        self.close()
    }

    /// Moves the contents of the log into the database. SQLite removes the log with the last connection.
    fn close(mut self) -> Result<(), Failure> {
        let db = self.connection().map_err(Broken::into_failure)?;
        // Nobody is waited for: the last one to close the database moves what is left.
        let moved = db
            .busy_timeout(Duration::ZERO)
            .and_then(|()| db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())));
        drop(db);
        match moved {
            Err(error) if !is_busy(&error) => Err(failure(Effect::None, error)),
            _ => Ok(()),
        }
    }

    /// Writes a group of requests, and answers them.
    fn write(&mut self, mut group: Group<'_>) {
        match self.transact(&mut group) {
            Ok(mut notes) => {
                notes.wake(&self.endpoint);
                let answered = group.requests.into_iter();
                answered.for_each(|request| request.reply());
                point("sqlite.after-answer");
                notes.tell_ended(&self.endpoint);
            }
            // Each for itself: one that cannot be done does not take the others along.
            Err(Broken::One(_)) if group.requests.len() > 1 => {
                let each = group.requests.into_iter();
                each.for_each(|one| self.write(Group::of(one, None)));
            }
            Err(broken) => {
                let failure = broken.into_failure();
                for mut request in group.requests {
                    request.fail(failure.clone());
                    request.reply();
                }
            }
        }
    }

    fn transact(&mut self, group: &mut Group<'_>) -> Result<Notes, Broken> {
        let db = self.connection()?;
        if let Err(error) = execute(&db, "BEGIN IMMEDIATE") {
            self.db = is_sound(&error).then_some(db);
            let holder = holder::of(&self.files).filter(|_| is_busy(&error));
            let failure = failure(Effect::None, error);
            return Err(Broken::All(match holder {
                Some(holder) => failure.because(holder),
                None => failure,
            }));
        }
        match run(&db, &self.endpoint, &self.clock, group) {
            Ok(notes) => self.commit(db).map(|()| notes),
            Err(broken) => {
                if broken.is_sound() {
                    self.roll_back(db);
                }
                Err(broken)
            }
        }
    }

    fn connection(&mut self) -> Result<Connection, Broken> {
        if let Some(db) = self.db.take() {
            return Ok(db);
        }
        let opened = schema::reopen(&self.files);
        let (db, files) = opened.map_err(|fault| Broken::All(fault.without_effect()))?;
        self.files = files;
        Ok(db)
    }

    fn commit(&mut self, db: Connection) -> Result<(), Broken> {
        point("sqlite.before-commit");
        match execute(&db, "COMMIT") {
            Ok(()) => {}
            // It has not begun to write, or not written the frame that makes the others count.
            Err(error) if is_busy(&error) || is_full(&error) => {
                self.roll_back(db);
                return Err(Broken::before(error));
            }
            // What is in the file now, the next connection will find out.
            Err(error) => return Err(Broken::All(failure(Effect::Unknown, error))),
        }
        point("sqlite.after-commit");
        // If they are not, what was written ends with the last that has the file open.
        if let Err(fault) = self.files.check() {
            let failure = fault.without_effect();
            return Err(Broken::All(failure.with_unknown_effect()));
        }
        self.db = Some(db);
        Ok(())
    }

    /// Undoes what was done, unless SQLite has undone it. A connection that cannot is of no more use:
    /// it is closed, which does.
    fn roll_back(&mut self, db: Connection) {
        let is_over = execute(&db, "ROLLBACK").is_ok() || db.is_autocommit();
        self.db = is_over.then_some(db);
    }
}

fn run(
    db: &Connection,
    endpoint: &Endpoint,
    clock: &Clock,
    group: &mut Group<'_>,
) -> Result<Notes, Broken> {
    let work = Work::new(db, endpoint, clock);
    let mut work = work.map_err(|fault| Broken::All(fault.without_effect()))?;
    let mut done = 0;
    while let Some(request) = group.requests.get_mut(done) {
        // It may have been asked, and what it stores spawned, since the transaction began.
        work.now = Now::read(clock);
        request.run(&mut work).map_err(Broken::One)?;
        done += 1;
        group.gather();
    }
    work.finish().map_err(Broken::One)
}

fn execute(db: &Connection, sql: &str) -> Result<(), rusqlite::Error> {
    db.prepare_cached(sql)?.execute([]).map(drop)
}
