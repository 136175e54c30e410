//! [`Engine`]: what a client has running, on a thread of its own, or on that of the store.
//!
//! The thread sends what is spawned ([`line`](mod@line), [`lane`]), looks after those that are awaited ([`waiters`]), and
//! runs the workers of the process ([`Worker`](super::executor::worker::Worker)). No user code runs there, so none can
//! keep a lease from being renewed; and it serves every runtime of the process, and ends with none.

use std::sync::{Arc as StdArc, Weak};
use std::time::Duration;

use tokio::runtime::{self, Handle};
use tokio::sync::{OnceCell, mpsc};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use self::lane::Lanes;
use self::line::Line;
use self::patience::PATIENCE;
use self::waiters::Waiters;
use self::watched::Watched;
use super::error::Failure;
use super::executor::worker::Message;
use super::store::{Backend, Epoch, Event, Store};
use crate::sync::thread;
use crate::sync::{Mutex, lock};

pub(crate) mod decoder;
mod lane;
pub(crate) mod line;
pub(crate) mod patience;
pub(crate) mod waiters;
mod watched;

/// What a client has running.
pub(crate) struct Engine {
    pub(crate) store: StdArc<dyn Backend>,
    /// What messages call the store.
    pub(crate) queue: StdArc<str>,
    pub(crate) waiters: StdArc<Waiters>,
    pub(crate) line: StdArc<Line>,
    workers: Mutex<Vec<mpsc::UnboundedSender<Message>>>,
    /// The highest epoch that this client has received.
    floor: Mutex<Epoch>,
    /// The thread; nothing if the system refused one.
    runtime: Option<Handle>,
    /// Ends the duties.
    stop: CancellationToken,
    /// Cancelled when all spawned tasks are stored and no more are accepted.
    stored: CancellationToken,
    /// Ends the thread.
    gone: CancellationToken,
    closed: OnceCell<Result<(), Failure>>,
}

impl Engine {
    pub(crate) fn start(store: Store) -> StdArc<Self> {
        let store: StdArc<dyn Backend> = StdArc::new(Watched::new(store.0));
        let [stop, stored, gone] = [0; 3].map(|_| CancellationToken::new());
        let runtime = match store.runtime() {
            Some(runtime) => Some(runtime.clone()),
            None => start_thread(gone.clone(), stored.clone()),
        };
        let line = StdArc::new(Line::new());
        let waiters = StdArc::new(Waiters::default());
        let engine = StdArc::new(Self {
            queue: store.name().into(),
            store: StdArc::clone(&store),
            waiters: StdArc::clone(&waiters),
            line: StdArc::clone(&line),
            workers: Mutex::default(),
            floor: Mutex::default(),
            runtime,
            stop: stop.clone(),
            stored: stored.clone(),
            gone,
            closed: OnceCell::new(),
        });
        let lanes = Lanes::new(StdArc::clone(&store), line);
        // It is told also if there is no thread.
        let stored = stored.drop_guard();
        engine.run_to_end(async move {
            tokio::select! {
                () = lanes.run() => {}
                () = after(stop) => {}
            }
            drop(stored);
        });
        engine.run(StdArc::clone(&waiters).run(StdArc::clone(&store)));
        engine.run(dispatch(StdArc::downgrade(&engine), store.events()));
        if engine.runtime.is_none() {
            waiters.close();
        }
        engine
    }

    /// Runs a duty on the thread, until the engine is dropped. Without a thread, it is dropped.
    pub(crate) fn run(&self, duty: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.run_to_end(async move { _ = stop.run_until_cancelled(duty).await });
    }

    /// The same, also if the engine is dropped.
    pub(crate) fn run_to_end(&self, duty: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = &self.runtime {
            runtime.spawn(duty);
        }
    }

    /// Returns the runtime that drives the duties and their timers, unless they have ended.
    pub(crate) fn runtime(&self) -> Option<&Handle> {
        let runtime = self.runtime.as_ref();
        runtime.filter(|_| !self.stop.is_cancelled())
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

    /// Ends all duties in order, and then the store. It does so once, however often it is called.
    pub(crate) async fn close(&self) -> Result<(), Failure> {
        let closed = self.closed.get_or_init(|| async {
            self.line.close();
            self.end_workers().await;
            self.stored.cancelled().await;
            self.stop.cancel();
            self.waiters.close();
            self.store.close().await
        });
        closed.await.clone()
    }

    async fn end_workers(&self) {
        self.tell_workers(|| Message::Shutdown(Duration::ZERO));
        let workers = lock(&self.workers).clone();
        for worker in workers {
            worker.closed().await;
        }
    }

    /// Has a worker told what concerns it, until it is gone.
    pub(crate) fn add_worker(&self, worker: mpsc::UnboundedSender<Message>) {
        let mut workers = lock(&self.workers);
        workers.retain(|worker| !worker.is_closed());
        workers.push(worker);
    }

    fn tell_workers(&self, message: impl Fn() -> Message) {
        for worker in &*lock(&self.workers) {
            worker.send(message()).ok();
        }
    }

    fn on(&self, event: Event) {
        match event {
            Event::Ready => {
                self.waiters.recovered();
                self.tell_workers(|| Message::Wake);
            }
            Event::Wake => self.tell_workers(|| Message::Wake),
            Event::Ended(ids) => self.waiters.look_at(ids),
            Event::Seen(ends) => ends
                .into_iter()
                .for_each(|(id, seen)| self.waiters.heard(id, seen)),
            Event::Cancel(ids) => self.tell_workers(|| Message::Cancel(ids.clone())),
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.line.close();
        self.stop.cancel();
        self.gone.cancel();
    }
}

/// Passes on what happens in the store. It holds no engine while it waits: that would never end.
async fn dispatch(engine: Weak<Engine>, mut events: mpsc::UnboundedReceiver<Event>) {
    while let Some(event) = events.recv().await {
        let Some(engine) = engine.upgrade() else {
            return;
        };
        engine.on(event);
    }
}

/// Some time after everything else has been stopped: for as long as it is worth while to wait for a store.
async fn after(stopped: CancellationToken) {
    stopped.cancelled().await;
    sleep(PATIENCE).await;
}

/// Starts a thread that drives a runtime until the engine is `gone`, and the lanes have `stored` everything and
/// closed their sessions.
fn start_thread(gone: CancellationToken, stored: CancellationToken) -> Option<Handle> {
    let (sender, receiver) = std::sync::mpsc::channel();
    let thread = thread::Builder::new().name("throng-durable".into());
    // Made there: a runtime must not be dropped where the caller may be, in another.
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
