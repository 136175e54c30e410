//! The errors of attempts after which a task runs again.

use std::time::Duration;

use super::Harness;
use super::process::*;
use crate::durable::store::{Claim, MAX_ERRORS, NewTask, Verdict};
use crate::durable::{AttemptError, DeadFilter};

fn failed(number: u32) -> Verdict {
    Verdict::Retry {
        after: SECOND,
        error: format!("\u{fc}ber {number}"),
        took: took(number),
    }
}

/// Returns the duration of an attempt. One is not known.
fn took(number: u32) -> Option<Duration> {
    (number != 3).then(|| Duration::from_millis(u64::from(number) * 1_000_003))
}

async fn errors(process: &Process, number: u64) -> Vec<AttemptError> {
    process.0.0.errors(id(number)).await.unwrap()
}

/// Returns the errors of attempts that have failed one second after the other, the last one `age` ago.
fn expected(attempts: std::ops::RangeInclusive<u32>, age: Duration) -> Vec<AttemptError> {
    let last = *attempts.end();
    let errors = attempts.map(|attempt| AttemptError {
        attempt,
        error: format!("\u{fc}ber {attempt}"),
        age: age + SECOND * (last - attempt),
        took: took(attempt),
    });
    errors.collect()
}

/// Has a task fail several times.
async fn fail(it: &dyn Harness, session: &mut Session<'_>, number: u64, attempts: u32) {
    for attempt in 1..=attempts {
        let claim = session.claim(1).await;
        session.report(claim.epoch, number, failed(attempt)).await;
        it.clock().advance(SECOND);
    }
}

pub async fn errors_are_kept_until_the_task_succeeds(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([task(1)]).await;
    assert_eq!(errors(&process, 1).await, []);
    fail(it, &mut session, 1, 3).await;
    // The task is delayed, then waits, then runs.
    assert_eq!(errors(&process, 1).await, expected(1..=3, SECOND));
    session.turn(wanting(0)).await;
    assert_eq!(errors(&process, 1).await, expected(1..=3, SECOND));
    let claim = session.claim(1).await;
    assert_eq!(errors(&process, 1).await, expected(1..=3, SECOND));
    session.report(claim.epoch, 1, done()).await;
    assert_eq!(process.status_of(1).await, state_done());
    assert_eq!(errors(&process, 1).await, []);
    // Another task with the same id has no errors.
    it.age(HOUR);
    session.enqueue([task(1)]).await;
    assert_eq!(errors(&process, 1).await, []);
}

pub async fn the_last_errors_are_kept(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([task(1)]).await;
    let attempts = MAX_ERRORS as u32 + 3;
    fail(it, &mut session, 1, attempts).await;
    assert_eq!(errors(&process, 1).await, expected(4..=attempts, SECOND));
}

pub async fn a_dead_letter_has_the_errors_of_earlier_attempts(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([task(1)]).await;
    fail(it, &mut session, 1, 2).await;
    let claim = session.claim(1).await;
    session.report(claim.epoch, 1, dead()).await;
    let dead_letter = process.dead_letters(DeadFilter::all(), 9).await.remove(0);
    assert_eq!((&*dead_letter.error, dead_letter.failures), ("fatal", 3));
    assert_eq!(dead_letter.errors, expected(1..=2, SECOND));
    assert_eq!(errors(&process, 1).await, expected(1..=2, SECOND));
    // After the replay it has no errors.
    process.replay_dead_letters(DeadFilter::all()).await;
    assert_eq!(errors(&process, 1).await, []);
    fail(it, &mut session, 1, 1).await;
    assert_eq!(errors(&process, 1).await, expected(1..=1, SECOND));
    let claim = session.claim(1).await;
    session.report(claim.epoch, 1, dead()).await;
    process.delete_dead_letters(DeadFilter::all()).await;
    assert_eq!(errors(&process, 1).await, []);
    session.enqueue([task(1)]).await;
    assert_eq!(errors(&process, 1).await, []);
}

