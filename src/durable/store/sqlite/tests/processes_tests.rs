//! Processes that share a file: they start and stop, wake one another, and are notified of ends.

use super::*;

#[tokio::test]
async fn the_tasks_of_a_dead_process_come_back_at_once() {
    let file = File::new();
    let (dead, alive) = (file.open().await, file.open().await);
    let (dead, alive) = (Worker::new(&dead).await, Worker::new(&alive).await);
    dead.enqueue([task(1).0, task(2).0]).await;
    let lost = dead.claim(1).await;
    let known = dead.claim(1).await;
    dead.store.renew(vec![known.epoch]).await.unwrap();

    let turned = alive.turn(vec![], 9).await;
    assert_eq!((turned.claim, turned.more), (None, false));
    assert!(turned.next.unwrap() <= Duration::from_millis(100));
    dead.store.simulate_crash();
    let claim = alive.claim(9).await;
    let counted = claim
        .tasks
        .iter()
        .map(|task| (task.id, task.lost, task.crashes));
    let counted: Vec<_> = counted.collect();
    // The tasks of the claims are in their order, before the waiting tasks.
    assert_eq!(counted, [(id(2), 0, 1), (id(1), 0, 1)]);
    // Its verdicts now come too late.
    let late = dead.turn(done(&lost, vec![]), 0).await;
    assert_eq!(late.refused, [id(1)]);
}

#[tokio::test]
async fn a_process_without_a_lock_file_is_not_dead() {
    let file = File::new();
    let (held, other) = (file.open().await, file.open().await);
    let (held, other) = (Worker::new(&held).await, Worker::new(&other).await);
    held.enqueue([task(1).0]).await;
    let claim = held.claim(1).await;
    held.store.shared.endpoint.remove_lock_file();

    assert_eq!(other.turn(vec![], 9).await.claim, None);
    let told = held.turn(done(&claim, vec![]), 0).await;
    assert_eq!(told.refused, []);
}

#[tokio::test]
async fn sessions_of_a_process_go_idle_independently() {
    let file = File::new();
    let store = file.open().await;
    let mut resting = Worker::new(&store).await;
    let busy = Worker::new(&store).await;
    resting.go_idle().await;
    busy.go_idle().await;
    // When one session is no longer idle, the other still is.
    store.shared.endpoint.remove_idle(busy.session);
    let producer = Worker::new(&file.open().await).await;
    resting.go_idle().await;
    store.shared.endpoint.remove_idle(busy.session);
    producer.enqueue([task(1).0]).await;
    resting.expect(|event| event.is_wake()).await;
}

#[tokio::test]
async fn files_of_dead_processes_are_removed() {
    let file = File::new();
    let alive = Worker::new(&file.open().await).await;
    let dead = Worker::new(&file.open().await).await;
    dead.go_idle().await;
    let name = super::super::endpoint::file_name(dead.store.shared.endpoint.id, "");
    dead.store.simulate_crash();
    drop(dead);

    for _ in 0..2 {
        assert!(!alive.store.maintain(100).await.unwrap());
    }
    let left = file.files();
    assert!(!left.iter().any(|path| path.contains(&name)), "{left:?}");
    let sessions = "SELECT count(*) FROM throng_session";
    assert_eq!(file.number(sessions), 1);
}

#[tokio::test]
async fn a_store_that_is_dropped_leaves_no_files() {
    let file = File::new();
    let worker = Worker::new(&file.open().await).await;
    worker.go_idle().await;
    assert_ne!(file.files(), [""; 0]);
    drop(worker);
    until(|| file.files().is_empty()).await;
}

