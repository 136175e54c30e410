//! Leases: who keeps them, who loses them, and what comes of a run that has lost its own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use throng::durable::{
    DurableClient, DurableExecutor, Metrics, Status, StopReason, TaskContext, TaskError,
};

use crate::harness::{App, TestStore, builder, reaches, spawn, start, start_as, until};
use crate::ledger::assert_balanced;
use crate::support::{Gate, current_thread, receive, within};

on_all_stores! {
    a_task_that_computes_for_longer_than_its_lease_keeps_it,
    a_task_that_waits_for_longer_than_its_lease_keeps_it,
    a_runtime_that_is_stuck_loses_its_leases,
    a_runtime_that_works_keeps_its_leases_however_short_the_stall_limit_is,
    a_task_goes_on_elsewhere_when_its_runtime_is_stuck,
    it_goes_on_with_one_that_was_idle_all_the_time,
    a_stuck_runtime_costs_no_task_its_life_that_has_not_begun,
    a_lease_may_be_as_long_as_there_is_time,
    a_stall_limit_may_be_as_long_as_there_is_time,
}

/// Long enough for a machine that is busy with other tests.
const LEASE: Duration = Duration::from_millis(600);

/// An executor on a runtime of one thread of its own, which goes on until that is told to end.
struct Alone {
    executor: Arc<DurableExecutor>,
    end: tokio::sync::oneshot::Sender<()>,
    thread: thread::JoinHandle<Metrics>,
}

