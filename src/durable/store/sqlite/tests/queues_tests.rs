//! Named queues and priorities: limits hold for all processes, each step that lets a task start wakes a session, and damage
//! destroys at most limits.

use super::*;
use crate::durable::queue::{QueueInfo, QueueSettings, Rate};
use crate::durable::store::QueueChange;

const SECOND: Duration = Duration::from_secs(1);

fn queue() -> QueueName {
    QueueName::new("mail").unwrap()
}

fn mail(n: u64) -> NewTask {
    prioritized(n, Priority::Normal)
}

fn prioritized(n: u64, priority: Priority) -> NewTask {
    NewTask {
        queue: queue(),
        priority,
        ..task(n).0
    }
}

/// A worker of the queue in a process of its own.
async fn worker(file: &File, clock: &Clock) -> Worker {
    let store = SqliteStore::open_with(&file.path, clock.clone()).await;
    let mut worker = Worker::new(&Arc::new(store.unwrap())).await;
    worker.store.close_session(worker.session).await.unwrap();
    let set = TypeSet::of_tests().map(|set| set.in_queue(queue()));
    worker.session = worker.store.open_session(set).await.unwrap();
    worker
}

impl Worker {
    async fn set(&self, settings: QueueSettings) {
        let change = QueueChange::Settings(settings);
        assert!(self.store.change_queue(queue(), change).await.unwrap());
    }

    async fn pause(&self, is_paused: bool) {
        let change = QueueChange::Paused(is_paused);
        assert!(self.store.change_queue(queue(), change).await.unwrap());
    }

    async fn info(&self) -> QueueInfo {
        self.store.queue(queue()).await.unwrap()
    }

    async fn claimed(&self, want: usize) -> Vec<TaskId> {
        let claim = self.turn(vec![], want).await.claim;
        let tasks = claim.into_iter().flat_map(|claim| claim.tasks);
        tasks.map(|task| task.id).collect()
    }

    async fn is_woken(&mut self) {
        let session = self.session;
        self.expect(|event| event == Event::Wake(Some(session)))
            .await;
    }
}

/// Returns the number of sessions that wait to be woken.
fn idle(file: &File) -> usize {
    let files = file.files();
    files.iter().filter(|path| path.contains("/idle/")).count()
}

// ===== Limits =====

#[tokio::test]
async fn a_limit_holds_while_processes_die() {
    let (file, clock) = (File::new(), Clock::manual());
    let first = worker(&file, &clock).await;
    first.set(QueueSettings::new().max_running(3)).await;
    first.enqueue((0..20).map(mail)).await;
    let mut dying = first;
    assert_eq!(dying.claimed(2).await.len(), 2);
    for _ in 0..4 {
        let next = worker(&file, &clock).await;
        assert_eq!(next.claimed(9).await.len(), 1);
        assert_eq!(next.info().await.running, 3);
        dying.store.simulate_crash();
        // It takes the tasks of the dead one back, and so may claim as many.
        assert_eq!(next.claimed(9).await.len(), 2);
        assert_eq!(next.claimed(9).await.len(), 0);
        assert_eq!(next.info().await.running, 3);
        // Its other claim ends.
        let other = worker(&file, &clock).await;
        next.store.close_session(next.session).await.unwrap();
        assert_eq!(other.info().await.running, 0);
        assert_eq!(other.claimed(2).await.len(), 2);
        dying = other;
    }
}

#[tokio::test]
async fn a_limit_is_not_exceeded_by_processes_that_claim_at_once() {
    let (file, clock) = (File::new(), Clock::manual());
    let mut workers = Vec::new();
    for _ in 0..4 {
        workers.push(worker(&file, &clock).await);
    }
    workers[0].set(QueueSettings::new().max_running(5)).await;
    workers[0].enqueue((0..100).map(mail)).await;
    let mut ended = 0;
    while ended < 100 {
        let turns = workers.iter().map(|worker| worker.turn(vec![], 3));
        let turns = futures::future::join_all(turns).await;
        let running = file.number("SELECT sum(length(held)) / 24 FROM throng_claim");
        assert_eq!(running, 5);
        for (worker, turned) in workers.iter().zip(turns) {
            let Some(claim) = turned.claim else { continue };
            ended += claim.tasks.len();
            worker.turn(done(&claim, vec![]), 0).await;
        }
    }
}

