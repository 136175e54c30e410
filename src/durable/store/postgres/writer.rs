//! [`Writer`]: runs the requests that write, many in one transaction.
//!
//! While the server waits for the disk to commit a transaction, the next requests run on a second connection. A transaction that is
//! committed waits for no other one, so the two never wait for each other.
//!
//! A request that is refused has written nothing, so the others of its transaction are not affected. If a request fails in another way, the
//! transaction is rolled back, and each of its requests runs in a transaction of its own. A request whose transaction met a conflict with
//! another one is tried again.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Mutex, Notify, OwnedMutexGuard, mpsc};
use tokio::time::{Instant, sleep, timeout};
use tokio::{select, try_join};

use self::job::{Job, NewJob};
use super::connection::Connection;
use super::error::Fault;
use super::migrate;
use super::server::BACKOFF;
use super::shared::Shared;
use super::transaction::{FIRST_STATEMENTS, Run, Transaction};
use crate::durable::failure::{Effect, Failure};
use crate::durable::store::{Answer, SessionId};

mod job;

/// The maximum number of requests in a transaction.
const MAX_BATCH: usize = 64;

/// The maximum number of attempts of a transaction that meets conflicts.
const MAX_ATTEMPTS: u32 = 10;

/// The time for which the writer does not try to connect again after it has failed to.
const RECONNECT_PAUSE: Duration = Duration::from_millis(100);

/// Hands requests to the task that writes.
pub(super) struct Writer {
    jobs: mpsc::UnboundedSender<Box<dyn Job>>,
}

impl Writer {
    pub(super) fn start(runtime: &Handle, shared: Arc<Shared>) -> Self {
        let (jobs, receiver) = mpsc::unbounded_channel();
        let line = Arc::new(Line {
            jobs: Arc::new(Mutex::new(receiver)),
            first_is_free: Notify::new(),
        });
        for is_first in [true, false] {
            let task = WriterTask {
                shared: Arc::clone(&shared),
                is_first,
                connection: None,
                failed: None,
                turn: None,
            };
            runtime.spawn(task.run(Arc::clone(&line)));
        }
        Self { jobs }
    }

    /// Runs a request. With `is_alone`, its transaction has the store for itself from the start. A `session` is read when the transaction
    /// begins.
    pub(super) fn run<R, T>(
        &self,
        request: R,
        session: Option<SessionId>,
        is_alone: bool,
        run: Run<R, T>,
    ) -> Answer<'static, T>
    where
        R: Send + Sync + 'static,
        T: Send + 'static,
    {
        let (job, answer) = NewJob::new(request, session, is_alone, run);
        self.jobs.send(Box::new(job)).ok();
        Box::pin(answer)
    }
}

type JobReceiver = mpsc::UnboundedReceiver<Box<dyn Job>>;

/// The requests that no transaction contains yet.
struct Line {
    /// The task that has locked them runs the next transaction.
    jobs: Arc<Mutex<JobReceiver>>,
    /// Notified when the first task has committed.
    first_is_free: Notify,
}

/// A task that writes, on a connection of its own.
struct WriterTask {
    shared: Arc<Shared>,
    /// `false` if it runs requests only while the other task commits.
    is_first: bool,
    connection: Option<Arc<Connection>>,
    /// The last failure to connect, and its time.
    failed: Option<(Instant, Failure)>,
    /// Held until the transaction of this task is complete, except for its commit.
    turn: Option<OwnedMutexGuard<JobReceiver>>,
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
}

impl From<Fault> for Broken {
    fn from(fault: Fault) -> Self {
        let effect = Effect::None;
        Self { fault, effect }
    }
}

impl WriterTask {
    async fn run(mut self, line: Arc<Line>) {
        let mut jobs = Vec::with_capacity(MAX_BATCH);
        while self.receive(&line, &mut jobs).await > 0 {
            self.write(&mut jobs).await;
            self.turn = None;
            if self.is_first {
                line.first_is_free.notify_one();
            }
            jobs.drain(..).for_each(|job| job.finish());
        }
    }

    /// Waits for requests, until the store is dropped. Returns their number.
    async fn receive(&mut self, line: &Line, jobs: &mut Vec<Box<dyn Job>>) -> usize {
        loop {
            let mut turn = Arc::clone(&line.jobs).lock_owned().await;
            let received = select! {
                biased;
                () = line.first_is_free.notified(), if !self.is_first => continue,
                received = turn.recv_many(jobs, MAX_BATCH) => received,
            };
            self.turn = Some(turn);
            return received;
        }
    }

    async fn write(&mut self, jobs: &mut [Box<dyn Job>]) {
        if let Err(failure) = self.connect().await {
            jobs.iter_mut().for_each(|job| job.fail(failure.clone()));
            return;
        }
        let is_alone = jobs.iter().any(|job| job.is_alone());
        match self.attempt(jobs, is_alone).await {
            Ok(()) => {}
            Err(broken) if broken.is_final() => fail(jobs, broken),
            Err(_) => self.write_each(jobs).await,
        }
    }

