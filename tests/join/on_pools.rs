//! The other parts run their work on a pool: both pools keep the same contract.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::future::Future;
use std::sync::mpsc;
use std::thread;

use throng::{BlockingPool, CompletionStream, ComputePool, JoinHandle, SerialExecutor, Spawn};

use crate::gated;
use crate::support::{
    Gate, TEST_TIMEOUT, current_thread, join, receive, thread_name, wait_until, within,
};

/// A pool, with what the contract needs of it.
trait Pool: Spawn + Clone + Debug + Send + Sync + 'static {
    fn called(name: &str) -> Self;

    /// A pool of one thread, which accepts this number of tasks while the thread is busy.
    fn with_queue(tasks: usize) -> Self;

    fn spawn_task(&self, f: impl FnOnce() + Send + 'static) -> JoinHandle<()>;

    fn end(&self);

    fn abort_queued(&self) -> usize;

    /// Returns the numbers of tasks that were completed, panicked, cancelled and rejected.
    fn counts(&self) -> [u64; 4];

    /// Waits until these numbers of tasks were completed, panicked, cancelled and rejected.
    #[track_caller]
    fn has_counted(&self, expected: [u64; 4]) {
        wait_until("the tasks are counted", || self.counts() == expected);
    }
}

/// What both pools have under one name, and with types of their own.
macro_rules! same_name_in_both_pools {
    () => {
        fn called(name: &str) -> Self {
            Self::builder().name(name).build().unwrap()
        }

        fn end(&self) {
            self.close();
        }

        fn abort_queued(&self) -> usize {
            self.shutdown_now()
        }

        fn counts(&self) -> [u64; 4] {
            let metrics = self.metrics();
            [
                metrics.completed,
                metrics.panicked,
                metrics.cancelled,
                metrics.rejected,
            ]
        }
    };
}

impl Pool for BlockingPool {
    fn with_queue(tasks: usize) -> Self {
        let mut builder = Self::builder();
        builder.max_threads(1).queue_capacity(tasks);
        builder.build().unwrap()
    }

    fn spawn_task(&self, f: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
        self.spawn_blocking(f)
    }

    same_name_in_both_pools!();
}

impl Pool for ComputePool {
    fn with_queue(tasks: usize) -> Self {
        let mut builder = Self::builder();
        builder.threads(1).max_outstanding(1 + tasks);
        builder.build().unwrap()
    }

    fn spawn_task(&self, f: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
        self.spawn(f)
    }

    same_name_in_both_pools!();
}

/// Keeps the only thread of a pool busy until the gate is opened.
fn keep_busy(pool: &impl Pool) -> (JoinHandle<()>, Gate) {
    let (task, has_started, gate) = gated(());
    let busy = pool.spawn_task(task);
    receive(&has_started);
    (busy, gate)
}

fn run<F: Future>(future: F) -> F::Output {
    current_thread().block_on(within(future))
}

fn a_serial_executor_drains<P: Pool>() {
    let pool = P::called("drain");
    let serial = SerialExecutor::builder()
        .drain_on(pool.clone())
        .build(Vec::new())
        .unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for n in 0..500 {
                    drop(serial.post(move |state: &mut Vec<_>| {
                        state.push((n, thread_name()));
                    }));
                }
            });
        }
    });
    let state = run(serial.into_inner()).unwrap();
    assert_eq!(state.len(), 2_000);
    for (_, name) in state {
        assert!(name.starts_with("drain-"));
    }
    // The drain ends after the last job.
    wait_until("the drain is counted", || pool.counts()[0] > 0);
}

fn a_serial_executor_survives_a_refusal<P: Pool>() {
    let pool = P::called("closed");
    pool.end();
    let serial = SerialExecutor::builder()
        .drain_on(pool.clone())
        .build(0)
        .unwrap();
    let error = join(serial.post(|state| *state += 1)).unwrap_err();
    assert!(error.is_cancelled());
    pool.has_counted([0, 0, 0, 1]);
    join(serial.submit(|state| *state += 2)).unwrap();
    assert_eq!(run(serial.into_inner()).unwrap(), 2);
}

