//! Handles: who can await a task, where, when, and how often.

use std::task::Poll;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};
use throng::CompletionStream;
use throng::durable::{DurableHandle, DurableTask, Status, TaskError};
use tokio::task::coop;

use crate::harness::{Door, Number, TestStore, id, reaches, spawn, start, until};
use crate::support::{current_thread, poll, within};

on_all_stores! {
    a_task_runs_also_when_its_handle_is_dropped,
    a_task_can_have_two_handles,
    another_process_can_await_before_during_and_after_the_run,
    a_task_that_was_never_stored_is_not_waited_for,
    a_handle_can_be_awaited_again,
    clones_of_a_handle_await_the_same_task,
    a_handle_loses_nothing_in_a_select,
    handles_go_into_a_completion_stream,
    handles_complete_slots,
    a_handle_can_be_awaited_in_another_runtime,
    a_handle_needs_no_runtime,
    a_handle_outlives_its_client,
    ten_thousand_handles_are_awaited,
    waiting_may_be_given_up_and_taken_up,
}

async fn a_task_runs_also_when_its_handle_is_dropped(store: TestStore) {
    let client = store.client().await;
    let executor = start(&client, |number, _| async move { Ok(number) }).await;
    drop(spawn(&client, 1).await);
    until("it has run", || executor.metrics().completed == 1).await;
}

async fn a_task_can_have_two_handles(store: TestStore) {
    let client = store.client().await;
    let handle = spawn(&client, 7).await;
    let other = client.attach::<Number>(handle.id());
    let both = tokio::spawn(async { tokio::join!(handle, other) });
    let _executor = start(&client, |number, _| async move { Ok(number) }).await;
    let (one, two) = within(both).await.unwrap();
    assert_eq!((one.unwrap(), two.unwrap()), (7, 7));
}

async fn another_process_can_await_before_during_and_after_the_run(store: TestStore) {
    let (client, other, door) = (store.client().await, store.client().await, Door::new());
    let id = spawn(&client, 7).await.id();
    let before = tokio::spawn(other.attach::<Number>(id));
    let held = door.clone();
    let _executor = start(&client, move |number, _| {
        let door = held.clone();
        async move {
            door.pass().await;
            Ok(number)
        }
    })
    .await;
    reaches(&other.attach::<Number>(id), Status::Running).await;
    let during = tokio::spawn(other.attach::<Number>(id));
    door.open();
    assert_eq!(within(before).await.unwrap().unwrap(), 7);
    assert_eq!(within(during).await.unwrap().unwrap(), 7);
    drop(client);
    assert_eq!(within(other.attach::<Number>(id)).await.unwrap(), 7);
}

async fn a_task_that_was_never_stored_is_not_waited_for(store: TestStore) {
    let client = store.client().await;
    let handle = client.attach::<Number>(id(1));
    assert_eq!(handle.status().await.unwrap(), Status::Absent);
    let error = within(handle).await.unwrap_err();
    assert!(error.is_expired(), "{error}");
    assert_eq!(error.task_id(), Some(id(1)));
}

async fn a_handle_can_be_awaited_again(store: TestStore) {
    let client = store.client().await;
    let _executor = start(&client, |number, _| async move { Ok(number) }).await;
    let mut handle = spawn(&client, 7).await;
    for _ in 0..3 {
        assert_eq!(within(&mut handle).await.unwrap(), 7);
    }
}

async fn clones_of_a_handle_await_the_same_task(store: TestStore) {
    let (client, door) = (store.client().await, Door::new());
    let held = door.clone();
    let _executor = start(&client, move |number, _| {
        let door = held.clone();
        async move {
            door.pass().await;
            Ok(number)
        }
    })
    .await;
    let mut handle = spawn(&client, 7).await;
    // Also of one that has been polled.
    assert!(futures::poll!(&mut handle).is_pending());
    let clones = [handle.clone(), handle.clone(), handle];
    door.open();
    for clone in clones {
        assert_eq!(within(clone).await.unwrap(), 7);
    }
}

async fn a_handle_loses_nothing_in_a_select(store: TestStore) {
    let (client, door) = (store.client().await, Door::new());
    let held = door.clone();
    let _executor = start(&client, move |number, _| {
        let door = held.clone();
        async move {
            door.pass().await;
            Ok(number)
        }
    })
    .await;
    let mut handle = spawn(&client, 7).await;
    for round in 0.. {
        tokio::select! {
            output = &mut handle => {
                assert_eq!(output.unwrap(), 7);
                break;
            }
            () = tokio::time::sleep(Duration::from_millis(1)) => {}
        }
        if round == 20 {
            door.open();
        }
    }
}

