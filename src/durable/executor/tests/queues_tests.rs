//! Executors that serve several queues: which sessions the store wakes, the limits of queues, sessions that end, and invalid options.

use std::future::pending;

use super::nested_tests::quarantine_in;
use super::*;
use crate::durable::{QueueSettings, ServedQueue};
use crate::sync::Number as Count;

/// Spawns a task in a queue, with the id of its number.
async fn spawn_in(client: &DurableClient, queue: &str, number: u64) -> DurableHandle<u64> {
    let options = SpawnOptions::new().id(id(number)).queue(queue);
    let spawned = client.spawn_with(Number(number), options).await;
    spawned.unwrap()
}

/// An executor of the queues `x` and `y`.
async fn start_both(client: &DurableClient, permits: usize, app: App) -> DurableExecutor {
    builder(client)
        .max_running(permits)
        .serve(ServedQueue::new("x"))
        .serve(ServedQueue::new("y"))
        .start(app)
        .await
        .unwrap()
}

/// Tasks with even numbers never end.
fn app_of_even_and_odd() -> App {
    App::new(|number, _| async move {
        match number % 2 {
            0 => pending().await,
            _ => Ok(number),
        }
    })
}

/// Waits until nothing happens any more: time passes only then.
async fn settle() {
    sleep(Duration::from_secs(1)).await;
}

/// Waits for a task, which must end before an idle executor polls.
async fn soon(handle: DurableHandle<u64>) -> u64 {
    let begun = Instant::now();
    let output = handle.await.unwrap();
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(2), "{took:?}");
    output
}

/// Both executors wait for tasks of `y`. The store wakes the first one, which has no permit left.
#[tokio::test(start_paused = true)]
async fn an_executor_without_permits_passes_its_wake_on() {
    let store = MemoryStore::new();
    let (one, other) = (client_of(&store), client_of(&store));
    let full = start_both(&one, 1, app_of_even_and_odd()).await;
    settle().await;
    let free = start_both(&other, 1, app_of_even_and_odd()).await;
    settle().await;
    _ = spawn_in(&one, "x", 0).await;
    until("it has no permit left", || full.metrics().running == 1).await;

    let turns = full.metrics().turns;
    assert_eq!(soon(spawn_in(&one, "y", 1).await).await, 1);
    // One turn passes the wake-up on. The session is not woken again, since it is not idle any more.
    assert_eq!(full.metrics().turns, turns + 1);
    assert_eq!(soon(spawn_in(&one, "y", 3).await).await, 3);
    assert_eq!(full.metrics().turns, turns + 1);
    assert_eq!(free.metrics().claimed, 2);
}

/// The full executor is the only one that knows when a task is due. The store measures the delay, so the time is real.
#[tokio::test]
async fn an_executor_without_permits_passes_on_that_a_task_is_due() {
    let store = MemoryStore::new();
    let [one, other] = [(); 2].map(|()| DurableClient::open(store.clone()));
    let full = start_both(&one, 1, app_of_even_and_odd()).await;
    until("both of its sessions have found nothing", || {
        full.metrics().turns >= 2
    })
    .await;
    let free = start_both(&other, 1, app_of_even_and_odd()).await;
    until("both of its sessions have found nothing", || {
        free.metrics().turns >= 2
    })
    .await;
    _ = spawn_in(&one, "x", 0).await;
    until("it has no permit left", || full.metrics().running == 1).await;

    for number in [1, 3] {
        let delay = Duration::from_millis(200);
        let options = SpawnOptions::new().queue("y").delay(delay);
        let spawned = one.spawn_with(Number(number), options).await.unwrap();
        let begun = Instant::now();
        assert_eq!(spawned.await.unwrap(), number);
        let took = begun.elapsed().as_secs_f64();
        // An idle executor polls after 7.5 s.
        assert!((0.1..5.0).contains(&took), "{took}");
    }
}

/// Runs that cannot resume because of their queue's limit leave the other permits to another queue.
#[tokio::test(start_paused = true)]
async fn runs_that_wait_for_their_queue_need_no_permit() {
    let client = client_of(&MemoryStore::new());
    let act = |number, cx: TaskContext<App>| async move {
        if number < 10 {
            // No executor serves its queue.
            await_in_vain(&cx, 99, Duration::from_secs(3)).await?;
            pending::<()>().await;
        }
        Ok(number)
    };
    let mut builder = builder(&client);
    builder
        .max_running(2)
        .serve(ServedQueue::new("x").max_running(1))
        .serve(ServedQueue::new("y"));
    let executor = builder.start(App::new(act)).await.unwrap();
    for number in 0..4 {
        _ = spawn_in(&client, "x", number).await;
    }
    until("all wait", || executor.metrics().suspended == 4).await;
    until("one has resumed", || executor.metrics().running == 1).await;
    assert_eq!(soon(spawn_in(&client, "y", 11).await).await, 11);
}

