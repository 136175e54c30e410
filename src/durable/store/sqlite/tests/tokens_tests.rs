//! Epochs, which are fencing tokens, do not fall when the file is replaced with a copy.

use std::fs;

use serde::{Deserialize, Serialize};

use super::*;
use crate::durable::{
    DurableClient, DurableExecutor, DurableTask, InlineExecutor, Run, TaskContext, TaskError,
};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

/// The age at which a copy must still have a ceiling that is high enough.
const AGE: Duration = Duration::from_secs(4 * 60 + 50);

/// Returns a clock that is this far ahead of the time at which the tests begin.
fn clock(passed: Duration) -> Clock {
    let clock = Clock::manual();
    clock.advance(passed);
    clock
}

impl File {
    /// Opens a worker in a process of its own, which has received no epochs.
    async fn worker(&self, clock: &Clock) -> Worker {
        let store = SqliteStore::open_with(&self.path, clock.clone()).await;
        Worker::new(&Arc::new(store.unwrap())).await
    }

    /// Returns the path of a copy of the file.
    fn copy(&self) -> PathBuf {
        let copy = self.path.with_file_name("copy.db");
        self.sql(&format!("VACUUM INTO '{}'", copy.display()));
        copy
    }

    /// Replaces the file with a copy.
    fn restore(&self, copy: &Path) {
        _ = fs::remove_file(self.path.with_file_name("tasks.db-wal"));
        _ = fs::remove_file(self.path.with_file_name("tasks.db-shm"));
        fs::copy(copy, self.path.with_file_name("next.db")).unwrap();
        fs::rename(self.path.with_file_name("next.db"), &self.path).unwrap();
    }
}

/// Claims a task at some time after the file was copied, and again after the copy was restored and the clock set back: on
/// the same machine, and on another. Asserts that the epoch rises.
async fn assert_rises(
    before: impl AsyncFn(&File, &Clock, &Worker),
    age: Duration,
    behind: Duration,
) {
    for is_same in [true, false] {
        let file = File::new();
        let clock = clock(10 * HOUR);
        let first = file.worker(&clock).await;
        first.enqueue([task(1).0]).await;
        before(&file, &clock, &first).await;
        let copy = file.copy();
        clock.advance(age);
        let lost = first.claim(1).await;
        first.store.close().await.unwrap();
        file.restore(&copy);
        let wrong = if is_same {
            clock.clone()
        } else {
            self::clock(HOUR)
        };
        wrong.set_wall(clock.wall() - behind);
        let claim = file.worker(&wrong).await.claim(1).await;
        assert_eq!(claim.tasks[0].id, lost.tasks[0].id);
        assert!(claim.epoch > lost.epoch, "{} {}", claim.epoch, lost.epoch);
    }
}

#[tokio::test]
async fn an_epoch_is_above_those_that_a_copy_of_the_file_lacks() {
    assert_rises(async |_, _, _| (), Duration::ZERO, SECOND * 30).await;
}

/// Just before the copy was taken, the worker opened its session, the last claim was made, or maintenance ran.
#[tokio::test]
async fn an_epoch_is_above_those_of_five_minutes() {
    assert_rises(async |_, _, _| (), AGE, HOUR).await;
    let claims = async |_: &File, clock: &Clock, worker: &Worker| {
        clock.advance(HOUR);
        let claim = worker.claim(1).await;
        let released = verdicts(&claim, |_| Verdict::Release);
        worker.turn(released, 0).await;
    };
    assert_rises(claims, AGE, HOUR).await;
    let maintains = async |_: &File, clock: &Clock, worker: &Worker| {
        clock.advance(HOUR);
        worker.store.maintain(100).await.unwrap();
        // The next pass is late.
        clock.advance(AGE);
    };
    assert_rises(maintains, AGE, HOUR).await;
    let comes = async |file: &File, clock: &Clock, _: &Worker| {
        clock.advance(HOUR);
        file.worker(clock).await.store.close().await.unwrap();
    };
    assert_rises(comes, AGE, HOUR).await;
}

#[tokio::test]
async fn a_copy_that_is_put_back_twice_has_other_epochs_each_time() {
    let file = File::new();
    let clock = clock(HOUR);
    let first = file.worker(&clock).await;
    first.enqueue((0..9).map(|number| task(number).0)).await;
    let mut last = first.claim(1).await.epoch;
    first.store.close().await.unwrap();
    let copy = file.copy();
    // The clock is set back, but the machine runs on.
    for (passed, behind) in [(MINUTE, 0), (SECOND, 30), (SECOND, 30)] {
        clock.advance(passed);
        clock.set_wall(clock.wall() - SECOND * behind);
        file.restore(&copy);
        let worker = file.worker(&clock).await;
        for _ in 0..3 {
            let epoch = worker.claim(1).await.epoch;
            assert!(epoch > last, "{epoch} {last}");
            last = epoch;
        }
        worker.store.close().await.unwrap();
    }
}