fn a_completion_stream_runs_closures<P: Pool>() {
    let pool = P::called("stream");
    let (jobs, mut done) = CompletionStream::builder().max_running(8).build().unwrap();
    let seen = run(async {
        let submitting = tokio::spawn({
            let pool = pool.clone();
            async move {
                for n in 0..1_000 {
                    let job = move || {
                        assert!(n % 100 != 3, "as it should");
                        (n * n, thread_name())
                    };
                    jobs.submit_blocking(&pool, n, job).await.unwrap();
                }
            }
        });
        let mut seen = BTreeSet::new();
        while let Some(completed) = done.next().await {
            let n = completed.tag;
            assert!(seen.insert(n), "{n} came twice");
            match completed.outcome {
                Ok((square, name)) => {
                    assert_eq!(square, n * n);
                    assert!(name.starts_with("stream-"));
                }
                Err(error) => assert!(error.is_panic() && n % 100 == 3),
            }
        }
        submitting.await.unwrap();
        seen
    });
    assert!(seen.into_iter().eq(0..1_000));
    pool.has_counted([990, 10, 0, 0]);
}

fn a_full_or_closed_pool_rejects<P: Pool>() {
    let pool = P::with_queue(0);
    let (busy, gate) = keep_busy(&pool);
    let (jobs, mut done) = CompletionStream::builder().build().unwrap();
    run(async {
        jobs.submit_blocking(&pool, "full", || ()).await.unwrap();
        let full = done.next().await.unwrap();
        assert_eq!(full.tag, "full");
        assert!(full.outcome.unwrap_err().is_rejected());
        pool.end();
        jobs.submit_blocking(&pool, "closed", || ()).await.unwrap();
        let closed = done.next().await.unwrap();
        assert_eq!(closed.tag, "closed");
        assert!(closed.outcome.unwrap_err().is_rejected());
    });
    gate.open();
    join(busy).unwrap();
    pool.has_counted([1, 0, 0, 2]);
}

fn dropping_a_stream_aborts_its_queued_closures<P: Pool>() {
    let pool = P::with_queue(1);
    let (busy, gate) = keep_busy(&pool);
    let (jobs, done) = CompletionStream::builder().build().unwrap();
    let (captured, drops) = mpsc::channel::<()>();
    run(async {
        let job = move || captured.send(()).is_ok();
        jobs.submit_blocking(&pool, (), job).await.unwrap();
    });
    drop(done);
    // The thread is still busy, and the closure is dropped: no sender is left, and nothing was sent.
    assert_eq!(
        drops.recv_timeout(TEST_TIMEOUT),
        Err(mpsc::RecvTimeoutError::Disconnected)
    );
    gate.open();
    join(busy).unwrap();
    pool.has_counted([1, 0, 1, 0]);
    // The permit of the aborted closure is free again.
    let (busy, gate) = keep_busy(&pool);
    let queued = pool.spawn_task(|| ());
    gate.open();
    join(busy).unwrap();
    join(queued).unwrap();
}

fn a_shutdown_of_the_pool_ends_what_a_stream_waits_for<P: Pool>() {
    let pool = P::with_queue(10);
    let (busy, gate) = keep_busy(&pool);
    let (jobs, mut done) = CompletionStream::builder().build().unwrap();
    run(async {
        for n in 0..10 {
            jobs.submit_blocking(&pool, n, || ()).await.unwrap();
        }
        assert_eq!(pool.abort_queued(), 10);
        drop(jobs);
        let mut items = 0;
        while let Some(completed) = done.next().await {
            assert!(completed.outcome.unwrap_err().is_cancelled());
            items += 1;
        }
        assert_eq!(items, 10);
    });
    gate.open();
    join(busy).unwrap();
}

macro_rules! contract {
    ($($pool:ident: $type:ty),*; $tests:tt) => { $(contract!(@pool $pool $type $tests);)* };
    (@pool $pool:ident $type:ty { $($test:ident)* }) => {
        mod $pool {
            $(
                #[test]
                fn $test() {
                    super::$test::<$type>();
                }
            )*
        }
    };
}

contract! {
    blocking: throng::BlockingPool, compute: throng::ComputePool;
    {
        a_serial_executor_drains
        a_serial_executor_survives_a_refusal
        a_completion_stream_runs_closures
        a_full_or_closed_pool_rejects
        dropping_a_stream_aborts_its_queued_closures
        a_shutdown_of_the_pool_ends_what_a_stream_waits_for
    }
}
