//! Executors: how many tasks run at once, in which order, and on what.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use throng::durable::{DurableClient, Status};

use crate::harness::{
    App, Door, Number, TestStore, builder, reaches, spawn, start, start_as, until,
};
use crate::ledger::assert_balanced;
use crate::support::{thread_name, within};

on_all_stores! {
    one_with_room_takes_what_comes_while_it_runs_another,
    no_more_tasks_run_at_once_than_were_allowed,
    one_at_a_time_they_run_in_their_order,
    invalid_options_are_errors_that_name_the_remedy,
    two_executors_of_one_client_share,
    two_processes_share,
    tasks_run_on_the_runtime_that_the_executor_was_started_on,
    a_runtime_without_timers_will_do,
    tasks_that_are_left_run_when_there_is_an_executor,
    an_executor_runs_while_it_is_full_of_tasks_that_wait,
    large_tasks_run_in_batches,
    an_executor_is_not_blocked_by_one_that_computes,
}

async fn one_with_room_takes_what_comes_while_it_runs_another(store: TestStore) {
    let (client, door) = (store.client().await, Door::new());
    let held = door.clone();
    // Nothing is renewed while the test goes on: that has a worker look, too.
    let mut builder = builder(&client);
    builder.lease(Duration::from_secs(1_000));
    let executor = start_as(builder, move |number, _| {
        let door = held.clone();
        async move {
            if number == 0 {
                door.pass().await;
            }
            Ok(number)
        }
    })
    .await;
    let first = spawn(&client, 0).await;
    until("it runs", || executor.metrics().running == 1).await;
    assert_eq!(within(spawn(&client, 1).await).await.unwrap(), 1);
    door.open();
    assert_eq!(within(first).await.unwrap(), 0);
}

async fn no_more_tasks_run_at_once_than_were_allowed(store: TestStore) {
    let (client, door) = (store.client().await, Door::new());
    let running = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
    let (counted, held) = (Arc::clone(&running), door.clone());
    let executor = start_as(builder(&client).max_running(7), move |number, _| {
        let (running, door) = (Arc::clone(&counted), held.clone());
        async move {
            let now = running[0].fetch_add(1, Ordering::SeqCst) + 1;
            running[1].fetch_max(now, Ordering::SeqCst);
            door.pass().await;
            tokio::task::yield_now().await;
            running[0].fetch_sub(1, Ordering::SeqCst);
            Ok(number)
        }
    })
    .await;
    let handles = client.spawn_all((0..300).map(Number)).await.unwrap();
    until("as many run as may", || executor.metrics().running == 7).await;
    assert_eq!(client.counts().await.unwrap().running, 7);
    door.open();
    for handle in handles {
        within(handle).await.unwrap();
    }
    assert_eq!(running[1].load(Ordering::SeqCst), 7);
    assert_balanced(&client.counts().await.unwrap());
}

async fn runs_in_order(client: &DurableClient, max_running: usize) {
    let order = Arc::new(Mutex::new(Vec::new()));
    let ran = Arc::clone(&order);
    let handles = client.spawn_all((0..300).map(Number)).await.unwrap();
    let mut builder = builder(client);
    builder.max_running(max_running);
    let _executor = start_as(builder, move |number, _| {
        ran.lock().unwrap().push(number);
        async move { Ok(number) }
    })
    .await;
    for handle in handles {
        within(handle).await.unwrap();
    }
    assert!(order.lock().unwrap().iter().copied().eq(0..300));
}

async fn one_at_a_time_they_run_in_their_order(store: TestStore) {
    runs_in_order(&store.client().await, 1).await;
}

async fn invalid_options_are_errors_that_name_the_remedy(store: TestStore) {
    let client = store.client().await;
    let app = App::new(|number, _| async move { Ok(number) });
    let mut builder = builder(&client);
    let error = builder.max_running(0).start(app).await.unwrap_err();
    let text = error.to_string();
    assert!(
        error.is_invalid() && text.contains("`max_running` is 0"),
        "{text}"
    );
    assert!(text.contains("at least 1"), "{text}");
    builder.max_running(1).lease(Duration::from_millis(99));
    let app = App::new(|number, _| async move { Ok(number) });
    let text = builder.start(app).await.unwrap_err().to_string();
    assert!(
        text.contains("`lease` is 99ms: set it to at least 100ms"),
        "{text}"
    );
    builder
        .lease(Duration::from_millis(100))
        .stall_limit(Duration::ZERO);
    let app = App::new(|number, _| async move { Ok(number) });
    let error = builder.start(app).await.unwrap_err();
    assert!(error.is_invalid(), "{error}");
    assert!(error.to_string().contains("`stall_limit` is 0"), "{error}");
}

