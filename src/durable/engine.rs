//! [`Engine`]: the background work of a client, on a thread of its own or on the thread of the store.
//!
//! On that thread, the engine sends spawned tasks to the store ([`batch_sender`]), finds out when awaited tasks have ended
//! ([`waiters`]) or reported progress ([`progress_waiters`]), stores the steps of runs ([`step_sender`]), moves tasks from the outbox
//! ([`outbox_drain`]), reports how many runs have started and ended ([`run_stats`]), and runs the workers of the process. No user code
//! runs there, so none can delay the renewal of a lease. The engine does not depend on any runtime of the user.

use std::sync::{Arc as StdArc, Weak};
use std::time::Duration;

use tokio::runtime::{self, Handle};
use tokio::sync::{OnceCell, mpsc};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use self::batch_sender::BatchSender;
use self::loss_record::LossRecord;
use self::monitored::MonitoredStore;
use self::outbox_drain::OutboxDrain;
use self::progress_waiters::ProgressWaiters;
use self::run_stats::RunStats;
use self::step_sender::{StepQueue, StepSender};
use self::waiters::Waiters;
use super::executor::message::Message;
use super::failure::Failure;
use super::resend::{STORE_TIMEOUT, resend};
use super::spawn_queue::SpawnQueue;
use super::store::{Answer, Backend, Epoch, Event, NewStep, StepAnswer, Store, TaskState};
use super::{DurableError, Status, TaskId, report};
use crate::sync::thread;
use crate::sync::{Mutex, lock};

mod batch_sender;
mod loss_record;
mod monitored;
mod outbox_drain;
pub(crate) mod progress_waiters;
pub(crate) mod run_stats;
mod step_sender;
pub(crate) mod waiters;

/// The background work of a client.
pub(crate) struct Engine {
    pub(crate) store: StdArc<dyn Backend>,
    /// The name of the store for messages.
    pub(crate) store_name: StdArc<str>,
    pub(crate) waiters: StdArc<Waiters>,
    pub(crate) progress: StdArc<ProgressWaiters>,
    pub(crate) spawn_queue: StdArc<SpawnQueue>,
    pub(crate) run_stats: StdArc<RunStats>,
    pub(crate) outbox: StdArc<OutboxDrain>,
    pub(crate) losses: LossRecord,
    steps: StepQueue,
    workers: Mutex<Vec<mpsc::UnboundedSender<Message>>>,
    /// The highest epoch that this client has received.
    floor: Mutex<Epoch>,
    /// The runtime that drives the background work, or `None` if the system refused a thread.
    runtime: Option<Handle>,
    /// Ends the background tasks.
    stop: CancellationToken,
    /// Cancelled when all spawned tasks are stored and no more are accepted.
    stored: CancellationToken,
    /// Ends the thread.
    gone: CancellationToken,
    closed: OnceCell<Result<(), Failure>>,
}

impl Engine {
    pub(crate) fn start(store: Store) -> StdArc<Self> {
        let store: StdArc<dyn Backend> = StdArc::new(MonitoredStore::new(store.0));
        let [stop, stored, gone] = [0; 3].map(|_| CancellationToken::new());
        let runtime = match store.runtime() {
            Some(runtime) => Some(runtime.clone()),
            None => start_thread(gone.clone(), stored.clone()),
        };
        let spawn_queue = StdArc::new(SpawnQueue::new());
        let waiters = StdArc::new(Waiters::default());
        let progress = StdArc::new(ProgressWaiters::default());
        let run_stats = StdArc::new(RunStats::new());
        let outbox = StdArc::new(OutboxDrain::default());
        let (steps, step_sender) = StepSender::new(StdArc::clone(&store));
        let engine = StdArc::new(Self {
            store_name: store.name().into(),
            store: StdArc::clone(&store),
            waiters: StdArc::clone(&waiters),
            progress: StdArc::clone(&progress),
            spawn_queue: StdArc::clone(&spawn_queue),
            run_stats: StdArc::clone(&run_stats),
            outbox: StdArc::clone(&outbox),
            losses: LossRecord::default(),
            steps,
            workers: Mutex::default(),
            floor: Mutex::default(),
            runtime,
            stop: stop.clone(),
            stored: stored.clone(),
            gone,
            closed: OnceCell::new(),
        });
        let sender = BatchSender::new(StdArc::clone(&store), spawn_queue);
        // Dropped in any case, even if there is no thread.
        let stored = stored.drop_guard();
        engine.run_to_end(async move {
            tokio::select! {
                () = sender.run() => {}
                () = timeout_after(stop) => {}
            }
            drop(stored);
        });
        engine.run(StdArc::clone(&waiters).run(StdArc::clone(&store)));
        engine.run(StdArc::clone(&progress).run(StdArc::clone(&store)));
        engine.run(run_stats.run(StdArc::clone(&store)));
        engine.run(outbox.run(StdArc::clone(&store)));
        engine.run(step_sender.run());
        engine.run(dispatch(StdArc::downgrade(&engine), store.events()));
        if engine.runtime.is_none() {
            waiters.close();
            progress.close();
        }
        engine
    }

