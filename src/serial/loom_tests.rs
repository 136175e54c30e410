//! Models of the executor: who owns it, what is queued, and how it ends.

mod exclusive_tests;
mod queue_tests;

use std::panic::{AssertUnwindSafe, catch_unwind};

use loom::future::block_on;
use loom::sync::{Arc, Mutex};
use loom::thread;

use super::SerialExecutor;
use crate::join::{Spawn, Work, sealed};
use crate::sync::Plain;

/// Runs each drain on a thread of its own.
struct OnThread;

impl sealed::Sealed for OnThread {}
impl Spawn for OnThread {
    fn spawn_work(&self, work: Work) -> Result<(), Work> {
        thread::spawn(move || work.run());
        Ok(())
    }
}

/// Drops each drain, as a runtime does after its shutdown.
struct Gone;

impl sealed::Sealed for Gone {}
impl Spawn for Gone {
    fn spawn_work(&self, work: Work) -> Result<(), Work> {
        drop(work);
        Ok(())
    }
}

fn add(executor: &SerialExecutor<Plain>) -> crate::JoinHandle<()> {
    executor.submit(|number| number.add(1))
}

/// An executor whose state is 0 and poisoned.
fn poisoned() -> SerialExecutor<Plain> {
    let executor = SerialExecutor::new(Plain::new(0));
    let panicked = executor.submit(|_| std::panic::resume_unwind(Box::new(())));
    let panicked: Result<(), _> = panicked.blocking_join();
    assert!(panicked.unwrap_err().is_panic());
    executor
}

#[test]
fn loom_three_submitters() {
    loom::model(|| {
        let executor = SerialExecutor::new(Plain::new(0));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let executor = executor.clone();
                thread::spawn(move || add(&executor))
            })
            .collect();
        let mut handles = vec![add(&executor)];
        handles.extend(threads.into_iter().map(|thread| thread.join().unwrap()));
        for handle in handles {
            handle.blocking_join().unwrap();
        }
        assert_eq!(executor.try_run(|number| number.get()).unwrap(), 3);
    });
}

/// The owner hands over at once, and a submitter races with the drain on another thread.
#[test]
fn loom_hand_over() {
    loom::model(|| {
        let executor = SerialExecutor::builder()
            .capture_jobs(0)
            .drain_on(OnThread)
            .build(Plain::new(0))
            .unwrap();
        let other = {
            let executor = executor.clone();
            thread::spawn(move || add(&executor).blocking_join().unwrap())
        };
        add(&executor).blocking_join().unwrap();
        other.join().unwrap();
        let state = block_on(executor.into_inner()).ok().unwrap();
        assert_eq!(state.get(), 2);
    });
}

#[test]
fn loom_post_against_submit() {
    loom::model(|| {
        let executor = SerialExecutor::builder()
            .drain_on(OnThread)
            .build(Plain::new(0))
            .unwrap();
        let posted = {
            let executor = executor.clone();
            thread::spawn(move || executor.post(|number| number.add(1)).blocking_join())
        };
        add(&executor).blocking_join().unwrap();
        posted.join().unwrap().unwrap();
        assert_eq!(block_on(executor.into_inner()).ok().unwrap().get(), 2);
    });
}

/// Accepted jobs have run when the state is returned, and others end with an error.
#[test]
fn loom_submit_against_into_inner() {
    loom::model(|| {
        let executor = SerialExecutor::new(Plain::new(0));
        let other = {
            let executor = executor.clone();
            thread::spawn(move || {
                let accepted = add(&executor).blocking_join();
                assert!(
                    accepted
                        .as_ref()
                        .err()
                        .is_none_or(crate::JoinError::is_closed)
                );
                u32::from(accepted.is_ok())
            })
        };
        let state = block_on(executor.into_inner()).ok().unwrap();
        assert_eq!(state.get(), other.join().unwrap());
    });
}

#[test]
fn loom_into_inner_against_into_inner() {
    loom::model(|| {
        let executor = SerialExecutor::new(Arc::new(()));
        let other = {
            let executor = executor.clone();
            thread::spawn(move || block_on(executor.into_inner()).is_ok())
        };
        let here = match block_on(executor.into_inner()) {
            Ok(_) => true,
            Err(executor) => {
                assert!(!executor.is_poisoned());
                false
            }
        };
        assert_ne!(here, other.join().unwrap());
    });
}

