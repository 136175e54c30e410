//! [`WriterThread`]: writes all requests that have arrived by the time it has to wait for the disk together, and waits
//! once.

use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tokio::sync::mpsc::UnboundedSender;

use super::group::{Group, Recovery, Request};
use super::group_error::GroupError;
use crate::durable::clock::Clock;
use crate::durable::failpoint::failpoint;
use crate::durable::failure::{Effect, Failure};
use crate::durable::store::Event;
use crate::durable::store::layouts::Layouts;
use crate::durable::store::sqlite::damage::Damage;
use crate::durable::store::sqlite::endpoint::Endpoint;
use crate::durable::store::sqlite::error::{
    Fault, explained, failure, io_failure, is_busy, is_full, is_of_index, is_sound,
};
use crate::durable::store::sqlite::files::Files;
use crate::durable::store::sqlite::lock_holder::busy_failure;
use crate::durable::store::sqlite::notices::Notices;
use crate::durable::store::sqlite::shared::Shared;
use crate::durable::store::sqlite::time::Now;
use crate::durable::store::sqlite::transaction::Transaction;
use crate::durable::store::sqlite::{repair, schema};
use crate::unwind::contain;

/// The longest time for which one transaction runs requests. The last request may take longer. Other processes wait for the lock
/// meanwhile.
const MAX_GROUP_TIME: Duration = Duration::from_millis(20);

/// The number of repairs for one group, at most. New damage may arise while other damage is repaired.
const MAX_REPAIRS: u32 = 3;
/// The time for which the store is not repaired again after repairs that have not helped.
const REPAIR_PAUSE: Duration = Duration::from_secs(10);

/// The files and the shared state that the thread has opened.
pub(in super::super) struct Opened {
    pub(in super::super) files: Files,
    pub(in super::super) shared: Arc<Shared>,
}

/// The state of the writing thread.
pub(super) struct WriterThread {
    /// The files of the current or the last connection.
    files: Files,
    clock: Clock,
    /// `None` after a failure that may have left the connection unusable.
    db: Option<Connection>,
    /// `true` if the connection has skipped the epochs that the file may lack.
    has_skipped_epochs: bool,
    /// This field follows the connection, which must be closed before other processes take this one for dead.
    shared: Arc<Shared>,
    /// The store is not repaired before this time, since the last repairs have not helped.
    next_repair: Option<Instant>,
}

/// The rows that a transaction has written.
struct Written {
    requests: usize,
    notices: Notices,
    has_skipped_epochs: bool,
}

/// Opens the database.
pub(super) fn open(
    path: &Path,
    layouts: Layouts,
    clock: Clock,
    events: UnboundedSender<Event>,
) -> Result<(WriterThread, Opened), Failure> {
    let created = schema::create(path, layouts, Now::read(&clock)).map_err(|fault| match fault {
        Fault::Sqlite(error) => {
            let path = path.canonicalize().ok();
            busy_failure(error, path.as_deref())
        }
        fault => fault.without_effect(),
    });
    let (db, files) = created?;
    let endpoint = Endpoint::new(files.path(), events).map_err(io_failure)?;
    let shared = Arc::new(Shared::new(endpoint, layouts));
    let opened = Opened {
        files: files.clone(),
        shared: Arc::clone(&shared),
    };
    let thread = WriterThread {
        files,
        clock,
        db: Some(db),
        has_skipped_epochs: false,
        shared,
        next_repair: None,
    };
    Ok((thread, opened))
}

