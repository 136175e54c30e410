//! Which tasks a request contains, and whom its answer concerns.

use std::sync::Arc as StdArc;
use std::time::Duration;

use futures::poll;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{advance, sleep, timeout};

use super::{Faulty, Held, Number, lost};
use crate::durable::engine::batch_sender::BatchSender;
use crate::durable::failure::{Cause, Effect, Failure};
use crate::durable::key::{Conflict, KeyConflict};
use crate::durable::queue::Priority;
use crate::durable::queue::name::QueueName;
use crate::durable::resend::STORE_TIMEOUT;
use crate::durable::spawn_queue::{SpawnQueue, Stored, WriteBatch};
use crate::durable::store::Enqueued;
use crate::durable::store::{MAX_BATCH_BYTES, MAX_BATCH_TASKS, NewTask, Store};
use crate::durable::{DurableClient, DurableError, MemoryStore, SpawnOptions, TaskId};

mod parts_tests;

// ===== Requests =====

#[tokio::test]
async fn tasks_spawned_while_a_request_is_in_flight_go_with_the_next() {
    let (_, client, mut held) = held();
    let mut first = spawn(&client, 1).await;
    let one = held.recv().await.unwrap();
    assert_eq!(one.tasks(), [1]);
    let mut second = spawn(&client, 2).await;
    // It is sent before the first one is answered, and is open until the store reads it.
    let two = held.recv().await.unwrap();
    let mut third = spawn(&client, 3).await;
    assert_eq!(two.tasks(), [2, 3]);

    two.answer(Ok(Enqueued::default()));
    second.stored().await.unwrap();
    third.stored().await.unwrap();
    assert!(poll!(&mut first.0).is_pending());
    one.answer(Ok(Enqueued::default()));
    first.stored().await.unwrap();
}

#[tokio::test]
async fn an_open_batch_takes_later_tasks_too() {
    let (_, client, mut held) = held();
    let mut first = spawn(&client, 1).await;
    let one = held.recv().await.unwrap();
    let mut second = spawn(&client, 2).await;
    assert_eq!(one.tasks(), [1, 2]);
    // From then on, its tasks are fixed.
    let mut third = spawn(&client, 3).await;
    let two = held.recv().await.unwrap();
    assert_eq!(one.tasks(), [1, 2]);
    assert_eq!(two.tasks(), [3]);
    one.answer(Ok(Enqueued::default()));
    two.answer(Ok(Enqueued::default()));
    for spawned in [&mut first, &mut second, &mut third] {
        spawned.stored().await.unwrap();
    }
    assert!(held.try_recv().is_err());
}

#[tokio::test]
async fn tasks_that_do_not_fit_go_with_the_next_request() {
    let (_, client, mut held) = held();
    let mut spawned = Vec::new();
    for number in 0..MAX_BATCH_TASKS as u64 + 1 {
        spawned.push(spawn(&client, number).await);
    }
    let one = held.recv().await.unwrap();
    assert_eq!(one.tasks().len(), MAX_BATCH_TASKS);
    let two = held.recv().await.unwrap();
    assert_eq!(two.tasks(), [MAX_BATCH_TASKS as u64]);
    one.answer(Ok(Enqueued::default()));
    two.answer(Ok(Enqueued::default()));
    for spawned in &mut spawned {
        spawned.stored().await.unwrap();
    }
}

#[tokio::test]
async fn tasks_spawned_one_by_one_need_one_session() {
    let (_, client, mut held) = held();
    let mut sessions = Vec::new();
    for number in 0..4 {
        let mut spawned = spawn(&client, number).await;
        let one = held.recv().await.unwrap();
        assert_eq!(one.tasks(), [number]);
        sessions.push((one.request.session, one.request.number));
        one.answer(Ok(Enqueued::default()));
        spawned.stored().await.unwrap();
    }
    let session = sessions[0].0;
    assert_eq!(sessions, [1, 2, 3, 4].map(|number| (session, number)));
}

#[tokio::test]
async fn a_request_that_fails_resolves_the_callers_of_its_tasks() {
    let (_, client, mut held) = held();
    let mut first = spawn(&client, 1).await;
    let one = held.recv().await.unwrap();
    assert_eq!(one.tasks(), [1]);
    let mut second = spawn(&client, 2).await;
    one.answer(Err(full()));
    assert!(first.stored().await.unwrap_err().is_full());
    let two = held.recv().await.unwrap();
    assert_eq!(two.tasks(), [2]);
    two.answer(Ok(Enqueued::default()));
    second.stored().await.unwrap();
}

