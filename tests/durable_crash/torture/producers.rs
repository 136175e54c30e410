//! [`Producers`]: those who store chores while the fleet is tortured.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use throng::durable::{DurableClient, DurableHandle, Priority, SpawnOptions, TaskId};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::chore::{Act, Chore, Kind, Lane, Origin};
use crate::job::{Job, Outcome, now};
use crate::support::{Numbers, within};

/// A chore that a producer of this process has spawned.
pub(super) struct Spawned {
    pub(super) handle: DurableHandle<Outcome>,
    pub(super) chore: Chore,
    /// The times at which the spawn has begun, and at which it was answered.
    pub(super) began: u64,
    pub(super) answered: u64,
}

impl Spawned {
    pub(super) fn id(&self) -> TaskId {
        self.handle.id()
    }

    /// Returns `true` if the chore itself was stored.
    pub(super) fn is_stored(&self) -> bool {
        !self.handle.was_joined() && !self.handle.has_replaced()
    }
}

/// A record of the requests of the producers of this process.
#[derive(Default)]
pub(super) struct Produced {
    pub(super) spawned: Vec<Spawned>,
    /// The tasks that held the keys of chores that were rejected.
    pub(super) rejected: Vec<TaskId>,
    /// The tasks that were told to stop.
    pub(super) cancelled: Vec<TaskId>,
}

pub(super) struct Producers {
    shared: Arc<Shared>,
    running: JoinSet<()>,
}

/// The orders to the producers, and what they have done.
#[derive(Default)]
struct Shared {
    is_over: AtomicBool,
    is_paused: AtomicBool,
    produced: Mutex<Produced>,
}

impl Shared {
    fn produced(&self) -> MutexGuard<'_, Produced> {
        self.produced.lock().expect("nobody panics here")
    }
}

/// The number of groups.
const GROUPS: u64 = 20;
/// The number of keys of each kind in this process; the storers have as many of their own.
pub(super) const KEYS: u64 = 4;
/// The pause between two steps of a producer.
const STEP: Duration = Duration::from_millis(100);

impl Producers {
    /// One producer for each queue, and one for each kind of keys, so that it knows which spawn was the last.
    pub(super) fn start(client: &DurableClient) -> Self {
        let shared = Arc::<Shared>::default();
        let mut running = JoinSet::new();
        let queues = [
            Source::Plain,
            Source::Limited,
            Source::Grouped,
            Source::Rated,
        ];
        let sources = queues.into_iter().chain(Kind::ALL.map(Source::Keys));
        for (n, source) in (0..).zip(sources) {
            let producer = Producer {
                client: client.clone(),
                random: Numbers::new(u64::from(std::process::id()) + n),
                steps: 0,
                serial: 0,
                shared: Arc::clone(&shared),
            };
            running.spawn(producer.run(source));
        }
        Self { shared, running }
    }

    /// Has them store nothing for a while, or go on.
    pub(super) fn pause_if(&self, is_paused: bool) {
        self.shared.is_paused.store(is_paused, Ordering::SeqCst);
    }

    /// Returns what they have done so far.
    pub(super) fn produced(&self) -> MutexGuard<'_, Produced> {
        self.shared.produced()
    }

    /// Ends them, and returns what they have done.
    pub(super) async fn end(mut self) -> Produced {
        self.shared.is_over.store(true, Ordering::SeqCst);
        while let Some(ended) = within(self.running.join_next()).await {
            ended.expect("nobody panics");
        }
        std::mem::take(&mut self.produced())
    }
}

/// The chores of a producer.
#[derive(Clone, Copy)]
enum Source {
    Plain,
    Limited,
    Grouped,
    Rated,
    Keys(Kind),
}

struct Producer {
    client: DurableClient,
    random: Numbers,
    steps: u64,
    serial: u64,
    shared: Arc<Shared>,
}

impl Producer {
    async fn run(mut self, source: Source) {
        while !self.shared.is_over.load(Ordering::SeqCst) {
            if !self.shared.is_paused.load(Ordering::SeqCst) {
                self.step(source).await;
            }
            sleep(STEP).await;
        }
    }

    async fn step(&mut self, source: Source) {
        self.steps += 1;
        match source {
            Source::Plain => self.store_plain().await,
            Source::Limited => drop(self.store_all(4, limited).await),
            Source::Grouped => drop(self.store_all(6, grouped).await),
            // Many at once, so that an excess over the rate is seen.
            Source::Rated if self.steps % 25 == 1 => drop(self.store_all(36, rated).await),
            Source::Rated => {}
            Source::Keys(kind) => self.store_keyed(kind).await,
        }
    }

