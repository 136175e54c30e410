//! [`Writer`]: runs the requests that write, many in one transaction.
//!
//! While the server waits for the disk to commit a transaction, the next requests run on a second connection. This is safe:
//!
//! - At most one of the two transactions still runs requests: each passes its turn on when its COMMIT is sent. From then on, it waits for
//!   locks only with its last statements. These change the progress of tasks that it has locked, and the row of its connection in `total`,
//!   which no other one changes. So the two do not wait for each other, and their COMMITs overlap.
//! - The transaction that runs requests waits for the rows that the other one has locked. These include the sessions that have made its
//!   requests: a copy of such a request, and the next request of its session, see whether it was committed.
//! - If a COMMIT is refused, its requests run again without the turn, beside those of the other connection, as the requests of another
//!   process do. A session has one request at a time, so no other one of its requests can overtake them.
//! - The notifications of a transaction follow its own COMMIT, on the same connection.
//!
//! The server limits each wait for a lock, but not a COMMIT. So a transaction waits in this process for the lock of the store that the
//! other connection holds, and requests that have waited in vain for its rows run again when it has committed: see [`JobLine::enter`].
//!
//! The second connection is opened when requests have waited for a COMMIT, and then takes the next ones. Requests wait for a moment while
//! it is set up, and do not fail if the server allows no more connections: those that it has taken are left to the main one.
//!
//! A request that is refused has written nothing, so the others of its transaction are not affected. If a request fails in another way, the
//! transaction is rolled back. If one of them needs the store for itself, they run again in a transaction that has it. Otherwise, each of
//! them runs in a transaction of its own, and is tried again if that meets a conflict with another one.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};
use tokio::{join, try_join};

use self::job::{Job, NewJob};
use self::job_line::{JobLine, RunTurn};
use super::connection::Connection;
use super::error::{Fault, closed};
use super::migrate;
use super::server::BACKOFF;
use super::shared::Shared;
use super::spare::SPARE_PAUSE;
use super::transaction::{FIRST_STATEMENTS, Run, Transaction};
use crate::durable::failpoint::failpoint;
use crate::durable::failure::{Effect, Failure};
use crate::durable::store::{Answer, SessionId};

mod job;
mod job_line;

/// The maximum number of requests in a transaction.
const MAX_BATCH: usize = 64;

/// The maximum number of attempts of a transaction that meets conflicts.
const MAX_ATTEMPTS: u32 = 10;

/// The time for which the writer does not try to connect again after it has failed to.
const RECONNECT_PAUSE: Duration = Duration::from_millis(100);

/// The maximum time for which a connection is set up that no request waits for. Requests wait meanwhile.
const SPARE_LIMIT: Duration = Duration::from_secs(1);

/// Hands requests to the task that writes.
pub(super) struct Writer {
    jobs: mpsc::UnboundedSender<Box<dyn Job>>,
}

impl Writer {
    pub(super) fn start(runtime: &Handle, shared: Arc<Shared>) -> Self {
        let (line, jobs) = JobLine::new();
        let line = Arc::new(line);
        for is_main in [true, false] {
            runtime.spawn(keep_writing(
                Arc::clone(&shared),
                Arc::clone(&line),
                is_main,
            ));
        }
        Self { jobs }
    }

    /// Runs a request. If `is_exclusive` is `true`, its transaction excludes others from the start. A `session` is read when the
    /// transaction begins.
    pub(super) fn run<R, T>(
        &self,
        request: R,
        session: Option<SessionId>,
        is_exclusive: bool,
        run: Run<R, T>,
    ) -> Answer<'static, T>
    where
        R: Send + Sync + 'static,
        T: Send + 'static,
    {
        let (job, answer) = NewJob::new(request, session, is_exclusive, run);
        self.jobs.send(Box::new(job)).ok();
        Box::pin(answer)
    }
}

/// Runs a task that writes, until the store is dropped. If it panics, because of a fault of this crate, another one takes its place:
/// otherwise, requests would wait for ever. Those that it has taken fail.
async fn keep_writing(shared: Arc<Shared>, line: Arc<JobLine>, is_main: bool) {
    loop {
        let task = WriterTask::new(Arc::clone(&shared), Arc::clone(&line), is_main);
        match tokio::spawn(task.run()).await {
            // Its transaction is rolled back.
            Err(ended) if ended.is_panic() => shared.low_marks.clear(),
            _ => return,
        }
    }
}

