//! The number of requests to the store about awaited tasks.

use std::pin::pin;

use tokio::time::{Instant, sleep, timeout};

use super::super::waiters::{WaitLimit, Waiters};
use super::*;
use crate::durable::clock::since_boot;
use crate::sync::Number as Count;

type Times = StdArc<Mutex<Vec<Instant>>>;

/// A client in this runtime, and the times of its looks. Each look waits for the future that `before` returns,
/// given the number of earlier looks.
fn client_that_looks(
    before: impl Fn(usize) -> Answer<'static, ()> + Send + Sync + 'static,
) -> (DurableClient, Times) {
    client_of(&MemoryStore::new(), before)
}

/// The same, of this store.
fn client_of(
    store: &MemoryStore,
    before: impl Fn(usize) -> Answer<'static, ()> + Send + Sync + 'static,
) -> (DurableClient, Times) {
    let times = Times::default();
    let looks = StdArc::clone(&times);
    let store = store.within(&Handle::current(), move |request| {
        if request != "status" {
            return Box::pin(async { Ok(()) });
        }
        let mut looks = lock(&looks);
        looks.push(Instant::now());
        before(looks.len() - 1)
    });
    (DurableClient::open(store), times)
}

/// A task that does not end, and is awaited.
async fn await_in_vain(client: &DurableClient) -> TaskId {
    let later = SpawnOptions::new().delay(Duration::from_secs(1 << 20));
    let handle = client.spawn_with(Number(1), later).await.unwrap();
    let id = handle.id();
    tokio::spawn(handle);
    id
}

async fn until_there_are(times: &Times, count: usize) {
    let reached = async {
        while lock(times).len() < count {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(Duration::from_secs(3600), reached).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn after_a_slow_answer_all_are_looked_at_within_five_seconds() {
    let slow = Duration::from_secs(5);
    let (client, times) = client_that_looks(move |count| {
        Box::pin(async move {
            if count == 3 {
                sleep(slow).await;
            }
            Ok(())
        })
    });
    await_in_vain(&client).await;
    until_there_are(&times, 6).await;
    let times = lock(&times).clone();
    let pause = times[4] - (times[3] + slow);
    assert!(pause <= Duration::from_millis(5_010), "{pause:?}");
    // And as before, once it answers in time.
    let pause = times[5] - times[4];
    assert!(pause <= Duration::from_millis(1_010), "{pause:?}");
}

/// The engine works in this runtime, so it does meanwhile whatever it can do without time passing.
async fn let_the_engine_work() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

/// No time passes, so neither a sweep nor the end of a pause can be the reason.
#[tokio::test(start_paused = true)]
async fn all_are_looked_at_when_the_store_is_back() {
    let store = MemoryStore::new();
    let (client, times) = client_of(&store, |_| Box::pin(async { Err(lost()) }));
    await_in_vain(&client).await;
    for _ in 0..8 {
        let count = lock(&times).len();
        until_there_are(&times, count + 10).await;
        // A further look may be due at this instant.
        let_the_engine_work().await;
        let (count, back) = (lock(&times).len(), Instant::now());
        store.send_all(&Event::Ready);
        let_the_engine_work().await;
        assert_eq!(lock(&times).len(), count + 1);
        assert_eq!(back.elapsed(), Duration::ZERO);
    }
}

/// The answer to a request that was sent before the wait began may be out of date.
#[tokio::test(start_paused = true)]
async fn whoever_waits_for_one_answer_gets_one_to_a_later_question() {
    let answers = StdArc::new(Count::new(0));
    let answered = StdArc::clone(&answers);
    let (client, times) = client_that_looks(move |count| {
        let answered = StdArc::clone(&answered);
        Box::pin(async move {
            while answered.get() <= count {
                sleep(Duration::from_millis(1)).await;
            }
            Ok(())
        })
    });
    let id = await_in_vain(&client).await;
    until_there_are(&times, 1).await;
    let mut end = pin!(client.engine().waiters.wait(id, WaitLimit::OneAnswer));
    assert!(timeout(Duration::ZERO, &mut end).await.is_err());
    answers.set(1);
    until_there_are(&times, 2).await;
    let early = timeout(Duration::from_millis(10), &mut end).await;
    assert!(early.is_err(), "the first look had begun before: {early:?}");
    answers.set(2);
    assert_eq!(end.await.unwrap().unwrap(), TaskState::Delayed);
}

/// A task with the same id may have been stored since the request was sent.
#[tokio::test]
async fn an_end_resolves_only_those_that_waited_when_it_was_reported() {
    let (waiters, id) = (Waiters::default(), TaskId::new());
    let earlier = waiters.wait(id, WaitLimit::Unlimited);
    let sent = since_boot();
    let mut later = waiters.wait(id, WaitLimit::Unlimited);
    let end = || Ok(TaskState::Done(vec![1]));
    waiters.resolve_earlier(id, sent, end);
    assert!(earlier.await.unwrap().is_ok());
    assert!(later.try_recv().is_err());
    waiters.resolve_earlier(id, since_boot(), end);
    assert!(later.await.unwrap().is_ok());
}
