//! Operations that are not awaited.

use std::thread;
use std::time::Duration;

use tokio::runtime::Runtime;

use super::peers::Serial;
use super::{Work, on_tasks, operations, start};
use crate::alloc;
use crate::areas::YieldEvery;
use crate::measure::{Rules, Sample, Section, Spin, rss_anon_kb};

/// Tasks that await only the last of their operations, which waits for all before it.
#[derive(Clone, Copy)]
pub(super) struct Post {
    pub(super) tasks: u64,
}

impl Work for Post {
    fn run<S: Serial>(self, rules: &Rules) -> Sample {
        let (runtime, state) = start::<S>();
        rules.measure(rules.scaled(operations(0)), |operations| {
            post_from(self.tasks, &runtime, &state, operations);
        })
    }
}

/// As [`Post`], of operations that the caller may do itself: ours drops the handle of `submit`.
#[derive(Clone, Copy)]
pub(super) struct Forget {
    pub(super) tasks: u64,
}

impl Work for Forget {
    fn run<S: Serial>(self, rules: &Rules) -> Sample {
        let (runtime, state) = start::<S>();
        rules.measure(rules.scaled(operations(0)), |operations| {
            let share = operations.div_ceil(self.tasks);
            on_tasks(&runtime, self.tasks, || forget(state.clone(), share));
        })
    }
}

/// The growth of the resident memory by a million posted operations. The part that is still in use is recorded as well;
/// the allocator keeps the rest.
#[derive(Clone, Copy)]
pub(super) struct Memory {
    pub(super) tasks: u64,
}

impl Work for Memory {
    fn run<S: Serial>(self, rules: &Rules) -> Sample {
        alloc::track_live();
        let (runtime, state) = start::<S>();
        // So that the memory of the runtime's tasks is not counted.
        post_from(self.tasks, &runtime, &state, 100 * self.tasks);
        let before = Footprint::now();
        let section = Section::begin();
        let operations = rules.scaled(1_000_000);
        post_from(self.tasks, &runtime, &state, operations);
        let after = Footprint::now();
        let sample = section.end().absolute(after.anon_kb - before.anon_kb);
        sample.with_fact("in_use_kb", after.live_kb - before.live_kb)
    }
}

/// The memory of this process.
struct Footprint {
    anon_kb: f64,
    live_kb: f64,
}

impl Footprint {
    /// Measured after a pause, in which other threads free what they are about to free.
    fn now() -> Self {
        thread::sleep(Duration::from_millis(100));
        Self {
            anon_kb: rss_anon_kb() as f64,
            live_kb: alloc::live_bytes() as f64 / 1024.0,
        }
    }
}

fn post_from<S: Serial>(tasks: u64, runtime: &Runtime, state: &S, operations: u64) {
    let share = operations.div_ceil(tasks);
    on_tasks(runtime, tasks, || post(state.clone(), share));
}

async fn post<S: Serial>(state: S, operations: u64) {
    let mut yields = YieldEvery::default();
    for _ in 1..operations {
        state.post(Spin::NONE).await;
        yields.step().await;
    }
    state.operate(Spin::NONE).await;
}

async fn forget<S: Serial>(state: S, operations: u64) {
    let mut yields = YieldEvery::default();
    for _ in 1..operations {
        state.forget(Spin::NONE).await;
        yields.step().await;
    }
    state.operate(Spin::NONE).await;
}