/// A task that writes, on a connection of its own.
struct WriterTask {
    shared: Arc<Shared>,
    line: Arc<JobLine>,
    /// `false` if it runs requests only while the main task commits.
    is_main: bool,
    /// The connection of the main task. The other one is in [`Shared`].
    connection: Option<Arc<Connection>>,
    /// `true` while the task has requests, which wait for its connection.
    has_jobs: bool,
    /// The last failure to connect, and its time.
    failed: Option<(Instant, Failure)>,
    /// Held until the transaction of this task is complete, except for its commit.
    turn: Option<RunTurn>,
}

/// The state of the COMMIT of a transaction.
#[derive(Clone, Copy, PartialEq)]
enum CommitState {
    Unsent,
    /// It may have been sent.
    Sent,
    /// The server has answered it. Only notifications may be missing.
    Answered,
}

/// The reason for which a transaction failed, and whether it may have been committed.
struct Broken {
    fault: Fault,
    effect: Effect,
}

impl Broken {
    /// Returns `true` if the requests of the transaction must not run again, or have waited for long enough.
    fn is_final(&self) -> bool {
        self.effect == Effect::Unknown || matches!(self.fault, Fault::NoAnswer)
    }

    /// Returns `true` if a request of the transaction has waited for long, and others would wait as long.
    fn is_slow(&self) -> bool {
        matches!(self.fault, Fault::NoAnswer) || self.fault.is_busy()
    }
}

/// The reason for which the requests behind one that was written alone are not tried.
enum WriteStop {
    /// There is no connection. That request was not tried, either.
    Unconnected(Failure),
    /// That request has waited for long, and has failed.
    Slow(Failure),
}

impl From<Fault> for Broken {
    fn from(fault: Fault) -> Self {
        let effect = Effect::None;
        Self { fault, effect }
    }
}

impl WriterTask {
    fn new(shared: Arc<Shared>, line: Arc<JobLine>, is_main: bool) -> Self {
        let mut task = Self {
            shared,
            line,
            is_main,
            connection: None,
            has_jobs: false,
            failed: None,
            turn: None,
        };
        // The task before this one may have left a connection in a transaction.
        task.set_connection(None);
        task
    }

    async fn run(mut self) {
        let mut jobs = Vec::with_capacity(MAX_BATCH);
        loop {
            // The other task may have the turn. It does not run before this one waits for it.
            if self.is_main {
                self.line.reclaim();
            }
            if self.receive(&mut jobs).await == 0 {
                return;
            }
            self.has_jobs = true;
            self.write(&mut jobs).await;
            self.has_jobs = false;
            self.turn = None;
            jobs.drain(..).for_each(|job| job.finish());
            failpoint("postgres.after-answer");
        }
    }

    /// Waits for requests, until the store is dropped. Returns their number.
    async fn receive(&mut self, jobs: &mut Vec<Box<dyn Job>>) -> usize {
        let line = Arc::clone(&self.line);
        loop {
            let mut turn = line.turn().await;
            if !self.is_main && !self.is_connected() {
                let is_wanted = line.until_reclaimed(&turn).await;
                drop(turn);
                if is_wanted {
                    self.connect_spare().await;
                }
                continue;
            }
            let received = line.receive(&mut turn, self.is_main, jobs, MAX_BATCH);
            if let Some(received) = received.await {
                self.turn = Some(turn);
                return received;
            }
        }
    }

    /// Connects the task that is not the main one. If that fails, perhaps because the server allows no more connections or because the
    /// store is in use, the main task runs all requests for a while.
    async fn connect_spare(&mut self) {
        sleep(self.shared.spare.pause()).await;
        if self.connect().await.is_err() {
            sleep(SPARE_PAUSE).await;
        }
    }

    async fn write(&mut self, jobs: &mut Vec<Box<dyn Job>>) {
        if let Err(failure) = self.connect().await {
            return self.leave(jobs, 0, &failure);
        }
        let is_exclusive = jobs.iter().any(|job| job.is_exclusive());
        let mut written = self.attempt(jobs, is_exclusive).await;
        if let Err(broken) = &written
            && matches!(broken.fault, Fault::NeedsStore)
        {
            written = self.attempt(jobs, true).await;
        }
        match written {
            Ok(()) => {}
            Err(broken) if broken.is_final() => drop(fail(jobs, broken)),
            Err(_) => self.write_each(jobs).await,
        }
    }