#[tokio::test]
async fn a_store_without_queues_and_priorities_reads_and_writes_no_queue() {
    let file = File::new();
    let worker = Worker::new(&file.open().await).await;
    worker.enqueue([task(1).0]).await;
    file.sql("DROP TABLE throng_queue");
    let claim = worker.claim(1).await;
    worker.turn(done(&claim, vec![]), 0).await;
    worker.go_idle().await;
    worker.enqueue([task(2).0]).await;
    let claim = worker.claim(1).await;
    worker.turn(verdicts(&claim, |_| Verdict::Release), 0).await;
    worker.store.maintain(10).await.unwrap();
    assert_eq!(worker.claim(9).await.tasks.len(), 1);
}

// ===== Wake-ups =====

#[tokio::test]
async fn the_end_of_a_task_wakes_another_process() {
    let (file, clock) = (File::new(), Clock::manual());
    let busy = worker(&file, &clock).await;
    let mut resting = worker(&file, &clock).await;
    busy.set(QueueSettings::new().max_running(1)).await;
    busy.enqueue([1, 2].map(mail)).await;
    let ends: [fn(TaskId) -> Verdict; 4] = [
        |_| Verdict::Release,
        |_| Verdict::Snooze {
            after: 3600 * SECOND,
        },
        |_| Verdict::Done(vec![]),
        |_| Verdict::Dead {
            reason: DeadReason::Fatal,
            error: String::new(),
            took: None,
        },
    ];
    for (n, end) in ends.into_iter().enumerate() {
        let claim = busy.claim(1).await;
        busy.enqueue([mail(10 + n as u64)]).await;
        resting.go_idle().await;
        // A new task cannot start, so it wakes nobody.
        busy.enqueue([mail(20 + n as u64)]).await;
        assert_eq!(idle(&file), 1);
        busy.turn(verdicts(&claim, end), 0).await;
        resting.is_woken().await;
    }
    let claim = busy.claim(1).await;
    resting.go_idle().await;
    busy.store.close_session(busy.session).await.unwrap();
    resting.is_woken().await;
    assert_eq!(resting.claimed(9).await, [claim.tasks[0].id]);
}

#[tokio::test]
async fn a_worker_that_goes_idle_while_a_task_ends_misses_nothing() {
    let (file, clock) = (File::new(), Clock::manual());
    let busy = worker(&file, &clock).await;
    let mut resting = worker(&file, &clock).await;
    busy.set(QueueSettings::new().max_running(1)).await;
    for n in 0..200 {
        busy.enqueue([2 * n, 2 * n + 1].map(mail)).await;
        let claim = busy.claim(1).await;
        let ends = busy.turn(done(&claim, vec![]), 0);
        let (_, turned) = tokio::join!(ends, resting.try_turn(vec![], 1, true));
        let mut turned = turned.unwrap();
        let is_told = turned.more || turned.next == Some(Duration::ZERO);
        if turned.claim.is_none() && !is_told {
            resting.is_woken().await;
        }
        if turned.claim.is_none() {
            turned = resting.turn(vec![], 1).await;
        }
        let claim = turned.claim.expect("a task can be claimed");
        resting.turn(done(&claim, vec![]), 0).await;
    }
}

#[tokio::test]
async fn a_session_of_another_queue_wakes_the_queue_whose_task_it_takes_back() {
    let (file, clock) = (File::new(), Clock::manual());
    let dies = worker(&file, &clock).await;
    dies.set(QueueSettings::new().max_running(1)).await;
    dies.enqueue([1, 2].map(mail)).await;
    dies.claim(1).await;
    let mut resting = worker(&file, &clock).await;
    resting.go_idle().await;
    let other = SqliteStore::open_with(&file.path, clock.clone()).await;
    let other = Worker::new(&Arc::new(other.unwrap())).await;
    resting.is_woken().await;
    resting.go_idle().await;
    dies.store.simulate_crash();
    other.turn(vec![], 9).await;
    resting.is_woken().await;
    assert_eq!(resting.claimed(9).await, [id(1)]);
}

