//! The progress that running tasks report.

use std::time::Duration;

use super::Harness;
use super::process::*;
use crate::durable::DeadFilter;
use crate::durable::store::{
    Epoch, MAX_BATCH_TASKS, MAX_PROGRESS_BYTES, NewTask, Progress, ProgressReport, ProgressState,
    Verdict,
};

impl Process {
    /// Reports progress, and asserts that the report is accepted.
    async fn report_progress(&self, number: u64, progress: Progress) {
        assert!(self.may_report(number, progress).await);
    }

    async fn may_report(&self, number: u64, progress: Progress) -> bool {
        let report = report(number, progress);
        let refused = self.0.0.report_progress(vec![report]).await.unwrap();
        assert!(refused.is_empty() || refused == [id(number)]);
        refused.is_empty()
    }

    async fn progress(&self, number: u64) -> ProgressState {
        let states = self.0.0.progress(vec![id(number)]).await.unwrap();
        let [state] = <[_; 1]>::try_from(states).unwrap();
        state
    }
}

fn report(number: u64, progress: Progress) -> ProgressReport {
    ProgressReport {
        id: id(number),
        progress,
    }
}

/// Returns the report with this number, which is also its value.
fn progress(epoch: Epoch, number: u64) -> Progress {
    Progress {
        epoch,
        number,
        bytes: format!("{number}").into_bytes(),
    }
}

fn alive(progress: Progress) -> ProgressState {
    ProgressState::Alive(Some(progress))
}

pub async fn the_last_report_is_stored(it: &dyn Harness) {
    let (process, other) = (Process::of(it), Process::of(it));
    let mut session = process.session().await;
    assert_eq!(process.progress(1).await, ProgressState::Ended);
    session.enqueue([task(1), delayed(2, SECOND)]).await;
    assert_eq!(process.progress(1).await, ProgressState::Alive(None));
    assert_eq!(process.progress(2).await, ProgressState::Alive(None));
    let epoch = session.claim(1).await.epoch;
    assert_eq!(process.progress(1).await, ProgressState::Alive(None));
    for number in 1..=3 {
        process.report_progress(1, progress(epoch, number)).await;
        assert_eq!(other.progress(1).await, alive(progress(epoch, number)));
    }
}

pub async fn an_earlier_report_never_replaces_a_later_one(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([task(1)]).await;
    let epoch = session.claim(1).await.epoch;
    process.report_progress(1, progress(epoch, 300)).await;
    process.report_progress(1, progress(epoch, 255)).await;
    let repeated = Progress {
        bytes: b"other".to_vec(),
        ..progress(epoch, 300)
    };
    process.report_progress(1, repeated).await;
    assert_eq!(process.progress(1).await, alive(progress(epoch, 300)));
    // In one request, too.
    let both = vec![
        report(1, progress(epoch, 302)),
        report(1, progress(epoch, 301)),
    ];
    assert_eq!(process.0.0.report_progress(both).await.unwrap(), []);
    assert_eq!(process.progress(1).await, alive(progress(epoch, 302)));
}

pub async fn only_the_run_that_holds_the_task_reports(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([task(1), task(2), task(3)]).await;
    let first = session.claim(1).await.epoch;
    process.report_progress(1, progress(first, 9)).await;
    session.report(first, 1, Verdict::Release).await;
    assert!(!process.may_report(1, progress(first, 10)).await);
    let second = session.claim(1).await.epoch;
    assert!(!process.may_report(1, progress(first, 11)).await);
    assert_eq!(process.progress(1).await, alive(progress(first, 9)));
    process.report_progress(1, progress(second, 1)).await;
    assert!(!process.may_report(1, progress(first, 12)).await);
    assert_eq!(process.progress(1).await, alive(progress(second, 1)));
    // A report is refused if its epoch is not that of the claim that holds the task. The other reports of the request are stored.
    let third = session.claim(1).await.epoch;
    let mixed = [1, 2, 3, 4].map(|number| report(number, progress(third, 2)));
    let refused = process.0.0.report_progress(mixed.to_vec()).await.unwrap();
    assert_eq!(refused, [1, 3, 4].map(id));
    assert_eq!(process.progress(1).await, alive(progress(second, 1)));
    assert_eq!(process.progress(2).await, alive(progress(third, 2)));
    assert_eq!(process.progress(3).await, ProgressState::Alive(None));
}

pub async fn progress_is_kept_until_the_next_run(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([task(1)]).await;
    let snooze = Verdict::Snooze { after: SECOND };
    for verdict in [retry(SECOND), snooze, Verdict::Release] {
        let epoch = session.claim(1).await.epoch;
        process.report_progress(1, progress(epoch, 1)).await;
        session.report(epoch, 1, verdict).await;
        assert_eq!(process.progress(1).await, alive(progress(epoch, 1)));
        it.clock().advance(SECOND);
        session.turn(wanting(0)).await;
        assert_eq!(process.progress(1).await, alive(progress(epoch, 1)));
    }
    session.claim(1).await;
    assert!(matches!(
        process.progress(1).await,
        ProgressState::Alive(Some(_))
    ));
}