/// Every handle ends, and a caller that learns of the panic finds the state poisoned.
#[test]
fn loom_panic_against_submit() {
    loom::model(|| {
        let executor = SerialExecutor::builder()
            .poison_on_panic(true)
            .build(Plain::new(0))
            .unwrap();
        let other = {
            let executor = executor.clone();
            thread::spawn(move || add(&executor).blocking_join())
        };
        let panicked = executor.submit(|_| std::panic::resume_unwind(Box::new(())));
        let panicked: Result<(), _> = panicked.blocking_join();
        let error = panicked.unwrap_err();
        assert!(error.is_panic() && executor.is_poisoned());
        if let Err(error) = other.join().unwrap() {
            assert!(error.is_poisoned());
        }
        assert!(executor.clear_poison());
        add(&executor).blocking_join().unwrap();
    });
}

#[test]
fn loom_try_run_against_submit() {
    loom::model(|| {
        let executor = SerialExecutor::new(Plain::new(0));
        let other = {
            let executor = executor.clone();
            thread::spawn(move || add(&executor).blocking_join().unwrap())
        };
        let ran = executor.try_run(|number| number.add(1)).is_ok();
        other.join().unwrap();
        let total = executor.try_run(|number| number.get()).unwrap();
        assert_eq!(total, 1 + u32::from(ran));
    });
}

/// A dropped drain aborts what is queued and releases the executor. No job that is submitted meanwhile is lost.
#[test]
fn loom_a_dropped_drain_against_submit() {
    loom::model(|| {
        let executor = SerialExecutor::builder()
            .capture_jobs(0)
            .drain_on(Gone)
            .build(Plain::new(0))
            .unwrap();
        let other = {
            let executor = executor.clone();
            thread::spawn(move || add(&executor).blocking_join())
        };
        let here = add(&executor).blocking_join();
        let ran = [here, other.join().unwrap()]
            .iter()
            .filter(|ran| ran.is_ok())
            .count();
        assert_eq!(
            executor.try_run(|number| number.get()).unwrap() as usize,
            ran
        );
    });
}

