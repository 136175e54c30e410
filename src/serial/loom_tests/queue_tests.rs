//! Models of the queue: its levels, its bound, its end, and aborts of all queued jobs.

use loom::future::block_on;
use loom::sync::{Arc, mpsc};
use loom::thread;

use crate::join::JoinHandle;
use crate::serial::{Level, SerialExecutor};
use crate::sync::Plain;

type Executor = SerialExecutor<Plain>;

fn add(executor: &Executor) -> JoinHandle<()> {
    executor.submit(|number| number.add(1))
}

fn total(executor: &Executor) -> usize {
    executor.try_run(|number| number.get()).unwrap() as usize
}

/// Each job is run or aborted, and `abort_queued` returns the number of aborted ones.
#[test]
fn loom_abort_queued_against_drain() {
    loom::model(|| {
        let executor = Executor::new(Plain::new(0));
        let other = {
            let executor = executor.clone();
            thread::spawn(move || {
                let again = executor.clone();
                let outer = executor.submit(move |_| [(); 2].map(|()| add(&again)));
                let inner = outer.blocking_join().unwrap();
                let ended = inner.map(|handle| handle.blocking_join());
                ended.iter().filter(|ended| ended.is_ok()).count()
            })
        };
        let aborted = executor.core.abort_queued();
        let ran = other.join().unwrap();
        assert_eq!((ran + aborted, total(&executor)), (2, ran));
        assert_eq!(executor.metrics().queue_length, 0);
    });
}

/// Two submitters, one of which drains, and a thread that aborts.
#[test]
fn loom_abort_queued_against_submitters() {
    loom::model(|| {
        let executor = Executor::new(Plain::new(0));
        let other = {
            let executor = executor.clone();
            thread::spawn(move || usize::from(add(&executor).blocking_join().is_ok()))
        };
        let canceller = {
            let executor = executor.clone();
            thread::spawn(move || executor.core.abort_queued())
        };
        let here = usize::from(add(&executor).blocking_join().is_ok());
        let ran = here + other.join().unwrap();
        assert_eq!(ran + canceller.join().unwrap(), 2);
        assert_eq!(total(&executor), ran);
    });
}

/// No job escapes the abort on its way from the inbox to the owner, except for the one that starts.
#[test]
fn loom_abort_queued_misses_nothing() {
    loom::model(|| {
        let executor = Executor::new(Plain::new(0));
        let (give, given) = mpsc::channel();
        let other = {
            let executor = executor.clone();
            thread::spawn(move || {
                let again = executor.clone();
                drop(executor.submit(move |_| give.send([(); 2].map(|()| add(&again))).unwrap()));
            })
        };
        // They are queued now, by a job that has not ended.
        let queued = given.recv().unwrap();
        executor.core.abort_queued();
        assert!(queued.iter().any(JoinHandle::is_finished));
        other.join().unwrap();
        assert!(queued.iter().all(JoinHandle::is_finished));
    });
}

/// Captures of an aborted job are dropped once: before `abort_queued` returns, or by the thread that runs the job.
#[test]
fn loom_abort_queued_drops_captures_once() {
    loom::model(|| {
        let executor = Executor::new(Plain::new(0));
        let captured = Arc::new(());
        let other = {
            let (executor, value) = (executor.clone(), captured.clone());
            thread::spawn(move || {
                let again = executor.clone();
                drop(executor.submit(move |_| drop(again.submit(move |_| drop(value)))));
            })
        };
        executor.core.abort_queued();
        other.join().unwrap();
        assert_eq!(Arc::strong_count(&captured), 1);
    });
}

/// When `closed` returns, all accepted jobs have ended.
#[test]
fn loom_closed_against_submit() {
    loom::model(|| {
        let number = Arc::new(Plain::new(0));
        let executor = SerialExecutor::new(number.clone());
        let other = {
            let executor = executor.clone();
            thread::spawn(move || {
                let accepted = executor.submit(|number| number.add(1)).blocking_join();
                u32::from(accepted.is_ok())
            })
        };
        executor.close();
        block_on(executor.closed());
        let seen = number.get();
        assert_eq!(seen, other.join().unwrap());
    });
}

