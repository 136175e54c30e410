//! Bounds that hold under load, and jobs that do not wait for who reads.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use throng::completion::Submitter;
use throng::{Slot, TrySpawnError};
use tokio::time::{Instant, sleep};

use super::support::{Numbers, block_on, poll, rounds, within};
use super::{bounded, slot};

const RUNNING: usize = 3;
const OUTSTANDING: usize = 5;

#[test]
fn who_waits_for_room_is_not_in_flight_yet() {
    let (jobs, mut done) = bounded(1, 10);
    let running = slot::<()>(&jobs, 0);
    let mut waiting: Vec<_> = (1..=5).map(|tag| Box::pin(jobs.slot(tag))).collect();
    for slot in &mut waiting {
        assert!(poll(slot).is_pending());
    }
    assert_eq!((jobs.in_flight(), jobs.ready()), (1, 0));
    running.complete(());
    assert_eq!((jobs.in_flight(), jobs.ready()), (1, 1));
    assert_eq!(done.try_next().map(|completed| completed.tag), Some(0));
    assert_eq!((jobs.in_flight(), jobs.ready()), (0, 0));
}

#[test]
fn both_bounds_hold_while_some_submit_and_some_give_up() {
    const SUBMITTERS: usize = 3;
    let (jobs, mut done) = bounded(RUNNING, OUTSTANDING);
    let (promise, promised) = channel::<Slot<(), usize>>();
    // Raised after a place was taken, lowered before it is given back.
    let running = &AtomicUsize::new(0);
    let each = rounds(3_000, 300_000);
    thread::scope(|scope| {
        for seed in 0..SUBMITTERS {
            let (jobs, promise) = (&jobs, promise.clone());
            scope.spawn(move || {
                let mut numbers = Numbers::new(seed as u64);
                let mut accepted = 0;
                while accepted < each {
                    let Some(slot) = slot_or_give_up(jobs, &mut numbers) else {
                        thread::yield_now();
                        continue;
                    };
                    assert!(running.fetch_add(1, Ordering::SeqCst) < RUNNING);
                    assert!(jobs.in_flight() <= OUTSTANDING);
                    promise.send(slot).unwrap();
                    accepted += 1;
                }
            });
        }
        drop(promise);
        scope.spawn(move || {
            for slot in promised {
                running.fetch_sub(1, Ordering::SeqCst);
                slot.complete(());
            }
        });
        for _ in 0..SUBMITTERS * each {
            assert!(jobs.in_flight() <= OUTSTANDING);
            block_on(done.next()).unwrap();
        }
    });
    all_places_are_there(&jobs);
}

/// Waits for a slot, or looks whether there is one, or waits and goes at once.
fn slot_or_give_up(jobs: &Submitter<(), usize>, numbers: &mut Numbers) -> Option<Slot<(), usize>> {
    match numbers.below(3) {
        0 => block_on(jobs.slot(0)).ok(),
        1 => jobs.try_slot(0).ok(),
        _ => match poll(&mut pin!(jobs.slot(0))) {
            Poll::Ready(slot) => slot.ok(),
            Poll::Pending => None,
        },
    }
}

fn assert_full(slot: Result<Slot<(), usize>, TrySpawnError<usize>>) {
    let error = slot.unwrap_err();
    assert!(error.is_full());
    assert_eq!(error.into_inner(), 9);
}

/// Nothing is in flight, and nobody who has gone has kept a place.
fn all_places_are_there(jobs: &Submitter<(), usize>) {
    assert_eq!(jobs.in_flight(), 0);
    let held: Vec<_> = (0..RUNNING).map(|tag| slot(jobs, tag)).collect();
    assert_full(jobs.try_slot(9));
    held.into_iter().for_each(|slot| slot.complete(()));
    for tag in RUNNING..OUTSTANDING {
        slot(jobs, tag).complete(());
    }
    assert_full(jobs.try_slot(9));
}

#[tokio::test(start_paused = true)]
async fn jobs_run_to_their_end_while_the_reader_is_busy_with_an_item() {
    const JOBS: usize = 12;
    const AT_ONCE: usize = 4;
    let second = Duration::from_secs(1);
    let (jobs, mut done) = bounded(AT_ONCE, JOBS);
    let began = Instant::now();
    let ends = Arc::new(Mutex::new(Vec::new()));
    let ended = Arc::clone(&ends);
    tokio::spawn(async move {
        for tag in 0..JOBS {
            let ended = Arc::clone(&ended);
            let future = async move {
                sleep(second).await;
                ended.lock().unwrap().push(began.elapsed());
            };
            jobs.submit(tag, future).await.unwrap();
        }
    });
    let mut read = 0;
    while within(done.next()).await.is_some() {
        // Much longer than all jobs together.
        sleep(20 * second).await;
        read += 1;
        assert_eq!(ends.lock().unwrap().len(), JOBS);
    }
    assert_eq!(read, JOBS);
    // As many at a time as may run, one after the other, and the reader is not waited for. (A timer of
    // Tokio's may be late by its resolution.)
    for (index, end) in ends.lock().unwrap().iter().enumerate() {
        let turn = u32::try_from(index / AT_ONCE).unwrap() + 1;
        let late = end.checked_sub(turn * second);
        assert!(
            late.is_some_and(|late| late < second / 10),
            "{index}: {end:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn where_nobody_reads_submitters_wait_and_jobs_end() {
    let (jobs, mut done) = bounded(RUNNING, OUTSTANDING);
    let accepted = Arc::new(AtomicUsize::new(0));
    let (submitter, accepts) = (jobs.clone(), Arc::clone(&accepted));
    tokio::spawn(async move {
        for tag in 0..3 * OUTSTANDING {
            let future = sleep(Duration::from_secs(1));
            submitter.submit(tag, future).await.unwrap();
            accepts.fetch_add(1, Ordering::SeqCst);
        }
    });
    // Time passes only when nothing else can happen.
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(accepted.load(Ordering::SeqCst), OUTSTANDING);
    assert_eq!((jobs.in_flight(), jobs.ready()), (OUTSTANDING, OUTSTANDING));
    for read in 1..=OUTSTANDING {
        within(done.next()).await.unwrap();
        sleep(Duration::from_secs(3600)).await;
        assert_eq!(accepted.load(Ordering::SeqCst), OUTSTANDING + read);
    }
}
