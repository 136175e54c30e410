//! The end of an executor: told to, dropped, or with its runtime.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use throng::durable::{DurableExecutor, DurableHandle, Status, StopReason, TaskError};

use crate::harness::{
    App, Door, Number, TestStore, builder, reaches, spawn, start, start_as, until,
};
use crate::ledger::assert_balanced;
use crate::support::{Drops, Gate, multi_thread, within};

on_all_stores! {
    a_shutdown_waits_for_what_runs,
    a_shutdown_waits_no_longer_than_its_grace,
    a_run_that_ends_with_an_error_at_a_shutdown_is_given_back,
    a_run_that_waits_and_ends_at_a_shutdown_is_given_back,
    a_fatal_error_at_a_shutdown_is_one,
    what_is_given_back_comes_first,
    an_executor_can_be_shut_down_twice,
    a_shutdown_can_be_hurried,
    a_shutdown_goes_on_when_nobody_waits_for_it,
    a_shutdown_without_end_waits_until_all_have_ended,
    an_executor_can_be_shut_down_after_its_client_was_dropped,
    an_idle_executor_ends_at_once,
    an_executor_that_is_dropped_gives_back_what_it_runs,
    a_task_that_computes_is_given_back_too,
    an_executor_ends_with_its_runtime,
    an_idle_executor_ends_with_its_runtime,
    what_a_given_up_run_has_captured_may_panic_when_it_is_dropped,
}

const LONG: Duration = Duration::from_secs(3600);

/// Waits until a task runs in the store, and its worker knows that.
async fn runs(executor: &DurableExecutor, handle: &DurableHandle<u64>) {
    reaches(handle, Status::Running).await;
    until("its worker knows that it runs", || {
        executor.metrics().running > 0
    })
    .await;
}

async fn a_shutdown_waits_for_what_runs(store: TestStore) {
    let client = store.client().await;
    let executor = start_as(builder(&client).max_running(3), |number, cx| async move {
        assert_eq!(cx.stopped().await, StopReason::Shutdown);
        tokio::time::sleep(Duration::from_millis(20)).await;
        Ok(number)
    })
    .await;
    let handles = client.spawn_all((0..9).map(Number)).await.unwrap();
    runs(&executor, &handles[2]).await;
    within(executor.shutdown(LONG)).await;
    let counts = client.counts().await.unwrap();
    assert_eq!((counts.done, counts.running, counts.waiting), (3, 0, 6));
    assert_eq!((counts.released, executor.metrics().running), (0, 0));
    assert_balanced(&counts);
}

async fn a_shutdown_waits_no_longer_than_its_grace(store: TestStore) {
    let (client, drops) = (store.client().await, Drops::new());
    let counted = drops.clone();
    let executor = start(&client, move |number, _| {
        let value = counted.value();
        async move {
            Door::new().pass().await;
            drop(value);
            Ok(number)
        }
    })
    .await;
    let handle = spawn(&client, 1).await;
    until("it runs", || drops.made() == 1).await;
    let start_of_it = Instant::now();
    within(executor.shutdown(Duration::from_millis(100))).await;
    assert!(start_of_it.elapsed() >= Duration::from_millis(100));
    assert_eq!(handle.status().await.unwrap(), Status::Waiting);
    until("the run is dropped", || drops.count() == 1).await;
    let _other = start(&store.client().await, |_, cx| async move {
        Ok(cx.attempt().into())
    })
    .await;
    assert_eq!(within(handle).await.unwrap(), 1);
    let counts = client.counts().await.unwrap();
    assert_eq!((counts.released, counts.retried, counts.crashed), (1, 0, 0));
    assert_balanced(&counts);
}

async fn a_run_that_ends_with_an_error_at_a_shutdown_is_given_back(store: TestStore) {
    let client = store.client().await;
    let executor = start(&client, |number, cx| async move {
        cx.stopped().await;
        match number {
            0 => Err("told to stop".into()),
            1 => Err(TaskError::snooze(LONG)),
            2 => Err(TaskError::retry_after("told to stop", LONG)),
            _ => panic!("told to stop"),
        }
    })
    .await;
    let handles = client.spawn_all((0..4).map(Number)).await.unwrap();
    for handle in &handles {
        runs(&executor, handle).await;
    }
    within(executor.shutdown(LONG)).await;
    let counts = client.counts().await.unwrap();
    assert_eq!((counts.released, counts.waiting), (4, 4));
    assert_eq!(executor.metrics().released, 4);
    let _other = start(&client, |_, cx| async move { Ok(cx.attempt().into()) }).await;
    for handle in handles {
        assert_eq!(within(handle).await.unwrap(), 1);
    }
}

