//! The time that a caller spends on jobs of others.
//!
//! There are no peers, because only the callers of this crate run jobs of others. The workload is the worst case: other
//! threads post while a caller has the state, and faster than it can run their jobs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread::{self, ThreadId};
use std::time::Instant;

use throng::SerialExecutor;
use tokio::runtime::Handle;

use super::{spin, start};
use crate::areas::on_worker;
use crate::measure::{Rules, Sample, Spin, quantile, thread_cpu_ns};

/// The jobs that are posted behind one caller. For a caller with a capture limit, this is endless.
const JOBS_BEHIND: u64 = 1_000;

/// Measures the longest time from the end of a caller's own job until its `submit` returns.
///
/// Other processes add to that time, but not to the CPU time, so the largest CPU time is recorded as well. So is the
/// mean number of jobs of others that a caller ran.
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
    // The first calls take longer.
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

/// Submits jobs to the idle executor until `end`.
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

/// Submits one job. Returns `None` if another thread ran it.
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
    let returned = Instant::now();
    let end = Mark::now();
    gate.call.store(0, SeqCst);
    let begin = handle.await.expect("the job does not panic");
    if begin.thread != end.thread {
        return None;
    }
    Some(Hold {
        ns: returned.checked_duration_since(begin.at)?.as_nanos() as u64,
        cpu_ns: end.cpu_ns - begin.cpu_ns,
    })
}

/// The time of a call after its own job.
struct Hold {
    ns: u64,
    cpu_ns: u64,
}

/// A moment on a thread.
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

/// Lets other threads post while a caller has the state.
#[derive(Default)]
struct Gate {
    calls: AtomicU64,
    /// The number of the call behind which others post, or 0.
    call: AtomicU64,
    posted: AtomicU64,
    ended: AtomicBool,
}

impl Gate {
    /// Waits until others have started to post.
    fn open(&self) {
        let before = self.posted.load(SeqCst);
        let call = self.calls.fetch_add(1, SeqCst) + 1;
        self.call.store(call, SeqCst);
        while self.posted.load(SeqCst) == before {
            thread::yield_now();
        }
    }

    /// Posts jobs behind each call while it lasts.
    fn post(&self, runtime: &Handle, state: &SerialExecutor<u64>, spin: Spin) {
        let _context = runtime.enter();
        let (mut last, mut behind) = (0, 0);
        while !self.ended.load(SeqCst) {
            let call = self.call.load(SeqCst);
            if call != last {
                (last, behind) = (call, 0);
            }
            if call == 0 || behind == JOBS_BEHIND {
                thread::yield_now();
                continue;
            }
            behind += 1;
            drop(state.post(move |state| spin.apply(state)));
            self.posted.fetch_add(1, SeqCst);
        }
    }
}
