//! Many closures that compute for a moment: creating a thread for each costs more than the closures.

use super::peers::{Pool, Shape};
use super::{Setup, Work};
use crate::areas::on_worker;
use crate::measure::{Rules, Sample, Spin};

/// Closures in a storm.
const TASKS: u64 = 1_000;

/// A thousand closures of 10 us for a pool of up to 512 threads that has not run anything yet.
#[derive(Clone, Copy)]
pub(super) struct Storm {
    /// The value of the row, given nanoseconds per task and the threads of the pool.
    figure: fn(f64, u64) -> f64,
}

impl Storm {
    /// Nanoseconds per task.
    pub(super) const TIME: Self = Self {
        figure: |ns_per_task, _| ns_per_task,
    };

    /// The largest number of threads: none exits so soon, so they are counted at the end.
    pub(super) const THREADS: Self = Self {
        figure: |_, threads| threads as f64,
    };
}

impl Work for Storm {
    fn run<P: Pool>(self, rules: &Rules) -> Sample {
        let setup = Setup::<P>::new(Shape::of(512));
        let spin = Spin::of(10_000, rules);
        let sample = rules.measure_once(TASKS, |tasks| {
            on_worker(&setup.runtime, storm(setup.pool.clone(), tasks, spin));
        });
        let figure = (self.figure)(sample.value, setup.threads());
        sample.with_value(figure)
    }
}

/// Submits closures that compute, and waits for all.
async fn storm<P: Pool>(pool: P, tasks: u64, spin: Spin) {
    let submit = |task| {
        let mut state = task;
        pool.run(move || spin.apply(&mut state))
    };
    let handles: Vec<_> = (0..tasks).map(submit).collect();
    for handle in handles {
        handle.await;
    }
}