/// The runs ask for a wait, and go on. Their errors come from the shutdown, so the tasks are not delayed for the time of the wait.
async fn a_run_that_waits_and_ends_at_a_shutdown_is_given_back(store: TestStore) {
    let client = store.client().await;
    let executor = start(&client, |number, cx| async move {
        match number {
            0 => drop(cx.sleep("pause", LONG).await),
            1 => drop(cx.signal::<u64>("a").await),
            2 => {
                let child = cx.spawn_all("child", [Number(100)]).await?;
                drop(cx.join(&child).await);
            }
            _ => {}
        }
        cx.stopped().await;
        match number {
            0 => Err(TaskError::snooze(LONG)),
            _ => Err(TaskError::retry("told to stop")),
        }
    })
    .await;
    let handles = client.spawn_all((0..3).map(Number)).await.unwrap();
    for handle in &handles {
        runs(&executor, handle).await;
    }
    until("the child runs", || executor.metrics().running == 4).await;
    within(executor.shutdown(LONG)).await;
    let counts = client.counts().await.unwrap();
    assert_eq!((counts.released, counts.waiting), (4, 4));
    assert_eq!((counts.retried, executor.metrics().released), (0, 4));
    let _other = start(&client, |_, cx| async move { Ok(cx.attempt().into()) }).await;
    for handle in handles {
        assert_eq!(within(handle).await.unwrap(), 1);
    }
}

async fn a_fatal_error_at_a_shutdown_is_one(store: TestStore) {
    let client = store.client().await;
    let executor = start(&client, |_, cx| async move {
        cx.stopped().await;
        Err(TaskError::fatal("no"))
    })
    .await;
    let handle = spawn(&client, 1).await;
    runs(&executor, &handle).await;
    within(executor.shutdown(LONG)).await;
    assert!(within(handle).await.unwrap_err().is_dead());
}

async fn what_is_given_back_comes_first(store: TestStore) {
    let client = store.client().await;
    let executor = start_as(builder(&client).max_running(1), |_, cx| async move {
        cx.stopped().await;
        Err("told to stop".into())
    })
    .await;
    let handles = client.spawn_all((0..5).map(Number)).await.unwrap();
    runs(&executor, &handles[0]).await;
    within(executor.shutdown(LONG)).await;
    let order = Arc::new(Mutex::new(Vec::new()));
    let ran = Arc::clone(&order);
    let _other = start_as(builder(&client).max_running(1), move |number, _| {
        ran.lock().unwrap().push(number);
        async move { Ok(number) }
    })
    .await;
    for handle in handles {
        within(handle).await.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4]);
}

/// An executor that runs a task that never ends.
async fn busy(store: &TestStore) -> DurableExecutor {
    let client = store.client().await;
    let executor = start(&client, |number, _| async move {
        Door::new().pass().await;
        Ok(number)
    })
    .await;
    let handle = spawn(&client, 1).await;
    runs(&executor, &handle).await;
    executor
}

async fn an_executor_can_be_shut_down_twice(store: TestStore) {
    let executor = busy(&store).await;
    within(executor.shutdown(Duration::ZERO)).await;
    within(executor.shutdown(LONG)).await;
    within(executor.closed()).await;
    assert_eq!(executor.client().counts().await.unwrap().released, 1);
}

async fn a_shutdown_can_be_hurried(store: TestStore) {
    let executor = busy(&store).await;
    let both = async { tokio::join!(executor.shutdown(LONG), executor.shutdown(Duration::ZERO)) };
    within(both).await;
    assert_eq!(executor.metrics().released, 1);
}

async fn a_shutdown_goes_on_when_nobody_waits_for_it(store: TestStore) {
    let (client, door) = (store.client().await, Door::new());
    let held = door.clone();
    let executor = start(&client, move |number, _| {
        let door = held.clone();
        async move {
            door.pass().await;
            Ok(number)
        }
    })
    .await;
    let handle = spawn(&client, 1).await;
    runs(&executor, &handle).await;
    let mut shutdown = Box::pin(executor.shutdown(LONG));
    assert!(crate::support::poll(&mut shutdown).is_pending());
    drop(shutdown);
    door.open();
    within(executor.closed()).await;
    assert_eq!(executor.metrics().completed, 1);
}

async fn a_shutdown_without_end_waits_until_all_have_ended(store: TestStore) {
    let (client, door) = (store.client().await, Door::new());
    let held = door.clone();
    let executor = start(&client, move |number, cx| {
        let door = held.clone();
        async move {
            cx.stopped().await;
            door.open();
            Ok(number)
        }
    })
    .await;
    let handle = spawn(&client, 1).await;
    runs(&executor, &handle).await;
    within(async { tokio::join!(executor.shutdown(Duration::MAX), door.pass()) }).await;
    assert_eq!(client.counts().await.unwrap().done, 1);
}

