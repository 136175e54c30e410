//! What goes with which request.

use std::sync::Arc as StdArc;
use std::time::Duration;

use futures::poll;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;
use tokio::time::{Instant, advance, sleep};

use super::{Faulty, Held, Number, lost};
use crate::durable::engine::lane::Lanes;
use crate::durable::engine::line::{Line, Load, Order};
use crate::durable::engine::patience::PATIENCE;
use crate::durable::error::{Cause, Effect, Failure};
use crate::durable::store::{MAX_BATCH, MAX_BATCH_BYTES, NewTask, Store};
use crate::durable::{DurableClient, DurableError, MemoryStore, SpawnOptions, TaskId};

// ===== Requests =====

#[tokio::test]
async fn what_comes_while_a_request_is_under_way_goes_with_the_next() {
    let (_, client, mut held) = held();
    let mut first = order(&client, 1).await;
    let one = held.recv().await.unwrap();
    assert_eq!(one.tasks(), [1]);
    let mut second = order(&client, 2).await;
    // It is sent before the first one is answered, and filled until it is looked at.
    let two = held.recv().await.unwrap();
    let mut third = order(&client, 3).await;
    assert_eq!(two.tasks(), [2, 3]);

    two.answer(Ok(()));
    second.stored().await.unwrap();
    third.stored().await.unwrap();
    assert!(poll!(&mut first.0).is_pending());
    one.answer(Ok(()));
    first.stored().await.unwrap();
}

#[tokio::test]
async fn a_request_that_nobody_has_looked_at_needs_no_other() {
    let (_, client, mut held) = held();
    let mut first = order(&client, 1).await;
    let one = held.recv().await.unwrap();
    let mut second = order(&client, 2).await;
    assert_eq!(one.tasks(), [1, 2]);
    // From then on, it is what it is.
    let mut third = order(&client, 3).await;
    let two = held.recv().await.unwrap();
    assert_eq!(one.tasks(), [1, 2]);
    assert_eq!(two.tasks(), [3]);
    one.answer(Ok(()));
    two.answer(Ok(()));
    for ordered in [&mut first, &mut second, &mut third] {
        ordered.stored().await.unwrap();
    }
    assert!(held.try_recv().is_err());
}

#[tokio::test]
async fn what_does_not_fit_goes_with_the_next() {
    let (_, client, mut held) = held();
    let mut ordered = Vec::new();
    for number in 0..MAX_BATCH as u64 + 1 {
        ordered.push(order(&client, number).await);
    }
    let one = held.recv().await.unwrap();
    assert_eq!(one.tasks().len(), MAX_BATCH);
    let two = held.recv().await.unwrap();
    assert_eq!(two.tasks(), [MAX_BATCH as u64]);
    one.answer(Ok(()));
    two.answer(Ok(()));
    for ordered in &mut ordered {
        ordered.stored().await.unwrap();
    }
}

#[tokio::test]
async fn one_after_the_other_needs_one_session() {
    let (_, client, mut held) = held();
    let mut sessions = Vec::new();
    for number in 0..4 {
        let mut ordered = order(&client, number).await;
        let one = held.recv().await.unwrap();
        assert_eq!(one.tasks(), [number]);
        sessions.push((one.request.session, one.request.number));
        one.answer(Ok(()));
        ordered.stored().await.unwrap();
    }
    let session = sessions[0].0;
    assert_eq!(sessions, [1, 2, 3, 4].map(|number| (session, number)));
}

#[tokio::test]
async fn a_request_that_fails_tells_those_whose_tasks_it_had() {
    let (_, client, mut held) = held();
    let mut first = order(&client, 1).await;
    let one = held.recv().await.unwrap();
    assert_eq!(one.tasks(), [1]);
    let mut second = order(&client, 2).await;
    one.answer(Err(full()));
    assert!(first.stored().await.unwrap_err().is_full());
    let two = held.recv().await.unwrap();
    assert_eq!(two.tasks(), [2]);
    two.answer(Ok(()));
    second.stored().await.unwrap();
}