/// Two executors, each of which must run one of two tasks, since the other is busy with the other.
async fn both_run(one: &DurableClient, two: &DurableClient) {
    let door = Door::new();
    let mut executors = Vec::new();
    for client in [one, two] {
        let held = door.clone();
        let mut builder = builder(client);
        builder.max_running(1);
        let executor = start_as(builder, move |number, _| {
            let door = held.clone();
            async move {
                door.pass().await;
                Ok(number)
            }
        });
        executors.push(executor.await);
    }
    let handles = one.spawn_all((0..100).map(Number)).await.unwrap();
    for executor in &executors {
        until("both are busy", || executor.metrics().running == 1).await;
    }
    door.open();
    for (number, handle) in (0..).zip(handles) {
        assert_eq!(within(handle).await.unwrap(), number);
    }
    until("all is counted", || {
        executors
            .iter()
            .map(|it| it.metrics().completed)
            .sum::<u64>()
            == 100
    })
    .await;
}

async fn two_executors_of_one_client_share(store: TestStore) {
    let client = store.client().await;
    both_run(&client, &client).await;
}

async fn two_processes_share(store: TestStore) {
    both_run(&store.client().await, &store.client().await).await;
}

async fn tasks_run_on_the_runtime_that_the_executor_was_started_on(store: TestStore) {
    let client = store.client().await;
    let runtime = crate::support::multi_thread(1, "of the tasks");
    let app = App::new(|number, _| async move {
        assert_eq!(thread_name(), "of the tasks");
        tokio::task::yield_now().await;
        Ok(number)
    });
    let builder = builder(&client);
    let executor = runtime.spawn(async move { builder.start(app).await });
    let executor = executor.await.unwrap().unwrap();
    assert_eq!(within(spawn(&client, 1).await).await.unwrap(), 1);
    assert_eq!(executor.metrics().retried, 0);
    runtime.shutdown_background();
}

async fn a_runtime_without_timers_will_do(store: TestStore) {
    let client = store.client().await;
    let other = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.build().unwrap();
        runtime.block_on(async {
            let executor = start(&client, |number, cx| async move {
                match cx.attempt() {
                    1 => Err("not yet".into()),
                    _ => Ok(number),
                }
            })
            .await;
            let output = spawn(&client, 7).await.await;
            executor.shutdown(Duration::from_secs(1)).await;
            output
        })
    });
    until("it has run", || other.is_finished()).await;
    assert_eq!(other.join().unwrap().unwrap(), 7);
}

async fn tasks_that_are_left_run_when_there_is_an_executor(store: TestStore) {
    let client = store.client().await;
    let id = spawn(&client, 7).await.id();
    drop(client);
    let client = store.client().await;
    let _executor = start(&client, |number, _| async move { Ok(number) }).await;
    let handle = client.attach::<Number>(id);
    assert_eq!(within(handle).await.unwrap(), 7);
}

async fn an_executor_runs_while_it_is_full_of_tasks_that_wait(store: TestStore) {
    let client = store.client().await;
    let executor = start_as(builder(&client).max_running(2), |number, cx| async move {
        if number == 0 {
            return Ok(cx.client().spawn(Number(1)).await?.await?);
        }
        Ok(number)
    })
    .await;
    assert_eq!(within(spawn(&client, 0).await).await.unwrap(), 1);
    until("all is counted", || executor.metrics().completed == 2).await;
}

async fn large_tasks_run_in_batches(store: TestStore) {
    #[derive(serde::Serialize, serde::Deserialize)]
    struct Large(String);

    impl throng::durable::DurableTask for Large {
        const NAME: &'static str = "large";
        type Output = String;
    }

    impl throng::durable::Run<()> for Large {
        async fn run(
            self,
            _: throng::durable::TaskContext<()>,
        ) -> Result<String, throng::durable::TaskError> {
            Ok(self.0)
        }
    }

    let client = store.client().await;
    let texts: Vec<_> = (0..20).map(|n| n.to_string().repeat(300_000)).collect();
    let handles = client
        .spawn_all(texts.iter().cloned().map(Large))
        .await
        .unwrap();
    let mut builder = throng::durable::DurableExecutor::builder::<()>(client.clone());
    let _executor = builder.register::<Large>().start(()).await.unwrap();
    for (handle, text) in handles.into_iter().zip(texts) {
        assert!(within(handle).await.unwrap() == text);
    }
}

async fn an_executor_is_not_blocked_by_one_that_computes(store: TestStore) {
    let (client, gate) = (store.client().await, crate::support::Gate::new());
    let computes = gate.clone();
    let _executor = start(&client, move |number, _| {
        let gate = computes.clone();
        async move {
            if number == 0 {
                gate.pass();
            }
            Ok(number)
        }
    })
    .await;
    let blocks = spawn(&client, 0).await;
    reaches(&blocks, Status::Running).await;
    assert_eq!(within(spawn(&client, 1).await).await.unwrap(), 1);
    gate.open();
    assert_eq!(within(blocks).await.unwrap(), 0);
}