/// Two callers wait for the end, and another thread closes.
#[test]
fn loom_closed_against_close() {
    loom::model(|| {
        let executor = Executor::new(Plain::new(0));
        let other = {
            let executor = executor.clone();
            thread::spawn(move || {
                drop(add(&executor));
                executor.close();
            })
        };
        block_on(executor.closed());
        other.join().unwrap();
        assert_eq!(block_on(executor.into_inner()).ok().unwrap().get(), 1);
    });
}

/// A queue of one: a job is rejected only while another one is queued, and all permits are released.
#[test]
fn loom_try_submit_against_try_submit() {
    loom::model(|| {
        let executor = SerialExecutor::builder()
            .queue_capacity(1)
            .build(Plain::new(0))
            .unwrap();
        let submit = |executor: &Executor| match executor.try_submit(|number| number.add(1)) {
            Ok(handle) => usize::from(handle.blocking_join().is_ok()),
            Err(error) => {
                assert!(error.is_full());
                0
            }
        };
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let executor = executor.clone();
                thread::spawn(move || submit(&executor))
            })
            .collect();
        let here = submit(&executor);
        let others: usize = threads.into_iter().map(|other| other.join().unwrap()).sum();
        assert_eq!(total(&executor), here + others);
        assert!(here + others >= 2);
        drop(block_on(executor.reserve()).unwrap());
    });
}

/// A caller waits for the permit of a job that runs or is aborted.
#[test]
fn loom_reserve_against_a_permit_that_is_released() {
    for aborts in [false, true] {
        loom::model(move || {
            let executor = SerialExecutor::builder()
                .queue_capacity(1)
                .build(Plain::new(0))
                .unwrap();
            let held = block_on(executor.reserve()).unwrap();
            let other = {
                let executor = executor.clone();
                thread::spawn(move || {
                    let permit = block_on(executor.reserve()).unwrap();
                    permit
                        .submit(|number| number.add(1))
                        .blocking_join()
                        .is_ok()
                })
            };
            let here = held.submit(|number| number.add(1));
            let aborted = if aborts {
                executor.core.abort_queued()
            } else {
                0
            };
            let ran =
                usize::from(here.blocking_join().is_ok()) + usize::from(other.join().unwrap());
            assert_eq!((ran + aborted, total(&executor)), (2, ran));
        });
    }
}

/// Jobs of two levels meet in the inbox, and are sorted.
#[test]
fn loom_levels() {
    loom::model(|| {
        let executor = SerialExecutor::new(Vec::new());
        let other = {
            let executor = executor.clone();
            thread::spawn(move || {
                let submit =
                    |n| executor.submit_at(Level::HIGH, move |list: &mut Vec<_>| list.push(n));
                for handle in [10, 11].map(submit) {
                    handle.blocking_join().unwrap();
                }
            })
        };
        let low = executor.submit_at(Level::LOW, |list| list.push(1));
        low.blocking_join().unwrap();
        other.join().unwrap();
        let list = executor.try_run(|list| list.clone()).unwrap();
        assert!(list.len() == 3 && list.contains(&1), "{list:?}");
        assert!(list.iter().filter(|n| **n >= 10).eq(&[10, 11]), "{list:?}");
    });
}

/// A job that borrows from the stack of its submitter ends before the submitter goes on.
#[test]
fn loom_blocking_run_against_submit() {
    loom::model(|| {
        let executor = Executor::new(Plain::new(0));
        let other = {
            let executor = executor.clone();
            thread::spawn(move || add(&executor).blocking_join().unwrap())
        };
        let borrowed = Plain::new(0);
        let output = executor.blocking_run(|number| {
            borrowed.add(1);
            number.add(1);
            number.get()
        });
        assert!((1..=2).contains(&output.unwrap()));
        assert_eq!(borrowed.get(), 1);
        other.join().unwrap();
        assert_eq!(total(&executor), 2);
    });
}