/// Has a worker start and claim with each of these clocks. Then an old copy is restored while the clock is right. Asserts that
/// the epoch rises.
async fn assert_keeps_to_the_clock(clocks: impl Iterator<Item = Clock>) {
    let file = File::new();
    let first = file.worker(&clock(HOUR)).await;
    first.enqueue((0..9).map(|number| task(number).0)).await;
    let copy = file.copy();
    first.store.close().await.unwrap();
    let (mut last, mut right) = (0, clock(HOUR));
    for clock in clocks {
        let worker = file.worker(&clock).await;
        last = worker.claim(1).await.epoch;
        worker.store.close().await.unwrap();
        right = clock;
    }
    right.advance(SECOND);
    file.restore(&copy);
    let epoch = file.worker(&right).await.claim(1).await.epoch;
    assert!(epoch > last, "{epoch} {last}");
}

#[tokio::test]
async fn epochs_stay_near_the_clock_when_workers_come_often() {
    let clock = clock(HOUR);
    let clocks = (0..6).map(|_| {
        clock.advance(SECOND);
        clock.clone()
    });
    assert_keeps_to_the_clock(clocks).await;
}

/// The machine is started once a day, and is used for some minutes.
#[tokio::test]
async fn epochs_stay_near_the_clock_over_restarts_of_the_machine() {
    let clocks = (1..=6).map(|day| {
        let today = clock(HOUR);
        today.set_wall(today.wall() + 24 * HOUR * day);
        today
    });
    assert_keeps_to_the_clock(clocks).await;
}

/// The store stays open, and another process has made the claims that the copy lacks.
#[tokio::test]
async fn an_epoch_is_above_those_of_a_file_that_was_replaced_while_it_is_open() {
    let file = File::new();
    let clock = clock(HOUR);
    let stays = file.worker(&clock).await;
    stays.enqueue([task(1).0, task(2).0]).await;
    stays.claim(1).await;
    let copy = file.copy();
    clock.advance(SECOND);
    let other = file.worker(&clock).await;
    let lost = other.claim(1).await;
    other.store.close().await.unwrap();
    file.restore(&copy);
    clock.advance(SECOND);
    clock.set_wall(clock.wall() - HOUR);
    // The first transaction finds that the file was replaced.
    let failure = stays.try_enqueue([task(3).0]).await.unwrap_err();
    assert_eq!(failure.cause, Cause::Replaced);
    let claim = stays.claim(1).await;
    assert_eq!(claim.tasks[0].id, lost.tasks[0].id);
    assert!(claim.epoch > lost.epoch, "{} {}", claim.epoch, lost.epoch);
}

/// Another process repairs the file, so its worker issues the next epoch without having opened the file again.
#[tokio::test]
async fn an_epoch_is_above_one_that_cannot_be_read() {
    let file = File::new();
    let clock = clock(HOUR);
    let (worker, other) = (file.worker(&clock).await, file.worker(&clock).await);
    worker.enqueue([task(1).0, task(2).0]).await;
    let first = worker.claim(1).await.epoch;
    file.sql("UPDATE throng_meta SET epoch = 'nothing'");
    clock.set_wall(clock.wall() - MINUTE);
    other.enqueue([task(3).0]).await;
    let epoch = worker.claim(1).await.epoch;
    assert!(epoch > first, "{epoch} {first}");
}

// ===== Engines =====

#[derive(Serialize, Deserialize)]
struct Token;

impl DurableTask for Token {
    const NAME: &'static str = "token";
    type Output = u64;
}

impl Run<()> for Token {
    async fn run(self, cx: TaskContext<()>) -> Result<u64, TaskError> {
        Ok(cx.fencing_token())
    }
}

const FORGET: &str = "UPDATE throng_meta SET epoch = 0, ceiling = 0, raised = 0";

/// The file loses its last epoch, but is not replaced.
#[tokio::test]
async fn a_token_is_above_those_that_the_client_has_received() {
    let file = File::new();
    let client = DurableClient::open(SqliteStore::open(&file.path).await.unwrap());
    let builder = || {
        let mut builder = DurableExecutor::builder(client.clone());
        builder.register::<Token>();
        builder
    };
    let executor = builder().start(()).await.unwrap();
    // No clock shows a time as late as this epoch.
    file.sql("UPDATE throng_meta SET epoch = 1 << 60");
    let first = client.spawn(Token).await.unwrap().await.unwrap();
    assert!(first > 1 << 60);
    file.sql(FORGET);
    let second = client.spawn(Token).await.unwrap().await.unwrap();
    assert!(second > first, "{second} {first}");
    executor.shutdown(DEADLINE).await;

    let mut inline: InlineExecutor = builder().start_inline(()).await.unwrap();
    let mut last = second;
    for _ in 0..2 {
        file.sql(FORGET);
        let handle = client.spawn(Token).await.unwrap();
        inline.run_due().await.unwrap();
        let token = handle.await.unwrap();
        assert!(token > last, "{token} {last}");
        last = token;
    }
}
