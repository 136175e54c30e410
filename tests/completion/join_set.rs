//! `JoinSet`, which replaces Tokio's.

use std::collections::HashSet;
use std::future::{pending, ready};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures::FutureExt;
use throng::BlockingPool;
use throng::completion::JoinSet;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::{LocalSet, yield_now};
use tokio::time::sleep;

use super::support::{Drops, Gate, current_thread, eventually, message, within};

#[tokio::test]
async fn len_counts_tasks_until_they_are_joined() {
    let mut set = JoinSet::new();
    assert!(set.is_empty() && set.join_next().await.is_none());
    for n in 0..10 {
        set.spawn(async move { n });
        assert_eq!(set.len(), n + 1);
    }
    let mut outputs = HashSet::new();
    while let Some(output) = within(set.join_next()).await {
        outputs.insert(output.unwrap());
        assert_eq!(set.len(), 10 - outputs.len());
    }
    assert_eq!(outputs.len(), 10);
    // An empty set remains usable.
    set.spawn(ready(10));
    assert_eq!(within(set.join_next()).await.unwrap().unwrap(), 10);
}

#[tokio::test(start_paused = true)]
async fn tasks_are_joined_in_the_order_in_which_they_end() {
    let mut set = JoinSet::new();
    for seconds in [3, 1, 2] {
        set.spawn(async move {
            sleep(Duration::from_secs(seconds)).await;
            seconds
        });
    }
    for expected in 1..=3 {
        assert_eq!(set.join_next().await.unwrap().unwrap(), expected);
    }
}

#[tokio::test]
async fn abort_handles_abort_single_tasks() {
    let mut set = JoinSet::new();
    let captured = Drops::new();
    let handles: Vec<_> = (0..10)
        .map(|_| {
            let value = captured.value();
            set.spawn(async move {
                let _value = value;
                pending().await
            })
        })
        .collect();
    yield_now().await;
    for handle in handles.iter().step_by(2) {
        assert!(!handle.is_finished());
        handle.abort();
    }
    let mut aborted = HashSet::new();
    for _ in 0..5 {
        let outcome: Result<(), _> = within(set.join_next()).await.unwrap();
        let error = outcome.unwrap_err();
        assert!(error.is_cancelled());
        aborted.insert(error.id());
    }
    assert_eq!((set.len(), captured.count()), (5, 5));
    for (n, handle) in handles.iter().enumerate() {
        assert_eq!(handle.is_finished(), n % 2 == 0);
        assert_eq!(aborted.contains(&handle.id()), n % 2 == 0);
    }
    drop(set);
    eventually("the others are aborted", || captured.count() == 10).await;
}

#[tokio::test]
async fn abort_all_keeps_the_tasks_until_they_are_joined() {
    let mut set = JoinSet::new();
    for n in 0..10 {
        match n % 2 {
            0 => set.spawn(pending()),
            _ => set.spawn(ready(())),
        };
    }
    eventually("the ready ones have ended", || {
        set.try_join_next().is_some()
    })
    .await;
    set.abort_all();
    assert_eq!(set.len(), 9);
    let mut cancelled = 0;
    while let Some(outcome) = within(set.join_next()).await {
        cancelled += usize::from(outcome.is_err_and(|error| error.is_cancelled()));
    }
    assert!((5..=9).contains(&cancelled), "{cancelled}");
}

#[tokio::test]
async fn join_next_with_id_returns_the_id_of_the_task() {
    let mut set = JoinSet::new();
    let spawned = HashSet::from([set.spawn(ready(1)).id(), set.spawn(ready(1)).id()]);
    let (id, _) = within(set.join_next_with_id()).await.unwrap().unwrap();
    let mut joined = HashSet::from([id]);
    eventually("the other one has ended", || {
        set.try_join_next_with_id()
            .is_some_and(|next| joined.insert(next.unwrap().0))
    })
    .await;
    assert_eq!(joined, spawned);
}

#[tokio::test]
async fn panics_are_errors() {
    let mut set = JoinSet::new();
    set.spawn(async { panic!("in a future") });
    let error = within(set.join_next()).await.unwrap().unwrap_err();
    assert_eq!(message(error.into_panic()), "in a future");
    set.spawn_blocking(|| panic!("in a closure"));
    let error = within(set.join_next()).await.unwrap().unwrap_err();
    assert_eq!(message(error.into_panic()), "in a closure");
}