    /// Writes requests whose common transaction has failed. If there is no connection, all that are left fail.
    async fn write_each(&mut self, jobs: &mut [Box<dyn Job>]) {
        for at in 0..jobs.len() {
            if let Err(failure) = self.connect().await {
                return jobs[at..]
                    .iter_mut()
                    .for_each(|job| job.fail(failure.clone()));
            }
            self.write_one(&mut jobs[at..=at]).await;
        }
    }

    /// Writes a single request in a transaction of its own, and tries again after conflicts.
    async fn write_one(&mut self, job: &mut [Box<dyn Job>]) {
        let mut is_alone = job[0].is_alone();
        for attempt in 1.. {
            if let Err(failure) = self.connect().await {
                return job[0].fail(failure);
            }
            match self.attempt(job, is_alone).await {
                Ok(()) => return,
                Err(Broken {
                    fault: Fault::NeedsStore,
                    ..
                }) if !is_alone => is_alone = true,
                Err(broken) if broken.fault.is_conflict() && attempt < MAX_ATTEMPTS => {
                    sleep(BACKOFF.delay(attempt).unwrap_or_default()).await;
                }
                Err(broken) => return fail(job, broken),
            }
        }
    }

    /// Runs requests in a transaction, and commits it.
    async fn attempt(&mut self, jobs: &mut [Box<dyn Job>], is_alone: bool) -> Result<(), Broken> {
        let Some(connection) = self.connection.clone() else {
            return Err(Fault::NoAnswer.into());
        };
        let mut effect = Effect::None;
        let turn = &mut self.turn;
        let transaction = transact(&connection, &self.shared, jobs, is_alone, &mut effect, turn);
        let limit = self.shared.server.answer_timeout;
        let result = timeout(limit, transaction).await;
        let result = result.unwrap_or(Err(Fault::NoAnswer));
        let Err(fault) = result else { return Ok(()) };
        self.shared.low_marks.clear();
        if fault.is_refusal() {
            effect = Effect::None;
        }
        if fault.needs_connection() || !connection.roll_back(limit).await {
            self.connection = None;
        }
        Err(Broken { fault, effect })
    }

    /// Connects unless there is a connection.
    async fn connect(&mut self) -> Result<(), Failure> {
        if self.connection.as_ref().is_some_and(|it| !it.is_closed()) {
            return Ok(());
        }
        if let Some((at, failure)) = &self.failed
            && at.elapsed() < RECONNECT_PAUSE
        {
            return Err(failure.clone());
        }
        match self.new_connection().await {
            Ok(connection) => {
                self.connection = Some(Arc::new(connection));
                self.failed = None;
                Ok(())
            }
            Err(failure) => {
                self.connection = None;
                self.failed = Some((Instant::now(), failure.clone()));
                Err(failure)
            }
        }
    }

    async fn new_connection(&self) -> Result<Connection, Failure> {
        let connection = self.shared.server.connect(None).await?;
        let setting_up = timeout(self.shared.server.answer_timeout, self.set_up(&connection));
        let set_up = setting_up.await.unwrap_or(Err(Fault::NoAnswer));
        set_up.map_err(|fault| fault.failure(Effect::None))?;
        Ok(connection)
    }

    async fn set_up(&self, connection: &Connection) -> Result<(), Fault> {
        migrate::migrate(connection, &self.shared).await?;
        Ok(connection.prepare(&FIRST_STATEMENTS).await?)
    }
}

fn fail(jobs: &mut [Box<dyn Job>], broken: Broken) {
    let failure = broken.fault.failure(broken.effect);
    jobs.iter_mut().for_each(|job| job.fail(failure.clone()));
}

/// Runs requests in a transaction, commits it, and notifies others. Sets `effect` before the transaction may be committed, and passes
/// `turn` on, so that the next transaction runs during the commit.
async fn transact(
    connection: &Arc<Connection>,
    shared: &Arc<Shared>,
    jobs: &mut [Box<dyn Job>],
    is_alone: bool,
    effect: &mut Effect,
    turn: &mut Option<OwnedMutexGuard<JobReceiver>>,
) -> Result<(), Fault> {
    let sessions = jobs.iter().filter_map(|job| job.session());
    let sessions: Vec<_> = sessions.collect();
    let mut tx = Transaction::begin(connection, shared, is_alone, &sessions).await?;
    for job in jobs {
        match job.run(&mut tx).await {
            Err(Fault::Refused(cause)) => job.fail(Fault::Refused(cause).failure(Effect::None)),
            done => done?,
        }
        tx.settle_groups().await?;
    }
    tx.finish().await?;
    let deltas = std::mem::take(&mut tx.deltas);
    *effect = Effect::Unknown;
    *turn = None;
    let last = tx.write_last(deltas);
    let commit = async { Ok(connection.batch("COMMIT").await?) };
    // The notifications are sent before the answers, since a process may exit as soon as it has its answer.
    let notify = async {
        tx.notices.send(connection).await;
        Ok::<_, Fault>(())
    };
    try_join!(last, commit, notify)?;
    Ok(())
}