pub async fn progress_is_kept_when_a_worker_dies(it: &dyn Harness) {
    let (one, two) = (Process::of(it), Process::of(it));
    let mut session = one.session().await;
    session.enqueue([task(1)]).await;
    let epoch = session.claim(1).await.epoch;
    one.renew([epoch]).await;
    one.report_progress(1, progress(epoch, 1)).await;
    one.kill(it);
    let mut session = two.session().await;
    let claim = session.claim(1).await;
    assert_eq!(claim.tasks[0].crashes, 1);
    assert_eq!(two.progress(1).await, alive(progress(epoch, 1)));
    assert!(!two.may_report(1, progress(epoch, 2)).await);
    two.report_progress(1, progress(claim.epoch, 1)).await;
    assert_eq!(two.progress(1).await, alive(progress(claim.epoch, 1)));
}

pub async fn an_end_removes_progress(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let unkept = |number| NewTask {
        retention: Duration::ZERO,
        ..task(number)
    };
    session
        .enqueue([task(1), unkept(2), task(3), task(4), task(5), task(6)])
        .await;
    let epoch = session.claim(6).await.epoch;
    for number in 1..=6 {
        process.report_progress(number, progress(epoch, 1)).await;
    }
    // The other tasks are running, waiting and delayed when they are cancelled.
    let turn = wanting(0)
        .verdict(epoch, 1, done())
        .verdict(epoch, 2, done())
        .verdict(epoch, 3, dead())
        .verdict(epoch, 5, Verdict::Release)
        .verdict(epoch, 6, retry(SECOND));
    session.turn(turn).await;
    process.cancel([4, 5, 6]).await;
    assert_eq!(process.progress(4).await, alive(progress(epoch, 1)));
    session.report(epoch, 4, Verdict::Release).await;
    for number in 1..=6 {
        assert_eq!(process.progress(number).await, ProgressState::Ended);
    }
    // A claim removes the entry of the cancelled task from its list.
    session.turn(wanting(9)).await;
    session.close().await;
    process.delete_dead_letters(DeadFilter::all()).await;
    it.age(HOUR);
    while process.maintain(9).await {}
    assert_eq!(it.leftovers(), 0);
}

pub async fn a_death_of_crashes_removes_progress(it: &dyn Harness) {
    let (one, two) = (Process::of(it), Process::of(it));
    let mut session = one.session().await;
    let fragile = NewTask {
        max_crashes: 1,
        ..task(1)
    };
    session.enqueue([fragile]).await;
    let epoch = session.claim(1).await.epoch;
    one.renew([epoch]).await;
    one.report_progress(1, progress(epoch, 1)).await;
    one.kill(it);
    two.session().await.turn(wanting(0)).await;
    assert_eq!(two.progress(1).await, ProgressState::Ended);
    two.replay_dead_letters(DeadFilter::all()).await;
    assert_eq!(two.progress(1).await, ProgressState::Alive(None));
}

pub async fn a_replayed_or_new_task_has_no_progress(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([task(1), task(2)]).await;
    let epoch = session.claim(2).await.epoch;
    for number in [1, 2] {
        process.report_progress(number, progress(epoch, 1)).await;
    }
    session.report(epoch, 1, dead()).await;
    session.report(epoch, 2, done()).await;
    process.replay_dead_letters(DeadFilter::all()).await;
    it.age(HOUR);
    session.enqueue([task(2)]).await;
    for number in [1, 2] {
        assert_eq!(process.progress(number).await, ProgressState::Alive(None));
    }
}

pub async fn a_full_batch_of_large_reports_is_stored(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let numbers = 1..=MAX_BATCH_TASKS as u64;
    session.enqueue(numbers.clone().map(task)).await;
    let epoch = session.claim(MAX_BATCH_TASKS).await.epoch;
    let large = |number: u64| Progress {
        bytes: vec![number as u8; MAX_PROGRESS_BYTES],
        ..progress(epoch, number)
    };
    let reports = numbers.clone().map(|number| report(number, large(number)));
    let refused = process.0.0.report_progress(reports.collect()).await;
    assert_eq!(refused.unwrap(), []);
    let states = process.0.0.progress(numbers.clone().map(id).collect());
    let expected: Vec<_> = numbers.map(|number| alive(large(number))).collect();
    assert_eq!(states.await.unwrap(), expected);
    assert_eq!(process.0.0.report_progress(Vec::new()).await.unwrap(), []);
    assert_eq!(process.0.0.progress(Vec::new()).await.unwrap(), []);
}
