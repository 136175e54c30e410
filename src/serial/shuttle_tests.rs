//! The whole executor on random schedules, with drains on a pool.

use std::future::poll_fn;
use std::task::Poll;

use shuttle::{check_pct, thread};

use super::{Exclusive, SerialExecutor};
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
                .build(Vec::new())
                .unwrap();
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

/// Panics, closes and aborts: every handle ends, and the state has the effects of the jobs that succeeded.
#[test]
fn shuttle_every_handle_ends() {
    check_pct(
        || {
            let executor = SerialExecutor::builder()
                .poison_on_panic(false)
                .build(0_usize)
                .unwrap();
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

/// Asynchronous jobs among others: some keep their guard, some give it away, some are aborted.
#[test]
fn shuttle_asynchronous_jobs_have_the_state_alone() {
    check_pct(
        || {
            let pool = BlockingPool::builder().max_threads(1).build().unwrap();
            let executor = SerialExecutor::builder()
                .capture_jobs(1)
                .drain_on(pool)
                .build(Vec::new())
                .unwrap();
            let submitters: Vec<_> = (0..3)
                .map(|submitter| {
                    let executor = executor.clone();
                    thread::spawn(move || wait_in(&executor, submitter))
                })
                .collect();
            let mut ran = vec![];
            for submitter in submitters {
                ran.extend(submitter.join().unwrap());
            }
            let mut list = shuttle::future::block_on(executor.into_inner())
                .ok()
                .unwrap();
            list.sort_unstable();
            ran.sort_unstable();
            assert_eq!(list, ran);
        },
        SCHEDULES,
        3,
    );
}

/// Submits jobs of three kinds, and returns those that ran.
fn wait_in(executor: &SerialExecutor<Vec<(i32, u8)>>, submitter: i32) -> Vec<(i32, u8)> {
    let keeps = executor.submit_async(move |mut list: Exclusive<Vec<_>>| async move {
        let before = list.len();
        let mut waited = false;
        poll_fn(|cx| match std::mem::replace(&mut waited, true) {
            true => Poll::Ready(()),
            false => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        })
        .await;
        assert_eq!(list.len(), before);
        list.push((submitter, 0));
    });
    let gives_away = executor.submit_async(move |mut list: Exclusive<Vec<_>>| async move {
        thread::spawn(move || list.push((submitter, 1)));
    });
    let closure = executor.submit(move |list| list.push((submitter, 2)));
    if submitter == 0 {
        keeps.abort();
    }
    let ran = [keeps, gives_away, closure].map(|handle| handle.blocking_join().is_ok());
    (0..)
        .zip(ran)
        .filter_map(|(kind, ran)| ran.then_some((submitter, kind)))
        .collect()
}
