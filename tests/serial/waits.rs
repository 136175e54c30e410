//! `blocking_run`, and waits that would never end.

use std::sync::mpsc::channel;
use std::thread;

use throng::{JoinError, SerialExecutor};

use crate::capture::nest;
use crate::occupied::occupy;
use crate::support::{
    Drops, block_on, current_thread, join, message, multi_thread, poll, ready, receive, rounds,
    wait_until,
};

// ===== blocking_run =====

#[test]
fn blocking_run_runs_a_job_that_borrows_at_once_if_it_can() {
    let executor = SerialExecutor::new(String::from("state"));
    let mut seen = String::new();
    let here = executor.blocking_run(|state| {
        seen.push_str(state);
        thread::current().id()
    });
    assert_eq!(here.unwrap(), thread::current().id());
    assert_eq!(seen, "state");
    assert_eq!(executor.metrics().inline, 1);
}

#[test]
fn blocking_run_waits_until_a_busy_executor_has_run_the_job() {
    let executor = SerialExecutor::new(1);
    let busy = occupy(&executor);
    let borrowed = String::from("borrowed");
    let (output, ran_on) = thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let run = executor.blocking_run(|n| {
                *n += 1;
                (borrowed.as_str(), thread::current().id())
            });
            run.unwrap()
        });
        wait_until("the job is queued", || executor.metrics().queue_length == 1);
        let holder = busy.release();
        let (output, ran_on) = waits.join().unwrap();
        assert_eq!(ran_on, holder);
        (output, ran_on)
    });
    assert_eq!(output, "borrowed");
    assert_ne!(ran_on, thread::current().id());
}

#[test]
fn blocking_run_returns_the_error_of_the_job() {
    let executor = SerialExecutor::new(());
    let run = |executor: &SerialExecutor<()>| executor.blocking_run(|()| ()).unwrap_err();
    let panic = |()| -> () { panic!("on purpose") };
    let error = executor.blocking_run(|&mut ()| panic(())).unwrap_err();
    assert_eq!(message(error.into_panic()), "on purpose");
    assert!(run(&executor).is_poisoned());
    executor.close();
    assert!(run(&executor).is_closed());
}

#[test]
fn blocking_run_returns_when_its_job_panics_elsewhere_or_is_aborted() {
    for aborts in [false, true] {
        let executor = SerialExecutor::new(());
        let captured = Drops::new();
        let value = captured.value();
        let busy = occupy(&executor);
        thread::scope(|scope| {
            let waits = scope.spawn(|| {
                let job = move |_: &mut ()| -> () {
                    let _value = value;
                    panic!("on purpose");
                };
                executor.blocking_run(job).unwrap_err()
            });
            wait_until("the job is queued", || executor.metrics().queue_length == 1);
            if aborts {
                // It is counted a moment before it is queued.
                wait_until("it is aborted", || executor.shutdown_now() == 1);
                assert!(waits.join().unwrap().is_cancelled());
                busy.release();
            } else {
                busy.release();
                assert!(waits.join().unwrap().is_panic());
            }
        });
        assert_eq!(captured.count(), 1);
    }
}

#[test]
fn blocking_run_of_many_threads_is_a_mutex() {
    const THREADS: usize = 4;
    let executor = SerialExecutor::new(0);
    let jobs = rounds(2_000, 200_000);
    let total: usize = thread::scope(|scope| {
        let client = || {
            let mut own = 0;
            for _ in 0..jobs {
                let add = |n: &mut usize| {
                    *n += 1;
                    own += 1;
                };
                executor.blocking_run(add).unwrap();
            }
            own
        };
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(client)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    });
    assert_eq!(total, THREADS * jobs);
    assert_eq!(block_on(executor.into_inner()).unwrap(), total);
}

#[test]
fn blocking_run_at_any_depth_runs_at_once() {
    fn descend(depth: usize) -> usize {
        match depth.checked_sub(1) {
            None => 0,
            Some(rest) => {
                let executor = SerialExecutor::new(());
                1 + executor.blocking_run(|()| descend(rest)).unwrap()
            }
        }
    }
    assert_eq!(descend(50), 50);
}

// ===== deadlocks =====

/// Waits for jobs of an executor inside one of its jobs, in each way, and returns the errors.
fn wait_inside(executor: &SerialExecutor<usize>) -> [JoinError; 4] {
    let polled = {
        let mut handle = executor.submit(|n| *n += 1);
        ready(&mut handle).unwrap_err()
    };
    [
        executor.submit(|n| *n += 1).blocking_join().unwrap_err(),
        current_thread()
            .block_on(executor.post(|n| *n += 1))
            .unwrap_err(),
        polled,
        executor.blocking_run(|n| *n += 100).unwrap_err(),
    ]
}

#[test]
fn a_job_that_waits_for_its_own_executor_gets_an_error() {
    let executor = SerialExecutor::new(0);
    let again = executor.clone();
    let errors = ready(executor.submit(move |_| wait_inside(&again))).unwrap();
    for error in errors {
        assert!(error.is_would_deadlock(), "{error}");
        assert!(
            error.to_string().contains("executor waits for it"),
            "{error}"
        );
    }
    // The jobs that were queued have run nevertheless.
    assert_eq!(ready(executor.submit(|n| *n)).unwrap(), 3);
}

