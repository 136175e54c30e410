//! Pools of threads for closures that compute.
//!
//! All pools have two threads. Except where handles are awaited, closures are submitted and forgotten: each counts
//! itself when it runs, and a round ends when the count says that all have run.

mod java;
pub(super) mod peers;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use self::peers::{Pool, Spawner, Throng, all, with_handles};
use super::{Area, Unit, Workload, on_worker, two_workers};
use crate::alloc;
use crate::measure::{Rules, Sample, Section, Spin, rss_kb};

/// Threads of every pool.
const THREADS: usize = 2;

/// Handles that a spawning task has before it awaits them.
const WINDOW: u64 = 1_000;

/// Among so many tasks one is long.
const LONG_EVERY: u64 = 1_000;

/// The length of a long task in nanoseconds.
const LONG_NS: u64 = 1_000_000;

pub(super) const AREA: Area = Area {
    name: "compute",
    about: "pools for closures that compute: throughput, trees, imbalance, idle cost, memory",
    config: "ComputePool::builder().threads(2), everything else by default",
    workloads,
    prepare: Some(java::prepare),
};

fn workloads() -> Vec<Workload> {
    vec![
        outside("outside-1", 1),
        outside("outside-2", 2),
        outside("outside-4", 4),
        Workload::new("work-100ns", Unit::NS_PER_TASK, all(WORK_100NS)),
        Workload::new("spawn-window-1000", Unit::NS_PER_TASK, with_handles()),
        Workload::new("tree-2^20", Unit::NS_PER_TASK, all(Tree)),
        imbalance("imbalance-even", even_places),
        imbalance("imbalance-random", random_places),
        Workload::absolute("behind-a-sleeper", Unit::MS, behind_a_sleeper),
        Workload::absolute("idle-cpu", Unit::CPU_US_PER_S, idle_cpu),
        Workload::absolute("idle-switches", Unit::SWITCHES_PER_S, idle_switches),
        Workload::absolute("burst-memory", Unit::KB, burst_memory),
        Workload::absolute("burst-rss", Unit::KB, burst_rss),
        Workload::absolute("backlog-memory", Unit::KB, backlog_memory),
        Workload::absolute("backlog-rss", Unit::KB, backlog_rss),
    ]
}

fn outside(name: &'static str, producers: u64) -> Workload {
    let work = Outside {
        producers,
        tasks: 5_000_000,
        work_ns: 0,
    };
    let peers = all(work).into_iter().chain([java::outside(work)]);
    Workload::new(name, Unit::NS_PER_TASK, peers.collect())
}

const WORK_100NS: Outside = Outside {
    producers: 1,
    tasks: 2_000_000,
    work_ns: 100,
};

fn imbalance(name: &'static str, places: fn(u64) -> Vec<u64>) -> Workload {
    Workload::new(name, Unit::X_IDEAL, all(Imbalance { places }))
}

/// Something to do with a pool.
trait Work: Copy + 'static {
    fn run<P: Pool>(self, rules: &Rules) -> Sample;
}

/// Counts the closures that have run in this process.
static RAN: Counter = Counter::new();

/// A counter with a stripe for each of the first threads that count, so that no two of them share a cache line.
struct Counter([Stripe; 64]);

#[repr(align(128))]
struct Stripe(AtomicU64);

impl Counter {
    const fn new() -> Self {
        Self([const { Stripe(AtomicU64::new(0)) }; 64])
    }

    fn add_one(&self) {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local!(static OWN: usize = NEXT.fetch_add(1, Relaxed));
        let own = OWN.with(|own| *own) % self.0.len();
        self.0[own].0.fetch_add(1, Relaxed);
    }

    fn sum(&self) -> u64 {
        self.0.iter().map(|stripe| stripe.0.load(Relaxed)).sum()
    }

    /// Waits in short sleeps: a core that looked all the time would be missing to the pool, and a task that tells
    /// would have to know that it is the last one.
    fn wait_for(&self, sum: u64) {
        while self.sum() < sum {
            thread::sleep(Duration::from_micros(200));
        }
    }
}

/// The captures of a closure: enough for most pools to allocate.
#[derive(Clone, Copy)]
struct Task {
    ran: &'static Counter,
    state: u64,
    work: Spin,
}

const _: () = assert!(size_of::<Task>() == 24);

impl Task {
    fn new(state: u64, work: Spin) -> Self {
        Self {
            ran: &RAN,
            state,
            work,
        }
    }

    fn run(mut self) {
        self.work.apply(&mut self.state);
        self.ran.add_one();
    }
}

/// Threads outside the pool submit tasks.
#[derive(Clone, Copy)]
struct Outside {
    producers: u64,
    tasks: u64,
    work_ns: u64,
}