#[tokio::test]
async fn an_open_batch_that_fails_resolves_the_callers_from_before_it() {
    let (_, client, mut held) = held();
    let mut first = spawn(&client, 1).await;
    let one = held.recv().await.unwrap();
    let mut second = spawn(&client, 2).await;
    let late = StdArc::clone(&one.request);
    one.answer(Err(full()));
    let error = first.stored().await.unwrap_err();
    assert!(error.is_full() && !error.is_unknown(), "{error}");
    // A later task goes with another batch.
    let two = held.recv().await.unwrap();
    // A copy that arrives now takes no tasks.
    assert!(late.batch.close().is_empty());
    assert_eq!(two.tasks(), [2]);
    two.answer(Ok(Enqueued::default()));
    second.stored().await.unwrap();
}

#[tokio::test]
async fn a_request_whose_session_has_ended_is_sent_in_another() {
    let (_, client, mut held) = held();
    let mut first = spawn(&client, 1).await;
    let one = held.recv().await.unwrap();
    assert_eq!(one.tasks(), [1]);
    let ended = one.request.session;
    one.answer(Err(Failure::new(Effect::None, Cause::NoSession)));
    let again = held.recv().await.unwrap();
    assert_ne!(again.request.session, ended);
    assert_eq!(again.tasks(), [1]);
    again.answer(Ok(Enqueued::default()));
    first.stored().await.unwrap();
}

// ===== The end =====