    /// Writes requests whose common transaction has failed, each in one of its own. If one of them has waited in vain, all that are left
    /// fail alike: each of them would wait as long.
    async fn write_each(&mut self, jobs: &mut Vec<Box<dyn Job>>) {
        // They may have waited for rows that the other task has locked.
        drop(self.line.enter(true).await);
        for at in 0..jobs.len() {
            match self.write_one(&mut jobs[at..=at]).await {
                Ok(()) => {}
                Err(WriteStop::Unconnected(failure)) => return self.leave(jobs, at, &failure),
                Err(WriteStop::Slow(failure)) => {
                    let failure = failure.without_effect();
                    let left = jobs[at + 1..].iter_mut();
                    return left.for_each(|job| job.fail(failure.clone()));
                }
            }
        }
    }

    /// Writes a single request in a transaction of its own, and tries again after conflicts.
    ///
    /// # Errors
    ///
    /// If the requests behind this one need not be tried.
    async fn write_one(&mut self, job: &mut [Box<dyn Job>]) -> Result<(), WriteStop> {
        let mut is_exclusive = job[0].is_exclusive();
        for attempt in 1.. {
            self.connect().await.map_err(WriteStop::Unconnected)?;
            match self.attempt(job, is_exclusive).await {
                Ok(()) => break,
                Err(Broken {
                    fault: Fault::NeedsStore,
                    ..
                }) if !is_exclusive => is_exclusive = true,
                Err(Broken {
                    fault: Fault::GaveWay,
                    ..
                }) => {}
                Err(broken) if broken.fault.is_conflict() && attempt < MAX_ATTEMPTS => {
                    sleep(BACKOFF.delay(attempt).unwrap_or_default()).await;
                }
                Err(broken) => {
                    let is_slow = broken.is_slow();
                    let failure = fail(job, broken);
                    return if is_slow {
                        Err(WriteStop::Slow(failure))
                    } else {
                        Ok(())
                    };
                }
            }
        }
        Ok(())
    }

    /// Leaves the requests from `at`, for which there is no connection, to the main task, which may have one. Those of the main task fail.
    fn leave(&self, jobs: &mut Vec<Box<dyn Job>>, at: usize, failure: &Failure) {
        match self.is_main {
            true => jobs[at..]
                .iter_mut()
                .for_each(|job| job.fail(failure.clone())),
            false => jobs.drain(at..).for_each(|job| self.line.give_back(job)),
        }
    }

    /// Runs requests in a transaction, and commits it.
    async fn attempt(
        &mut self,
        jobs: &mut [Box<dyn Job>],
        is_exclusive: bool,
    ) -> Result<(), Broken> {
        let line = Arc::clone(&self.line);
        let _permit = line.enter(is_exclusive).await;
        // The connection may have given way meanwhile. It is fetched only now, because a connection that is in use cannot be closed.
        let Some(connection) = self.connection() else {
            return Err(Fault::GaveWay.into());
        };
        let mut commit_state = CommitState::Unsent;
        let transaction = transact(
            &connection,
            &self.shared,
            jobs,
            is_exclusive,
            &mut self.turn,
            &mut commit_state,
        );
        let limit = self.shared.server.answer_timeout;
        let result = timeout(limit, transaction).await;
        let result = result.unwrap_or(Err(Fault::NoAnswer));
        let Err(fault) = result else { return Ok(()) };
        if commit_state == CommitState::Answered {
            // Those who are not notified look from time to time.
            self.set_connection(None);
            return Ok(());
        }
        if matches!(fault, Fault::NoAnswer) {
            self.shared.server.cancel(&connection);
        }
        let effect = match commit_state {
            CommitState::Sent if !fault.is_refusal() => Effect::Unknown,
            _ => Effect::None,
        };
        if fault.needs_connection() || !connection.roll_back(limit).await {
            self.set_connection(None);
        }
        // Until then, other turns pass over the tasks that this transaction has locked, and set marks behind them.
        self.shared.low_marks.clear();
        Err(Broken { fault, effect })
    }

