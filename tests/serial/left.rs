//! What is left to the outermost job on a thread: who waits inside of that job runs it first.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use throng::{BlockingPool, ComputePool, JoinError, SerialExecutor};

use super::support::{block_on, multi_thread, ready, receive, wait_until};
use super::waits::nest_here;

/// As deep as a job may run at once: one that is submitted there is left.
const DEPTH: usize = 8;

/// Runs `f` on a thread of its own, inside of jobs of so many executors that a job is left to the outermost.
fn deep<T: Send + 'static>(f: impl Fn() -> T + Send + 'static) -> T {
    let (tell, told) = channel();
    thread::spawn(move || nest_here(DEPTH, &|| tell.send(f()).unwrap()));
    receive(&told)
}

/// An executor with a job that is left to the outermost job of this thread.
fn left() -> SerialExecutor<usize> {
    let executor = SerialExecutor::new(0);
    drop(executor.submit(|n| *n += 1));
    assert_eq!(executor.metrics().queue_length, 1);
    executor
}

#[test]
fn who_waits_runs_first_what_others_wait_for_on_other_threads() {
    let value = deep(|| {
        let (x, z) = (left(), SerialExecutor::new(7));
        let other = thread::spawn({
            let (x, z) = (x.clone(), z.clone());
            move || {
                let job = move |_: &mut i32| x.blocking_run(|n| *n).unwrap();
                ready(z.submit(job)).unwrap()
            }
        });
        // It owns `z`, and waits for `x`, whose drain lies here.
        wait_until("the other waits", || x.metrics().queue_length == 2);
        let value = z.blocking_run(|n| *n).unwrap();
        assert_eq!(other.join().unwrap(), 1);
        value
    });
    assert_eq!(value, 7);
}

#[test]
fn who_waits_for_a_task_of_a_pool_runs_first_what_that_waits_for() {
    let blocking = BlockingPool::builder().build().unwrap();
    let value = deep(move || {
        let x = left();
        let task = blocking.spawn_blocking(move || x.blocking_run(|n| *n).unwrap());
        task.blocking_join()
    });
    assert_eq!(value.unwrap(), 1);

    let compute = ComputePool::builder().threads(1).build().unwrap();
    let value = deep(move || {
        let x = left();
        let task = compute.spawn(move || x.blocking_run(|n| *n).unwrap());
        task.blocking_join()
    });
    assert_eq!(value.unwrap(), 1);
}

#[test]
fn into_inner_and_closed_run_what_was_left() {
    assert_eq!(deep(|| block_on(left().into_inner()).unwrap()), 1);
    deep(|| {
        let executor = left();
        executor.close();
        block_on(executor.closed());
        assert_eq!(executor.metrics().queued, 1);
    });
}

#[test]
fn reserve_runs_what_was_left_if_there_is_no_room() {
    let value = deep(|| {
        let executor = SerialExecutor::builder().capacity(1).build(0);
        // The first is left without a place: nothing was queued before it.
        drop(executor.submit(|n| *n += 1));
        drop(executor.submit(|n| *n += 1));
        assert!(executor.try_submit(|n| *n += 100).unwrap_err().is_full());
        let permit = block_on(executor.reserve()).unwrap();
        ready(permit.submit(|n| *n))
    });
    assert_eq!(value.unwrap(), 2);
}

// ===== jobs of others =====

/// Inside a job of `outer`: has `inner` run a job, during which another thread queues one for `inner` that
/// waits for `outer`, and tells what became of that.
fn queue_one_that_waits_for(outer: &SerialExecutor<usize>, inner: &SerialExecutor<usize>) -> Told {
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

type Told = Receiver<Result<usize, JoinError>>;

#[test]
fn a_job_of_others_that_nobody_else_can_run_is_told_what_it_must_not_wait_for() {
    let (outer, inner) = (SerialExecutor::new(1), SerialExecutor::new(0));
    let again = (outer.clone(), inner.clone());
    let told = ready(outer.submit(move |_| queue_one_that_waits_for(&again.0, &again.1)));
    assert!(receive(&told.unwrap()).unwrap_err().is_would_deadlock());
    assert_eq!(inner.metrics().captured, 1);
}

#[test]
fn a_job_of_others_is_handed_over_at_once_if_there_is_a_target() {
    let runtime = multi_thread(1, "drain");
    let drain_on = runtime.handle().clone();
    let outer = SerialExecutor::new(1);
    let inner = SerialExecutor::builder().drain_on(drain_on).build(0);
    let again = (outer.clone(), inner.clone());
    let told = ready(outer.submit(move |_| queue_one_that_waits_for(&again.0, &again.1)));
    assert_eq!(inner.metrics().handed_over, 1);
    assert_eq!(receive(&told.unwrap()).unwrap(), 1);
    assert_eq!(inner.metrics().captured, 0);
}

#[test]
fn a_job_of_others_that_a_pool_refuses_runs_here() {
    let pool = BlockingPool::builder().build().unwrap();
    pool.close();
    let outer = SerialExecutor::new(1);
    let inner = SerialExecutor::builder().drain_on(pool).build(0);
    let again = (outer.clone(), inner.clone());
    let told = ready(outer.submit(move |_| queue_one_that_waits_for(&again.0, &again.1)));
    assert!(receive(&told.unwrap()).unwrap_err().is_would_deadlock());
}

#[test]
fn of_an_executor_that_was_left_no_job_of_others_runs_inside_of_jobs() {
    let runtime = multi_thread(1, "drain");
    let drain_on = runtime.handle().clone();
    let (tell, told) = channel();
    let outer = SerialExecutor::new(1);
    let again = outer.clone();
    let wait_inside = move || {
        let inner = SerialExecutor::builder()
            .drain_on(drain_on.clone())
            .build(0);
        let own = inner.submit(|n| *n += 1);
        assert_eq!(inner.metrics().queue_length, 1);
        let (outer, other, tell) = (again.clone(), inner.clone(), tell.clone());
        let job = move |_: &mut usize| tell.send(outer.blocking_run(|n| *n)).unwrap();
        let queue = thread::spawn(move || drop(other.submit(job)));
        queue.join().unwrap();
        // It runs first what was left.
        own.blocking_join().unwrap();
        assert_eq!(inner.metrics().captured, 1);
        assert_eq!(inner.metrics().handed_over, 1);
    };
    let nested = outer.submit(move |_| nest_here(DEPTH - 1, &wait_inside));
    ready(nested).unwrap();
    assert_eq!(receive(&told).unwrap(), 1);
}

#[test]
fn what_a_guard_cancels_knows_whose_job_it_was() {
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
        // The runtime is that of who hands over: that of the job would be a target for ever.
        let _in = runtime.enter();
        let busy = executor.submit(move |()| thread::spawn(keep).join().unwrap());
        ready(busy).unwrap();
    }
    let guard = receive(&given);
    drop(runtime);

    let (tell, told) = channel();
    let asks = Asks(executor.clone(), tell);
    let queued = executor.submit(move |()| drop(asks));
    // It has the executor, and no target to hand it over to.
    drop(guard);
    assert!(receive(&told));
    assert!(ready(queued).unwrap_err().is_cancelled());
}

// ===== how deep =====

#[test]
fn so_many_wait_inside_of_one_another_and_no_more() {
    const WAITS: usize = 64;

    /// How many waited inside of this one: until one is told, and not again when its job runs after all.
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

    // Twice on one thread: those that have ended are not counted any more.
    let waits = deep(|| [(); 2].map(|()| wait_in_a_job(&Arc::default())));
    assert_eq!(waits, [WAITS; 2]);
}