impl WriterThread {
    /// Writes requests until the channel is closed, and then closes the database.
    pub(super) fn run(
        mut self,
        received: &mpsc::Receiver<Box<dyn Request>>,
    ) -> Result<(), Failure> {
        while let Ok(first) = received.recv() {
            let group = Group::of(first, Some(received));
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
        let db = self.connection().map_err(GroupError::into_failure)?;
        // This need not wait for other processes: the last one to close the database moves what is left.
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
                Ok((written, mut notices)) => {
                    notices.wake(&self.shared.endpoint);
                    let answered = group.take(written).into_iter();
                    answered.for_each(|request| request.reply());
                    failpoint("sqlite.after-answer");
                    notices.notify_ended(&self.shared.endpoint);
                }
                // Writes the requests one by one, so that one that fails does not affect the others.
                Err(error) if group.requests.len() > 1 && error.may_be_split() => {
                    let each = group.requests.drain(..);
                    each.for_each(|one| self.write(Group::of(one, None)));
                }
                Err(error) => {
                    let failure = match self.recover(&mut group, error) {
                        Ok(()) => continue,
                        Err(error) => error.into_failure(),
                    };
                    for mut request in group.requests.drain(..) {
                        request.fail(failure.clone());
                        request.reply();
                    }
                }
            }
        }
    }

    // ===== Transactions =====

    /// Writes the first requests of a group, and as many more as its time allows. Returns their number.
    fn transact(&mut self, group: &mut Group<'_>) -> Result<(usize, Notices), GroupError> {
        let db = self.begin()?;
        let probe = match group.recovery {
            Recovery::Nothing => None,
            Recovery::Probing | Recovery::Repaired(_) => Some(self.probe()?),
        };
        match self.run_group(&db, probe, group) {
            Ok(written) => {
                self.commit(db)?;
                self.has_skipped_epochs |= written.has_skipped_epochs;
                Ok((written.requests, written.notices))
            }
            Err(error) => {
                let error = error.explained();
                if error.is_sound() {
                    self.roll_back(db);
                }
                Err(error)
            }
        }
    }

    /// Runs the requests of a group in a transaction that has begun.
    fn run_group(
        &self,
        db: &Connection,
        probe: Option<Connection>,
        group: &mut Group<'_>,
    ) -> Result<Written, GroupError> {
        let end = Instant::now() + MAX_GROUP_TIME;
        let tx = Transaction::new(db, &self.shared, &self.clock, self.has_skipped_epochs);
        let mut tx = tx.map_err(|fault| GroupError::All(fault.without_effect()))?;
        tx.probe = probe;
        let mut done = 0;
        // While this process has the lock, other processes cannot write.
        while (done == 0 || Instant::now() < end)
            && let Some(request) = group.requests.get_mut(done)
        {
            // The request may have arrived, and its tasks may have been spawned, since the transaction began.
            tx.now = Now::read(&self.clock);
            request.run(&mut tx).map_err(GroupError::One)?;
            done += 1;
            group.gather();
        }
        tx.finish().map_err(GroupError::One)?;
        Ok(Written {
            requests: done,
            has_skipped_epochs: tx.has_skipped_epochs,
            notices: tx.notices,
        })
    }

    /// Begins a transaction for writing.
    fn begin(&mut self) -> Result<Connection, GroupError> {
        let db = self.connection()?;
        let Err(error) = execute(&db, "BEGIN IMMEDIATE") else {
            return Ok(db);
        };
        let error = explained(error);
        self.db = is_sound(&error).then_some(db);
        let failure = busy_failure(error, Some(self.files.path()));
        Err(GroupError::All(failure))
    }

    fn commit(&mut self, db: Connection) -> Result<(), GroupError> {
        failpoint("sqlite.before-commit");
        if let Err(error) = execute(&db, "COMMIT") {
            let may_be_written = is_of_index(&error);
            let error = explained(error);
            // SQLite has not begun to write, or has not written the frame that makes the transaction valid.
            if (is_busy(&error) || is_full(&error)) && !may_be_written {
                self.roll_back(db);
                return Err(GroupError::without_effect(error));
            }
            // The next connection finds out whether the transaction is in the file.
            return Err(GroupError::All(failure(Effect::Unknown, error)));
        }
        failpoint("sqlite.after-commit");
        // If the files were removed or replaced, what was written is lost when the last process closes them.
        if let Err(fault) = self.files.check() {
            let failure = fault.without_effect();
            return Err(GroupError::All(failure.with_unknown_effect()));
        }
        self.db = Some(db);
        Ok(())
    }

    /// Rolls back the transaction, unless SQLite has done so. If this fails, closes the connection, which also rolls
    /// back.
    fn roll_back(&mut self, db: Connection) {
        let is_over = execute(&db, "ROLLBACK").is_ok() || db.is_autocommit();
        self.db = is_over.then_some(db);
    }

    /// Takes the current connection, or opens a new one.
    fn connection(&mut self) -> Result<Connection, GroupError> {
        if let Some(db) = self.db.take() {
            return Ok(db);
        }
        let opened = schema::reopen(&self.files);
        let (db, files) = opened.map_err(|fault| GroupError::All(fault.without_effect()))?;
        (self.files, self.has_skipped_epochs) = (files, false);
        Ok(db)
    }

    /// Opens a connection that reads what may be damaged.
    fn probe(&self) -> Result<Connection, GroupError> {
        let opened = schema::read(&self.files);
        let (probe, _) = opened.map_err(|fault| GroupError::All(fault.without_effect()))?;
        Ok(probe)
    }

    // ===== Damage =====

    /// Prepares another attempt for a group that has met data that it cannot read. Returns the error for its requests if
    /// there is nothing left to try.
    fn recover(&mut self, group: &mut Group<'_>, error: GroupError) -> Result<(), GroupError> {
        if !error.is_corrupt() {
            return Err(error);
        }
        // The connection may have cached what is not in the file.
        self.db = None;
        // The probe does not see what other requests write in the same transaction.
        group.received = None;
        group.recovery = match group.recovery {
            Recovery::Nothing => Recovery::Probing,
            Recovery::Probing if !self.is_repair_paused() => self.repair(1)?,
            Recovery::Repaired(repairs) if repairs < MAX_REPAIRS => self.repair(repairs + 1)?,
            Recovery::Probing => return Err(error),
            Recovery::Repaired(_) => {
                self.next_repair = Some(Instant::now() + REPAIR_PAUSE);
                return Err(error);
            }
        };
        Ok(())
    }

    fn is_repair_paused(&self) -> bool {
        self.next_repair.is_some_and(|next| Instant::now() < next)
    }

    /// Repairs the store. `repairs` is the number of repairs for this group, including this one. If the repair does not
    /// help, the requests fail again.
    fn repair(&mut self, repairs: u32) -> Result<Recovery, GroupError> {
        match self.try_repair() {
            Ok(damage) => {
                self.shared.damage.record_repair(damage);
                // Waiting tasks that were in no list may start, and others of a queue whose tasks have stopped running.
                self.shared.endpoint.wake(usize::MAX, |_| true);
            }
            Err(error) if error.is_corrupt() => {}
            // For instance, the disk has no room for the rebuilt tables.
            Err(error) => return Err(error),
        }
        Ok(Recovery::Repaired(repairs))
    }

    fn try_repair(&mut self) -> Result<Damage, GroupError> {
        let db = self.begin()?;
        schema::check_layout(&db, self.shared.layouts)
            .map_err(|fault| GroupError::All(fault.without_effect()))?;
        let old = self.probe()?;
        match repair::repair(&db, &old, Now::read(&self.clock)) {
            Ok(damage) => self.commit(db).map(|()| damage),
            // Here the connection is dropped, which rolls back.
            Err(fault) => Err(GroupError::All(fault.without_effect())),
        }
    }
}

fn execute(db: &Connection, sql: &str) -> Result<(), rusqlite::Error> {
    db.prepare_cached(sql)?.execute([]).map(drop)
}