async fn handles_go_into_a_completion_stream(store: TestStore) {
    let client = store.client().await;
    let _executor = start(&client, |number, _| async move { Ok(number * 2) }).await;
    let (jobs, mut done) = CompletionStream::builder().build().unwrap();
    for number in 0..100 {
        let handle = spawn(&client, number).await;
        assert!(jobs.submit(number, handle).await.is_ok());
    }
    let mut sum = 0;
    for _ in 0..100 {
        let job = within(done.next()).await.unwrap();
        assert_eq!(job.outcome.unwrap().unwrap(), 2 * job.tag);
        sum += job.tag;
    }
    assert_eq!(sum, 4_950);
}

async fn handles_complete_slots(store: TestStore) {
    let client = store.client().await;
    let act = |number, _| async move {
        match number {
            7 => Err(TaskError::fatal("not this one")),
            _ => Ok(number * 2),
        }
    };
    let _executor = start(&client, act).await;
    let (jobs, mut done) = CompletionStream::builder().build().unwrap();
    for number in 0..100 {
        let slot = jobs.slot(number).await.unwrap();
        let handle = spawn(&client, number).await;
        // The budget of the task that hands the handle over does not matter.
        while coop::has_budget_remaining() {
            coop::consume_budget().await;
        }
        handle.complete(slot);
    }
    // One that has ended, and is not what it is taken for.
    let slot = jobs.slot(100).await.unwrap();
    let handle = spawn(&client, 8).await;
    reaches(&handle, Status::Done).await;
    let wrong = client.attach::<Wrong>(handle.id());
    let (others, mut wrongly) = CompletionStream::builder().build().unwrap();
    wrong.complete(others.slot(()).await.unwrap());
    handle.complete(slot);
    drop((client, jobs));

    let mut ended = 0;
    while let Some(job) = within(done.next()).await {
        match job.outcome.expect("that a task fails is its output") {
            Ok(output) => assert_eq!(output, 2 * if job.tag == 100 { 8 } else { job.tag }),
            Err(error) => assert!(job.tag == 7 && error.is_dead()),
        }
        ended += 1;
    }
    assert_eq!(ended, 101);
    let job = within(wrongly.next()).await.unwrap();
    assert!(job.outcome.unwrap_err().is_panic());
}

/// A [`Number`] whose output cannot be read.
#[derive(Serialize, Deserialize)]
struct Wrong;

impl DurableTask for Wrong {
    const NAME: &'static str = "number";
    type Output = Unreadable;
}

#[derive(Debug, Serialize)]
struct Unreadable;

impl<'de> Deserialize<'de> for Unreadable {
    fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        panic!("it cannot be read")
    }
}

async fn a_handle_can_be_awaited_in_another_runtime(store: TestStore) {
    let client = store.client().await;
    let mut handle = spawn(&client, 7).await;
    // Begun here, ended there.
    assert!(poll(&mut handle).is_pending());
    let other = std::thread::spawn(move || current_thread().block_on(within(handle)));
    let _executor = start(&client, |number, _| async move { Ok(number) }).await;
    until("it was awaited", || other.is_finished()).await;
    assert_eq!(other.join().unwrap().unwrap(), 7);
}

async fn a_handle_needs_no_runtime(store: TestStore) {
    let client = store.client().await;
    let _executor = start(&client, |number, _| async move { Ok(number) }).await;
    let outside = std::thread::spawn(move || {
        futures::executor::block_on(async {
            let handle = client.spawn(Number(7)).await?;
            handle.status().await?;
            handle.cancel().await?;
            client.counts().await?;
            client
                .dead_letters()
                .list(throng::durable::DeadFilter::all(), 1)
                .await?;
            let handle = client.spawn(Number(8)).await?;
            handle.await
        })
    });
    until("it was awaited", || outside.is_finished()).await;
    assert_eq!(outside.join().unwrap().unwrap(), 8);
}

async fn a_handle_outlives_its_client(store: TestStore) {
    let (client, other) = (store.client().await, store.client().await);
    let _executor = start(&other, |number, _| async move { Ok(number) }).await;
    let handle = spawn(&client.clone(), 7).await;
    drop(client);
    assert_eq!(within(handle).await.unwrap(), 7);
}

async fn ten_thousand_handles_are_awaited(store: TestStore) {
    let (client, other) = (store.client().await, store.client().await);
    let handles = client.spawn_all((0..10_000).map(Number)).await.unwrap();
    let all = tokio::spawn(futures::future::join_all(handles));
    let _executor = start(&other, |number, _| async move { Ok(number) }).await;
    for (number, output) in (0..).zip(all.await.unwrap()) {
        assert_eq!(output.unwrap(), number);
    }
}

async fn waiting_may_be_given_up_and_taken_up(store: TestStore) {
    let client = store.client().await;
    let handle = spawn(&client, 7).await;
    for _ in 0..1_000 {
        let mut same: DurableHandle<u64> = client.attach::<Number>(handle.id());
        assert!(matches!(poll(&mut same), Poll::Pending));
    }
    let _executor = start(&client, |number, _| async move { Ok(number) }).await;
    assert_eq!(within(handle).await.unwrap(), 7);
}