    /// Connects unless there is a connection.
    async fn connect(&mut self) -> Result<(), Failure> {
        if self.is_connected() {
            return Ok(());
        }
        if let Some((at, failure)) = &self.failed
            && at.elapsed() < RECONNECT_PAUSE
        {
            return Err(failure.clone());
        }
        match self.new_connection().await {
            Ok(connection) => {
                self.set_connection(Some(Arc::new(connection)));
                self.failed = None;
                Ok(())
            }
            Err(failure) => {
                self.set_connection(None);
                self.failed = Some((Instant::now(), failure.clone()));
                Err(failure)
            }
        }
    }

    fn connection(&self) -> Option<Arc<Connection>> {
        match self.is_main {
            true => self.connection.clone(),
            false => self.shared.spare.get(),
        }
    }

    fn set_connection(&mut self, connection: Option<Arc<Connection>>) {
        match self.is_main {
            true => self.connection = connection,
            false => self.shared.spare.set(connection),
        }
    }

    fn is_connected(&self) -> bool {
        self.connection().is_some_and(|it| !it.is_closed())
    }

    async fn new_connection(&self) -> Result<Connection, Failure> {
        let connection = match self.is_main {
            true => self.shared.connect(None).await?,
            false if self.shared.spare.pause() > Duration::ZERO => return Err(closed()),
            false => self.shared.server.connect(None).await?.into_second(),
        };
        // The setup needs the store, as a transaction does. At the server, others would wait behind it.
        let _permit = self.line.enter(true).await;
        let limit = match self.gives_way() {
            true => SPARE_LIMIT,
            false => self.shared.server.answer_timeout,
        };
        let setting_up = timeout(limit, self.set_up(&connection));
        let set_up = setting_up.await.unwrap_or_else(|_| {
            self.shared.server.cancel(&connection);
            Err(Fault::NoAnswer)
        });
        set_up.map_err(|fault| fault.failure(Effect::None))?;
        Ok(connection)
    }

    async fn set_up(&self, connection: &Connection) -> Result<(), Fault> {
        migrate::migrate(connection, &self.shared, self.gives_way()).await?;
        Ok(connection.prepare(&FIRST_STATEMENTS).await?)
    }

    /// Returns `true` if no request waits for the connection.
    fn gives_way(&self) -> bool {
        !self.is_main && !self.has_jobs
    }
}

fn fail(jobs: &mut [Box<dyn Job>], broken: Broken) -> Failure {
    let failure = broken.fault.failure(broken.effect);
    jobs.iter_mut().for_each(|job| job.fail(failure.clone()));
    failure
}

/// Runs requests in a transaction, commits it, and notifies others. Sets `commit_state` before and after the COMMIT. Gives `turn` back when
/// everything is sent, so that the next requests run during the commit.
async fn transact(
    connection: &Arc<Connection>,
    shared: &Arc<Shared>,
    jobs: &mut [Box<dyn Job>],
    is_exclusive: bool,
    turn: &mut Option<RunTurn>,
    commit_state: &mut CommitState,
) -> Result<(), Fault> {
    let sessions = jobs.iter().filter_map(|job| job.session());
    let sessions: Vec<_> = sessions.collect();
    let mut tx = Transaction::begin(connection, shared, is_exclusive, &sessions).await?;
    for job in jobs {
        match job.run(&mut tx).await {
            Err(Fault::Refused(cause)) => job.fail(Fault::Refused(cause).failure(Effect::None)),
            done => done?,
        }
        tx.settle_groups().await?;
    }
    tx.finish().await?;
    let deltas = std::mem::take(&mut tx.deltas);
    failpoint("postgres.before-commit");
    *commit_state = CommitState::Sent;
    let commit = async {
        // If a statement has failed, the server answers the COMMIT all the same, and rolls the transaction back.
        let (written, answered) = join!(biased; tx.write_last(deltas), connection.batch("COMMIT"));
        written?;
        answered?;
        *commit_state = CommitState::Answered;
        failpoint("postgres.after-commit");
        tx.notices.forget_unparked(shared);
        Ok::<_, Fault>(())
    };
    // The notifications are sent before the answers, since a process may exit as soon as it has its answer.
    let notify = async {
        tx.notices.send(connection).await;
        Ok::<_, Fault>(())
    };
    let pass_on = async {
        failpoint("postgres.commit-sent");
        *turn = None;
        Ok::<_, Fault>(())
    };
    try_join!(biased; commit, notify, pass_on)?;
    failpoint("postgres.after-notices");
    Ok(())
}