pub async fn a_claim_says_how_long_its_task_has_been_failing(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([task(1), task(2)]).await;
    let claim = session.claim(2).await;
    assert_eq!(failing_for(&claim), [None, None]);
    session.report(claim.epoch, 1, failed(1)).await;
    session.report(claim.epoch, 2, Verdict::Release).await;
    // Neither the removal of old errors nor a snooze changes the time of the first failure.
    for attempt in 2..=MAX_ERRORS as u32 + 3 {
        it.clock().advance(SECOND);
        let claim = session.claim(2).await;
        let since = SECOND * (attempt - 1);
        let expected = [(1, Some(since)), (2, None)].map(|(number, time)| (id(number), time));
        let mut tasks: Vec<_> = claim
            .tasks
            .iter()
            .map(|it| (it.id, it.failing_for))
            .collect();
        tasks.sort_unstable();
        assert_eq!(tasks, expected);
        let verdict = match attempt {
            4 => Verdict::Snooze { after: SECOND },
            _ => failed(attempt),
        };
        session.report(claim.epoch, 1, verdict).await;
        session.report(claim.epoch, 2, Verdict::Release).await;
    }
}

fn failing_for(claim: &Claim) -> Vec<Option<Duration>> {
    claim.tasks.iter().map(|task| task.failing_for).collect()
}

pub async fn a_repeated_claim_says_how_long_its_task_has_been_failing(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([task(1)]).await;
    fail(it, &mut session, 1, 2).await;
    it.clock().advance(SECOND);
    session.enqueue([task(2)]).await;
    let claim = session.claim(9).await;
    assert_eq!(failing_for(&claim), [None, Some(3 * SECOND)]);
    it.clock().advance(SECOND);
    let repeated = session.turn_again(wanting(9)).await.unwrap().claim;
    // A repeated claim is in the order of the ids, and its times are those of the repetition.
    let repeated = repeated.expect("the tasks are still held");
    assert_eq!(failing_for(&repeated), [Some(4 * SECOND), None]);
}

pub async fn a_replayed_dead_letter_starts_to_fail_anew(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([task(1)]).await;
    fail(it, &mut session, 1, 2).await;
    let claim = session.claim(1).await;
    session.report(claim.epoch, 1, dead()).await;
    process.replay_dead_letters(DeadFilter::all()).await;
    let claim = session.claim(1).await;
    assert_eq!(failing_for(&claim), [None]);
    session.report(claim.epoch, 1, failed(1)).await;
    it.clock().advance(SECOND);
    assert_eq!(failing_for(&session.claim(1).await), [Some(SECOND)]);
}

pub async fn another_task_with_the_same_id_has_not_failed(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([task(1)]).await;
    fail(it, &mut session, 1, 1).await;
    let claim = session.claim(1).await;
    session.report(claim.epoch, 1, done()).await;
    it.age(HOUR);
    session.enqueue([task(1)]).await;
    assert_eq!(failing_for(&session.claim(1).await), [None]);
}

pub async fn a_crash_keeps_errors(it: &dyn Harness) {
    let (one, two) = (Process::of(it), Process::of(it));
    let mut session = one.session().await;
    session.enqueue([task(1)]).await;
    fail(it, &mut session, 1, 1).await;
    let claim = session.claim(1).await;
    one.renew([claim.epoch]).await;
    one.kill(it);
    let mut session = two.session().await;
    let claim = session.claim(1).await;
    assert_eq!((claim.tasks[0].failures, claim.tasks[0].crashes), (1, 1));
    assert_eq!(failing_for(&claim), [Some(SECOND)]);
    assert_eq!(errors(&two, 1).await, expected(1..=1, SECOND));
    session.report(claim.epoch, 1, failed(2)).await;
    let mut both = expected(1..=2, Duration::ZERO);
    both[0].age = SECOND;
    assert_eq!(errors(&two, 1).await, both);
}

pub async fn a_cancelled_task_has_no_errors(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let unkept = |number| NewTask {
        retention: Duration::ZERO,
        ..task(number)
    };
    // One is delayed, one waits, and one runs when it is cancelled.
    for number in 1..=3 {
        session.enqueue([unkept(number)]).await;
        let claim = session.claim(1).await;
        session.report(claim.epoch, number, failed(1)).await;
        assert_eq!(errors(&process, number).await.len(), 1);
        process
            .cancel([number].into_iter().filter(|&it| it == 1))
            .await;
        if number > 1 {
            it.clock().advance(SECOND);
            let claim = session
                .turn(wanting(if number == 3 { 1 } else { 0 }))
                .await
                .claim;
            process.cancel([number]).await;
            if let Some(claim) = claim {
                session.report(claim.epoch, number, failed(2)).await;
            }
        }
        assert_eq!(errors(&process, number).await, []);
    }
    session.enqueue((1..=3).map(unkept)).await;
    for number in 1..=3 {
        assert_eq!(errors(&process, number).await, []);
    }
}
