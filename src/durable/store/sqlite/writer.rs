//! The thread that writes. It writes all requests that have arrived by the time it has to wait for the disk together,
//! and waits once.

use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{oneshot, watch};

use self::group::{Call, Group, Mended, Request};
use super::endpoint::Endpoint;
use super::error::{
    Fault, busy_failure, corrupt, explained, failure, io_failure, is_busy, is_corrupt, is_full,
    is_of_index, is_sound, no_answer,
};
use super::files::Files;
use super::repair::{self, Damage};
use super::schema;
use super::work::{Notes, Now, Work};
use crate::durable::clock::Clock;
use crate::durable::failpoint::failpoint;
use crate::durable::failure::{Cause, Effect, Failure};
use crate::durable::store::{Answer, Event};
use crate::sync::{Mutex, lock, thread};
use crate::unwind::contain;

/// How long requests are gathered while others wait for the lock: the last one may take longer.
const MAX_GROUP_TIME: Duration = Duration::from_millis(20);

/// How often the store is repaired for one group. New damage may arise while other damage is repaired.
const MAX_REPAIRS: u32 = 3;
/// After repairs that have not helped, the store is not repaired again for this long.
const REPAIR_PAUSE: Duration = Duration::from_secs(10);

mod group;

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

    /// Makes the thread repair the store, unless it has done so since it had made `repairs` repairs.
    pub(super) fn repair(&self, repairs: usize) -> Answer<'static, ()> {
        self.ask(0, move |work| match work.endpoint.damage.repairs() {
            // This answer makes the thread repair the store and repeat the request.
            found if found == repairs => Err(corrupt()),
            _ => Ok(()),
        })
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

fn open(
    path: &Path,
    clock: Clock,
    events: UnboundedSender<Event>,
) -> Result<(Desk, Opened), Failure> {
    let created = schema::create(path, Now::read(&clock)).map_err(|fault| match fault {
        Fault::Sqlite(error) => {
            let path = path.canonicalize().ok();
            busy_failure(error, path.as_deref())
        }
        fault => fault.without_effect(),
    });
    let (db, files) = created?;
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
        has_recalled: false,
        endpoint,
        next_repair: None,
    };
    Ok((desk, opened))
}

/// What the thread writes with.
struct Desk {
    /// The files of the current or the last connection.
    files: Files,
    clock: Clock,
    /// Nothing after a failure of which nobody knows what it has left behind.
    db: Option<Connection>,
    /// `true` if the connection has recalled epochs: see [`Work::recall`].
    has_recalled: bool,
    /// Behind the connection, which is closed before others believe us dead.
    endpoint: Arc<Endpoint>,
    /// The store is not repaired before this time, since the last repairs have not helped.
    next_repair: Option<Instant>,
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

    /// Returns `true` if the requests of the group may succeed one by one, or must be repeated so.
    fn is_of_one(&self) -> bool {
        matches!(self, Self::One(_)) || self.is_corrupt()
    }

    /// Returns `true` if what is stored could not be read. Nothing has taken effect then.
    fn is_corrupt(&self) -> bool {
        match self {
            Self::One(error) => is_corrupt(error),
            Self::All(failure) => {
                (&failure.cause, failure.effect) == (&Cause::Corrupt, Effect::None)
            }
        }
    }