#[tokio::test]
async fn a_request_that_fails_unseen_tells_those_who_have_waited_for_it() {
    let (_, client, mut held) = held();
    let mut first = order(&client, 1).await;
    let one = held.recv().await.unwrap();
    let mut second = order(&client, 2).await;
    let late = StdArc::clone(&one.request);
    one.answer(Err(full()));
    let error = first.stored().await.unwrap_err();
    assert!(error.is_full() && !error.is_unknown(), "{error}");
    // Who came later has another.
    let two = held.recv().await.unwrap();
    // A copy that arrives now takes nothing away.
    assert!(late.tasks.is_empty());
    assert_eq!(two.tasks(), [2]);
    two.answer(Ok(()));
    second.stored().await.unwrap();
}

#[tokio::test]
async fn a_request_whose_session_has_ended_is_the_same_in_another() {
    let (_, client, mut held) = held();
    let mut first = order(&client, 1).await;
    let one = held.recv().await.unwrap();
    assert_eq!(one.tasks(), [1]);
    let ended = one.request.session;
    one.answer(Err(Failure::new(Effect::None, Cause::NoSession)));
    let again = held.recv().await.unwrap();
    assert_ne!(again.request.session, ended);
    assert_eq!(again.tasks(), [1]);
    again.answer(Ok(()));
    first.stored().await.unwrap();
}

// ===== The end =====

