//! Tasks that await tasks: permits that are given back and taken again.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_run_that_goes_on_comes_before_new_tasks() {
    let client = client_of(&MemoryStore::new());
    let begun = StdArc::new(Mutex::new(Vec::new()));
    let seen = StdArc::clone(&begun);
    let act = move |number, cx: TaskContext<App>| {
        let seen = StdArc::clone(&seen);
        async move {
            match number {
                0 => {
                    spawn(cx.client(), 1).await?.await?;
                    lock(&seen).push(0);
                }
                _ => {
                    lock(&seen).push(number);
                    sleep(Duration::from_secs(1)).await;
                }
            }
            Ok(number)
        }
    };
    let mut handles = Vec::new();
    for number in 0..10 {
        handles.push(spawn(&client, number).await.unwrap());
    }
    let _executor = builder(&client)
        .max_running(1)
        .start(App::new(act))
        .await
        .unwrap();
    for handle in handles {
        handle.await.unwrap();
    }
    // The request that says that the child has ended claims the task after it.
    assert_eq!(*lock(&begun), [1, 2, 0, 3, 4, 5, 6, 7, 8, 9]);
}

/// A run has a permit again only when one is free, even if it was woken before.
#[tokio::test(start_paused = true)]
async fn a_run_that_is_woken_waits_for_a_permit() {
    let client = client_of(&MemoryStore::new());
    let act = |number, cx: TaskContext<App>| async move {
        if number == 0 {
            let begun = Instant::now();
            await_in_vain(&cx, 1, Duration::from_secs(1)).await?;
            return Ok(begun.elapsed().as_secs());
        }
        // It has the only permit.
        sleep(Duration::from_secs(60)).await;
        Ok(0)
    };
    let executor = builder(&client)
        .max_running(1)
        .start(App::new(act))
        .await
        .unwrap();
    let parent = spawn(&client, 0).await.unwrap();
    until("the child runs", || {
        let metrics = executor.metrics();
        (metrics.running, metrics.suspended) == (1, 1)
    })
    .await;
    assert_eq!(parent.await.unwrap(), 60);
}

/// Makes tasks quarantined: each has crashed a worker, and may crash one more.
async fn quarantine(store: &MemoryStore, numbers: &[u64]) {
    quarantine_in(store, QueueName::DEFAULT, numbers).await;
}

/// The same, in a queue.
pub(super) async fn quarantine_in(store: &MemoryStore, queue: QueueName, numbers: &[u64]) {
    let client = client_of(store);
    for &number in numbers {
        let mut options = SpawnOptions::new().id(id(number)).max_crashes(2);
        if !queue.is_default() {
            options = options.queue(queue.as_str());
        }
        _ = client.spawn_with(Number(number), options).await.unwrap();
    }
    let backend = Store::from(store.clone()).0;
    let session = backend
        .open_session(Some(set().in_queue(queue)))
        .await
        .unwrap();
    let turned = backend.turn(StdArc::new(claim_all(session))).await.unwrap();
    let epoch = turned.claim.unwrap().epoch;
    assert!(backend.renew(vec![epoch]).await.unwrap().lost.is_empty());
    backend.close_session(session).await.unwrap();
}

/// Why parent 0 got no output of child 1, and after how many seconds.
type Errors = Mutex<Vec<(DurableError, u64)>>;

async fn await_child(cx: TaskContext<App>, errors: &Errors) -> Result<u64, TaskError> {
    let child = spawn(cx.client(), 1).await?;
    let begun = Instant::now();
    let output = child.await;
    if let Err(error) = &output {
        lock(errors).push((error.clone(), begun.elapsed().as_secs()));
    }
    Ok(output? + u64::from(cx.attempt()))
}

/// An executor of parent 0 and child 1, and what went wrong when the parent awaited the child.
async fn start_pair(client: &DurableClient, permits: usize) -> (DurableExecutor, StdArc<Errors>) {
    let errors = StdArc::<Errors>::default();
    let seen = StdArc::clone(&errors);
    let act = move |number, cx: TaskContext<App>| {
        let seen = StdArc::clone(&seen);
        async move {
            if number == 0 {
                return await_child(cx, &seen).await;
            }
            sleep(Duration::from_secs(5)).await;
            Ok(6)
        }
    };
    let mut builder = builder(client);
    let executor = builder.max_running(permits).start(App::new(act)).await;
    (executor.unwrap(), errors)
}