#[test]
fn a_job_that_waits_inside_jobs_of_other_executors_gets_an_error() {
    for depth in [1, 3, 20] {
        let executor = SerialExecutor::new(0);
        let again = executor.clone();
        let (told, is_told) = channel();
        drop(executor.submit(move |_| {
            let inner = move || told.send(wait_inside(&again)).unwrap();
            match depth {
                // Beyond the limit for deferral, which does not apply to `try_run`.
                20 => deep(depth, Box::new(inner)),
                _ => nest(depth, Box::new(inner)),
            }
        }));
        for error in receive(&is_told) {
            assert!(error.is_would_deadlock(), "{error}");
        }
        assert_eq!(ready(executor.submit(|n| *n)).unwrap(), 3);
    }
}

/// As `nest`, with jobs that are never deferred.
fn deep(depth: usize, f: Box<dyn FnOnce() + Send>) {
    match depth.checked_sub(1) {
        Some(depth) => SerialExecutor::new(())
            .try_run(|()| deep(depth, f))
            .unwrap(),
        None => f(),
    }
}

#[test]
fn a_job_of_a_drain_that_waits_for_its_own_executor_gets_an_error() {
    let runtime = multi_thread(1, "drain");
    let executor = SerialExecutor::new(0);
    let again = executor.clone();
    let _in = runtime.enter();
    let waits = executor.post(move |_| again.submit(|_| ()).blocking_join().unwrap_err());
    assert!(join(waits).unwrap().is_would_deadlock());
}

#[test]
fn a_job_waits_for_another_executor() {
    let (a, b) = (SerialExecutor::new("a"), SerialExecutor::new("b"));
    let busy = occupy(&b);
    let in_b = b.clone();
    let (queued, is_queued) = channel();
    thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let job = a.submit(move |_| {
                let inner = in_b.submit(|name| *name);
                queued.send(()).unwrap();
                inner.blocking_join().unwrap()
            });
            ready(job).unwrap()
        });
        receive(&is_queued);
        busy.release();
        assert_eq!(waits.join().unwrap(), "b");
    });
}

#[test]
fn a_job_that_waits_runs_deferred_jobs() {
    for run in [false, true] {
        let (told, is_told) = channel();
        nest(
            20,
            Box::new(move || {
                // This job was deferred itself, and runs with one job around it. So nest again, to a depth at which
                // jobs are deferred.
                nest_here(8, &move || {
                    let executor = SerialExecutor::new(1);
                    let mut handle = executor.submit(|n| *n + 1);
                    assert!(!handle.is_finished());
                    told.send(match run {
                        false => handle.blocking_join().unwrap(),
                        true => {
                            executor.blocking_run(|n| *n += 1).unwrap();
                            ready(&mut handle).unwrap()
                        }
                    })
                    .unwrap();
                });
            }),
        );
        assert_eq!(receive(&is_told), 2);
    }
}

/// Calls `f` inside `depth` more jobs on this thread.
pub(crate) fn nest_here(depth: usize, f: &dyn Fn()) {
    match depth.checked_sub(1) {
        Some(depth) => SerialExecutor::new(())
            .try_run(|()| nest_here(depth, f))
            .unwrap(),
        None => f(),
    }
}

#[test]
fn into_inner_inside_a_job_of_the_same_executor_is_an_error() {
    let executor = SerialExecutor::new(7);
    let again = executor.clone();
    let inside =
        ready(executor.submit(move |_| block_on(again.into_inner()).unwrap_err().is_current()));
    assert!(inside.unwrap());
    assert!(!executor.is_closed());
    assert_eq!(ready(Box::pin(executor.into_inner())).unwrap(), 7);
}

// ===== is_current =====

#[test]
fn is_current_is_true_inside_a_job() {
    let (a, b) = (SerialExecutor::new(()), SerialExecutor::new(()));
    assert!(!a.is_current());
    let (in_a, in_b) = (a.clone(), b.clone());
    let seen = a.submit(move |()| {
        let before = (in_a.is_current(), in_b.is_current());
        let again = in_b.clone();
        let inside = b.submit(move |()| (in_a.is_current(), again.is_current()));
        (before, ready(inside).unwrap(), in_b.is_current())
    });
    let ((a_in_a, b_in_a), inside, b_after) = ready(seen).unwrap();
    assert!(a_in_a && !b_in_a && !b_after);
    assert_eq!(inside, (true, true));
    assert!(!a.is_current());
    a.try_run(|()| assert!(a.is_current())).unwrap();
    a.blocking_run(|()| assert!(a.is_current())).unwrap();

    let busy = occupy(&a);
    assert!(!a.is_current());
    let again = a.clone();
    let queued = a.submit(move |()| again.is_current());
    busy.release();
    assert!(join(queued).unwrap());
}

#[test]
fn the_outermost_job_has_ended_when_deferred_jobs_run() {
    let executor = SerialExecutor::new(0);
    let again = executor.clone();
    let (told, is_told) = channel();
    drop(executor.submit(move |_| {
        nest(
            20,
            Box::new(move || {
                told.send((again.is_current(), again.blocking_run(|n| *n += 1)))
                    .unwrap();
            }),
        );
    }));
    let (current, ran) = receive(&is_told);
    assert!(!current);
    ran.unwrap();
    assert_eq!(ready(executor.submit(|n| *n)).unwrap(), 1);
}

#[test]
fn a_job_may_check_its_handles_without_waiting() {
    let executor = SerialExecutor::new(());
    let again = executor.clone();
    let handle = ready(executor.submit(move |()| {
        let handle = again.submit(|()| ());
        assert!(!handle.is_finished());
        handle
    }));
    let mut handle = handle.unwrap();
    assert!(poll(&mut handle).is_ready());
}