/// A wake-up is also passed on if only the permits of the queue are used up, and not those of the executor: a run that resumes has
/// taken the permit for which the session waits.
#[tokio::test(start_paused = true)]
async fn an_executor_whose_queue_has_no_permits_passes_its_wake_on() {
    let store = MemoryStore::new();
    let (one, other) = (client_of(&store), client_of(&store));
    let act = |number, cx: TaskContext<App>| async move {
        if number == 0 {
            // No executor serves its queue.
            await_in_vain(&cx, 99, Duration::from_secs(3)).await?;
            pending::<()>().await;
        }
        Ok(number)
    };
    let serve = async |client| {
        let mut builder = builder(client);
        let queue = ServedQueue::new("x").max_running(1);
        let executor = builder.max_running(8).serve(queue).start(App::new(act));
        executor.await.unwrap()
    };
    let full = serve(&one).await;
    _ = spawn_in(&one, "x", 0).await;
    until("it waits", || full.metrics().suspended == 1).await;
    let free = serve(&other).await;
    until("it has resumed", || full.metrics().running == 1).await;
    assert_eq!(soon(spawn_in(&one, "x", 1).await).await, 1);
    assert_eq!((full.metrics().claimed, free.metrics().claimed), (1, 1));
}

/// Returns the maximum number of tasks that ran at once.
async fn peak_of(handles: Vec<DurableHandle<u64>>, running: &Mutex<(usize, usize)>) -> usize {
    futures::future::try_join_all(handles).await.unwrap();
    lock(running).1
}

/// An app of tasks that take a second, and the numbers of those that run now, and at most.
fn counting_app() -> (impl Fn() -> App, StdArc<Mutex<(usize, usize)>>) {
    let running = StdArc::new(Mutex::new((0, 0)));
    let counted = StdArc::clone(&running);
    let app = move || {
        let counted = StdArc::clone(&counted);
        App::new(move |number, _| {
            let counted = StdArc::clone(&counted);
            async move {
                let now = lock(&counted).0 + 1;
                let peak = lock(&counted).1.max(now);
                *lock(&counted) = (now, peak);
                sleep(Duration::from_secs(1)).await;
                lock(&counted).0 -= 1;
                Ok(number)
            }
        })
    };
    (app, running)
}

#[tokio::test(start_paused = true)]
async fn a_limit_in_the_store_holds_for_all_executors() {
    let store = MemoryStore::new();
    let (one, other) = (client_of(&store), client_of(&store));
    let limit = QueueSettings::new().max_running(1);
    assert!(one.queue("x").set(limit).await.unwrap());
    let (app, running) = counting_app();
    let _executors = [
        start_both(&one, 4, app()).await,
        start_both(&other, 4, app()).await,
    ];
    let begun = Instant::now();
    let mut handles = Vec::new();
    for number in 0..10 {
        handles.push(spawn_in(&one, "x", number).await);
    }
    assert_eq!(peak_of(handles, &running).await, 1);
    let took = begun.elapsed().as_secs_f64();
    assert!((9.5..11.0).contains(&took), "{took}");
}

/// A queue at its limit does not delay another queue.
#[tokio::test(start_paused = true)]
async fn a_queue_at_its_limit_leaves_permits_to_the_other() {
    let client = client_of(&MemoryStore::new());
    let limit = QueueSettings::new().max_running(1);
    assert!(client.queue("x").set(limit).await.unwrap());
    let executor = start_both(&client, 4, app_of_even_and_odd()).await;
    for number in 0..4 {
        _ = spawn_in(&client, "x", 2 * number).await;
        _ = spawn_in(&client, "y", 100 + 2 * number).await;
    }
    until("all permits are used", || executor.metrics().running == 4).await;
    assert_eq!(client.queue("x").info().await.unwrap().running, 1);
    assert_eq!(client.queue("y").info().await.unwrap().running, 3);
}

