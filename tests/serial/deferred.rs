//! Jobs that are nested too deep are deferred to the outermost job on the thread. A job that waits there runs the
//! deferred jobs first.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use throng::{BlockingPool, ComputePool, JoinError, SerialExecutor};

use crate::support::{block_on, multi_thread, ready, receive, wait_until};
use crate::waits::nest_here;

/// The depth at which jobs are deferred.
const DEPTH: usize = 8;

/// Runs `f` on a new thread, nested so deep that the jobs it submits are deferred.
fn deep<T: Send + 'static>(f: impl Fn() -> T + Send + 'static) -> T {
    let (tell, told) = channel();
    thread::spawn(move || nest_here(DEPTH, &|| tell.send(f()).unwrap()));
    receive(&told)
}

/// An executor with a job that is deferred.
fn deferred() -> SerialExecutor<usize> {
    let executor = SerialExecutor::new(0);
    drop(executor.submit(|n| *n += 1));
    assert_eq!(executor.metrics().queue_length, 1);
    executor
}

#[test]
fn a_job_that_waits_first_runs_deferred_jobs_that_other_threads_wait_for() {
    let value = deep(|| {
        let (x, z) = (deferred(), SerialExecutor::new(7));
        let other = thread::spawn({
            let (x, z) = (x.clone(), z.clone());
            move || {
                let job = move |_: &mut i32| x.blocking_run(|n| *n).unwrap();
                ready(z.submit(job)).unwrap()
            }
        });
        // It owns `z` and waits for `x`, whose drain is deferred on this thread.
        wait_until("the other waits", || x.metrics().queue_length == 2);
        let value = z.blocking_run(|n| *n).unwrap();
        assert_eq!(other.join().unwrap(), 1);
        value
    });
    assert_eq!(value, 7);
}

#[test]
fn a_job_that_waits_for_a_pool_task_first_runs_what_the_task_waits_for() {
    let blocking = BlockingPool::builder().build().unwrap();
    let value = deep(move || {
        let x = deferred();
        let task = blocking.spawn_blocking(move || x.blocking_run(|n| *n).unwrap());
        task.blocking_join()
    });
    assert_eq!(value.unwrap(), 1);

    let compute = ComputePool::builder().threads(1).build().unwrap();
    let value = deep(move || {
        let x = deferred();
        let task = compute.spawn(move || x.blocking_run(|n| *n).unwrap());
        task.blocking_join()
    });
    assert_eq!(value.unwrap(), 1);
}

#[test]
fn into_inner_and_closed_run_deferred_jobs() {
    assert_eq!(deep(|| block_on(deferred().into_inner()).unwrap()), 1);
    deep(|| {
        let executor = deferred();
        executor.close();
        block_on(executor.closed());
        assert_eq!(executor.metrics().queued, 1);
    });
}

#[test]
fn reserve_runs_deferred_jobs_if_the_queue_is_full() {
    let value = deep(|| {
        let executor = SerialExecutor::builder()
            .queue_capacity(1)
            .build(0)
            .unwrap();
        // The first one is deferred without a permit: the executor was idle.
        drop(executor.submit(|n| *n += 1));
        drop(executor.submit(|n| *n += 1));
        assert!(executor.try_submit(|n| *n += 100).unwrap_err().is_full());
        let permit = block_on(executor.reserve()).unwrap();
        ready(permit.submit(|n| *n))
    });
    assert_eq!(value.unwrap(), 2);
}

// ===== jobs of others =====

/// Called inside a job of `outer`. Runs a job of `inner`, during which another thread queues a job for `inner` that
/// waits for `outer`. Returns a channel that receives the result of that wait.
fn queue_a_wait_for(outer: &SerialExecutor<usize>, inner: &SerialExecutor<usize>) -> Waited {
    let (tell, told) = channel();
    let (outer, other) = (outer.clone(), inner.clone());
    let job = move |_: &mut usize| {
        thread::spawn(move || {
            let job = move |_: &mut usize| tell.send(outer.blocking_run(|n| *n)).unwrap();
            drop(other.submit(job));
        })
        .join()
        .unwrap();
    };
    ready(inner.submit(job)).unwrap();
    told
}

type Waited = Receiver<Result<usize, JoinError>>;

#[test]
fn a_captured_job_gets_an_error_if_it_waits_for_an_executor_of_this_thread() {
    let (outer, inner) = (SerialExecutor::new(1), SerialExecutor::new(0));
    let again = (outer.clone(), inner.clone());
    let told = ready(outer.submit(move |_| queue_a_wait_for(&again.0, &again.1)));
    assert!(receive(&told.unwrap()).unwrap_err().is_would_deadlock());
    assert_eq!(inner.metrics().captured, 1);
}

