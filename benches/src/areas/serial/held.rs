//! For how long a caller is held by jobs that are not its own.
//!
//! Ours alone, since nobody else's callers work for others. What they would do at worst is not left to chance: others
//! post only while a caller has the state, and then faster than it can work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread::{self, ThreadId};
use std::time::Instant;

use throng::SerialExecutor;
use tokio::runtime::Handle;

use super::{spin, start};
use crate::areas::on_worker;
use crate::measure::{Rules, Sample, Spin, quantile, thread_cpu_ns};

/// Jobs that are posted behind one caller: without end, as far as a caller with a limit can tell.
const BEHIND: u64 = 1_000;

/// The longest time from the end of a caller's own job until it is let go.
///
/// A thread of another process adds to that time, but not to the CPU time, the most of which is told as well, as is the
/// number of jobs of others that a caller ran on average.
pub(super) fn held(rules: &Rules, ns: u64) -> Sample {
    let (runtime, state) = start::<SerialExecutor<u64>>();
    let spin = spin(ns, rules);
    let gate = Arc::new(Gate::default());
    let producer = {
        let (runtime, state, gate) = (runtime.handle().clone(), state.clone(), gate.clone());
        thread::spawn(move || gate.post(&runtime, &state, spin))
    };
    let calls = |time| {
        let end = Instant::now() + time;
        on_worker(&runtime, call_until(state.clone(), gate.clone(), spin, end))
    };
    // What is done for the first time takes longer.
    calls(rules.target / 10);
    let before = state.metrics().captured;
    let mut holds = Vec::new();
    let sample = rules.measure_once(1, |_| holds = calls(rules.target));
    let captured = state.metrics().captured - before;
    gate.ended.store(true, SeqCst);
    producer.join().expect("the producer does not panic");
    let mut times: Vec<u64> = holds.iter().map(|hold| hold.ns).collect();
    let cpu_ns = holds.iter().map(|hold| hold.cpu_ns).max();
    sample
        .spread_over(holds.len() as u64)
        .with_value(quantile(&mut times, 1.0) as f64 / 1e3)
        .with_fact("median_us", quantile(&mut times, 0.5) as f64 / 1e3)
        .with_fact("cpu_us", cpu_ns.expect("a caller was held") as f64 / 1e3)
        .with_fact("captured", captured as f64 / holds.len() as f64)
}

/// Submits a job to the idle executor, again and again.
async fn call_until(
    state: SerialExecutor<u64>,
    gate: Arc<Gate>,
    spin: Spin,
    end: Instant,
) -> Vec<Hold> {
    let mut holds = Vec::new();
    while holds.is_empty() || Instant::now() < end {
        while state.try_run(|_| ()).is_err() {
            tokio::task::yield_now().await;
        }
        holds.extend(call(&state, &gate, spin).await);
    }
    holds
}

/// `None`: somebody else was faster, and ran the job.
async fn call(state: &SerialExecutor<u64>, gate: &Arc<Gate>, spin: Spin) -> Option<Hold> {
    let own = {
        let gate = gate.clone();
        move |state: &mut u64| {
            gate.open();
            spin.apply(state);
            Mark::now()
        }
    };
    let handle = state.submit(own);
    let let_go = Instant::now();
    let end = Mark::now();
    gate.call.store(0, SeqCst);
    let begin = handle.await.expect("the job does not panic");
    if begin.thread != end.thread {
        return None;
    }
    Some(Hold {
        ns: let_go.checked_duration_since(begin.at)?.as_nanos() as u64,
        cpu_ns: end.cpu_ns - begin.cpu_ns,
    })
}

/// What a call took beyond its own job.
struct Hold {
    ns: u64,
    cpu_ns: u64,
}

/// A moment in the life of a thread.
struct Mark {
    thread: ThreadId,
    cpu_ns: u64,
    at: Instant,
}

impl Mark {
    fn now() -> Self {
        Self {
            thread: thread::current().id(),
            cpu_ns: thread_cpu_ns(),
            at: Instant::now(),
        }
    }
}

/// Lets others post while a caller has the state.
#[derive(Default)]
struct Gate {
    calls: AtomicU64,
    /// The number of the call that others are to post behind, or 0.
    call: AtomicU64,
    posted: AtomicU64,
    ended: AtomicBool,
}

impl Gate {
    /// Waits until others have begun to post.
    fn open(&self) {
        let before = self.posted.load(SeqCst);
        let call = self.calls.fetch_add(1, SeqCst) + 1;
        self.call.store(call, SeqCst);
        while self.posted.load(SeqCst) == before {
            thread::yield_now();
        }
    }

    /// Posts jobs behind each call, as long as it lasts.
    fn post(&self, runtime: &Handle, state: &SerialExecutor<u64>, spin: Spin) {
        let _context = runtime.enter();
        let (mut last, mut behind) = (0, 0);
        while !self.ended.load(SeqCst) {
            let call = self.call.load(SeqCst);
            if call != last {
                (last, behind) = (call, 0);
            }
            if call == 0 || behind == BEHIND {
                thread::yield_now();
                continue;
            }
            behind += 1;
            drop(state.post(move |state| spin.apply(state)));
            self.posted.fetch_add(1, SeqCst);
        }
    }
}
