//! Handing the queue over to a runtime or a pool.

use std::sync::Arc;
use std::time::{Duration, Instant};

use throng::{BlockingPool, JoinHandle, SerialExecutor};

use crate::capture::Endless;
use crate::support::{
    Drops, current_thread, join, multi_thread, ready, thread_name, wait_until, within,
};

#[test]
fn the_rest_is_handed_over_to_the_submitters_runtime() {
    let runtime = multi_thread(1, "drain");
    let executor = SerialExecutor::builder().capture_jobs(1).build(()).unwrap();
    let names = {
        let _in = runtime.enter();
        nested_names(&executor)
    };
    assert_eq!(names, [thread_name(), "drain".into(), "drain".into()]);
    assert_eq!(executor.metrics().handed_over, 1);
}

#[test]
fn the_rest_is_handed_over_to_a_given_runtime() {
    let runtime = multi_thread(1, "drain");
    let executor = SerialExecutor::builder()
        .capture_jobs(0)
        .drain_on(runtime.handle().clone())
        .build(())
        .unwrap();
    assert_eq!(nested_names(&executor), ["drain"; 3]);
}

#[test]
fn the_rest_is_handed_over_to_a_pool() {
    let pool = BlockingPool::builder().name("pool").build().unwrap();
    let executor = SerialExecutor::builder()
        .capture_jobs(0)
        .drain_on(pool.clone())
        .build(())
        .unwrap();
    assert_eq!(nested_names(&executor), ["pool-0"; 3]);
    wait_until("the pool counts the drain", || {
        pool.metrics().completed == 1
    });
}

#[test]
fn a_caller_runs_a_queue_that_a_pool_refuses() {
    let pool = BlockingPool::builder().build().unwrap();
    pool.close();
    let executor = SerialExecutor::builder()
        .capture_jobs(0)
        .drain_on(pool)
        .build(())
        .unwrap();
    let here = thread_name();
    assert_eq!(nested_names(&executor), [here.as_str(); 3]);
}

/// Submits three jobs inside another job, and returns the names of the threads that run them.
fn nested_names(executor: &SerialExecutor<()>) -> Vec<String> {
    let again = executor.clone();
    let outer = executor.submit(move |()| {
        let name = |_| again.submit(|()| thread_name());
        [(); 3].map(name)
    });
    let inner = ready(outer).unwrap();
    inner.into_iter().map(|name| join(name).unwrap()).collect()
}

#[test]
fn a_drain_lets_other_tasks_of_its_thread_run() {
    current_thread().block_on(async {
        let executor = SerialExecutor::builder().capture_jobs(0).build(()).unwrap();
        let endless = Arc::new(Endless::new());
        endless.start(&executor, || ());
        for _ in 0..20 {
            tokio::time::sleep(Duration::from_millis(1)).await;
            assert!(Instant::now() < endless.deadline, "the drain never yielded");
        }
        endless.stop();
        within(executor.into_inner()).await.unwrap();
    });
}

#[test]
fn a_runtime_that_shuts_down_cancels_the_queue_that_it_was_handed() {
    let runtime = current_thread();
    let executor = SerialExecutor::new(0);
    let captured = Drops::new();
    let handles: Vec<JoinHandle<()>> = {
        let _in = runtime.enter();
        let job = |_| {
            let captured = captured.value();
            executor.post(move |n: &mut u32| {
                *n += 1;
                drop(captured);
            })
        };
        (0..10).map(job).collect()
    };
    assert_eq!(captured.count(), 0);

    drop(runtime);
    assert_eq!(captured.count(), 10);
    for handle in handles {
        assert!(ready(handle).unwrap_err().is_cancelled());
    }
    assert_eq!(ready(executor.submit(|n| *n)).unwrap(), 0);
    assert!(!executor.is_poisoned());
}

#[test]
fn a_runtime_that_has_shut_down_cancels_a_queue_that_it_is_handed() {
    let runtime = current_thread();
    let dead = runtime.handle().clone();
    drop(runtime);
    let executor = SerialExecutor::builder().drain_on(dead).build(0).unwrap();
    assert!(
        ready(executor.post(|n| *n += 1))
            .unwrap_err()
            .is_cancelled()
    );
    assert_eq!(ready(executor.submit(|n| *n)).unwrap(), 0);
}