#[test]
fn inside_a_job_of_another_executor_the_queue_is_handed_over_at_once() {
    let runtime = multi_thread(1, "drain");
    let drain_on = runtime.handle().clone();
    let outer = SerialExecutor::new(1);
    let inner = SerialExecutor::builder()
        .drain_on(drain_on)
        .build(0)
        .unwrap();
    let again = (outer.clone(), inner.clone());
    let told = ready(outer.submit(move |_| queue_a_wait_for(&again.0, &again.1)));
    assert_eq!(inner.metrics().handed_over, 1);
    assert_eq!(receive(&told.unwrap()).unwrap(), 1);
    assert_eq!(inner.metrics().captured, 0);
}

#[test]
fn inside_a_job_of_another_executor_a_queue_that_a_pool_refuses_is_captured() {
    let pool = BlockingPool::builder().build().unwrap();
    pool.close();
    let outer = SerialExecutor::new(1);
    let inner = SerialExecutor::builder().drain_on(pool).build(0).unwrap();
    let again = (outer.clone(), inner.clone());
    let told = ready(outer.submit(move |_| queue_a_wait_for(&again.0, &again.1)));
    assert!(receive(&told.unwrap()).unwrap_err().is_would_deadlock());
}

#[test]
fn a_deferred_drain_that_runs_inside_a_job_hands_the_jobs_of_others_over() {
    let runtime = multi_thread(1, "drain");
    let drain_on = runtime.handle().clone();
    let (tell, told) = channel();
    let outer = SerialExecutor::new(1);
    let again = outer.clone();
    let wait_inside = move || {
        let inner = SerialExecutor::builder()
            .drain_on(drain_on.clone())
            .build(0)
            .unwrap();
        let own = inner.submit(|n| *n += 1);
        assert_eq!(inner.metrics().queue_length, 1);
        let (outer, other, tell) = (again.clone(), inner.clone(), tell.clone());
        let job = move |_: &mut usize| tell.send(outer.blocking_run(|n| *n)).unwrap();
        let queue = thread::spawn(move || drop(other.submit(job)));
        queue.join().unwrap();
        // It runs the deferred job first.
        own.blocking_join().unwrap();
        assert_eq!(inner.metrics().captured, 1);
        assert_eq!(inner.metrics().handed_over, 1);
    };
    let nested = outer.submit(move |_| nest_here(DEPTH - 1, &wait_inside));
    ready(nested).unwrap();
    assert_eq!(receive(&told).unwrap(), 1);
}

#[test]
fn what_a_guard_aborts_is_inside_the_executor() {
    struct Asks(SerialExecutor<()>, Sender<bool>);

    impl Drop for Asks {
        fn drop(&mut self) {
            self.1.send(self.0.is_current()).unwrap();
        }
    }

    let executor = SerialExecutor::new(());
    let runtime = multi_thread(1, "drain");
    let (give, given) = channel();
    let again = executor.clone();
    let keep = move || {
        drop(again.submit_async(|guard| async move {
            give.send(guard).unwrap();
            pending::<()>().await;
        }));
    };
    {
        // The submitting thread has no runtime, so the executor does not remember one.
        let _in = runtime.enter();
        let busy = executor.submit(move |()| thread::spawn(keep).join().unwrap());
        ready(busy).unwrap();
    }
    let guard = receive(&given);
    drop(runtime);

    let (tell, told) = channel();
    let asks = Asks(executor.clone(), tell);
    let queued = executor.submit(move |()| drop(asks));
    // It owns the executor, and there is no target to hand over to.
    drop(guard);
    assert!(receive(&told));
    assert!(ready(queued).unwrap_err().is_cancelled());
}

// ===== how deep =====

#[test]
fn the_number_of_nested_waits_is_bounded() {
    const WAITS: usize = 64;

    /// Counts the nested waits up to the one that fails. Its job still runs later, and then waits no more.
    fn wait_in_a_job(over: &Arc<AtomicBool>) -> usize {
        if over.load(Ordering::SeqCst) {
            return 0;
        }
        let (tell, told) = channel();
        let again = Arc::clone(over);
        let job = move |_: &mut ()| _ = tell.send(wait_in_a_job(&again));
        match SerialExecutor::new(()).submit(job).blocking_join() {
            Ok(()) => 1 + receive(&told),
            Err(error) => {
                assert!(error.is_would_deadlock(), "{error}");
                over.store(true, Ordering::SeqCst);
                0
            }
        }
    }

    // Twice on one thread: waits that have ended do not count.
    let waits = deep(|| [(); 2].map(|()| wait_in_a_job(&Arc::default())));
    assert_eq!(waits, [WAITS; 2]);
}
