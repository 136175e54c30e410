//! The whole stream on many random schedules, with jobs on a pool.

use shuttle::future::block_on;
use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicUsize, Ordering};
use shuttle::{check_pct, thread};

use super::shared::Shared;
use super::{CompletionStream, Submitter};
use crate::blocking::BlockingPool;

const SCHEDULES: usize = 2_000;

/// A stream with these limits, which spills completions as soon as one is unread.
fn ends<T: Send + 'static>(
    max_running: usize,
    max_outstanding: usize,
) -> (Submitter<T, usize>, CompletionStream<T, usize>) {
    CompletionStream::new(Shared::new(max_running, max_outstanding, 1))
}

/// With several submitters, each job yields one item, and the limit of running jobs holds.
#[test]
fn shuttle_one_item_for_each_job() {
    check_pct(
        || {
            let pool = BlockingPool::builder().max_threads(2).build().unwrap();
            let (jobs, mut done) = ends(2, 3);
            let running = Arc::new(AtomicUsize::new(0));
            let submitters: Vec<_> = (0..2)
                .map(|submitter| {
                    let (jobs, pool, running) = (jobs.clone(), pool.clone(), running.clone());
                    thread::spawn(move || {
                        for job in 0..3 {
                            let running = running.clone();
                            let tag = submitter * 3 + job;
                            let run = move || {
                                assert!(running.fetch_add(1, Ordering::Relaxed) < 2);
                                thread::yield_now();
                                running.fetch_sub(1, Ordering::Relaxed);
                                tag
                            };
                            block_on(jobs.submit_blocking(&pool, tag, run))
                                .ok()
                                .unwrap();
                        }
                    })
                })
                .collect();
            drop(jobs);
            let mut tags = Vec::new();
            while let Some(completed) = block_on(done.next()) {
                assert_eq!(completed.outcome.unwrap(), completed.tag);
                tags.push(completed.tag);
            }
            tags.sort_unstable();
            assert_eq!(tags, [0, 1, 2, 3, 4, 5]);
            for submitter in submitters {
                submitter.join().unwrap();
            }
        },
        SCHEDULES,
        3,
    );
}

/// The stream is dropped while jobs run and a submitter waits: no thread hangs, and everything is dropped.
#[test]
fn shuttle_the_stream_is_dropped() {
    check_pct(
        || {
            let pool = BlockingPool::builder().max_threads(1).build().unwrap();
            let (jobs, mut done) = ends(1, 2);
            let captured = Arc::new(());
            let submitter = {
                let captured = captured.clone();
                thread::spawn(move || {
                    for job in 0..4 {
                        let output = captured.clone();
                        let submitted = block_on(jobs.submit_blocking(&pool, job, move || output));
                        if submitted.is_err() {
                            break;
                        }
                    }
                    drop(jobs);
                    pool.close();
                    block_on(pool.closed());
                })
            };
            drop(block_on(done.next()));
            drop(done);
            submitter.join().unwrap();
            assert_eq!(Arc::strong_count(&captured), 1);
        },
        SCHEDULES,
        3,
    );
}

/// Submitters are cloned and dropped while other threads close and read: each slot yields one item, and the end comes
/// after the last.
#[test]
fn shuttle_clones_close_and_read() {
    check_pct(
        || {
            let (jobs, mut done) = ends::<usize>(2, 3);
            let granted = Arc::new(AtomicUsize::new(0));
            let submitters: Vec<_> = (0..2)
                .map(|_| {
                    let (jobs, granted) = (jobs.clone(), granted.clone());
                    thread::spawn(move || {
                        for tag in 0..3 {
                            let clone = jobs.clone();
                            let Ok(slot) = block_on(clone.slot(tag)) else {
                                break;
                            };
                            granted.fetch_add(1, Ordering::Relaxed);
                            match tag {
                                0 => slot.complete(tag),
                                1 => drop(slot),
                                // Aborted or not.
                                _ => slot.run(|| tag),
                            }
                        }
                    })
                })
                .collect();
            let closer = thread::spawn(move || {
                jobs.abort_all();
                thread::yield_now();
                jobs.close();
            });
            let mut items = 0;
            while let Some(completed) = block_on(done.next()) {
                match completed.outcome {
                    Ok(output) => assert_eq!(output, completed.tag),
                    Err(error) => assert!(error.is_lost() || error.is_cancelled()),
                }
                items += 1;
            }
            for thread in submitters.into_iter().chain([closer]) {
                thread.join().unwrap();
            }
            assert_eq!(items, granted.load(Ordering::Relaxed));
            assert!(block_on(done.next()).is_none());
        },
        SCHEDULES,
        3,
    );
}