#[tokio::test]
async fn join_all_returns_all_outputs() {
    let mut set: JoinSet<_> = (0..5).map(|n| async move { n }).collect();
    set.extend((5..10).map(|n| async move { n }));
    let outputs: HashSet<_> = within(set.join_all()).await.into_iter().collect();
    assert_eq!(outputs, (0..10).collect());
}

#[tokio::test]
async fn join_all_panics_with_the_panic_of_a_task_and_aborts_the_others() {
    let captured = Drops::new();
    let value = captured.value();
    let mut set = JoinSet::new();
    set.spawn(async move {
        let _value = value;
        pending().await
    });
    set.spawn(async { panic!("on purpose") });
    let error = tokio::spawn(set.join_all()).await.unwrap_err();
    assert_eq!(message(error.into_panic()), "on purpose");
    eventually("the other one is aborted", || captured.count() == 1).await;
}

#[tokio::test]
async fn detached_tasks_run_on() {
    let mut set = JoinSet::new();
    let (open, opened) = oneshot::channel::<()>();
    let (finished, is_finished) = oneshot::channel();
    set.spawn(async move {
        opened.await.unwrap();
        finished.send(()).unwrap();
    });
    set.detach_all();
    assert_eq!(set.len(), 0);
    assert!(set.join_next().await.is_none());
    open.send(()).unwrap();
    within(is_finished).await.unwrap();
    set.spawn(async {});
    within(set.join_next()).await.unwrap().unwrap();
}

#[tokio::test]
async fn shutdown_waits_for_closures_that_have_started() {
    let mut set = JoinSet::new();
    let (gate, captured) = (Gate::new(), Drops::new());
    let pool = BlockingPool::builder().max_threads(1).build().unwrap();
    let (passed, values) = (gate.clone(), [captured.value(), captured.value()]);
    let [running, queued] = values;
    let (entered, has_entered) = oneshot::channel();
    set.spawn_blocking_on(
        move || {
            entered.send(()).unwrap();
            passed.pass();
            drop(running);
        },
        &pool,
    );
    within(has_entered).await.unwrap();
    set.spawn_blocking_on(move || drop(queued), &pool);
    set.spawn(pending());
    {
        let mut shutdown = Box::pin(set.shutdown());
        assert!(shutdown.as_mut().now_or_never().is_none());
        assert_eq!(captured.count(), 1);
        gate.open();
        within(shutdown).await;
    }
    assert_eq!((set.len(), captured.count()), (0, 2));
}

#[test]
fn tasks_of_a_runtime_that_is_gone_are_cancelled() {
    let mut set = JoinSet::new();
    let runtime = current_thread();
    set.spawn_on(pending::<()>(), runtime.handle());
    drop(runtime);
    let outcome = current_thread().block_on(set.join_next()).unwrap();
    assert!(outcome.unwrap_err().is_cancelled());
}

#[test]
fn without_a_runtime_a_future_is_rejected_and_a_local_one_panics() {
    let mut set = JoinSet::new();
    set.spawn(ready(1));
    assert!(set.try_join_next().unwrap().unwrap_err().is_rejected());
    let spawns = std::panic::AssertUnwindSafe(|| set.spawn_local(ready(1)));
    assert!(std::panic::catch_unwind(spawns).is_err());
}

#[tokio::test]
async fn joining_yields_when_the_budget_is_used_up() {
    const TASKS: u32 = 1_000;
    let ended = Arc::new(Semaphore::new(0));
    let mut set = JoinSet::new();
    for _ in 0..TASKS {
        let ended = Arc::clone(&ended);
        set.spawn(async move { ended.add_permits(1) });
    }
    let _all = ended.acquire_many(TASKS).await.unwrap();
    let (mut joined, mut yields) = (0, 0);
    while joined < TASKS {
        match set.join_next().now_or_never() {
            Some(output) => {
                output.unwrap().unwrap();
                joined += 1;
            }
            None => {
                yields += 1;
                yield_now().await;
            }
        }
    }
    assert!(yields > 0);
}