#[tokio::test]
async fn a_higher_limit_and_the_end_of_a_pause_wake_another_process() {
    let (file, clock) = (File::new(), Clock::manual());
    let busy = worker(&file, &clock).await;
    let mut resting = worker(&file, &clock).await;
    busy.set(QueueSettings::new().max_running(1)).await;
    busy.enqueue((0..9).map(mail)).await;
    busy.claim(1).await;
    resting.go_idle().await;
    busy.set(QueueSettings::new().max_running(2)).await;
    resting.is_woken().await;
    assert_eq!(resting.claimed(9).await.len(), 1);

    busy.pause(true).await;
    busy.set(QueueSettings::new().max_running(5)).await;
    resting.go_idle().await;
    busy.pause(false).await;
    resting.is_woken().await;
    assert_eq!(resting.claimed(9).await.len(), 3);
}

/// No session has a timer for a rate while the queue is paused.
#[tokio::test]
async fn the_end_of_a_pause_wakes_a_session_that_then_waits_for_the_rate() {
    let (file, clock) = (File::new(), Clock::manual());
    let mut resting = worker(&file, &clock).await;
    resting
        .set(QueueSettings::new().rate(Rate::every(SECOND / 2)))
        .await;
    resting.enqueue([1, 2].map(mail)).await;
    assert_eq!(resting.claimed(9).await, [id(1)]);
    resting.pause(true).await;
    resting.go_idle().await;
    resting.pause(false).await;
    resting.is_woken().await;
    let turned = resting.try_turn(vec![], 9, true).await.unwrap();
    assert_eq!(turned.next, Some(SECOND / 2));
    clock.advance(SECOND / 2);
    assert_eq!(resting.claimed(9).await, [id(2)]);
}

#[tokio::test]
async fn only_one_of_the_sessions_of_a_process_is_woken_for_one_task() {
    let (file, clock) = (File::new(), Clock::manual());
    let mut first = worker(&file, &clock).await;
    let set = TypeSet::of_tests().map(|set| set.in_queue(queue()));
    let store = Arc::clone(&first.store);
    let sessions = [store.open_session(set).await.unwrap(), first.session];
    for session in sessions {
        first.session = session;
        first.go_idle().await;
    }
    assert_eq!(idle(&file), 2);
    let producer = worker(&file, &clock).await;
    first.expect(|event| event.is_wake()).await;
    first.expect(|event| event.is_wake()).await;
    for session in sessions {
        first.session = session;
        first.go_idle().await;
    }
    producer.enqueue([mail(1)]).await;
    let event = first.event().await;
    assert!(sessions.map(|it| Event::Wake(Some(it))).contains(&event));
    assert_eq!(idle(&file), 1);
    // The other can still be woken.
    producer.enqueue([mail(2)]).await;
    let other = first.event().await;
    assert!(sessions.map(|it| Event::Wake(Some(it))).contains(&other));
    assert_ne!(event, other);
}

// ===== Clocks =====

#[tokio::test]
async fn a_clock_that_is_put_back_does_not_stop_an_idle_worker() {
    let (file, clock) = (File::new(), Clock::manual());
    let worker = worker(&file, &clock).await;
    let rate = Rate::every(SECOND).burst(2);
    worker.set(QueueSettings::new().rate(rate)).await;
    worker.enqueue((0..9).map(mail)).await;
    assert_eq!(worker.claimed(9).await.len(), 2);
    clock.set_wall(clock.wall() - 3600 * SECOND);
    worker.go_idle().await;
    for _ in 0..3 {
        let turned = worker.try_turn(vec![], 9, true).await.unwrap();
        assert_eq!((turned.claim, turned.next), (None, Some(SECOND)));
        clock.advance(SECOND);
        assert_eq!(worker.claimed(9).await.len(), 1);
    }
}

// ===== Priorities and damage =====

