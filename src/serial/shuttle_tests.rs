//! The whole executor on many random schedules, draining on a pool.

use shuttle::{check_pct, thread};

use super::{OnPanic, SerialExecutor};
use crate::blocking::BlockingPool;

const SCHEDULES: usize = 3_000;

/// Submits, posts and tries from several threads: the jobs of each run once, in order.
#[test]
fn shuttle_each_submitter_is_in_order() {
    check_pct(
        || {
            let pool = BlockingPool::builder().max_threads(1).build().unwrap();
            let executor = SerialExecutor::builder()
                .capture_jobs(1)
                .drain_on(pool)
                .build(Vec::new());
            let submitters: Vec<_> = (0..3)
                .map(|submitter| {
                    let executor = executor.clone();
                    thread::spawn(move || {
                        let mut last = executor.submit(|_| ());
                        for number in 0..3 {
                            let job = move |list: &mut Vec<_>| list.push((submitter, number));
                            last = match submitter {
                                0 => executor.post(job),
                                _ => executor.submit(job),
                            };
                        }
                        last.blocking_join().unwrap();
                    })
                })
                .collect();
            for submitter in submitters {
                submitter.join().unwrap();
            }
            let list = shuttle::future::block_on(executor.into_inner())
                .ok()
                .unwrap();
            for submitter in 0..3 {
                let own = list.iter().filter(|(by, _)| *by == submitter);
                assert!(own.map(|(_, number)| *number).eq(0..3), "{list:?}");
            }
        },
        SCHEDULES,
        3,
    );
}

/// Panics, closes and aborts: every handle ends, and what is told as done is in the state.
#[test]
fn shuttle_every_handle_ends() {
    check_pct(
        || {
            let executor = SerialExecutor::builder()
                .on_panic(OnPanic::Continue)
                .build(0_usize);
            let submitters: Vec<_> = (0..3)
                .map(|submitter| {
                    let executor = executor.clone();
                    thread::spawn(move || {
                        let panics = executor.submit(|_| std::panic::resume_unwind(Box::new(())));
                        let adds = executor.submit(|count| *count += 1);
                        match submitter {
                            0 => executor.close(),
                            1 => adds.abort(),
                            _ => {}
                        }
                        let panicked: Result<(), _> = panics.blocking_join();
                        assert!(panicked.unwrap_err().is_panic() || executor.is_closed());
                        usize::from(adds.blocking_join().is_ok())
                    })
                })
                .collect();
            let added: usize = submitters
                .into_iter()
                .map(|submitter| submitter.join().unwrap())
                .sum();
            let count = shuttle::future::block_on(executor.into_inner())
                .ok()
                .unwrap();
            assert_eq!(count, added);
        },
        SCHEDULES,
        3,
    );
}