impl Alone {
    fn start<F>(
        client: &DurableClient,
        stall_limit: Duration,
        act: impl Fn(u64, TaskContext<App>) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<u64, TaskError>> + Send + 'static,
    {
        Self::start_with(client, LEASE, stall_limit, act)
    }

    fn start_with<F>(
        client: &DurableClient,
        lease: Duration,
        stall_limit: Duration,
        act: impl Fn(u64, TaskContext<App>) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<u64, TaskError>> + Send + 'static,
    {
        let mut builder = builder(client);
        builder.lease(lease).stall_limit(stall_limit);
        let (end, ended) = tokio::sync::oneshot::channel();
        let (started, starts) = mpsc::channel();
        let thread = thread::spawn(move || {
            current_thread().block_on(async {
                let executor = Arc::new(start_as(builder, act).await);
                started.send(Arc::clone(&executor)).ok();
                ended.await.ok();
                executor.shutdown(Duration::ZERO).await;
                executor.metrics()
            })
        });
        let executor = receive(&starts);
        Self {
            executor,
            end,
            thread,
        }
    }

    /// Ends the executor, and returns its metrics.
    async fn end(self) -> Metrics {
        self.end.send(()).ok();
        until("it has ended", || self.thread.is_finished()).await;
        self.thread.join().expect("it does not panic")
    }
}

async fn a_task_that_computes_for_longer_than_its_lease_keeps_it(store: TestStore) {
    let client = store.client().await;
    let alone = Alone::start(&client, Duration::from_secs(60), |_, cx| async move {
        thread::sleep(3 * LEASE);
        assert_eq!(cx.stop_reason(), None);
        Ok(cx.attempt().into())
    });
    let handle = spawn(&client, 1).await;
    reaches(&handle, Status::Running).await;
    let _other = start(&store.client().await, |_, _| async { Ok(100) }).await;
    assert_eq!(within(handle).await.unwrap(), 1);
    let metrics = alone.end().await;
    assert_eq!((metrics.leases_lost, metrics.rejected), (0, 0));
    let counts = client.counts().await.unwrap();
    assert_eq!((counts.claimed, counts.crashed, counts.done), (1, 0, 1));
}

async fn a_task_that_waits_for_longer_than_its_lease_keeps_it(store: TestStore) {
    let client = store.client().await;
    let executor = start_as(builder(&client).lease(LEASE), |number, _| async move {
        tokio::time::sleep(3 * LEASE).await;
        Ok(number)
    })
    .await;
    assert_eq!(within(spawn(&client, 1).await).await.unwrap(), 1);
    let counts = client.counts().await.unwrap();
    assert_eq!((counts.claimed, executor.metrics().leases_lost), (1, 0));
}

async fn a_runtime_that_is_stuck_loses_its_leases(store: TestStore) {
    let client = store.client().await;
    let (tell, told) = mpsc::channel();
    let alone = Alone::start(&client, Duration::from_millis(100), move |_, cx| {
        let tell = tell.clone();
        async move {
            if cx.crashes() > 0 {
                return Ok(1);
            }
            // The handler looks, since nothing on its runtime can tell it.
            let end = Instant::now() + Duration::from_secs(20);
            while cx.stop_reason().is_none() && Instant::now() < end {
                thread::sleep(Duration::from_millis(1));
            }
            tell.send(cx.stop_reason()).ok();
            Ok(100)
        }
    });
    let handle = spawn(&client, 1).await;
    // It is told that others may have the task. Nobody has: what it comes to counts.
    assert_eq!(within(handle).await.unwrap(), 100);
    assert_eq!(receive(&told), Some(StopReason::LeaseLost));
    let metrics = alone.end().await;
    assert_eq!(
        (metrics.leases_lost, metrics.claimed, metrics.completed),
        (1, 1, 1)
    );
    let counts = client.counts().await.unwrap();
    assert_eq!((counts.crashed, counts.done, counts.retried), (0, 1, 0));
    assert_balanced(&counts);
}

async fn a_runtime_that_works_keeps_its_leases_however_short_the_stall_limit_is(store: TestStore) {
    let client = store.client().await;
    let lease = 2 * LEASE;
    // It takes up what it is given every 10 ms.
    let alone = Alone::start_with(&client, lease, lease / 12, move |_, cx| async move {
        let begin = Instant::now();
        while begin.elapsed() < 2 * lease {
            thread::sleep(Duration::from_millis(10));
            tokio::task::yield_now().await;
        }
        Ok(cx.crashes().into())
    });
    assert_eq!(within(spawn(&client, 1).await).await.unwrap(), 0);
    assert_eq!(alone.end().await.leases_lost, 0);
    assert_eq!(client.counts().await.unwrap().claimed, 1);
}

async fn a_task_goes_on_elsewhere_when_its_runtime_is_stuck(store: TestStore) {
    let (client, gate) = (store.client().await, Gate::new());
    let (tell, told) = mpsc::channel();
    let stuck = gate.clone();
    let alone = Alone::start(&client, Duration::from_millis(100), move |_, cx| {
        tell.send(cx.fencing_token()).ok();
        let gate = stuck.clone();
        async move {
            gate.pass();
            Ok(0)
        }
    });
    let handle = spawn(&client, 1).await;
    reaches(&handle, Status::Running).await;
    let token = receive(&told);
    let other = store.client().await;
    let _other = start(&other, |_, cx| async move { Ok(cx.fencing_token()) }).await;
    assert!(within(handle).await.unwrap() > token);
    gate.open();
    let metrics = alone.end().await;
    assert!(
        metrics.leases_lost > 0 && metrics.completed == 0,
        "{metrics:?}"
    );
    assert_balanced(&client.counts().await.unwrap());
}

/// The other has seen nothing of the lease, and nobody tells it that this is over.
async fn it_goes_on_with_one_that_was_idle_all_the_time(store: TestStore) {
    let (client, gate) = (store.client().await, Gate::new());
    let clients = [store.client().await, store.client().await];
    let is_stuck = Arc::new(AtomicBool::new(false));
    let executors = clients.each_ref().map(|client| {
        let (is_stuck, gate) = (Arc::clone(&is_stuck), gate.clone());
        Alone::start(client, Duration::from_millis(100), move |_, _| {
            let (is_first, gate) = (!is_stuck.swap(true, Ordering::SeqCst), gate.clone());
            async move {
                if is_first {
                    gate.pass();
                }
                Ok(u64::from(is_first))
            }
        })
    });
    until("both are idle", || {
        executors.iter().all(|it| it.executor.metrics().turns > 0)
    })
    .await;
    let handle = spawn(&client, 1).await;
    assert_eq!(within(handle).await.unwrap(), 0);
    gate.open();
    for executor in executors {
        executor.end().await;
    }
    assert_balanced(&client.counts().await.unwrap());
}

async fn a_stuck_runtime_costs_no_task_its_life_that_has_not_begun(store: TestStore) {
    let (client, gate) = (store.client().await, Gate::new());
    let stuck = gate.clone();
    let alone = Alone::start(&client, Duration::from_millis(100), move |number, _| {
        let gate = stuck.clone();
        async move {
            if number == 0 {
                gate.pass();
            }
            Ok(number)
        }
    });
    let first = spawn(&client, 0).await;
    reaches(&first, Status::Running).await;
    let other = spawn(&client, 1).await;
    // Long enough for more lost leases than a task may cost workers.
    tokio::time::sleep(8 * LEASE).await;
    gate.open();
    assert_eq!(within(other).await.unwrap(), 1);
    alone.end().await;
}

async fn runs_one(executor: DurableExecutor) {
    let handle = spawn(executor.client(), 7).await;
    tokio::select! {
        output = within(handle) => assert_eq!(output.unwrap(), 7),
        () = executor.closed() => panic!("the executor has ended"),
    }
}

async fn a_lease_may_be_as_long_as_there_is_time(store: TestStore) {
    let client = store.client().await;
    let mut builder = builder(&client);
    builder.lease(Duration::MAX);
    runs_one(start_as(builder, |number, _| async move { Ok(number) }).await).await;
}

async fn a_stall_limit_may_be_as_long_as_there_is_time(store: TestStore) {
    let client = store.client().await;
    let mut builder = builder(&client);
    builder.stall_limit(Duration::MAX);
    runs_one(start_as(builder, |number, _| async move { Ok(number) }).await).await;
}
