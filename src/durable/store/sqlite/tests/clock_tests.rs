//! Retention is measured in store time, whatever the clocks of processes and machines show.

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const STEP: Duration = Duration::from_secs(40 * 24 * 3600);

#[tokio::test]
async fn a_process_whose_clock_is_ahead_removes_nothing() {
    let file = File::new();
    let (right, ahead) = (Clock::manual(), Clock::manual());
    ahead.set_wall(right.wall() + STEP);
    let sound = file.worker_at(&right).await;
    let other = file.worker_at(&ahead).await;
    end_two(&sound, 1).await;
    end_two(&other, 3).await;
    for _ in 0..5 {
        for (clock, worker) in [(&ahead, &other), (&right, &sound)] {
            clock.advance(10 * SECOND);
            worker.store.maintain(100).await.unwrap();
        }
    }
    for worker in [&sound, &other] {
        assert_retained(worker, 1..5).await;
    }
}

/// After a restart, the time since the machine was started begins at zero, as on another machine.
#[tokio::test]
async fn a_restart_of_the_machine_removes_nothing_and_stops_nothing() {
    let file = File::new();
    let before = Clock::manual();
    before.advance(STEP);
    end_two(&file.worker_at(&before).await, 1).await;

    let after = Clock::manual();
    let worker = file.worker_at(&after).await;
    assert_retained(&worker, 1..3).await;
    for _ in 0..60 {
        worker.store.maintain(100).await.unwrap();
        assert_retained(&worker, 1..3).await;
        after.advance(60 * SECOND);
    }
    assert_eq!(worker.status_of(1).await, TaskState::Absent);
}

#[tokio::test]
async fn a_machine_that_is_up_for_longer_removes_nothing() {
    let file = File::new();
    end_two(&file.worker_at(&Clock::manual()).await, 1).await;

    let clock = Clock::manual();
    clock.advance(STEP);
    let worker = file.worker_at(&clock).await;
    worker.store.maintain(100).await.unwrap();
    assert_retained(&worker, 1..3).await;
}

#[tokio::test]
async fn maintenance_writes_nothing_while_no_end_is_kept() {
    let file = File::new();
    let clock = Clock::manual();
    let worker = file.worker_at(&clock).await;
    worker.enqueue([retained(1)]).await;
    let reader = file.connect();
    let version = || -> i64 {
        let version = reader.query_row("PRAGMA data_version", [], |row| row.get(0));
        version.unwrap()
    };
    let maintain = async || {
        clock.advance(30 * SECOND);
        worker.store.maintain(100).await.unwrap();
        version()
    };
    let before = version();
    assert_eq!(maintain().await, before);
    let claim = worker.claim(1).await;
    worker.turn(done(&claim, b"output".to_vec()), 0).await;
    let before = version();
    assert_ne!(maintain().await, before);
}

impl File {
    async fn worker_at(&self, clock: &Clock) -> Worker {
        let store = SqliteStore::open_with(&self.path, clock.clone()).await;
        Worker::new(&Arc::new(store.unwrap())).await
    }
}

impl Worker {
    async fn status_of(&self, number: u64) -> TaskState {
        self.store.status(vec![id(number)]).await.unwrap().remove(0)
    }
}

fn retained(number: u64) -> NewTask {
    NewTask {
        retention: Duration::from_secs(3600),
        ..task(number).0
    }
}

/// Ends one task with an output, and another one as a dead letter.
async fn end_two(worker: &Worker, first: u64) {
    worker.enqueue([retained(first)]).await;
    let claim = worker.claim(1).await;
    worker.turn(done(&claim, b"output".to_vec()), 0).await;
    worker.enqueue([retained(first + 1)]).await;
    let claim = worker.claim(1).await;
    let dead = verdicts(&claim, |_| Verdict::Dead {
        reason: DeadReason::Fatal,
        error: String::new(),
        took: None,
    });
    worker.turn(dead, 0).await;
}

async fn assert_retained(worker: &Worker, numbers: std::ops::Range<u64>) {
    for number in numbers {
        let state = worker.status_of(number).await;
        match number % 2 {
            1 => assert_eq!(state, TaskState::Done(b"output".to_vec())),
            _ => assert!(matches!(state, TaskState::Dead { .. }), "{state:?}"),
        }
    }
}