#[test]
fn local_tasks_need_not_be_send() {
    current_thread().block_on(async {
        let (local, mut set) = (LocalSet::new(), JoinSet::new());
        for n in 0..3 {
            let shared = Rc::new(n);
            set.spawn_local_on(async move { shared }, &local);
        }
        let joined = local.run_until(async {
            let shared = Rc::new(3);
            set.spawn_local(async move {
                yield_now().await;
                shared
            });
            set.spawn_local(async { panic!("on purpose") });
            let (mut sum, mut panics) = (0, 0);
            while let Some(outcome) = set.join_next().await {
                match outcome {
                    Ok(output) => sum += *output,
                    Err(error) => panics += u32::from(error.is_panic()),
                }
            }
            (sum, panics)
        });
        assert_eq!(within(joined).await, (6, 1));
    });
}

/// Aborting from another thread drops neither a future nor an output there.
#[test]
fn local_tasks_are_aborted_from_other_threads() {
    struct OnThread(std::thread::ThreadId, Drops);
    impl Drop for OnThread {
        fn drop(&mut self) {
            assert_eq!(self.0, std::thread::current().id());
            drop(self.1.value());
        }
    }
    current_thread().block_on(async {
        let (local, mut set, captured) = (LocalSet::new(), JoinSet::new(), Drops::new());
        let value = || OnThread(std::thread::current().id(), captured.clone());
        let (not_polled, unread) = (value(), value());
        let handles = [
            set.spawn_local_on(
                async move {
                    let _value = not_polled;
                    pending().await
                },
                &local,
            ),
            set.spawn_local_on(async move { Rc::new(unread) }, &local),
        ];
        let first = handles[0].clone();
        std::thread::spawn(move || first.abort()).join().unwrap();
        within(local.run_until(async {
            let outcome: Result<Rc<OnThread>, _> = set.join_next().await.unwrap();
            drop(outcome);
            eventually("both have ended", || {
                handles.iter().all(|handle| handle.is_finished())
            })
            .await;
        }))
        .await;
        std::thread::spawn(move || handles.iter().for_each(|handle| handle.abort()))
            .join()
            .unwrap();
        drop(set);
        assert_eq!(captured.count(), 2);
    });
}

#[test]
fn dropping_a_set_aborts_local_tasks() {
    current_thread().block_on(async {
        let (local, captured) = (LocalSet::new(), Drops::new());
        let mut set = JoinSet::new();
        for _ in 0..10 {
            let value = Rc::new(captured.value());
            set.spawn_local_on(
                async move {
                    let _value = value;
                    pending::<Rc<()>>().await
                },
                &local,
            );
        }
        local.run_until(yield_now()).await;
        drop(set);
        within(local).await;
        assert_eq!(captured.count(), 10);
    });
}

/// The drop of a waker is user code: it may run the task that the set waits for.
#[test]
fn dropping_a_replaced_waker_may_end_a_task() {
    struct RunsTasks(tokio::runtime::Runtime);
    impl Wake for RunsTasks {
        fn wake(self: Arc<Self>) {}
    }
    impl Drop for RunsTasks {
        fn drop(&mut self) {
            self.0.block_on(yield_now());
        }
    }
    let runtime = current_thread();
    let mut set = JoinSet::new();
    set.spawn_on(async { 7 }, runtime.handle());
    let waker = Waker::from(Arc::new(RunsTasks(runtime)));
    let polled = set.poll_join_next(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    drop(waker);
    // This replaces the waker, and returns what its drop has completed.
    let polled = set.poll_join_next(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(polled, Poll::Ready(Some(Ok(7)))));
}

#[test]
fn a_set_is_generic_over_any_output() {
    #[derive(Default)]
    struct Holder<T> {
        set: JoinSet<T>,
    }
    fn is_empty<T>(holder: &Holder<T>) -> bool {
        holder.set.is_empty() && holder.set.len() == 0
    }
    assert!(is_empty(&Holder::<&str>::default()));
}

#[test]
fn a_set_is_send_if_its_outputs_are() {
    trait AmbiguousIfSend<A> {
        fn check() {}
    }
    impl<T: ?Sized> AmbiguousIfSend<()> for T {}
    impl<T: ?Sized + Send> AmbiguousIfSend<u8> for T {}
    // Compiles only if there is one implementation.
    <JoinSet<Rc<()>> as AmbiguousIfSend<_>>::check();

    fn is_send_and_sync<T: Send + Sync>() {}
    is_send_and_sync::<JoinSet<std::cell::Cell<u8>>>();
}