/// The last handle is dropped while another thread drains: queued jobs run, and then the state is dropped once.
#[test]
fn loom_the_last_handle_is_dropped() {
    loom::model(|| {
        let order = Arc::new(Mutex::new(Vec::new()));
        struct State(Arc<Mutex<Vec<&'static str>>>);
        impl Drop for State {
            fn drop(&mut self) {
                self.0.lock().unwrap().push("dropped");
            }
        }
        let executor = SerialExecutor::new(State(order.clone()));
        let other = {
            let executor = executor.clone();
            thread::spawn(move || {
                drop(executor.submit(|state| state.0.lock().unwrap().push("ran")))
            })
        };
        drop(executor.submit(|state| state.0.lock().unwrap().push("ran")));
        drop(executor);
        other.join().unwrap();
        assert_eq!(*order.lock().unwrap(), ["ran", "ran", "dropped"]);
    });
}

/// An abort of a queued job races with the drain.
#[test]
fn loom_abort_of_a_queued_job() {
    loom::model(|| {
        let executor = SerialExecutor::new(Plain::new(0));
        let other = {
            let executor = executor.clone();
            thread::spawn(move || {
                let handle = add(&executor);
                handle.abort();
                handle.blocking_join().is_ok()
            })
        };
        add(&executor).blocking_join().unwrap();
        let ran = other.join().unwrap();
        let total = executor.try_run(|number| number.get()).unwrap();
        assert_eq!(total, 1 + u32::from(ran));
    });
}

/// A panic in `try_run` is propagated, and poisons the state.
#[test]
fn loom_panic_in_try_run_against_submit() {
    loom::model(|| {
        let executor = SerialExecutor::new(Plain::new(0));
        let other = {
            let executor = executor.clone();
            thread::spawn(move || drop(add(&executor).blocking_join()))
        };
        let ran = catch_unwind(AssertUnwindSafe(|| {
            let ran: Result<(), _> = executor.try_run(|_| std::panic::resume_unwind(Box::new(())));
            ran.is_ok()
        }));
        assert_eq!(ran.is_err(), executor.is_poisoned());
        other.join().unwrap();
    });
}

/// The poison is cleared during `into_inner`.
#[test]
fn loom_into_inner_against_clear_poison() {
    loom::model(|| {
        let executor = SerialExecutor::new(());
        let panicked = executor.submit(|()| std::panic::resume_unwind(Box::new(())));
        let panicked: Result<(), _> = panicked.blocking_join();
        assert!(panicked.unwrap_err().is_panic());
        let other = {
            let executor = executor.clone();
            thread::spawn(move || executor.clear_poison())
        };
        let state = block_on(executor.into_inner());
        assert!(other.join().unwrap());
        // The poison is gone by now, and the executor still has the state if it was not returned.
        let state = state.or_else(|executor| block_on(executor.into_inner()));
        assert!(state.is_ok());
    });
}

/// The target refuses the drain.
#[test]
fn loom_a_refused_hand_over_against_submit() {
    struct Refuses;
    impl sealed::Sealed for Refuses {}
    impl Spawn for Refuses {
        fn spawn_work(&self, work: Work) -> Result<(), Work> {
            Err(work)
        }
    }
    loom::model(|| {
        let executor = SerialExecutor::builder()
            .capture_jobs(0)
            .drain_on(Refuses)
            .build(Plain::new(0))
            .unwrap();
        let other = {
            let executor = executor.clone();
            thread::spawn(move || {
                let posted = executor.post(|number| number.add(1)).blocking_join();
                u32::from(posted.is_ok())
            })
        };
        let here = u32::from(add(&executor).blocking_join().is_ok());
        let ran = here + other.join().unwrap();
        assert_eq!(executor.try_run(|number| number.get()).unwrap(), ran);
    });
}

/// A reset races with a submitter, whose job runs on the new state or is refused.
#[test]
fn loom_reset_against_submit() {
    loom::model(|| {
        let executor = poisoned();
        let other = {
            let executor = executor.clone();
            thread::spawn(move || match add(&executor).blocking_join() {
                Ok(()) => 1,
                Err(error) => {
                    assert!(error.is_poisoned());
                    0
                }
            })
        };
        let old = block_on(executor.reset(Plain::new(10)));
        assert_eq!(old.ok().unwrap().get(), 0);
        let ran = other.join().unwrap();
        assert_eq!(executor.try_run(|number| number.get()).unwrap(), 10 + ran);
    });
}

/// A reset waits for an owner whose job has panicked, and is not forgotten.
#[test]
fn loom_reset_against_a_panic() {
    loom::model(|| {
        let executor = SerialExecutor::new(Plain::new(0));
        let other = {
            let executor = executor.clone();
            thread::spawn(move || {
                let panics = executor.submit(|_| std::panic::resume_unwind(Box::new(())));
                let panicked: Result<(), _> = panics.blocking_join();
                assert!(panicked.unwrap_err().is_panic());
            })
        };
        let was_poisoned = block_on(executor.reset(Plain::new(10))).is_ok();
        other.join().unwrap();
        assert_ne!(executor.is_poisoned(), was_poisoned);
        if was_poisoned {
            assert_eq!(executor.try_run(|number| number.get()).unwrap(), 10);
        }
    });
}

/// Two resets of one poisoned state: one replaces it, and the other returns. If it waits instead, nothing wakes it, which
/// loom reports.
#[test]
fn loom_reset_against_reset() {
    loom::model(|| {
        let executor = poisoned();
        let other = {
            let executor = executor.clone();
            thread::spawn(move || block_on(executor.reset(Plain::new(10))).is_ok())
        };
        let here = block_on(executor.reset(Plain::new(20))).is_ok();
        assert_ne!(here, other.join().unwrap());
        let state = executor.try_run(|number| number.get()).unwrap();
        assert_eq!(state, if here { 20 } else { 10 });
    });
}

/// A reset replaces the state before the executor is closed, or returns. If it waits instead, nothing wakes it.
#[test]
fn loom_reset_against_close() {
    loom::model(|| {
        let executor = poisoned();
        let other = {
            let executor = executor.clone();
            thread::spawn(move || executor.close())
        };
        let was_reset = block_on(executor.reset(Plain::new(10))).is_ok();
        other.join().unwrap();
        assert_ne!(executor.is_poisoned(), was_reset);
        assert!(executor.is_closed());
    });
}

/// A job that was submitted before has ended, and its effects are visible.
#[test]
fn loom_idle_waits_for_a_job() {
    loom::model(|| {
        let number = Arc::new(Plain::new(0));
        let executor = SerialExecutor::new(Arc::clone(&number));
        let submitter = {
            let executor = executor.clone();
            thread::spawn(move || drop(executor.submit(|number| number.add(1))))
        };
        // Queued behind the other job, or run here.
        let own = executor.submit(|number| number.add(1));
        block_on(executor.idle());
        drop(own);
        submitter.join().unwrap();
        block_on(executor.idle());
        assert_eq!(number.get(), 2);
    });
}

/// Two callers wait for one owner.
#[test]
fn loom_each_caller_that_waits_until_it_is_idle_is_woken() {
    loom::model(|| {
        let executor = SerialExecutor::new(());
        let guard = executor.clone();
        let waiter = {
            let executor = executor.clone();
            thread::spawn(move || block_on(executor.idle()))
        };
        let submitter = thread::spawn(move || drop(guard.submit(|()| ())));
        block_on(executor.idle());
        waiter.join().unwrap();
        submitter.join().unwrap();
    });
}