    /// Stores chores in one request. Returns their ids.
    async fn store_all(
        &mut self,
        count: usize,
        make: fn(&mut Numbers, u64) -> (Chore, SpawnOptions),
    ) -> Vec<TaskId> {
        let first = self.serial;
        self.serial += count as u64;
        let random = &mut self.random;
        let made: Vec<_> = (first..self.serial).map(|n| make(random, n)).collect();
        let chores: Vec<_> = made.iter().map(|(chore, _)| chore.clone()).collect();
        let began = now();
        let handles = self.client.spawn_all_with(made).await;
        let answered = now();
        let handles = handles.expect("they are stored");
        let ids = handles.iter().map(DurableHandle::id).collect();
        let handles = handles.into_iter().zip(chores);
        let spawned = handles.map(|(handle, chore)| Spawned {
            handle,
            chore,
            began,
            answered,
        });
        self.shared.produced().spawned.extend(spawned);
        ids
    }

    /// Stores plain chores, and cancels some.
    async fn store_plain(&mut self) {
        let stored = self.store_all(4, plain).await;
        if self.random.below(4) == 0 {
            self.cancel(stored[3]).await;
        }
    }

    async fn cancel(&mut self, id: TaskId) {
        let cancelled = self.client.cancel(&[id]).await;
        cancelled.expect("the store answers");
        self.shared.produced().cancelled.push(id);
    }

    /// Stores chores with keys, one after the other.
    async fn store_keyed(&mut self, kind: Kind) {
        for _ in 0..2 {
            self.serial += 1;
            let number = self.random.below(KEYS);
            let act = any_act(&mut self.random);
            let (chore, options) = keyed(kind, number, self.serial, act);
            self.store(chore, options).await;
        }
    }

    /// Stores a chore, which may be rejected.
    async fn store(&mut self, chore: Chore, options: SpawnOptions) {
        let began = now();
        let handle = self.client.spawn_with(chore.clone(), options).await;
        let answered = now();
        match handle {
            Ok(handle) => self.shared.produced().spawned.push(Spawned {
                handle,
                chore,
                began,
                answered,
            }),
            Err(error) => {
                assert!(error.is_conflict(), "{error}");
                let holder = error.task_id().expect("a task holds the key");
                self.shared.produced().rejected.push(holder);
            }
        }
    }
}

fn any_act(random: &mut Numbers) -> Act {
    match random.below(40) {
        0 => Act::Fatal,
        1 => Act::Do(Job::Panic(1)),
        2 | 3 => Act::Do(Job::Fail(1)),
        4 => Act::Do(Job::Snooze),
        _ => Act::Do(Job::Work(1 + random.below(20))),
    }
}

fn free(lane: Lane, serial: u64, act: Act) -> Chore {
    Chore {
        lane,
        origin: Origin::Free,
        serial,
        act,
    }
}

/// Returns a chore with a key, and its options.
pub(super) fn keyed(kind: Kind, number: u64, serial: u64, act: Act) -> (Chore, SpawnOptions) {
    let lane = match number % 2 {
        0 => Lane::Plain,
        _ => Lane::Default,
    };
    let chore = Chore {
        origin: Origin::Keyed(kind, number),
        ..free(lane, serial, act)
    };
    (chore, lane.options().key(kind.key(number)))
}

fn plain(random: &mut Numbers, serial: u64) -> (Chore, SpawnOptions) {
    let delay = Duration::from_millis(random.below(8).saturating_sub(6) * 50);
    let chore = free(Lane::Plain, serial, any_act(random));
    (
        chore,
        any_priority(random, Lane::Plain.options()).delay(delay),
    )
}

/// One in `period` acts takes so long that another worker still does it when one that was frozen goes on.
fn any_slow_act(random: &mut Numbers, period: u64) -> Act {
    match random.below(period) {
        0 => Act::Do(Job::Work(1000)),
        _ => any_act(random),
    }
}

fn limited(random: &mut Numbers, serial: u64) -> (Chore, SpawnOptions) {
    let chore = free(Lane::Limited, serial, any_slow_act(random, 60));
    (chore, any_priority(random, Lane::Limited.options()))
}

fn grouped(random: &mut Numbers, serial: u64) -> (Chore, SpawnOptions) {
    let act = match random.below(15) {
        0 => Act::Hold(50),
        _ => any_slow_act(random, 20),
    };
    let group = format!("group-{}", random.below(GROUPS));
    let options = Lane::Grouped.options().group(group);
    (free(Lane::Grouped, serial, act), options)
}

fn rated(random: &mut Numbers, serial: u64) -> (Chore, SpawnOptions) {
    let chore = free(Lane::Rated, serial, any_act(random));
    (chore, Lane::Rated.options())
}

fn any_priority(random: &mut Numbers, options: SpawnOptions) -> SpawnOptions {
    let priorities = [Priority::High, Priority::Normal, Priority::Low];
    options.priority(priorities[random.below(3) as usize])
}

/// Returns a chore of a process that is killed while it stores chores.
pub(crate) fn any_chore(random: &mut Numbers) -> (Chore, SpawnOptions) {
    let act = any_act(random);
    match random.below(4) {
        0 => limited(random, 0),
        1 => plain(random, 0),
        _ => {
            let kind = [Kind::UntilEnd, Kind::UntilStarted, Kind::Window][random.below(3) as usize];
            keyed(kind, KEYS + random.below(KEYS), 0, act)
        }
    }
}