    /// Returns the same failure with the reason that the system has given for it.
    fn explained(self) -> Self {
        match self {
            Self::One(error) => Self::One(explained(error)),
            all @ Self::All(_) => all,
        }
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
            .and_then(|()| db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())))
            .map_err(explained);
        drop(db);
        match moved {
            Err(error) if !is_busy(&error) => Err(failure(Effect::None, error)),
            _ => Ok(()),
        }
    }

    /// Writes requests, as many at a time as the limits allow, and answers them.
    fn write(&mut self, mut group: Group<'_>) {
        while !group.requests.is_empty() {
            match self.transact(&mut group) {
                Ok((written, mut notes)) => {
                    notes.wake(&self.endpoint);
                    let answered = group.take(written).into_iter();
                    answered.for_each(|request| request.reply());
                    failpoint("sqlite.after-answer");
                    notes.tell_ended(&self.endpoint);
                }
                // Each for itself: one that cannot be done does not take the others along.
                Err(broken) if group.requests.len() > 1 && broken.is_of_one() => {
                    let each = group.requests.drain(..);
                    each.for_each(|one| self.write(Group::of(one, None)));
                }
                Err(broken) => {
                    let failure = match self.mend(&mut group, broken) {
                        Ok(()) => continue,
                        Err(broken) => broken.into_failure(),
                    };
                    for mut request in group.requests.drain(..) {
                        request.fail(failure.clone());
                        request.reply();
                    }
                }
            }
        }
    }

    /// Writes the first requests of a group, and as many more as its time allows. Returns how many.
    fn transact(&mut self, group: &mut Group<'_>) -> Result<(usize, Notes), Broken> {
        let db = self.begin()?;
        let probe = match group.mended {
            Mended::Nothing => None,
            Mended::Probed | Mended::Repaired(_) => Some(self.probe()?),
        };
        match self.run(&db, probe, group) {
            Ok((written, notes)) => {
                self.commit(db)?;
                self.has_recalled |= notes.has_recalled;
                Ok((written, notes))
            }
            Err(broken) => {
                let broken = broken.explained();
                if broken.is_sound() {
                    self.roll_back(db);
                }
                Err(broken)
            }
        }
    }

    /// Runs the requests of a group in a transaction that has begun.
    fn run(
        &self,
        db: &Connection,
        probe: Option<Connection>,
        group: &mut Group<'_>,
    ) -> Result<(usize, Notes), Broken> {
        let end = Instant::now() + MAX_GROUP_TIME;
        let work = Work::new(db, &self.endpoint, &self.clock, self.has_recalled);
        let mut work = work.map_err(|fault| Broken::All(fault.without_effect()))?;
        work.probe = probe;
        let mut done = 0;
        // While this process has the lock, the others cannot write.
        while (done == 0 || Instant::now() < end)
            && let Some(request) = group.requests.get_mut(done)
        {
            // The request may have arrived, and its tasks may have been spawned, since the transaction began.
            work.now = Now::read(&self.clock);
            request.run(&mut work).map_err(Broken::One)?;
            done += 1;
            group.gather();
        }
        let notes = work.finish().map_err(Broken::One)?;
        Ok((done, notes))
    }

    /// Begins a transaction for writing.
    fn begin(&mut self) -> Result<Connection, Broken> {
        let db = self.connection()?;
        let Err(error) = execute(&db, "BEGIN IMMEDIATE") else {
            return Ok(db);
        };
        let error = explained(error);
        self.db = is_sound(&error).then_some(db);
        let failure = busy_failure(error, Some(self.files.path()));
        Err(Broken::All(failure))
    }

    /// Prepares another attempt of a group that has met data that it cannot read. Returns the failure for its requests if
    /// there is nothing left to try.
    fn mend(&mut self, group: &mut Group<'_>, broken: Broken) -> Result<(), Broken> {
        if !broken.is_corrupt() {
            return Err(broken);
        }
        // It may have cached what is not in the file.
        self.db = None;
        // The probe does not see what other requests write in the same transaction.
        group.asked = None;
        group.mended = match group.mended {
            Mended::Nothing => Mended::Probed,
            Mended::Probed if !self.is_hopeless() => self.repair(1)?,
            Mended::Repaired(repairs) if repairs < MAX_REPAIRS => self.repair(repairs + 1)?,
            Mended::Probed => return Err(broken),
            Mended::Repaired(_) => {
                self.next_repair = Some(Instant::now() + REPAIR_PAUSE);
                return Err(broken);
            }
        };
        Ok(())
    }

    fn is_hopeless(&self) -> bool {
        self.next_repair.is_some_and(|next| Instant::now() < next)
    }

    /// Repairs the store. `repairs` is the number of repairs for this group, with this one. If the repair does not help,
    /// the requests fail again.
    fn repair(&mut self, repairs: u32) -> Result<Mended, Broken> {
        match self.try_repair() {
            Ok(damage) => self.endpoint.damage.repaired(damage),
            Err(broken) if broken.is_corrupt() => {}
            // For instance, there is no room for the tables that are made anew.
            Err(broken) => return Err(broken),
        }
        Ok(Mended::Repaired(repairs))
    }

    fn try_repair(&mut self) -> Result<Damage, Broken> {
        let db = self.begin()?;
        let old = self.probe()?;
        match repair::repair(&db, &old, Now::read(&self.clock)) {
            Ok(damage) => self.commit(db).map(|()| damage),
            // The connection is closed, which undoes what was done.
            Err(fault) => Err(Broken::All(fault.without_effect())),
        }
    }

    /// A connection to read with what may be damaged.
    fn probe(&self) -> Result<Connection, Broken> {
        let opened = schema::read(&self.files);
        let (probe, _) = opened.map_err(|fault| Broken::All(fault.without_effect()))?;
        Ok(probe)
    }

    fn connection(&mut self) -> Result<Connection, Broken> {
        if let Some(db) = self.db.take() {
            return Ok(db);
        }
        let opened = schema::reopen(&self.files);
        let (db, files) = opened.map_err(|fault| Broken::All(fault.without_effect()))?;
        (self.files, self.has_recalled) = (files, false);
        Ok(db)
    }

    fn commit(&mut self, db: Connection) -> Result<(), Broken> {
        failpoint("sqlite.before-commit");
        if let Err(error) = execute(&db, "COMMIT") {
            let may_be_written = is_of_index(&error);
            let error = explained(error);
            // It has not begun to write, or not written the frame that makes the others count.
            if (is_busy(&error) || is_full(&error)) && !may_be_written {
                self.roll_back(db);
                return Err(Broken::before(error));
            }
            // What is in the file now, the next connection will find out.
            return Err(Broken::All(failure(Effect::Unknown, error)));
        }
        failpoint("sqlite.after-commit");
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

fn execute(db: &Connection, sql: &str) -> Result<(), rusqlite::Error> {
    db.prepare_cached(sql)?.execute([]).map(drop)
}
