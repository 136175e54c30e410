//! The end of an executor, whatever its store does.

use std::future::pending;

use tokio::sync::watch;

use super::*;
use crate::sync::Number as Count;

const GRACE: Duration = Duration::from_secs(2);

/// An executor of runs that never end, on a store that answers until it is told not to.
async fn start_on_a_store_that_falls_silent() -> (DurableExecutor, StdArc<Count>) {
    let silent = StdArc::new(Count::new(0));
    let is_silent = StdArc::clone(&silent);
    let client = client_with(&MemoryStore::new(), move |_| {
        let is_silent = is_silent.get() > 0;
        Box::pin(async move { if is_silent { pending().await } else { Ok(()) } })
    });
    let act = |_, _: TaskContext<App>| pending();
    let executor = builder(&client)
        .max_running(2)
        .start(App::new(act))
        .await
        .unwrap();
    for number in 0..2 {
        _ = spawn(&client, number).await.unwrap();
    }
    until("they run", || executor.metrics().running == 2).await;
    (executor, silent)
}

async fn time_of(shutdown: impl Future<Output = ()>) -> Duration {
    let begun = Instant::now();
    shutdown.await;
    begun.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_without_a_store_takes_its_grace_and_two_seconds() {
    let (executor, silent) = start_on_a_store_that_falls_silent().await;
    silent.set(1);
    let took = time_of(executor.shutdown(GRACE)).await;
    let most = GRACE + Duration::from_millis(2_010);
    assert!(took >= GRACE && took <= most, "{took:?}");
}

/// Verdicts are stored, and only the session cannot be closed: the time for both is the same.
#[tokio::test(start_paused = true)]
async fn verdicts_and_the_close_of_the_session_have_one_deadline() {
    let client = client_with(&MemoryStore::new(), |request| {
        Box::pin(async move {
            match request {
                "turn" => sleep(Duration::from_millis(1_500)).await,
                "close_session" => pending().await,
                _ => {}
            }
            Ok(())
        })
    });
    let act = |_, _: TaskContext<App>| pending();
    let executor = builder(&client).start(App::new(act)).await.unwrap();
    let handle = spawn(&client, 0).await.unwrap();
    until("it runs", || executor.metrics().running == 1).await;
    let took = time_of(executor.shutdown(GRACE)).await;
    assert!(took <= GRACE + Duration::from_millis(2_010), "{took:?}");
    assert_eq!(client.counts().await.unwrap().released, 1);
    drop(handle);
}

/// A claim that is to be confirmed is asked about while the worker hears what it is told.
#[tokio::test(start_paused = true)]
async fn a_shutdown_does_not_wait_for_the_confirmation_of_a_claim() {
    let store = MemoryStore::new();
    let client = client_of(&store);
    _ = spawn(&client, 0).await.unwrap();
    // Claimed, and never heard of again: lost.
    let backend = Store::from(store.clone()).0;
    let session = backend.open_session(Some(set())).await.unwrap();
    let claimed = backend.turn(StdArc::new(claim_all(session))).await;
    assert!(claimed.unwrap().claim.is_some());
    backend.close_session(session).await.unwrap();

    let client = client_with(&store, |request| {
        Box::pin(async move {
            match request {
                "renew" => pending().await,
                _ => Ok(()),
            }
        })
    });
    let act = |number, _| async move { Ok(number) };
    let executor = builder(&client).start(App::new(act)).await.unwrap();
    until("it is claimed", || executor.metrics().claimed == 1).await;
    let took = time_of(executor.shutdown(GRACE)).await;
    assert!(took <= GRACE + Duration::from_millis(2_010), "{took:?}");
}

/// Nor for a session, while the store does not open one.
#[tokio::test(start_paused = true)]
async fn a_shutdown_does_not_wait_for_a_new_session() {
    let sessions = StdArc::new(Count::new(0));
    let opened = StdArc::clone(&sessions);
    let client = client_with(&MemoryStore::new(), move |request| {
        // The first is that of the executor.
        let is_late = request == "open_session" && opened.add(1) > 0;
        Box::pin(async move {
            match request {
                _ if is_late => pending().await,
                "turn" => Err(Failure::new(Effect::None, Cause::NoSession)),
                _ => Ok(()),
            }
        })
    });
    let act = |number, _| async move { Ok(number) };
    let executor = builder(&client).start(App::new(act)).await.unwrap();
    until("it wants a session", || sessions.get() > 1).await;
    let took = time_of(executor.shutdown(GRACE)).await;
    assert!(took <= GRACE + Duration::from_millis(2_010), "{took:?}");
}

/// A run that is not asked to stop ends by itself. A task that is spawned meanwhile waits for another executor.
#[tokio::test(start_paused = true)]
async fn a_closed_executor_runs_what_it_has_claimed() {
    let client = client_of(&MemoryStore::new());
    let act = |number, context: TaskContext<App>| async move {
        tokio::select! {
            _ = context.stopped() => Err("it was asked to stop".into()),
            () = sleep(Duration::from_secs(60)) => Ok(number),
        }
    };
    let executor = builder(&client).start(App::new(act)).await.unwrap();
    let handle = spawn(&client, 7).await.unwrap();
    until("it runs", || executor.metrics().running == 1).await;
    executor.close();
    _ = spawn(&client, 8).await.unwrap();
    executor.closed().await;
    assert_eq!(handle.await.unwrap(), 7);
    let counts = client.counts().await.unwrap();
    assert_eq!((counts.waiting, counts.running), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_limits_the_time_of_a_closed_executor() {
    let client = client_of(&MemoryStore::new());
    let act = |_, _: TaskContext<App>| pending();
    let executor = builder(&client).start(App::new(act)).await.unwrap();
    let handle = spawn(&client, 0).await.unwrap();
    until("it runs", || executor.metrics().running == 1).await;
    executor.close();
    let closed = timeout(Duration::from_secs(3600), executor.closed());
    assert!(closed.await.is_err());
    executor.shutdown_now();
    executor.closed().await;
    assert_eq!(client.counts().await.unwrap().waiting, 1);
    drop(handle);
}

/// The way in which a store answers.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Behavior {
    Answering,
    Silent,
    Failing,
}

/// A client of a store in a behavior that a test changes.
fn client_of_a_store_that_changes(store: &MemoryStore) -> (DurableClient, watch::Sender<Behavior>) {
    let (behavior, behaviors) = watch::channel(Behavior::Answering);
    let client = client_with(store, move |_| {
        let mut behaviors = behaviors.clone();
        Box::pin(async move {
            let answers = behaviors
                .wait_for(|&behavior| behavior != Behavior::Silent)
                .await;
            match answers.as_deref() {
                Ok(Behavior::Failing) => Err(Failure::new(Effect::Unknown, Cause::Unavailable)),
                _ => Ok(()),
            }
        })
    });
    (client, behavior)
}

/// A closed executor whose only run has ended, on a store in such a behavior. It has waited for the store for an hour.
async fn closed_on_a_store_that_is(
    behavior: Behavior,
    store: &MemoryStore,
) -> (DurableExecutor, watch::Sender<Behavior>) {
    let (client, behaviors) = client_of_a_store_that_changes(store);
    let (end, ended) = watch::channel(false);
    let act = move |number, _| {
        let mut ended = ended.clone();
        async move {
            ended.wait_for(|&it| it).await.ok();
            Ok(number)
        }
    };
    let executor = builder(&client).start(App::new(act)).await.unwrap();
    _ = spawn(&client, 7).await.unwrap();
    until("it runs", || executor.metrics().running == 1).await;
    behaviors.send_replace(behavior);
    executor.close();
    end.send_replace(true);
    let early = timeout(Duration::from_secs(3600), executor.closed()).await;
    assert!(early.is_err(), "{behavior:?}: it does not have the outcome");
    assert_eq!(executor.metrics().running, 0, "{behavior:?}");
    (executor, behaviors)
}

#[tokio::test(start_paused = true)]
async fn a_closed_executor_ends_when_the_store_has_its_outcomes() {
    for behavior in [Behavior::Silent, Behavior::Failing] {
        let store = MemoryStore::new();
        let observer = client_of(&store);
        let (executor, behaviors) = closed_on_a_store_that_is(behavior, &store).await;
        assert_eq!(observer.counts().await.unwrap().done, 0);
        behaviors.send_replace(Behavior::Answering);
        let closed = timeout(Duration::from_secs(3600), executor.closed());
        assert!(closed.await.is_ok(), "{behavior:?}");
        let counts = observer.counts().await.unwrap();
        assert_eq!((counts.done, counts.running, counts.claimed), (1, 0, 1));
        assert_eq!(observer.attach::<Number>(id(7)).await.unwrap(), 7);
    }
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_limits_the_wait_of_a_closed_executor_for_its_store() {
    for behavior in [Behavior::Silent, Behavior::Failing] {
        let (executor, _behaviors) = closed_on_a_store_that_is(behavior, &MemoryStore::new()).await;
        let took = time_of(executor.shutdown(GRACE)).await;
        let most = GRACE + Duration::from_millis(2_010);
        assert!(took <= most, "{behavior:?}: {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_of_a_closed_executor_without_a_store_takes_its_grace_and_two_seconds() {
    let (executor, silent) = start_on_a_store_that_falls_silent().await;
    silent.set(1);
    executor.close();
    let closed = timeout(Duration::from_secs(3600), executor.closed()).await;
    assert!(closed.is_err(), "its runs never end");
    let took = time_of(executor.shutdown(GRACE)).await;
    let most = GRACE + Duration::from_millis(2_010);
    assert!(took >= GRACE && took <= most, "{took:?}");
}

/// The store does not close the session of an executor that has no run left, and the shutdown comes later.
#[tokio::test(start_paused = true)]
async fn a_shutdown_after_a_close_takes_two_seconds() {
    let closing = StdArc::new(Count::new(0));
    let is_closing = StdArc::clone(&closing);
    let client = client_with(&MemoryStore::new(), move |request| {
        let is_last = request == "close_session";
        if is_last {
            is_closing.set(1);
        }
        Box::pin(async move { if is_last { pending().await } else { Ok(()) } })
    });
    let act = |number, _| async move { Ok(number) };
    let executor = builder(&client).start(App::new(act)).await.unwrap();
    executor.close();
    until("it closes its session", || closing.get() > 0).await;
    let took = time_of(executor.shutdown(Duration::ZERO)).await;
    assert!(took <= Duration::from_millis(2_010), "{took:?}");
}

/// The executor that claims no more tasks is the one that knows when a task is due. The store measures the delay, so the time is real.
#[tokio::test]
async fn a_closed_executor_passes_on_that_a_task_is_due() {
    let store = MemoryStore::new();
    let [one, other] = [(); 2].map(|()| DurableClient::open(store.clone()));
    let act = |number, cx: TaskContext<App>| async move {
        if number == 0 {
            cx.stopped().await;
        }
        Ok(number)
    };
    let closing = builder(&one).start(App::new(act)).await.unwrap();
    let held = spawn(&one, 0).await.unwrap();
    until("it runs", || closing.metrics().running == 1).await;
    let turns = closing.metrics().turns;
    until("it finds nothing else", || closing.metrics().turns > turns).await;
    let free = builder(&other).start(App::new(act)).await.unwrap();
    until("it finds nothing", || free.metrics().turns > 0).await;
    closing.close();
    for number in 1..4 {
        let delay = Duration::from_millis(200);
        let options = SpawnOptions::new().delay(delay);
        let spawned = one.spawn_with(Number(number), options).await.unwrap();
        let begun = Instant::now();
        assert_eq!(spawned.await.unwrap(), number);
        let took = begun.elapsed().as_secs_f64();
        // An idle executor polls after 7.5 s.
        assert!((0.1..5.0).contains(&took), "{took}");
    }
    // The end of a task may be known before its worker has counted it.
    until("it has counted them", || free.metrics().completed == 3).await;
    closing.shutdown(Duration::ZERO).await;
    drop(held);
}