async fn an_executor_can_be_shut_down_after_its_client_was_dropped(store: TestStore) {
    let client = store.client().await;
    let executor = start(&client, |number, _| async move { Ok(number) }).await;
    drop(spawn(&client, 1).await);
    drop(client);
    until("it has run", || executor.metrics().completed == 1).await;
    within(executor.shutdown(LONG)).await;
}

async fn an_idle_executor_ends_at_once(store: TestStore) {
    let client = store.client().await;
    let executor = start(&client, |number, _| async move { Ok(number) }).await;
    within(executor.shutdown(LONG)).await;
    let handle = spawn(&client, 1).await;
    assert_eq!(handle.status().await.unwrap(), Status::Waiting);
    assert_eq!(executor.metrics().claimed, 0);
}

async fn an_executor_that_is_dropped_gives_back_what_it_runs(store: TestStore) {
    let (client, other) = (store.client().await, store.client().await);
    let executor = start(&client, |number, _| async move {
        Door::new().pass().await;
        Ok(number)
    })
    .await;
    let handle = spawn(&client, 1).await;
    runs(&executor, &handle).await;
    drop(executor);
    let _other = start(&other, |_, cx| async move { Ok(cx.attempt().into()) }).await;
    assert_eq!(within(handle).await.unwrap(), 1);
    assert_balanced(&client.counts().await.unwrap());
}

async fn a_task_that_computes_is_given_back_too(store: TestStore) {
    let (client, gate) = (store.client().await, Gate::new());
    let runtime = multi_thread(1, "computes");
    let computes = gate.clone();
    let app = App::new(move |_, _| {
        let gate = computes.clone();
        async move {
            gate.pass();
            Ok(100)
        }
    });
    let executor = builder(&client);
    let executor = runtime.spawn(async move { executor.start(app).await });
    let executor = executor.await.unwrap().unwrap();
    let handle = spawn(&client, 1).await;
    runs(&executor, &handle).await;
    within(executor.shutdown(Duration::ZERO)).await;
    let _other = start(&client, |_, cx| async move { Ok(cx.attempt().into()) }).await;
    assert_eq!(within(handle).await.unwrap(), 1);
    gate.open();
    runtime.shutdown_background();
    assert_eq!(client.counts().await.unwrap().done, 1);
}

async fn an_executor_ends_with_its_runtime(store: TestStore) {
    let client = store.client().await;
    let runtime = multi_thread(1, "ends");
    let app = App::new(|number, _| async move {
        Door::new().pass().await;
        Ok(number)
    });
    let executor = builder(&client);
    let executor = runtime.spawn(async move { executor.start(app).await });
    let executor = executor.await.unwrap().unwrap();
    let handle = spawn(&client, 1).await;
    runs(&executor, &handle).await;
    runtime.shutdown_background();
    within(executor.closed()).await;
    let _other = start(&client, |_, cx| async move { Ok(cx.attempt().into()) }).await;
    assert_eq!(within(handle).await.unwrap(), 1);
    let counts = client.counts().await.unwrap();
    assert_eq!((counts.released, counts.crashed), (1, 0));
}

async fn an_idle_executor_ends_with_its_runtime(store: TestStore) {
    let client = store.client().await;
    let runtime = multi_thread(1, "ends");
    let app = App::new(|number, _| async move { Ok(number) });
    let executor = builder(&client);
    let executor = runtime.spawn(async move { executor.start(app).await });
    let executor = executor.await.unwrap().unwrap();
    runtime.shutdown_background();
    // "Waits until the executor has ended: it was shut down, or its runtime was."
    within(executor.closed()).await;
}

async fn what_a_given_up_run_has_captured_may_panic_when_it_is_dropped(store: TestStore) {
    let (client, drops) = (store.client().await, Drops::new());
    let counted = drops.clone();
    let executor = start(&client, move |number, _| {
        let value = crate::support::PanicsOnDrop(counted.value());
        async move {
            Door::new().pass().await;
            drop(value);
            Ok(number)
        }
    })
    .await;
    let handles = client.spawn_all((0..3).map(Number)).await.unwrap();
    until("all run", || drops.made() == 3).await;
    within(executor.shutdown(Duration::ZERO)).await;
    until("all are dropped", || drops.count() == 3).await;
    let _other = start(&client, |_, cx| async move { Ok(cx.attempt().into()) }).await;
    for handle in handles {
        assert_eq!(within(handle).await.unwrap(), 1);
    }
}
