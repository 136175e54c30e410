//! Verdicts: what happens to a task when its worker reports the end of a run.

use std::time::Duration;

use super::Harness;
use super::process::*;
use crate::durable::DeadFilter;
use crate::durable::store::{DeadReason, MAX_BATCH_TASKS, NewTask, TaskState, Verdict};

pub async fn done_keeps_its_output(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.run(task(1), done()).await;
    assert_eq!(process.status_of(1).await, state_done());
    let counts = process.counts().await;
    assert_eq!((counts.done, counts.kept, counts.running), (1, 1, 0));
    assert_eq!(session.turn(wanting(1)).await.claim, None);
}

pub async fn done_without_retention_is_gone(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let new = NewTask {
        retention: Duration::ZERO,
        ..task(1)
    };
    session.run(new.clone(), done()).await;
    assert_eq!(process.status_of(1).await, TaskState::Absent);
    let counts = process.counts().await;
    assert_eq!((counts.done, counts.kept), (1, 0));
    // Its id is free.
    session.run(new, dead()).await;
    // The retention of dead letters is fixed.
    assert_eq!(process.status_of(1).await, state_dead());
}

pub async fn retry_counts_and_waits(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.run(task(1), retry(SECOND)).await;
    assert_eq!(process.status_of(1).await, TaskState::Delayed);
    assert_eq!(session.turn(wanting(1)).await.next, Some(SECOND));
    it.clock().advance(SECOND);
    let claim = session.claim(1).await;
    assert_eq!(claim.tasks[0].failures, 1);
    assert_eq!((claim.tasks[0].crashes, claim.tasks[0].lost), (0, 0));
    session.report(claim.epoch, 1, retry(SECOND)).await;
    it.clock().advance(SECOND);
    assert_eq!(session.claim(1).await.tasks[0].failures, 2);
    let counts = process.counts().await;
    assert_eq!((counts.retried, counts.claimed), (2, 3));
}

pub async fn snooze_waits_and_counts_nothing(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session
        .run(task(1), Verdict::Snooze { after: SECOND })
        .await;
    assert_eq!(process.status_of(1).await, TaskState::Delayed);
    it.clock().advance(SECOND);
    let expected = fresh(1);
    assert_eq!(session.claim(1).await.tasks, [expected]);
    assert_eq!(process.counts().await.snoozed, 1);
}

pub async fn an_immediate_retry_goes_behind_waiting_tasks(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([task(1), task(2), task(3)]).await;
    let claim = session.claim(2).await;
    let snooze = Verdict::Snooze {
        after: Duration::ZERO,
    };
    let turn = wanting(9)
        .verdict(claim.epoch, 2, retry(Duration::ZERO))
        .verdict(claim.epoch, 1, snooze);
    let claim = session.turn(turn).await.claim.unwrap();
    assert_eq!(ids(&claim), [3, 1, 2].map(id));
}

pub async fn released_tasks_come_first_by_id(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([3, 1, 2, 5, 4].map(task)).await;
    let claim = session.claim(3).await;
    let turn = wanting(0)
        .verdict(claim.epoch, 2, Verdict::Release)
        .verdict(claim.epoch, 3, Verdict::Release)
        .verdict(claim.epoch, 1, Verdict::Release);
    assert!(session.turn(turn).await.more);
    let claim = session.claim(9).await;
    let expected = [1, 2, 3, 5, 4].map(fresh);
    assert_eq!(claim.tasks, expected);
    assert_eq!(process.counts().await.released, 3);
}

pub async fn a_dead_letter_has_its_reason(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let reasons = [
        DeadReason::Fatal,
        DeadReason::Attempts,
        DeadReason::Crashes,
        DeadReason::Unreadable,
        DeadReason::OutputTooLarge,
        DeadReason::Damaged,
    ];
    for (number, reason) in (1..).zip(reasons) {
        let error = format!("\u{fc}ber {number}");
        let verdict = Verdict::Dead {
            reason,
            error: error.clone(),
            took: None,
        };
        session.run(task(number), verdict).await;
        assert_eq!(
            process.status_of(number).await,
            TaskState::Dead {
                reason,
                error: error.clone()
            }
        );
        let dead_letters = process.dead_letters(DeadFilter::ids([id(number)]), 9).await;
        assert_eq!(dead_letters.len(), 1);
        let dead_letter = &dead_letters[0];
        assert_eq!((dead_letter.id, &*dead_letter.name), (id(number), "job"));
        assert_eq!((dead_letter.reason, &dead_letter.error), (reason, &error));
        let failures = u32::from(dead_letter.reason.is_failure());
        assert_eq!((dead_letter.failures, dead_letter.crashes), (failures, 0));
        assert_eq!(dead_letter.age, Duration::ZERO);
    }
    let counts = process.counts().await;
    assert_eq!((counts.died, counts.dead), (6, 6));
}

pub async fn verdicts_count_before_the_claim_of_their_turn(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([task(1), task(2)]).await;
    let claim = session.claim(1).await;
    let turn = wanting(1).verdict(claim.epoch, 1, Verdict::Release);
    let turned = session.turn(turn).await;
    assert_eq!(ids(&turned.claim.unwrap()), [id(1)]);
    assert!(turned.more);
}

pub async fn another_session_may_report_a_verdict(it: &dyn Harness) {
    let (one, two) = (Process::of(it), Process::of(it));
    let mut first = one.session().await;
    let mut second = two.session().await;
    first.enqueue([task(1)]).await;
    let claim = first.claim(1).await;
    second.report(claim.epoch, 1, done()).await;
    assert_eq!(one.status_of(1).await, state_done());
}

pub async fn a_full_batch_of_verdicts_is_accepted(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let count = MAX_BATCH_TASKS as u64;
    session.enqueue((0..count).map(task)).await;
    let claim = session.claim(MAX_BATCH_TASKS).await;
    let verdicts = (0..count).map(|number| (id(number), done())).collect();
    let turned = session
        .turn(wanting(1).verdicts(claim.epoch, verdicts))
        .await;
    assert_eq!((turned.refused, turned.claim), (vec![], None));
    assert_eq!(process.counts().await.done, count);
}

/// One claim is reported in part, and two verdicts are about tasks that their claims do not hold.
pub async fn verdicts_of_several_claims_count_each_for_its_own(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue((1..=7).map(task)).await;
    let mut epochs = Vec::new();
    for want in [2, 1, 3, 1] {
        epochs.push(session.claim(want).await.epoch);
    }
    let turn = wanting(0)
        .verdict(epochs[0], 1, done())
        .verdict(epochs[1], 1, done())
        .verdict(epochs[1], 3, done())
        .verdict(epochs[2], 4, done())
        .verdict(epochs[2], 5, retry(SECOND))
        .verdict(epochs[3], 6, done())
        .verdict(epochs[3], 7, done());
    assert_eq!(session.turn(turn).await.refused, [id(1), id(6)]);
    let numbers = [1, 3, 4, 7];
    assert_eq!(process.status(numbers).await, numbers.map(|_| state_done()));
    assert_eq!(process.status_of(5).await, TaskState::Delayed);
    assert_eq!(
        process.status([2, 6]).await,
        [TaskState::Running, TaskState::Running]
    );
    let held = process.renew(epochs.clone()).await;
    assert_eq!(held.lost, [epochs[1], epochs[3]]);
    session.report(epochs[0], 2, done()).await;
    session.report(epochs[2], 6, done()).await;
    assert_eq!(process.renew(epochs.clone()).await.lost, epochs);
}