    /// Runs a background task until the engine is closed or dropped. Without a thread, it drops the task.
    pub(crate) fn run(&self, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.run_to_end(async move { _ = stop.run_until_cancelled(task).await });
    }

    /// As [`run`](Self::run), but the task continues after the engine is closed or dropped.
    pub(crate) fn run_to_end(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = &self.runtime {
            runtime.spawn(task);
        }
    }

    /// Returns the runtime that drives the background tasks and their timers, unless they have ended.
    pub(crate) fn runtime(&self) -> Option<&Handle> {
        let runtime = self.runtime.as_ref();
        runtime.filter(|_| !self.stop.is_cancelled())
    }

    /// Sends a request that may be sent more than once, until the store answers it.
    pub(crate) async fn ask<'a, T>(
        &'a self,
        task: Option<TaskId>,
        request: impl Fn(&'a dyn Backend) -> Answer<'a, T>,
    ) -> Result<T, DurableError> {
        let Some(runtime) = self.runtime() else {
            return Err(DurableError::closed(&self.store_name, task));
        };
        let store = &*self.store;
        let answer = resend(runtime, || request(store)).await;
        answer.map_err(|failure| DurableError::store(&self.store_name, task, failure))
    }

    /// Requests the status of a task.
    pub(crate) async fn status(&self, id: TaskId) -> Result<Status, DurableError> {
        let state = self.state(id).await?;
        match state.joined() {
            Some((holder, _)) => Ok(self.state(holder).await?.status()),
            None => Ok(state.status()),
        }
    }

    /// Cancels a task, or the one that it has joined when it was moved from an outbox. Returns `true` if it had not ended.
    pub(crate) async fn cancel(&self, id: TaskId) -> Result<bool, DurableError> {
        let cancel = |id| self.ask(Some(id), move |store| store.cancel(vec![id]));
        if cancel(id).await? > 0 {
            return Ok(true);
        }
        if self.store.outbox_insert().is_err() {
            return Ok(false);
        }
        match self.state(id).await?.joined() {
            Some((holder, _)) => Ok(cancel(holder).await? > 0),
            None => Ok(false),
        }
    }

    async fn state(&self, id: TaskId) -> Result<TaskState, DurableError> {
        let states = self.ask(Some(id), |store| store.status(vec![id])).await?;
        Ok(states.into_iter().next().unwrap_or(TaskState::Absent))
    }

    /// Stores steps of a run, together with those of other runs. Returns an answer for each, in their order.
    pub(crate) async fn store_steps(
        &self,
        id: TaskId,
        steps: Vec<NewStep>,
    ) -> Result<Vec<StepAnswer>, DurableError> {
        match self.steps.store(steps).await {
            Some(answers) => {
                answers.map_err(|failure| DurableError::store(&self.store_name, Some(id), failure))
            }
            None => Err(DurableError::closed(&self.store_name, Some(id))),
        }
    }