#[tokio::test(start_paused = true)]
async fn a_paused_queue_starts_nothing_until_it_is_resumed() {
    let client = client_of(&MemoryStore::new());
    client.queue("x").pause().await.unwrap();
    let executor = start_both(&client, 4, app_of_even_and_odd()).await;
    let paused = spawn_in(&client, "x", 1).await;
    assert_eq!(soon(spawn_in(&client, "y", 3).await).await, 3);
    // Idle executors poll every few seconds.
    sleep(Duration::from_secs(60)).await;
    assert_eq!(executor.metrics().claimed, 1);
    client.queue("x").resume().await.unwrap();
    assert_eq!(soon(paused).await, 1);
}

#[tokio::test(start_paused = true)]
async fn tasks_of_higher_priorities_start_first() {
    let client = client_of(&MemoryStore::new());
    let priorities = [Priority::Low, Priority::Normal, Priority::High];
    let tasks = (0..).zip(priorities).map(|(number, priority)| {
        let options = SpawnOptions::new().queue("x").priority(priority);
        (Number(number), options)
    });
    let handles = client.spawn_all_with(tasks).await.unwrap();
    let starts = StdArc::new(Mutex::new(Vec::new()));
    let noted = StdArc::clone(&starts);
    let app = App::new(move |number, _| {
        lock(&noted).push(number);
        async move { Ok(number) }
    });
    let _executor = start_both(&client, 1, app).await;
    futures::future::try_join_all(handles).await.unwrap();
    assert_eq!(*lock(&starts), [2, 1, 0]);
}

/// Only the named queues are served.
#[tokio::test(start_paused = true)]
async fn a_queue_that_is_not_named_is_not_served() {
    let client = client_of(&MemoryStore::new());
    let executor = start_both(&client, 4, app_of_even_and_odd()).await;
    let waiting = spawn(&client, 1).await.unwrap();
    assert_eq!(soon(spawn_in(&client, "y", 3).await).await, 3);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(executor.metrics().claimed, 1);
    let _executor = builder(&client)
        .serve(ServedQueue::new("z"))
        .serve(ServedQueue::default_queue())
        .start(app_of_even_and_odd())
        .await
        .unwrap();
    assert_eq!(soon(waiting).await, 1);
}

/// The store ends all sessions of the executor. It notices when it next uses each of them.
#[tokio::test(start_paused = true)]
async fn sessions_that_have_ended_are_opened_again() {
    let store = MemoryStore::new();
    let opened = StdArc::new(Count::new(0));
    let count = StdArc::clone(&opened);
    let client = client_with(&store, move |request| {
        count.add(usize::from(request == "open_session"));
        Box::pin(async { Ok(()) })
    });
    let _executor = start_both(&client, 4, app_of_even_and_odd()).await;
    settle().await;
    let backend = Store::from(store.clone()).0;
    for session in [1, 2] {
        backend.close_session(session).await.unwrap();
    }
    // One of them by its wake, the other one by its poll.
    assert_eq!(soon(spawn_in(&client, "x", 1).await).await, 1);
    assert_eq!(soon(spawn_in(&client, "y", 3).await).await, 3);
    // Two at first, two of the executor again, and that of the client.
    assert_eq!(opened.get(), 5);
}