#[tokio::test]
async fn what_was_ordered_is_stored_when_the_client_is_gone() {
    const MANY: u64 = 3 * MAX_BATCH as u64;
    let (memory, client, mut held) = held();
    for number in 0..MANY {
        drop(order(&client, number).await);
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
    // Nothing but the tasks, which are in two lists each: its sessions are closed.
    while memory.leftovers() != 2 * MANY {
        sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(store.counts().await.unwrap().stored, MANY);
    assert!(held.recv().await.is_none());
}

#[tokio::test]
async fn an_order_after_the_end_is_refused() {
    let line = StdArc::new(Line::new());
    let before = one(&line, 1);
    line.close();
    assert!(one(&line, 2).await.is_err());
    let load = line.load().await.unwrap();
    assert_eq!(numbers(&load.tasks), [1]);
    load.end(&Ok(()));
    before.await.unwrap().unwrap();
    assert!(line.load().await.is_none());
}

#[tokio::test]
async fn all_who_wait_for_an_order_learn_of_the_end() {
    let line = StdArc::new(Line::new());
    let ordered = one(&line, 1);
    let load = line.load().await.unwrap();
    let others = || async { line.load().await.is_none() };
    let end = async {
        line.close();
        load.end(&Err(full()));
        assert!(ordered.await.unwrap().is_err());
    };
    assert_eq!(tokio::join!(others(), others(), end), (true, true, ()));
}

/// As when the system refuses a thread.
#[tokio::test]
async fn where_nothing_is_sent_orders_are_refused() {
    let line = StdArc::new(Line::new());
    let store = Store::from(MemoryStore::new()).0;
    let lanes = Lanes::new(store, StdArc::clone(&line));
    let before = one(&line, 1);
    drop(lanes.run());
    assert!(before.await.is_err());
    assert!(one(&line, 2).await.is_err());
}

// ===== Loads =====

#[tokio::test(start_paused = true)]
async fn the_old_are_refused_while_the_store_fails() {
    let line = StdArc::new(Line::new());
    let drawn = one(&line, 1);
    let load = line.load().await.unwrap();
    assert_eq!(numbers(&load.tasks), [1]);
    let old = one(&line, 2);
    advance(PATIENCE + Duration::from_millis(1)).await;
    let mut young = one(&line, 3);
    load.end(&Err(lost()));
    assert_eq!(drawn.await.unwrap().unwrap_err().effect, Effect::Unknown);
    // Of this one, nothing was sent.
    assert_eq!(old.await.unwrap().unwrap_err().effect, Effect::None);
    assert!(young.try_recv().is_err());
    assert_eq!(numbers(&line.load().await.unwrap().tasks), [3]);
}

#[tokio::test(start_paused = true)]
async fn the_old_are_stored_when_the_store_does_not_fail() {
    let line = StdArc::new(Line::new());
    let _drawn = one(&line, 1);
    let load = line.load().await.unwrap();
    assert_eq!(numbers(&load.tasks), [1]);
    let _old = one(&line, 2);
    advance(2 * PATIENCE).await;
    load.end(&Ok(()));
    assert_eq!(numbers(&line.load().await.unwrap().tasks), [2]);
}

#[tokio::test]
async fn an_order_is_not_parted() {
    let line = StdArc::new(Line::new());
    let many = 0..MAX_BATCH as u64 - 1;
    let _orders = [many, 500..502, 600..601].map(|numbers| give(&line, numbers.map(task)));
    let lens = [next(&line).await, next(&line).await].map(|load| load.tasks.len());
    assert_eq!(lens, [MAX_BATCH - 1, 3]);
}

#[tokio::test]
async fn a_load_has_the_bytes_of_a_request() {
    let line = StdArc::new(Line::new());
    let sizes = [MAX_BATCH_BYTES, MAX_BATCH_BYTES - 5, 5, 1];
    let _orders = sizes.map(|size| {
        let payload = vec![0; size];
        give(&line, [NewTask { payload, ..task(1) }])
    });
    let mut lens = Vec::new();
    for _ in 0..3 {
        lens.push(next(&line).await.tasks.len());
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
    /// Looks at them.
    fn tasks(&self) -> Vec<u64> {
        numbers(&self.request.tasks)
    }

    fn answer(self, answer: Result<(), Failure>) {
        self.answer.send(answer).unwrap();
    }
}

/// Somebody who waits for a task to be stored.
struct Ordered(std::pin::Pin<Box<dyn Future<Output = Result<(), DurableError>>>>);

impl Ordered {
    async fn stored(&mut self) -> Result<(), DurableError> {
        self.0.as_mut().await
    }
}

/// Spawns a task, which is in line then.
async fn order(client: &DurableClient, number: u64) -> Ordered {
    let client = client.clone();
    let mut spawned = Box::pin(async move {
        let options = SpawnOptions::new().id(id(number));
        client.spawn_with(Number(number), options).await.map(drop)
    });
    assert!(poll!(&mut spawned).is_pending());
    Ordered(spawned)
}

fn id(number: u64) -> TaskId {
    TaskId::from_bytes(u128::from(number).to_be_bytes())
}

fn task(number: u64) -> NewTask {
    NewTask {
        id: id(number),
        name: "number".into(),
        envelope: 1,
        payload: Vec::new(),
        delay: Duration::ZERO,
        retention: Duration::ZERO,
        max_crashes: 3,
    }
}

fn numbers(tasks: &[NewTask]) -> Vec<u64> {
    let ids = tasks.iter().map(|task| task.id.to_bytes());
    ids.map(|id| u128::from_be_bytes(id) as u64).collect()
}

type Stored = oneshot::Receiver<Result<(), Failure>>;

fn one(line: &Line, number: u64) -> Stored {
    give(line, [task(number)])
}

fn give(line: &Line, tasks: impl IntoIterator<Item = NewTask>) -> Stored {
    let (reply, stored) = oneshot::channel();
    line.order(Order {
        tasks: tasks.into_iter().collect(),
        since: Instant::now(),
        reply,
    });
    stored
}

/// The next load, when it is drawn.
async fn next(line: &StdArc<Line>) -> Load {
    let load = line.load().await.unwrap();
    assert!(!load.tasks.is_empty());
    load
}

fn full() -> Failure {
    Failure::new(Effect::None, Cause::Full)
}