#[tokio::test]
async fn requests_before_the_drop_are_finished() {
    let file = File::new();
    let worker = Worker::new(&file.open().await).await;
    let pending = worker.store.enqueue(worker.request([task(1).0]));
    drop(pending);
    drop(worker);
    let worker = Worker::new(&file.open().await).await;
    let seen = || async { worker.store.status(vec![id(1)]).await.unwrap() };
    while seen().await != [TaskState::Waiting] {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn two_stores_on_a_file_wake_one_another() {
    let file = File::new();
    let (one, two) = (file.open().await, file.open().await);
    assert_wakes(&one, &two).await;
    assert_wakes(&two, &one).await;
}

#[tokio::test]
async fn a_dead_process_does_not_consume_a_wake_up() {
    let file = File::new();
    let producer = Worker::new(&file.open().await).await;
    let mut workers = Vec::new();
    for _ in 0..6 {
        workers.push(Worker::new(&file.open().await).await);
    }
    for worker in &workers {
        worker.go_idle().await;
    }
    let mut alive = workers.pop().unwrap();
    for dead in workers {
        dead.store.simulate_crash();
        drop(dead);
    }
    // A socket closes when the thread that reads it exits.
    until(|| {
        file.files()
            .iter()
            .filter(|it| it.ends_with(".sock"))
            .count()
            == 2
    })
    .await;
    producer.enqueue([task(1).0]).await;
    alive.expect(|event| event.is_wake()).await;
}

#[tokio::test]
async fn an_idle_worker_is_notified_of_new_processes() {
    let file = File::new();
    let mut resting = Worker::new(&file.open().await).await;
    assert_eq!(resting.try_turn(vec![], 1, true).await.unwrap().next, None);
    let newcomer = Worker::new(&file.open().await).await;
    resting.expect(|event| event.is_wake()).await;

    // Now it checks often enough to detect the death.
    newcomer.enqueue([task(1).0]).await;
    newcomer.claim(1).await;
    let next = resting.try_turn(vec![], 1, true).await.unwrap().next;
    assert!(next.unwrap() <= Duration::from_millis(100));
}

#[tokio::test]
async fn a_worker_that_goes_idle_while_a_task_is_stored_misses_nothing() {
    let file = File::new();
    let producer = Worker::new(&file.open().await).await;
    let mut worker = Worker::new(&file.open().await).await;
    for n in 0..200 {
        let stored = producer.enqueue([task(n).0]);
        let turn = worker.try_turn(vec![], 1, true);
        let (_, turned) = tokio::join!(stored, turn);
        let mut turned = turned.unwrap();
        let is_told = turned.more || turned.next == Some(Duration::ZERO);
        if turned.claim.is_none() && !is_told {
            worker.expect(|event| event.is_wake()).await;
        }
        if turned.claim.is_none() {
            turned = worker.turn(vec![], 1).await;
        }
        let claim = turned.claim.expect("a task can be claimed");
        worker.turn(done(&claim, vec![]), 0).await;
    }
}

#[tokio::test]
async fn an_end_is_reported_to_the_producer_and_to_watchers() {
    let file = File::new();
    let mut owner = Worker::new(&file.open().await).await;
    let mut other = Worker::new(&file.open().await).await;
    let runner = Worker::new(&file.open().await).await;
    owner.enqueue((0..100).map(|n| task(n).0)).await;
    let ids: Vec<_> = (0..100).map(id).collect();
    other.store.status(ids.clone()).await.unwrap();

    let claim = runner.claim(100).await;
    runner.turn(done(&claim, vec![]), 0).await;
    for worker in [&mut owner, &mut other] {
        let mut ended = Vec::new();
        while ended.len() < ids.len() {
            match worker.event().await {
                Event::MaybeEnded(ids) => ended.extend(ids),
                Event::Ready | Event::Wake(_) => {}
                event => panic!("{event:?}"),
            }
        }
        assert_eq!(ended, ids);
    }
}

#[tokio::test]
async fn a_worker_is_notified_of_cancellations() {
    let file = File::new();
    let canceller = Worker::new(&file.open().await).await;
    let mut runner = Worker::new(&file.open().await).await;
    canceller.enqueue([task(1).0, task(2).0]).await;
    let claim = runner.claim(1).await;
    assert_eq!(
        canceller
            .store
            .cancel(vec![id(1), id(2), id(3)])
            .await
            .unwrap(),
        2
    );

    runner
        .expect(|event| event == Event::Cancel(vec![id(1)]))
        .await;
    let renewed = runner.store.renew(vec![claim.epoch]).await.unwrap();
    assert_eq!(renewed.cancelled, [id(1)]);
    let verdicts = verdicts(&claim, |_| Verdict::Release);
    runner.turn(verdicts, 0).await;
    let counts = runner.store.counts().await.unwrap();
    assert_eq!(
        (counts.cancelled, counts.released, counts.waiting),
        (1, 0, 0)
    );
}

#[tokio::test]
async fn idle_turns_write_nothing() {
    let file = File::new();
    let worker = Worker::new(&file.open().await).await;
    worker.enqueue([task(1).delay(3600).0]).await;
    let version = || file.number("SELECT number FROM throng_session");
    let before = (version(), file.log());
    for _ in 0..10 {
        worker.go_idle().await;
        worker.turn(vec![], 5).await;
    }
    assert_eq!((version(), file.log()), before);
}