#[tokio::test(start_paused = true)]
async fn a_quarantined_run_keeps_its_permit() {
    let store = MemoryStore::new();
    quarantine(&store, &[0]).await;
    let client = client_of(&store);
    let (executor, errors) = start_pair(&client, 2).await;
    until("both run", || executor.metrics().running == 2).await;
    assert_eq!(executor.metrics().suspended, 0);
    assert_eq!(output(&client).await, 7);
    assert!(lock(&errors).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_quarantined_run_with_the_only_permit_must_not_wait() {
    let store = MemoryStore::new();
    quarantine(&store, &[0]).await;
    let client = client_of(&store);
    let (_executor, errors) = start_pair(&client, 1).await;
    // Nothing is counted, and when it runs again, the child has ended.
    assert_eq!(output(&client).await, 7);
    let errors = lock(&errors);
    let waited = errors.iter().map(|(_, waited)| *waited);
    assert_eq!(waited.max(), Some(0));
    assert!(errors.iter().all(|(error, _)| error.is_would_deadlock()));
}

/// A worker has one of them at a time: the child is not claimed before its parent has ended.
#[tokio::test(start_paused = true)]
async fn a_quarantined_run_does_not_wait_for_ever_for_another() {
    let store = MemoryStore::new();
    quarantine(&store, &[0, 1]).await;
    let client = client_of(&store);
    let (_executor, errors) = start_pair(&client, 8).await;
    assert_eq!(output(&client).await, 7);
    let errors = lock(&errors);
    let [(error, waited)] = &**errors else {
        panic!("{errors:?}");
    };
    assert!(error.is_would_deadlock());
    assert!((30..40).contains(waited), "{waited}");
}

/// Returns the output of parent 0. The store goes by the machine's clock: while a task is delayed there for a second,
/// any time may pass here. So the limit is one of real time.
async fn output(client: &DurableClient) -> u64 {
    const LIMIT: Duration = Duration::from_secs(20);
    let mut parent = client.attach::<Number>(id(0));
    let begun = std::time::Instant::now();
    loop {
        let some_time = Duration::from_secs(3600);
        match timeout(some_time, &mut parent).await {
            Ok(output) => return output.unwrap(),
            Err(_) => assert!(begun.elapsed() < LIMIT, "parent 0 has no output"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn waits_that_keep_their_permits_are_reported() {
    let client = client_of(&MemoryStore::new());
    let act = |number, cx: TaskContext<App>| async move {
        if number == 0 {
            let child = spawn(cx.client(), 1).await?;
            // Outside of the run: the permit is kept.
            tokio::spawn(child).await??;
        }
        Ok(0)
    };
    let executor = builder(&client)
        .max_running(1)
        .start(App::new(act))
        .await
        .unwrap();
    let _parent = spawn(&client, 0).await.unwrap();
    until("it is reported", || executor.metrics().stalled_waits > 0).await;
    let begun = Instant::now();
    until("it is reported again", || {
        executor.metrics().stalled_waits > 1
    })
    .await;
    let waited = begun.elapsed().as_secs_f64();
    assert!((29.0..31.0).contains(&waited), "{waited}");
}

/// Permits become free, or nobody awaits a task that needs one: nothing is wrong.
#[tokio::test(start_paused = true)]
async fn long_runs_are_not_reported() {
    let client = client_of(&MemoryStore::new());
    let act = |number, _| async move {
        sleep(Duration::from_secs(if number == 0 { 200 } else { 20 })).await;
        Ok(0)
    };
    let executor = builder(&client)
        .max_running(1)
        .start(App::new(act))
        .await
        .unwrap();
    spawn(&client, 0).await.unwrap().await.unwrap();
    let mut handles = Vec::new();
    for number in 1..10 {
        handles.push(spawn(&client, number).await.unwrap());
    }
    futures::future::join_all(handles).await;
    assert_eq!(executor.metrics().stalled_waits, 0);
}

/// To run again would not help: it would join itself again.
#[tokio::test(start_paused = true)]
async fn a_run_that_awaits_its_own_task_has_failed() {
    let client = client_of(&MemoryStore::new());
    let own = || SpawnOptions::new().key(Key::new("own"));
    let seen = StdArc::new(Mutex::new(Vec::new()));
    let errors = StdArc::clone(&seen);
    let act = move |number, cx: TaskContext<App>| {
        let errors = StdArc::clone(&errors);
        async move {
            let is_again = !lock(&errors).is_empty();
            if is_again {
                return Ok(number);
            }
            let same = cx.client().spawn_with(Number(1), own()).await?;
            assert!(same.was_joined());
            let some_time = Duration::from_secs(3600);
            let error = timeout(some_time, same).await?.unwrap_err();
            lock(&errors).push(error.clone());
            Err(error.into())
        }
    };
    let _executor = builder(&client).start(App::new(act)).await.unwrap();
    let spawned = client.spawn_with(Number(0), own()).await.unwrap();
    let id = spawned.id();
    let end = spawned.await;
    let errors = lock(&seen);
    assert!(errors[0].is_would_deadlock() && errors[0].task_id() == Some(id));
    // The only attempt counts.
    assert!(end.is_err_and(|error| error.is_dead()));
}
