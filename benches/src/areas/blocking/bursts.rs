//! Closures that sleep, many at once.

use std::thread;
use std::time::{Duration, Instant};

use super::peers::{Pool, Shape};
use super::{Setup, Work};
use crate::areas::on_worker;
use crate::measure::{Rules, Sample, quantile};

/// The times of a burst of closures that sleep.
pub(super) struct Burst {
    /// The mean time that the submitter needed for a closure.
    held: Duration,
    /// From the first submission to the start of the last closure, which is not always the last one submitted.
    last_start: Duration,
    /// From the submission of a closure to its start: the median.
    start: Duration,
    /// From the first submission until the last result was there.
    all_done: Duration,
}

/// Submits closures that sleep, and waits for all.
pub(super) async fn burst<P: Pool>(pool: P, tasks: u32, length: Duration) -> Burst {
    let begin = Instant::now();
    let submit = |_| {
        let submitted = begin.elapsed();
        pool.run(move || {
            let start = begin.elapsed();
            thread::sleep(length);
            (submitted, start)
        })
    };
    let handles: Vec<_> = (0..tasks).map(submit).collect();
    let held = begin.elapsed() / tasks;
    let (mut last_start, mut waits) = (Duration::ZERO, Vec::new());
    for handle in handles {
        let (submitted, start) = handle.await;
        last_start = last_start.max(start);
        waits.push((start - submitted).as_nanos() as u64);
    }
    Burst {
        held,
        last_start,
        start: Duration::from_nanos(quantile(&mut waits, 0.5)),
        all_done: begin.elapsed(),
    }
}

/// A hundred closures of 50 ms for a pool of up to a hundred threads that has not run anything yet.
#[derive(Clone, Copy)]
pub(super) struct BurstCold {
    /// The value of the row, given the burst and the threads of the pool.
    figure: fn(&Burst, u64) -> f64,
}

impl BurstCold {
    /// Until all are done, in milliseconds.
    pub(super) const TIME: Self = Self {
        figure: |burst, _| burst.all_done.as_secs_f64() * 1e3,
    };

    /// Until the last one has started, in milliseconds.
    pub(super) const LAST_START: Self = Self {
        figure: |burst, _| burst.last_start.as_secs_f64() * 1e3,
    };

    /// The time that the submitter needs per task, in microseconds.
    pub(super) const HELD: Self = Self {
        figure: |burst, _| burst.held.as_secs_f64() * 1e6,
    };

    /// The largest number of threads: none exits so soon, so they are counted at the end.
    pub(super) const THREADS: Self = Self {
        figure: |_, threads| threads as f64,
    };
}

impl Work for BurstCold {
    fn run<P: Pool>(self, rules: &Rules) -> Sample {
        let setup = Setup::<P>::new(Shape::of(100));
        let mut figure = 0.0;
        let sample = rules.measure_once(100, |tasks| {
            let length = Duration::from_millis(50);
            let burst = on_worker(
                &setup.runtime,
                burst(setup.pool.clone(), tasks as u32, length),
            );
            figure = (self.figure)(&burst, setup.threads());
        });
        sample.with_value(figure)
    }
}

/// Closures of a burst of [`BurstWarm`].
const WARM_TASKS: u32 = 64;

/// From the start of a burst of [`BurstWarm`] to the start of the next one.
const PERIOD: Duration = Duration::from_millis(100);

/// 64 closures of 20 ms every 100 ms, for a pool that has its threads.
///
/// The value of a child is a quantile over its bursts, each of which has one figure.
#[derive(Clone, Copy)]
pub(super) struct BurstWarm {
    figure: fn(&Burst) -> Duration,
    quantile: f64,
    /// Bursts in a child: enough for the quantile to be another value than the largest.
    bursts: u64,
}

impl BurstWarm {
    /// From the first submission to the start of the last closure: the median of 40 bursts.
    pub(super) const P50: Self = Self {
        figure: |burst| burst.last_start,
        quantile: 0.5,
        bursts: 40,
    };

    /// The same: the second largest of 100 bursts (the largest of ten, in a quick run).
    pub(super) const P99: Self = Self {
        quantile: 0.99,
        bursts: 100,
        ..Self::P50
    };

    /// From the submission of a closure to its start, the median of a burst: the median of 40 bursts.
    pub(super) const START: Self = Self {
        figure: |burst| burst.start,
        ..Self::P50
    };

    /// The time that the submitter needs per task: the median of 40 bursts.
    pub(super) const HELD: Self = Self {
        figure: |burst| burst.held,
        ..Self::P50
    };
}

impl Work for BurstWarm {
    fn run<P: Pool>(self, rules: &Rules) -> Sample {
        let setup = Setup::<P>::new(Shape::of(WARM_TASKS as usize));
        // Bursts allocate about the same.
        let bursts = if rules.count_allocs {
            1
        } else {
            rules.scaled(self.bursts)
        };
        next_burst(&setup);
        let mut figures = Vec::new();
        let sample = rules.measure_once(bursts * u64::from(WARM_TASKS), |_| {
            figures = (0..bursts)
                .map(|_| (self.figure)(&next_burst(&setup)).as_nanos() as u64)
                .collect();
        });
        sample.with_value(quantile(&mut figures, self.quantile) as f64 / 1e3)
    }
}

/// A burst, and the rest of its period.
fn next_burst<P: Pool>(setup: &Setup<P>) -> Burst {
    let next = Instant::now() + PERIOD;
    let length = Duration::from_millis(20);
    let burst = on_worker(
        &setup.runtime,
        burst(setup.pool.clone(), WARM_TASKS, length),
    );
    thread::sleep(next.saturating_duration_since(Instant::now()));
    burst
}