impl Work for Outside {
    fn run<P: Pool>(self, rules: &Rules) -> Sample {
        let work = Spin::of(self.work_ns, rules);
        let round = producers(self.producers, leaked::<P>(), move |pool, tasks| {
            submit(pool, tasks, work)
        });
        rules.measure(rules.scaled(self.tasks), round)
    }
}

fn submit(pool: &impl Pool, tasks: u64, work: Spin) {
    for number in 0..tasks {
        let task = Task::new(number, work);
        pool.execute(move || task.run());
    }
}

/// Starts threads that submit their shares of a round when they are told to. What is returned runs such a round: it
/// ends when everything has run.
fn producers<P: Pool>(
    number: u64,
    pool: &'static P,
    submit: impl Fn(&'static P, u64) + Clone + Send + 'static,
) -> impl FnMut(u64) {
    let (done, all_done) = mpsc::channel();
    let producer = |_| {
        let (order, orders) = mpsc::channel();
        let (submit, done) = (submit.clone(), done.clone());
        // The thread ends when the sending end is dropped with the round.
        thread::spawn(move || {
            for tasks in orders {
                submit(pool, tasks);
                done.send(()).expect("a round waits for its producers");
            }
        });
        order
    };
    let producers: Vec<_> = (0..number).map(producer).collect();
    move |tasks| {
        let sum = RAN.sum() + tasks;
        for (begin, producer) in (0..).zip(&producers) {
            let share = (tasks + begin) / number;
            producer.send(share).expect("a producer waits for orders");
        }
        for _ in &producers {
            all_done
                .recv()
                .expect("a producer submits all of its share");
        }
        RAN.wait_for(sum);
    }
}

/// A task on the two workers of a runtime spawns closures and awaits their handles, in windows.
fn spawn_window<P: Spawner>(rules: &Rules) -> Sample {
    let runtime = two_workers().build().expect("a runtime can be built");
    let pool = Box::leak(Box::new(P::start_beside(&runtime)));
    rules.measure(rules.scaled(500_000), |tasks| {
        on_worker(&runtime, spawn_windows(&*pool, tasks));
    })
}

async fn spawn_windows<P: Spawner>(pool: &P, tasks: u64) {
    let mut handles = Vec::with_capacity(WINDOW as usize);
    for begin in (0..tasks).step_by(WINDOW as usize) {
        let end = tasks.min(begin + WINDOW);
        handles.extend((begin..end).map(|task| pool.spawn(move || task)));
        for (handle, task) in handles.drain(..).zip(begin..) {
            assert_eq!(handle.await, task);
        }
    }
}

/// A binary tree, of which each task submits its two children.
#[derive(Clone, Copy)]
struct Tree;

impl Work for Tree {
    fn run<P: Pool>(self, rules: &Rules) -> Sample {
        let pool = leaked::<P>();
        rules.measure(rules.scaled((1 << 20) - 1), |tasks| {
            let sum = RAN.sum() + tasks;
            submit_tree(pool, tasks);
            RAN.wait_for(sum);
        })
    }
}

/// Submits the root of a tree of so many tasks.
fn submit_tree<P: Pool>(pool: &'static P, tasks: u64) {
    pool.execute(move || {
        let below = tasks - 1;
        for subtree in [below / 2, below - below / 2] {
            if subtree > 0 {
                submit_tree(pool, subtree);
            }
        }
        RAN.add_one();
    });
}

/// A few long tasks among many tiny ones. The ideal is that both threads work on long ones all the time, and that
/// the tiny ones take none.
#[derive(Clone, Copy)]
struct Imbalance {
    /// Where the long ones among so many tasks are, in order.
    places: fn(u64) -> Vec<u64>,
}

impl Work for Imbalance {
    fn run<P: Pool>(self, rules: &Rules) -> Sample {
        let long = Spin::of(LONG_NS, rules);
        let round = producers(1, leaked::<P>(), move |pool, tasks| {
            submit_between(pool, tasks, &(self.places)(tasks), long);
        });
        let sample = rules.measure(rules.scaled(500_000), round);
        let ideal_ns = LONG_NS as f64 / LONG_EVERY as f64 / THREADS as f64;
        let times_ideal = sample.value / ideal_ns;
        sample.with_value(times_ideal)
    }
}

/// Submits `tasks`, of which those at `places` do `long` work.
fn submit_between(pool: &impl Pool, tasks: u64, places: &[u64], long: Spin) {
    let mut places = places.iter().copied().peekable();
    for number in 0..tasks {
        let is_long = places.next_if_eq(&number).is_some();
        let task = Task::new(number, if is_long { long } else { Spin::NONE });
        pool.execute(move || task.run());
    }
}

fn even_places(tasks: u64) -> Vec<u64> {
    (0..tasks / LONG_EVERY)
        .map(|long| long * LONG_EVERY)
        .collect()
}

/// As many as there are of the even ones, and the same in every process.
fn random_places(tasks: u64) -> Vec<u64> {
    let mut seed = 1;
    let mut places = std::collections::BTreeSet::new();
    while (places.len() as u64) < tasks / LONG_EVERY {
        places.insert(split_mix(&mut seed) % tasks);
    }
    places.into_iter().collect()
}

/// The generator splitmix64.
fn split_mix(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*seed ^ (*seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Measures how long ten tiny closures of a batch take if the batch begins with a closure that
/// sleeps for a second.
fn behind_a_sleeper(_: &Rules) -> Sample {
    let pool = leaked::<Throng>();
    // The threads are there, and at rest.
    producers(1, pool, submit_tiny)(1_000);
    thread::sleep(Duration::from_millis(100));
    let section = Section::begin();
    let sum = RAN.sum() + 10;
    pool.0.execute_batch((0..=10).map(|number| {
        move || match number {
            0 => thread::sleep(Duration::from_secs(1)),
            _ => RAN.add_one(),
        }
    }));
    RAN.wait_for(sum);
    let cost = section.end();
    cost.absolute(cost.elapsed.as_secs_f64() * 1e3)
}

/// CPU time that a pool takes while it has nothing to do.
fn idle_cpu(rules: &Rules) -> Sample {
    idle(rules, |cpu_ns, _| cpu_ns as f64 / 1e3)
}

/// Context switches meanwhile.
fn idle_switches(rules: &Rules) -> Sample {
    idle(rules, |_, switches| switches as f64)
}

fn idle(rules: &Rules, what: fn(u64, u64) -> f64) -> Sample {
    producers(1, leaked::<Throng>(), submit_tiny)(100_000);
    // The threads come to rest first.
    thread::sleep(Duration::from_millis(300));
    let section = Section::begin();
    // Long enough for the one wake-up of this thread to matter little.
    thread::sleep(rules.target * 4);
    let cost = section.end();
    let value = what(cost.cpu_ns, cost.ctx_switches) / cost.elapsed.as_secs_f64();
    cost.absolute(value)
}

/// Memory that a pool keeps from its allocator after a burst.
fn burst_memory(rules: &Rules) -> Sample {
    alloc::track_live();
    burst(rules, submit_tiny, live_kb)
}

/// Memory that the process keeps from the system after a burst.
fn burst_rss(rules: &Rules) -> Sample {
    burst(rules, submit_tiny, resident_kb)
}

/// As [`burst_memory`], of a burst that is queued as a whole before any of it runs.
fn backlog_memory(rules: &Rules) -> Sample {
    alloc::track_live();
    burst(rules, submit_backlog, live_kb)
}

/// As [`burst_rss`], of a burst that is queued as a whole before any of it runs.
fn backlog_rss(rules: &Rules) -> Sample {
    burst(rules, submit_backlog, resident_kb)
}

/// Measures by how much `held` is higher after a burst than before, while the submitting thread
/// still lives.
fn burst(rules: &Rules, submit: fn(&'static Throng, u64), held: fn() -> f64) -> Sample {
    let mut round = producers(1, leaked(), submit);
    round(10_000);
    let before = held();
    let section = Section::begin();
    round(rules.scaled(5_000_000));
    thread::sleep(Duration::from_secs(2));
    let after = held();
    section.end().absolute(after - before)
}

fn live_kb() -> f64 {
    alloc::live_bytes() as f64 / 1024.0
}

fn resident_kb() -> f64 {
    rss_kb() as f64
}

/// Submits tiny tasks behind some that occupy all threads until everything is submitted.
fn submit_backlog(pool: &impl Pool, tasks: u64) {
    let gate = Arc::new(Mutex::new(()));
    let closed = gate.lock();
    for _ in 0..THREADS {
        let gate = gate.clone();
        pool.execute(move || drop(gate.lock()));
    }
    submit_tiny(pool, tasks);
    drop(closed);
}

fn submit_tiny(pool: &impl Pool, tasks: u64) {
    submit(pool, tasks, Spin::NONE);
}

/// A pool that lives as long as the process, so that a task can have it without counting who has.
fn leaked<P: Pool>() -> &'static P {
    Box::leak(Box::new(P::start()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_to_place_long_tasks_place_as_many() {
        assert_eq!(even_places(3_000), [0, 1_000, 2_000]);
        let random = random_places(3_000);
        assert_eq!(random.len(), 3);
        assert!(random.is_sorted() && random.iter().all(|&place| place < 3_000));
    }
}