/// The verdict of a run in one queue goes with a turn of another one, whose session has ended.
#[tokio::test(start_paused = true)]
async fn a_verdict_is_not_lost_with_the_session_of_another_queue() {
    let store = MemoryStore::new();
    let fails = StdArc::new(Count::new(0));
    let next_fails = StdArc::clone(&fails);
    let client = client_with(&store, move |request| {
        let fails = request == "turn" && next_fails.get() > 0;
        if fails {
            next_fails.set(0);
        }
        Box::pin(async move {
            match fails {
                true => Err(Failure::new(Effect::None, Cause::NoSession)),
                false => Ok(()),
            }
        })
    });
    let app = App::new(|number, _| async move {
        sleep(Duration::from_secs(5)).await;
        Ok(number)
    });
    let executor = start_both(&client, 4, app).await;
    let first = spawn_in(&client, "x", 1).await;
    until("it runs", || executor.metrics().running == 1).await;
    until("it has ended", || {
        // The next turn reports it, or claims the task of `y`.
        fails.set(1);
        executor.metrics().running == 0
    })
    .await;
    assert_eq!(soon(first).await, 1);
    assert_eq!(client.counts().await.unwrap().done, 1);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_gives_back_the_tasks_of_all_queues() {
    let store = MemoryStore::new();
    let client = client_of(&store);
    let executor = start_both(&client, 4, app_of_even_and_odd()).await;
    _ = spawn_in(&client, "x", 0).await;
    _ = spawn_in(&client, "y", 2).await;
    until("they run", || executor.metrics().running == 2).await;
    executor.shutdown(Duration::from_secs(1)).await;
    let counts = client.counts().await.unwrap();
    assert_eq!(
        (counts.running, counts.waiting, counts.released),
        (0, 2, 2),
        "{counts:?}"
    );
    // No worker serves them any more.
    assert_eq!(counts.unserved, 2);
}

#[tokio::test(start_paused = true)]
async fn a_start_that_fails_leaves_no_session() {
    let store = MemoryStore::new();
    let opened = StdArc::new(Count::new(0));
    let client = client_with(&store, move |request| {
        let fails = request == "open_session" && opened.add(1) > 0;
        Box::pin(async move {
            match fails {
                true => Err(Failure::new(Effect::None, Cause::ReadOnly)),
                false => Ok(()),
            }
        })
    });
    let started = builder(&client)
        .serve(ServedQueue::new("x"))
        .serve(ServedQueue::new("y"))
        .start(app_of_even_and_odd())
        .await;
    assert!(started.is_err());
    until("its sessions are closed", || store.leftovers() == 0).await;
}

/// A worker runs one quarantined task at a time, of all queues. The next one starts when that one ends.
#[tokio::test(start_paused = true)]
async fn quarantined_tasks_of_two_queues_follow_each_other() {
    let store = MemoryStore::new();
    for (queue, number) in [("x", 1), ("y", 3)] {
        quarantine_in(&store, QueueName::new(queue).unwrap(), &[number]).await;
    }
    let client = client_of(&store);
    let app = App::new(|number, _| async move {
        sleep(Duration::from_millis(500)).await;
        Ok(number)
    });
    let _executor = start_both(&client, 4, app).await;
    let both = [1, 3].map(|number| client.attach::<Number>(id(number)));
    for handle in both {
        soon(handle).await;
    }
}

#[tokio::test]
async fn invalid_queues_are_refused() {
    let client = client_of(&MemoryStore::new());
    let longest = "n".repeat(64);
    for (queue, problem) in [
        (ServedQueue::new(""), "\"\""),
        (ServedQueue::new("a b"), "a b"),
        (ServedQueue::new(longest.clone() + "n"), "64"),
        (ServedQueue::new("x").weight(0), "weight"),
        (ServedQueue::new("x").max_running(0), "max_running"),
        (ServedQueue::default_queue().weight(0), "the default queue"),
    ] {
        let mut builder = builder(&client);
        builder.serve(ServedQueue::new(&*longest)).serve(queue);
        let errors = [
            builder.start(app_of_even_and_odd()).await.err().unwrap(),
            builder
                .start_inline(app_of_even_and_odd())
                .await
                .err()
                .unwrap(),
        ];
        for error in errors {
            assert!(error.is_invalid(), "{error}");
            assert!(error.to_string().contains(problem), "{error}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_is_named_again_replaces_the_first() {
    let client = client_of(&MemoryStore::new());
    let executor = builder(&client)
        .serve(ServedQueue::new("x").weight(0))
        .serve(ServedQueue::new("x").max_running(1))
        .start(app_of_even_and_odd())
        .await
        .unwrap();
    for number in [0, 2] {
        _ = spawn_in(&client, "x", number).await;
    }
    sleep(Duration::from_secs(60)).await;
    assert_eq!(executor.metrics().running, 1);
    assert_eq!(executor.metrics().claimed, 1);
}

#[tokio::test(start_paused = true)]
async fn an_inline_executor_serves_its_queues_in_order() {
    let client = client_of(&MemoryStore::new());
    let starts = StdArc::new(Mutex::new(Vec::new()));
    let noted = StdArc::clone(&starts);
    let app = App::new(move |number, cx: TaskContext<App>| {
        lock(&noted).push(number);
        async move {
            if number == 3 {
                spawn_in(cx.client(), "x", 4).await;
            }
            Ok(number)
        }
    });
    let mut executor = builder(&client)
        .serve(ServedQueue::new("x"))
        .serve(ServedQueue::default_queue())
        .start_inline(app)
        .await
        .unwrap();
    assert_eq!(executor.run_due().await.unwrap(), 0);
    spawn(&client, 2).await.unwrap();
    spawn(&client, 3).await.unwrap();
    spawn_in(&client, "x", 1).await;
    spawn_in(&client, "y", 5).await;
    assert_eq!(executor.run_due().await.unwrap(), 4);
    assert_eq!(*lock(&starts), [1, 2, 3, 4]);
    assert_eq!(executor.run_due().await.unwrap(), 0);
}
