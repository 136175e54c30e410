//! Many tasks of all kinds, many executors, and nothing lost.

use std::collections::HashMap;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use throng::durable::{DurableClient, DurableExecutor, DurableHandle, TaskContext, TaskError};

use crate::harness::{App, Number, TestStore, builder, start_as};
use crate::ledger::assert_balanced;
use crate::support::{rounds, within};

on_all_stores! {
    many_tasks_of_all_kinds_all_end_once,
    nothing_is_lost_while_executors_come_and_go,
}

/// The number of successful runs of each number.
type Ran = Arc<Mutex<HashMap<u64, u32>>>;

async fn act(number: u64, cx: TaskContext<App>, ran: Ran) -> Result<u64, TaskError> {
    match (number % 10, cx.attempt()) {
        (1, 1) => return Err("not yet".into()),
        // No hook is called: thousands of backtraces would take longer than a lease.
        (2, 1) => resume_unwind(Box::new("not yet")),
        (3, 1) => {
            tokio::task::yield_now().await;
            resume_unwind(Box::new("not yet"))
        }
        (4, 1) => return Err(TaskError::retry_after("not yet", Duration::from_millis(2))),
        // A snooze counts nothing: so the number of the run has to come from elsewhere.
        (5, _) if ran.lock().unwrap().insert(u64::MAX - number, 1).is_none() => {
            return Err(TaskError::snooze(Duration::from_millis(1)));
        }
        (6, _) => return Err(TaskError::fatal("never")),
        (7, _) => tokio::task::yield_now().await,
        _ => {}
    }
    *ran.lock().unwrap().entry(number).or_default() += 1;
    Ok(number)
}

async fn executor(client: &DurableClient, ran: &Ran) -> DurableExecutor {
    let ran = Arc::clone(ran);
    let act = move |number, cx| act(number, cx, Arc::clone(&ran));
    let mut builder = builder(client);
    // A busy machine must not end a lease: nothing is to be lost here.
    builder.max_running(32).lease(Duration::from_secs(120));
    start_as(builder, act).await
}

async fn spawn_all(client: &DurableClient, tasks: u64) -> Vec<DurableHandle<u64>> {
    client.spawn_all((0..tasks).map(Number)).await.unwrap()
}

/// Awaits all; those of 8 may have been cancelled. How many have succeeded. Only the time of the whole test is limited, since the tasks
/// wait for each other.
async fn all_end(handles: Vec<DurableHandle<u64>>) -> u64 {
    let mut done = 0;
    for (number, handle) in (0..).zip(handles) {
        match (number % 10, handle.await) {
            (6, end) => assert!(end.unwrap_err().is_dead()),
            (8, Err(error)) => assert!(error.is_cancelled(), "{error}"),
            (_, end) => {
                assert_eq!(end.unwrap(), number);
                done += 1;
            }
        }
    }
    done
}

async fn many_tasks_of_all_kinds_all_end_once(store: TestStore) {
    let tasks = rounds(20_000, 100_000) as u64;
    let (one, two, ran) = (store.client().await, store.client().await, Ran::default());
    let mut executors = Vec::new();
    for client in [&one, &two, &one, &two] {
        executors.push(executor(client, &ran).await);
    }
    let handles = spawn_all(&one, tasks).await;
    let to_cancel: Vec<_> = handles
        .iter()
        .map(DurableHandle::id)
        .skip(8)
        .step_by(10)
        .collect();
    let canceller = two.clone();
    let cancelling = tokio::spawn(async move { canceller.cancel(&to_cancel).await });
    let done = all_end(handles).await;
    within(cancelling).await.unwrap().unwrap();
    for executor in &executors {
        executor.shutdown(Duration::from_secs(10)).await;
    }
    let counts = one.counts().await.unwrap();
    assert_balanced(&counts);
    assert_eq!((counts.stored, counts.done), (tasks, done), "{counts:?}");
    let left = counts.waiting + counts.delayed + counts.running;
    assert_eq!((left, counts.kept + counts.dead), (0, tasks), "{counts:?}");
    assert_eq!((counts.crashed, counts.lost), (0, 0), "{counts:?}");
    assert_eq!(
        (counts.retried, counts.snoozed),
        (tasks * 4 / 10, tasks / 10)
    );
    let sum: u64 = executors.iter().map(|it| it.metrics().completed).sum();
    assert_eq!(sum, done);
    let ran = ran.lock().unwrap();
    let own = ran.iter().filter(|&(&number, _)| number < tasks);
    // Nobody died, so each ran once.
    assert!(own.clone().all(|(_, &runs)| runs == 1));
    assert!(own.count() as u64 >= done);
}

async fn nothing_is_lost_while_executors_come_and_go(store: TestStore) {
    let (one, two, ran) = (store.client().await, store.client().await, Ran::default());
    let handles = spawn_all(&one, 5_000).await;
    let ends = tokio::spawn(all_end(handles));
    // The last executor stays: how much the earlier ones finish depends on the machine.
    for round in (0..100_u64).take_while(|_| !ends.is_finished()) {
        let executor = executor([&one, &two][round as usize % 2], &ran).await;
        tokio::time::sleep(Duration::from_millis(round % 7 * 3)).await;
        match round % 3 {
            0 => drop(executor),
            1 => executor.shutdown(Duration::ZERO).await,
            _ => executor.shutdown(Duration::from_secs(10)).await,
        }
    }
    let _last = executor(&one, &ran).await;
    let done = ends.await.unwrap();
    let counts = one.counts().await.unwrap();
    assert_balanced(&counts);
    assert_eq!((counts.done, counts.dead), (done, 500), "{counts:?}");
    assert_eq!((done, counts.crashed), (4_500, 0), "{counts:?}");
}
