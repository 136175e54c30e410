//! Executors that serve several queues: which queue starts how many tasks.

use super::*;
use crate::durable::ServedQueue;

/// The tasks of queue `b` have numbers from here on up.
const B: u64 = 1_000_000;

/// Spawns tasks in the queues `a` and `b`.
async fn spawn_in_both(client: &DurableClient, in_a: u64, in_b: u64) -> Vec<DurableHandle<u64>> {
    let of = |number: u64, queue: &str| (Number(number), SpawnOptions::new().queue(queue));
    let of_a = (0..in_a).map(|number| of(number, "a"));
    let of_b = (0..in_b).map(|number| of(B + number, "b"));
    client.spawn_all_with(of_a.chain(of_b)).await.unwrap()
}

/// The numbers of the tasks that have started so far, in order.
type Starts = StdArc<Mutex<Vec<u64>>>;

/// An app whose tasks take some milliseconds, and where their starts are noted.
fn noting_app(millis: u64) -> (App, Starts) {
    let starts = Starts::default();
    let noted = StdArc::clone(&starts);
    let act = move |number, _| {
        lock(&noted).push(number);
        async move {
            sleep(Duration::from_millis(millis)).await;
            Ok(number)
        }
    };
    (App::new(act), starts)
}

/// Returns how many of these starts were of queue `a`.
fn of_a(starts: &[u64]) -> usize {
    starts.iter().filter(|&&number| number < B).count()
}

#[tokio::test(start_paused = true)]
async fn eight_of_nine_tasks_are_of_the_queue_with_weight_eight() {
    let client = client_of(&MemoryStore::new());
    let handles = spawn_in_both(&client, 160, 20).await;
    let (app, starts) = noting_app(1);
    let _executor = builder(&client)
        .max_running(1)
        .serve(ServedQueue::new("a").weight(8))
        .serve(ServedQueue::new("b"))
        .start(app)
        .await
        .unwrap();
    futures::future::try_join_all(handles).await.unwrap();
    for nine in lock(&starts).chunks(9) {
        assert_eq!((nine.len(), of_a(nine)), (9, 8), "{nine:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn shares_are_kept_by_large_claims() {
    let client = client_of(&MemoryStore::new());
    let _handles = spawn_in_both(&client, 1_000, 200).await;
    let (app, starts) = noting_app(10);
    let _executor = builder(&client)
        .max_running(5)
        .serve(ServedQueue::new("a").weight(8))
        .serve(ServedQueue::new("b"))
        .start(app)
        .await
        .unwrap();
    until("many have started", || lock(&starts).len() >= 900).await;
    let started = of_a(&lock(&starts)[..900]);
    assert!((792..=808).contains(&started), "{started}");
}

/// The store says when the queue has no more tasks, and then all permits are for the other one.
#[tokio::test(start_paused = true)]
async fn no_permit_is_unused_while_a_queue_has_tasks() {
    let client = client_of(&MemoryStore::new());
    let _handles = spawn_in_both(&client, 3, 20).await;
    let (app, starts) = noting_app(10_000);
    let executor = builder(&client)
        .max_running(8)
        .serve(ServedQueue::new("a").weight(1_000))
        .serve(ServedQueue::new("b"))
        .start(app)
        .await
        .unwrap();
    until("all permits are used", || executor.metrics().running == 8).await;
    assert_eq!(of_a(&lock(&starts)), 3);
    until("the others run", || lock(&starts).len() == 16).await;
    assert_eq!(executor.metrics().running, 8);
}

/// Queue `a` does not make up for the time in which it had no tasks.
#[tokio::test(start_paused = true)]
async fn a_queue_that_had_no_tasks_gets_its_share_afterwards() {
    let client = client_of(&MemoryStore::new());
    let mut handles = spawn_in_both(&client, 0, 600).await;
    let (app, starts) = noting_app(1_000);
    let _executor = builder(&client)
        .max_running(1)
        .serve(ServedQueue::new("a"))
        .serve(ServedQueue::new("b"))
        .start(app)
        .await
        .unwrap();
    let first = handles.drain(..360);
    futures::future::try_join_all(first).await.unwrap();
    let begun = lock(&starts).len();
    handles.extend(spawn_in_both(&client, 300, 0).await);
    futures::future::try_join_all(handles).await.unwrap();
    let started = of_a(&lock(&starts)[begun..][..200]);
    assert!((99..=101).contains(&started), "{started}");
}

#[tokio::test(start_paused = true)]
async fn a_queue_gets_at_most_its_permits() {
    let client = client_of(&MemoryStore::new());
    let handles = spawn_in_both(&client, 20, 20).await;
    let running = StdArc::new(Mutex::new((0_usize, 0_usize)));
    let counted = StdArc::clone(&running);
    let act = move |number, _| {
        let counted = StdArc::clone(&counted);
        async move {
            let is_counted = number < B;
            if is_counted {
                let (now, peak) = &mut *lock(&counted);
                *now += 1;
                *peak = (*peak).max(*now);
            }
            sleep(Duration::from_secs(1)).await;
            lock(&counted).0 -= usize::from(is_counted);
            Ok(number)
        }
    };
    let executor = builder(&client)
        .max_running(8)
        .serve(ServedQueue::new("a").weight(100).max_running(2))
        .serve(ServedQueue::new("b"))
        .start(App::new(act))
        .await
        .unwrap();
    until("all permits are used", || executor.metrics().running == 8).await;
    let begun = Instant::now();
    futures::future::try_join_all(handles).await.unwrap();
    // 20 tasks of `a`, two at a time.
    let took = begun.elapsed().as_secs_f64();
    assert!((9.5..11.0).contains(&took), "{took}");
    assert_eq!(lock(&running).1, 2);
}

/// A run that resumes waits for a permit of its queue, too.
#[tokio::test(start_paused = true)]
async fn a_run_that_resumes_needs_a_permit_of_its_queue() {
    let client = client_of(&MemoryStore::new());
    let act = |number, cx: TaskContext<App>| async move {
        if number == 0 {
            let begun = Instant::now();
            await_in_vain(&cx, 1, Duration::from_secs(1)).await?;
            return Ok(begun.elapsed().as_secs());
        }
        sleep(Duration::from_secs(60)).await;
        Ok(number)
    };
    let executor = builder(&client)
        .max_running(8)
        .serve(ServedQueue::new("a").max_running(1))
        .start(App::new(act))
        .await
        .unwrap();
    let in_a = |number| (Number(number), SpawnOptions::new().queue("a"));
    let mut handles = client.spawn_all_with([in_a(0)]).await.unwrap();
    until("it waits", || executor.metrics().suspended == 1).await;
    let _other = client.spawn_all_with([in_a(7)]).await.unwrap();
    assert_eq!(handles.remove(0).await.unwrap(), 60);
}
