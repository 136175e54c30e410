//! Executors that know different types, on one store.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use throng::durable::{
    DurableClient, DurableExecutor, DurableTask, Run, SpawnOptions, Status, TaskContext, TaskError,
};

use crate::harness::{TestStore, builder, reaches, spawn, start_as, until};
use crate::support::within;

on_all_stores! {
    an_idle_worker_of_another_type_takes_nothing,
    a_new_type_waits_for_its_worker_and_holds_up_nobody,
    a_worker_that_knows_less_gets_what_it_knows,
    a_paused_type_does_not_delay_others,
}

/// A task of a type that only some executors know.
#[derive(Serialize, Deserialize)]
struct Letter(u32);

impl DurableTask for Letter {
    const NAME: &'static str = "letter";
    type Output = u32;
}

impl Run<()> for Letter {
    async fn run(self, _: TaskContext<()>) -> Result<u32, TaskError> {
        Ok(self.0)
    }
}

async fn letters(client: &DurableClient) -> DurableExecutor {
    let mut executor = DurableExecutor::builder(client.clone());
    executor.register::<Letter>();
    let started = executor.start(Arc::new(())).await;
    started.expect("the store answers")
}

async fn numbers(client: &DurableClient) -> DurableExecutor {
    let mut executor = builder(client);
    executor.max_running(4);
    start_as(executor, |number, _| async move { Ok(number) }).await
}

/// Before, the idle worker claimed each of the tasks, and put it off.
async fn an_idle_worker_of_another_type_takes_nothing(store: TestStore) {
    let [producer, one, other] = [
        store.client().await,
        store.client().await,
        store.client().await,
    ];
    let idle = letters(&other).await;
    let worker = numbers(&one).await;
    let mut handles = Vec::new();
    for number in 0..400 {
        handles.push((number, spawn(&producer, number).await));
    }
    for (number, handle) in handles {
        assert_eq!(within(handle).await.unwrap(), number);
    }
    assert_eq!(idle.metrics().claimed, 0);
    until("all are counted", || worker.metrics().completed == 400).await;
    assert_eq!(worker.metrics().claimed, 400);
}

/// A deploy that adds a type: the producer comes first, then a worker that knows the type.
async fn a_new_type_waits_for_its_worker_and_holds_up_nobody(store: TestStore) {
    let client = store.client().await;
    let worker = numbers(&client).await;
    let letter = client.spawn(Letter(7)).await.unwrap();
    let later = SpawnOptions::new().delay(std::time::Duration::from_millis(1));
    let delayed = client.spawn_with(Letter(8), later).await.unwrap();
    for number in 0..20 {
        let handle = spawn(&client, number).await;
        assert_eq!(within(handle).await.unwrap(), number);
    }
    reaches(&letter, Status::Waiting).await;
    assert_eq!(worker.metrics().claimed, 20);
    let _late = letters(&store.client().await).await;
    assert_eq!(within(letter).await.unwrap(), 7);
    assert_eq!(within(delayed).await.unwrap(), 8);
}

/// One worker knows both types, one only one of them: what waited mixed is parted, and all of it runs.
async fn a_worker_that_knows_less_gets_what_it_knows(store: TestStore) {
    let client = store.client().await;
    let mut both = builder(&client);
    both.max_running(1).register::<Both>();
    let both = start_as(both, |number, _| async move { Ok(number) }).await;
    both.shutdown(std::time::Duration::ZERO).await;
    let mut numbers_of = Vec::new();
    let mut others = Vec::new();
    for number in 0..300 {
        numbers_of.push((number, spawn(&client, number).await));
        others.push(client.spawn(Both(number)).await.unwrap());
    }
    let less = numbers(&store.client().await).await;
    for (number, handle) in numbers_of {
        assert_eq!(within(handle).await.unwrap(), number);
    }
    assert_eq!(less.metrics().claimed, 300);
    assert_eq!(others[0].status().await.unwrap(), Status::Waiting);
    let mut all = builder(&client);
    all.max_running(8).register::<Both>();
    let _all = start_as(all, |number, _| async move { Ok(number) }).await;
    for handle in others {
        within(handle).await.unwrap();
    }
}

/// Another type for the executors of numbers.
#[derive(Serialize, Deserialize)]
struct Both(u64);

impl DurableTask for Both {
    const NAME: &'static str = "both";
    type Output = u64;
}

impl Run<crate::harness::App> for Both {
    async fn run(self, _: TaskContext<crate::harness::App>) -> Result<u64, TaskError> {
        Ok(self.0)
    }
}

async fn a_paused_type_does_not_delay_others(store: TestStore) {
    let [producer, one, other] = [
        store.client().await,
        store.client().await,
        store.client().await,
    ];
    let _letters = letters(&one).await;
    let _numbers = numbers(&other).await;
    producer.types().pause(Letter::NAME).await.unwrap();
    let waits = producer.spawn(Letter(7)).await.unwrap();
    for number in 0..20 {
        let handle = spawn(&producer, number).await;
        assert_eq!(within(handle).await.unwrap(), number);
    }
    // Workers that start later know of the pause.
    let _more = letters(&other).await;
    assert_eq!(other.types().paused().await.unwrap(), [Letter::NAME]);
    assert_eq!(waits.status().await.unwrap(), Status::Waiting);
    one.types().resume(Letter::NAME).await.unwrap();
    assert_eq!(within(waits).await.unwrap(), 7);
    assert!(producer.types().paused().await.unwrap().is_empty());
}
