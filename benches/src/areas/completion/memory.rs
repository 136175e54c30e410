//! The allocations of jobs, and the memory of unread results.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use super::peers::{Collector, Detached};
use super::{Work, window_of};
use crate::alloc;
use crate::areas::{on_worker, two_workers};
use crate::measure::{Rules, Sample, Section};

/// Jobs in flight, where allocations are counted.
const WINDOW: u64 = 1_000;

/// The allocations of a job besides its Tokio task, in the steady state: with a thousand jobs in flight, on a collector
/// that has been used before.
#[derive(Clone, Copy)]
pub(super) struct Allocations;

impl Work for Allocations {
    fn run<C: Collector>(self, rules: &Rules) -> Sample {
        let jobs = rules.scaled(super::JOBS);
        let section = Section::begin();
        let beside = allocations::<C>(jobs) - allocations::<Detached>(jobs);
        section.end().absolute(beside)
    }
}

/// Allocations for each job.
fn allocations<C: Collector>(jobs: u64) -> f64 {
    let runtime = two_workers().build().expect("a runtime can be built");
    on_worker(&runtime, async move {
        let mut collector = C::new(WINDOW as usize);
        window_of(&mut collector, jobs, WINDOW, |job| async move { job }).await;
        let before = alloc::counted();
        window_of(&mut collector, jobs, WINDOW, |job| async move { job }).await;
        (alloc::counted() - before) as f64 / jobs as f64
    })
}

/// The allocated bytes for each finished and unread job, with a result of 8 bytes. The future of each has 256 bytes,
/// which can be freed.
#[derive(Clone, Copy)]
pub(super) struct Unread;

impl Work for Unread {
    fn run<C: Collector>(self, rules: &Rules) -> Sample {
        let small = unread::<C, 0>(rules.scaled(super::JOBS));
        let large = unread::<C, 256>(rules.scaled(super::JOBS));
        small.with_fact("with_futures_of_256_bytes", large.value)
    }
}

fn unread<C: Collector, const CAPTURED: usize>(jobs: u64) -> Sample {
    alloc::track_live();
    let runtime = two_workers().build().expect("a runtime can be built");
    let before = alloc::live_bytes();
    let section = Section::begin();
    let collector = on_worker(&runtime, finish::<C, CAPTURED>(jobs));
    // Lets other threads finish freeing.
    thread::sleep(Duration::from_millis(100));
    let bytes = alloc::live_bytes() - before;
    drop(collector);
    section.end().absolute(bytes as f64 / jobs as f64)
}

/// The allocated bytes for each job in flight. The jobs sleep.
#[derive(Clone, Copy)]
pub(super) struct Asleep;

impl Work for Asleep {
    fn run<C: Collector>(self, rules: &Rules) -> Sample {
        alloc::track_live();
        let jobs = rules.scaled(10_000);
        let runtime = two_workers().build().expect("a runtime can be built");
        let before = alloc::live_bytes();
        let section = Section::begin();
        let collector = on_worker(&runtime, fall_asleep::<C>(jobs));
        let bytes = alloc::live_bytes() - before;
        drop(collector);
        section.end().absolute(bytes as f64 / jobs as f64)
    }
}

/// A collector whose jobs all sleep.
async fn fall_asleep<C: Collector>(jobs: u64) -> C {
    const LONG: Duration = Duration::from_secs(3_600);
    let asleep = Arc::new(AtomicU64::new(0));
    let mut collector = C::new(jobs as usize);
    for job in 0..jobs {
        let asleep = Arc::clone(&asleep);
        let sleeper = async move {
            let mut sleep = std::pin::pin!(tokio::time::sleep(LONG));
            // The first poll enters the timer.
            let polled = futures::poll!(sleep.as_mut());
            assert!(polled.is_pending(), "it sleeps");
            asleep.fetch_add(1, SeqCst);
            sleep.await;
            job
        };
        collector.submit(sleeper).await;
    }
    while asleep.load(SeqCst) < jobs {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    collector
}

/// A collector whose jobs have all finished.
async fn finish<C: Collector, const CAPTURED: usize>(jobs: u64) -> C {
    let finished = Arc::new(AtomicU64::new(0));
    let mut collector = C::new(jobs as usize);
    for job in 0..jobs {
        let (finished, captured) = (Arc::clone(&finished), [1_u8; CAPTURED]);
        let counted = async move {
            finished.fetch_add(1, SeqCst);
            job + std::hint::black_box(captured).len() as u64
        };
        collector.submit(counted).await;
    }
    while finished.load(SeqCst) < jobs {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    collector
}