    /// Returns the highest epoch that this client has received.
    pub(crate) fn floor(&self) -> Epoch {
        *lock(&self.floor)
    }

    /// Records the epoch of a claim that has arrived.
    pub(crate) fn received(&self, epoch: Epoch) {
        let mut floor = lock(&self.floor);
        *floor = epoch.max(*floor);
    }

    /// Ends all background tasks in order, and then closes the store. Later calls return the same result.
    pub(crate) async fn close(&self) -> Result<(), Failure> {
        let closed = self.closed.get_or_init(|| async {
            self.spawn_queue.close();
            self.end_workers().await;
            self.stored.cancelled().await;
            self.stop.cancel();
            self.waiters.close();
            self.progress.close();
            if let Some(timers) = &self.runtime {
                self.run_stats.flush(&*self.store, timers).await;
            }
            self.store.close().await
        });
        closed.await.clone()
    }

    async fn end_workers(&self) {
        self.send_to_workers(|| Message::Shutdown(Duration::ZERO));
        let workers = lock(&self.workers).clone();
        for worker in workers {
            worker.closed().await;
        }
    }

    /// Sends events to a worker until it has ended.
    pub(crate) fn add_worker(&self, worker: mpsc::UnboundedSender<Message>) {
        let mut workers = lock(&self.workers);
        workers.retain(|worker| !worker.is_closed());
        workers.push(worker);
        drop(workers);
        self.outbox.start_looking();
    }

    fn send_to_workers(&self, message: impl Fn() -> Message) {
        for worker in &*lock(&self.workers) {
            worker.send(message()).ok();
        }
    }

    pub(super) fn on(&self, event: Event) {
        match event {
            Event::Ready => {
                self.waiters.recovered();
                self.send_to_workers(|| Message::Wake(None));
            }
            Event::Wake(session) => self.send_to_workers(|| Message::Wake(session)),
            Event::MaybeEnded(ids) => self.waiters.check(ids),
            Event::Ended(ends) => ends
                .into_iter()
                .for_each(|(id, state)| self.waiters.ended(id, state)),
            Event::Cancel(ids) => self.send_to_workers(|| Message::Cancel(ids.clone())),
            Event::Pushed(pushed) => {
                self.received(pushed.claim.epoch);
                self.send_to_workers(|| Message::Pushed(StdArc::clone(&pushed)));
            }
            Event::Rewound(rewind) => {
                report::rewound(&self.store_name, rewind);
                self.losses.add(rewind);
                self.waiters.check_all();
            }
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.spawn_queue.close();
        self.stop.cancel();
        self.gone.cancel();
    }
}

/// Handles the events of the store. It holds no engine while it waits, since the engine would never be dropped.
async fn dispatch(engine: Weak<Engine>, mut events: mpsc::UnboundedReceiver<Event>) {
    while let Some(event) = events.recv().await {
        let Some(engine) = engine.upgrade() else {
            return;
        };
        engine.on(event);
    }
}

/// Waits until everything else has been stopped and a last request to the store has timed out.
async fn timeout_after(stopped: CancellationToken) {
    stopped.cancelled().await;
    sleep(STORE_TIMEOUT).await;
}

/// Starts a thread that drives a runtime until the engine is `gone`, and the sender has `stored` everything and closed
/// its sessions.
fn start_thread(gone: CancellationToken, stored: CancellationToken) -> Option<Handle> {
    let (sender, receiver) = std::sync::mpsc::channel();
    let thread = thread::Builder::new().name("throng-durable".into());
    // The runtime is created on the thread: it must not be dropped within another runtime, where the caller may be.
    let started = thread.spawn(move || {
        let Ok(runtime) = runtime::Builder::new_current_thread().enable_time().build() else {
            return;
        };
        sender.send(runtime.handle().clone()).ok();
        runtime.block_on(async {
            gone.cancelled().await;
            stored.cancelled().await;
        });
    });
    started.ok()?;
    receiver.recv().ok()
}

#[cfg(test)]
mod tests;