#[tokio::test]
async fn spawned_tasks_are_stored_after_the_client_is_dropped() {
    const MANY: u64 = 3 * MAX_BATCH_TASKS as u64;
    let (memory, client, mut held) = held();
    for number in 0..MANY {
        drop(spawn(&client, number).await);
    }
    drop(client);
    let store = Store::from(memory.clone()).0;
    let mut stored = 0;
    while stored < MANY {
        let one = held.recv().await.unwrap();
        stored += one.tasks().len() as u64;
        let answer = store.enqueue(StdArc::clone(&one.request)).await;
        one.answer(answer);
    }
    // Only the tasks are left, which are in two lists each: the sessions are closed.
    let closed = async {
        while memory.leftovers() != 2 * MANY {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(Duration::from_secs(60), closed).await.unwrap();
    assert_eq!(store.counts().await.unwrap().stored, MANY);
    assert!(held.recv().await.is_none());
}

#[tokio::test]
async fn a_closed_queue_refuses_tasks() {
    let queue = StdArc::new(SpawnQueue::new());
    let before = one(&queue, 1);
    queue.close();
    assert!(one(&queue, 2).await.is_err());
    let batch = queue.next_batch().await.unwrap();
    assert_eq!(numbers(batch.close()), [1]);
    batch.finish(&Ok(Enqueued::default()));
    before.await.unwrap().unwrap();
    assert!(queue.next_batch().await.is_none());
}

#[tokio::test]
async fn closing_the_queue_ends_all_waits_for_a_batch() {
    let queue = StdArc::new(SpawnQueue::new());
    let spawned = one(&queue, 1);
    let batch = queue.next_batch().await.unwrap();
    let others = || async { queue.next_batch().await.is_none() };
    let end = async {
        queue.close();
        batch.finish(&Err(full()));
        assert!(spawned.await.unwrap().is_err());
    };
    assert_eq!(tokio::join!(others(), others(), end), (true, true, ()));
}

/// As when the system refuses a thread.
#[tokio::test]
async fn a_queue_without_a_sender_refuses_tasks() {
    let queue = StdArc::new(SpawnQueue::new());
    let store = Store::from(MemoryStore::new()).0;
    let sender = BatchSender::new(store, StdArc::clone(&queue));
    let before = one(&queue, 1);
    drop(sender.run());
    assert!(before.await.is_err());
    assert!(one(&queue, 2).await.is_err());
}

// ===== The queue =====

#[tokio::test]
async fn each_caller_gets_the_conflicts_of_its_own_tasks() {
    let queue = StdArc::new(SpawnQueue::new());
    let numbers = [0..1, 1..3, 3..4, 4..6];
    let callers = numbers.map(|numbers| push(&queue, numbers.map(task)));
    let batch = next(&queue).await;
    let conflict = |position, holder| KeyConflict {
        position,
        holder: id(holder),
        resolution: Conflict::Join,
    };
    let conflicts = [(0, 10), (2, 12), (4, 14), (5, 15)];
    let conflicts = conflicts.map(|(at, holder)| conflict(at, holder)).into();
    batch.finish(&Ok(Enqueued { conflicts }));
    let mut answers = Vec::new();
    for stored in callers {
        answers.push(stored.await.unwrap().unwrap().conflicts);
    }
    let last = vec![conflict(0, 14), conflict(1, 15)];
    let expected = [vec![conflict(0, 10)], vec![conflict(1, 12)], vec![], last];
    assert_eq!(answers, expected);
}

#[tokio::test(start_paused = true)]
async fn requests_that_are_too_old_fail_with_a_batch() {
    let queue = StdArc::new(SpawnQueue::new());
    let closed = one(&queue, 1);
    let batch = queue.next_batch().await.unwrap();
    assert_eq!(numbers(batch.close()), [1]);
    let old = one(&queue, 2);
    advance(STORE_TIMEOUT + Duration::from_millis(1)).await;
    let mut young = one(&queue, 3);
    batch.finish(&Err(lost()));
    assert_eq!(closed.await.unwrap().unwrap_err().effect, Effect::Unknown);
    // This one was never sent.
    assert_eq!(old.await.unwrap().unwrap_err().effect, Effect::None);
    assert!(young.try_recv().is_err());
    assert_eq!(numbers(queue.next_batch().await.unwrap().close()), [3]);
}

#[tokio::test(start_paused = true)]
async fn old_requests_are_stored_if_the_store_does_not_fail() {
    let queue = StdArc::new(SpawnQueue::new());
    let _closed = one(&queue, 1);
    let batch = queue.next_batch().await.unwrap();
    assert_eq!(numbers(batch.close()), [1]);
    let _old = one(&queue, 2);
    advance(2 * STORE_TIMEOUT).await;
    batch.finish(&Ok(Enqueued::default()));
    assert_eq!(numbers(queue.next_batch().await.unwrap().close()), [2]);
}

#[tokio::test]
async fn a_spawn_request_is_not_split() {
    let queue = StdArc::new(SpawnQueue::new());
    let many = 0..MAX_BATCH_TASKS as u64 - 1;
    let _stored = [many, 500..502, 600..601].map(|numbers| push(&queue, numbers.map(task)));
    let lens = [next(&queue).await, next(&queue).await].map(|batch| batch.close().len());
    assert_eq!(lens, [MAX_BATCH_TASKS - 1, 3]);
}

#[tokio::test]
async fn a_batch_has_at_most_the_bytes_of_a_request() {
    let queue = StdArc::new(SpawnQueue::new());
    let sizes = [MAX_BATCH_BYTES, MAX_BATCH_BYTES - 5, 5, 1];
    let _stored = sizes.map(|size| {
        let payload = vec![0; size];
        push(&queue, [NewTask { payload, ..task(1) }])
    });
    let mut lens = Vec::new();
    for _ in 0..3 {
        lens.push(next(&queue).await.close().len());
    }
    assert_eq!(lens, [1, 2, 1]);
}

// ===== Tools =====

fn held() -> (MemoryStore, DurableClient, UnboundedReceiver<Held>) {
    let memory = MemoryStore::new();
    let (store, held) = Faulty::held(&memory);
    (memory, DurableClient::open(store), held)
}

impl Held {
    /// Closes the batch.
    fn tasks(&self) -> Vec<u64> {
        numbers(self.request.batch.close())
    }

    fn answer(self, answer: Result<Enqueued, Failure>) {
        self.answer.send(answer).unwrap();
    }
}

/// A pending call of `spawn`.
struct Spawned(std::pin::Pin<Box<dyn Future<Output = Result<(), DurableError>>>>);

impl Spawned {
    async fn stored(&mut self) -> Result<(), DurableError> {
        self.0.as_mut().await
    }
}

/// Spawns a task, which is in the queue then.
async fn spawn(client: &DurableClient, number: u64) -> Spawned {
    let client = client.clone();
    let mut spawned = Box::pin(async move {
        let options = SpawnOptions::new().id(id(number));
        client.spawn_with(Number(number), options).await.map(drop)
    });
    assert!(poll!(&mut spawned).is_pending());
    Spawned(spawned)
}

fn id(number: u64) -> TaskId {
    TaskId::from_bytes(u128::from(number).to_be_bytes())
}

fn task(number: u64) -> NewTask {
    NewTask {
        id: id(number),
        name: "number".into(),
        envelope: 1,
        version: 1,
        queue: QueueName::DEFAULT,
        group: None,
        priority: Priority::Normal,
        key: None,
        payload: Vec::new(),
        delay: Duration::ZERO,
        retention: Duration::ZERO,
        max_crashes: 3,
        parent: None,
    }
}

fn numbers(tasks: &[NewTask]) -> Vec<u64> {
    let ids = tasks.iter().map(|task| task.id.to_bytes());
    ids.map(|id| u128::from_be_bytes(id) as u64).collect()
}

fn one(queue: &SpawnQueue, number: u64) -> Stored {
    push(queue, [task(number)])
}

fn push(queue: &SpawnQueue, tasks: impl IntoIterator<Item = NewTask>) -> Stored {
    queue.push(tasks.into_iter().collect())
}

/// Returns the next batch, which is closed and has tasks.
async fn next(queue: &StdArc<SpawnQueue>) -> StdArc<WriteBatch> {
    let batch = queue.next_batch().await.unwrap();
    assert!(!batch.close().is_empty());
    batch
}

fn full() -> Failure {
    Failure::new(Effect::None, Cause::Full)
}