#[tokio::test]
async fn priorities_outlast_the_loss_of_the_routes() {
    for lost in ["'?'", "NULL", "x'00'"] {
        let (file, clock) = (File::new(), Clock::manual());
        let mut worker = worker(&file, &clock).await;
        let priorities = [Priority::Low, Priority::Normal, Priority::High];
        let tasks = priorities
            .iter()
            .zip(1..)
            .map(|(&priority, n)| prioritized(n, priority));
        worker.enqueue(tasks).await;
        file.sql(&format!(
            "UPDATE throng_meta SET routes = {lost}, routes_version = routes_version + 1"
        ));
        worker.store.maintain(10).await.unwrap();
        let set = TypeSet::of_tests().map(|set| set.in_queue(queue()));
        worker.session = worker.store.open_session(set).await.unwrap();
        for number in [3, 2, 1] {
            assert_eq!(worker.claimed(9).await, [id(number)], "{lost}");
        }
    }
}

#[tokio::test]
async fn a_garbled_row_of_a_queue_exceeds_no_limit() {
    let file = File::new();
    drop(file.open().await);
    let columns = file.texts("SELECT name FROM pragma_table_info('throng_queue')");
    for column in columns {
        for garbage in [
            "x'00ff'",
            "CAST(x'ff' AS TEXT)",
            "-1",
            "0",
            "9223372036854775807",
        ] {
            let name = format!("{column} = {garbage}");
            assert_survives(&name).await;
        }
    }
}

/// Garbles the row of a queue. Asserts that the limits still hold, except if nobody knows whose they were, and that the tasks end
/// when they are set again.
async fn assert_survives(garbled: &str) {
    let (file, clock) = (File::new(), Clock::manual());
    let first = worker(&file, &clock).await;
    let settings = QueueSettings::new().max_running(2).revision(1);
    let settings = settings.rate(Rate::every(SECOND).burst(3));
    first.set(settings).await;
    first
        .enqueue((0..4).map(|n| prioritized(n, Priority::Low)))
        .await;
    first.claim(1).await;
    let sql = format!("UPDATE throng_queue SET {garbled}");
    // Not every value can be written into every column.
    if file.connect().execute(&sql, []).is_err() {
        return;
    }
    first.turn(vec![], 9).await;
    first.store.maintain(10).await.unwrap();
    let later = first.turn(vec![], 9).await.claim;
    let running = first.info().await.running;
    assert!(
        running <= 2 || garbled.starts_with("name"),
        "{garbled}: {running}"
    );
    assert!(
        later.is_none() || running == 2 || garbled.starts_with("name"),
        "{garbled}"
    );
    first.set(QueueSettings::new().revision(u32::MAX)).await;
    first.pause(false).await;
    first.store.close_session(first.session).await.unwrap();
    let second = worker(&file, &clock).await;
    let mut ended = 0;
    while let Some(claim) = second.turn(vec![], 9).await.claim {
        ended += claim.tasks.len();
        second.turn(done(&claim, vec![]), 0).await;
    }
    assert_eq!(ended, 4, "{garbled}");
}

#[tokio::test]
async fn a_garbled_queue_of_a_claim_or_a_task_does_not_block_the_queue() {
    for table in ["throng_claim", "throng_task"] {
        for garbage in ["x'00ff'", "CAST(x'ff' AS TEXT)", "'other'", "NULL"] {
            let (file, clock) = (File::new(), Clock::manual());
            let worker = worker(&file, &clock).await;
            worker.set(QueueSettings::new().max_running(1)).await;
            worker.enqueue([1, 2].map(mail)).await;
            let claim = worker.claim(1).await;
            file.sql(&format!("UPDATE {table} SET queue = {garbage}"));
            worker.turn(done(&claim, vec![]), 0).await;
            worker.store.maintain(10).await.unwrap();
            while let Some(claim) = worker.turn(vec![], 1).await.claim {
                worker.turn(done(&claim, vec![]), 0).await;
            }
            let counts = worker.store.counts().await.unwrap();
            assert_eq!(
                (counts.waiting, counts.running),
                (0, 0),
                "{table} {garbage}"
            );
            assert_eq!(worker.info().await.running, 0, "{table} {garbage}");
        }
    }
}
