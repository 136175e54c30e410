//! The costs of an idle pool, and what it keeps after a burst.

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use super::bursts::burst;
use super::peers::{Pool, Shape, Throng};
use super::steady::submit_trivial;
use super::{Setup, Work};
use crate::areas::on_worker;
use crate::measure::{Rules, Sample, Section, note_threads, rss_anon_kb, rss_kb};

/// Threads that are left two keep-alives after a burst, under 50 tiny tasks a second.
#[derive(Clone, Copy)]
pub(super) struct ThreadsAfterBurst;

impl Work for ThreadsAfterBurst {
    fn run<P: Pool>(self, rules: &Rules) -> Sample {
        let keep_alive = Duration::from_millis(if rules.quick { 100 } else { 300 });
        let setup = Setup::<P>::new(Shape::of(64).keep_alive(keep_alive));
        let section = Section::begin();
        make_burst(&setup);
        note_threads();
        on_worker(&setup.runtime, trickle(setup.pool.clone(), 2 * keep_alive));
        let left = setup.threads();
        section.end().absolute(left as f64)
    }
}

fn make_burst<P: Pool>(setup: &Setup<P>) {
    let length = Duration::from_millis(20);
    on_worker(&setup.runtime, burst(setup.pool.clone(), 64, length));
}

async fn trickle<P: Pool>(pool: P, length: Duration) {
    let pause = Duration::from_millis(20);
    for _ in 0..length.as_millis() / pause.as_millis() {
        pool.run(|| ()).await;
        tokio::time::sleep(pause).await;
    }
}

/// The keep-alive of [`Memory`].
const ONE_SECOND: Duration = Duration::from_secs(1);

/// Resident memory after a million trivial closures and two keep-alives without any, minus that before the first one.
/// The allocated part of it is reported as well: the rest is code that has run for the first time.
#[derive(Clone, Copy)]
pub(super) struct Memory;

impl Work for Memory {
    fn run<P: Pool>(self, rules: &Rules) -> Sample {
        let setup = Setup::<P>::new(Shape::of(64).keep_alive(ONE_SECOND));
        // The memory that the runtime takes at its first task does not count.
        on_worker(&setup.runtime, async {});
        let before = (rss_kb(), rss_anon_kb());
        let section = Section::begin();
        let tasks = rules.scaled(1_000_000);
        on_worker(&setup.runtime, submit_trivial(setup.pool.clone(), tasks));
        note_threads();
        thread::sleep(2 * ONE_SECOND);
        let grown = |before, after| after as f64 - before as f64;
        let allocated = grown(before.1, rss_anon_kb());
        let sample = section.end().absolute(grown(before.0, rss_kb()));
        sample.with_fact("allocated_kb", allocated)
    }
}

/// Closures that wait in [`MemoryQueued`].
const QUEUED: u64 = 200_000;

/// The growth of resident memory while [`QUEUED`] closures of 8 bytes wait. All threads are busy, and nobody awaits the
/// results. The memory of the threads does not count.
#[derive(Clone, Copy)]
pub(super) struct MemoryQueued;

impl Work for MemoryQueued {
    fn run<P: Pool>(self, rules: &Rules) -> Sample {
        let threads = 4;
        let setup = Setup::<P>::new(Shape::of(threads));
        let _context = setup.runtime.enter();
        let (started, all_started) = mpsc::channel();
        let gates: Vec<_> = (0..threads)
            .map(|_| occupy(&setup.pool, started.clone()))
            .collect();
        all_started.iter().take(threads).for_each(drop);
        let before = rss_anon_kb();
        let section = Section::begin();
        let (last, end) = mpsc::channel::<()>();
        let last = Arc::new(last);
        for _ in 0..rules.scaled(QUEUED) {
            let last = Arc::clone(&last);
            setup.pool.execute(move || drop(last));
        }
        let grown = rss_anon_kb().saturating_sub(before);
        let sample = section.end().absolute(grown as f64);
        drop((gates, last));
        assert!(end.recv().is_err(), "nobody sends");
        sample
    }
}

/// Keeps a thread of the pool busy until the returned gate is dropped.
fn occupy<P: Pool>(pool: &P, started: mpsc::Sender<()>) -> mpsc::Sender<()> {
    let (gate, opened) = mpsc::channel();
    pool.execute(move || {
        started.send(()).expect("the measuring thread waits");
        assert!(opened.recv().is_err(), "nobody sends");
    });
    gate
}

/// The CPU time of an idle pool that keeps the threads of a burst.
pub(super) fn idle_cpu(rules: &Rules) -> Sample {
    idle(rules, |cpu_ns, _| cpu_ns as f64 / 1e3)
}

/// The context switches of such a pool.
pub(super) fn idle_switches(rules: &Rules) -> Sample {
    idle(rules, |_, switches| switches as f64)
}

fn idle(rules: &Rules, what: fn(u64, u64) -> f64) -> Sample {
    // The pool must live until the end, and keep its threads.
    let setup = Setup::<Throng>::new(Shape::of(64));
    make_burst(&setup);
    // First, the last threads become idle.
    thread::sleep(Duration::from_millis(100));
    let section = Section::begin();
    // Long enough that the wake-up of this thread matters little.
    thread::sleep(rules.target * 4);
    let cost = section.end();
    let value = what(cost.cpu_ns, cost.ctx_switches) / cost.elapsed.as_secs_f64();
    cost.absolute(value)
}
