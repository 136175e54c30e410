//! Claims: which tasks, in which order, and the answers to repeated turns.

use std::time::Duration;

use super::Harness;
use super::process::*;
use crate::durable::store::{NewTask, TaskState, TurnAnswer};

pub async fn first_in_first_out_over_sessions(it: &dyn Harness) {
    let (one, two) = (Process::of(it), Process::of(it));
    let mut first = one.session().await;
    let mut second = two.session().await;
    first.enqueue([task(5), task(3)]).await;
    second.enqueue([task(4)]).await;
    first.enqueue([task(1)]).await;
    assert_eq!(ids(&second.claim(3).await), [id(5), id(3), id(4)]);
    assert_eq!(ids(&first.claim(3).await), [id(1)]);
}

pub async fn a_delayed_task_waits_for_its_time(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([delayed(1, SECOND)]).await;
    it.clock().advance(SECOND - Duration::from_millis(1));
    let expected = TurnAnswer {
        next: Some(Duration::from_millis(1)),
        ..TurnAnswer::default()
    };
    assert_eq!(session.turn(wanting(9)).await, expected);
    assert_eq!(process.status_of(1).await, TaskState::Delayed);
    it.clock().advance(Duration::from_millis(1));
    assert_eq!(ids(&session.claim(9).await), [id(1)]);
}

pub async fn due_tasks_go_to_the_tail_the_earliest_first(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let tasks = [
        delayed(1, 3 * SECOND),
        delayed(2, 2 * SECOND),
        delayed(4, SECOND),
        delayed(3, SECOND),
        task(9),
        task(8),
    ];
    session.enqueue(tasks).await;
    it.clock().advance(2 * SECOND);
    let claim = session.claim(9).await;
    assert_eq!(ids(&claim), [9, 8, 3, 4, 2].map(id));
}

pub async fn a_claim_is_limited_to_the_wanted_number(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue((1..=5).map(task)).await;
    let turned = session.turn(wanting(2)).await;
    assert_eq!(turned.claim.unwrap().tasks, [fresh(1), fresh(2)]);
    assert!(turned.more);
    let turned = session.turn(wanting(3)).await;
    assert_eq!(turned.claim.unwrap().tasks.len(), 3);
    assert!(!turned.more);
}

pub async fn a_claim_is_limited_to_the_wanted_bytes_but_has_one_task(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let sized = |number, len| NewTask {
        payload: vec![0; len],
        ..task(number)
    };
    let tasks = [
        sized(1, 50),
        sized(2, 50),
        sized(3, 1),
        sized(4, 500),
        sized(5, 0),
    ];
    session.enqueue(tasks).await;
    // Exactly what is wanted fits; one more byte does not, although later tasks would.
    let mut next = async |bytes| {
        let claim = session.turn(wanting(9).bytes(bytes)).await.claim;
        claim.map(|claim| ids(&claim)).unwrap_or_default()
    };
    assert_eq!(next(100).await, [id(1), id(2)]);
    assert_eq!(next(500).await, [id(3)]);
    assert_eq!(next(0).await, [id(4), id(5)][..1]);
    assert_eq!(next(0).await, [id(5)]);
}

pub async fn a_turn_that_wants_nothing_claims_nothing(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([task(1)]).await;
    let expected = TurnAnswer {
        more: true,
        ..TurnAnswer::default()
    };
    assert_eq!(session.turn(wanting(0)).await, expected);
    assert_eq!(process.counts().await.claimed, 0);
}

pub async fn the_next_check_is_when_a_task_is_due(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    assert_eq!(session.turn(wanting(1)).await, TurnAnswer::default());
    session
        .enqueue([delayed(1, HOUR), delayed(2, 2 * SECOND)])
        .await;
    it.clock().advance(SECOND);
    assert_eq!(session.turn(wanting(1)).await.next, Some(SECOND));
}

pub async fn the_next_check_is_when_the_own_lease_expires(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([task(1)]).await;
    let turned = session.turn(wanting(1).lease(7 * SECOND)).await;
    assert_eq!(turned.next, Some(7 * SECOND));
    let epoch = turned.claim.unwrap().epoch;
    let turned = session.turn(wanting(0).verdict(epoch, 1, done())).await;
    assert_eq!(turned.next, None);
}

pub async fn epochs_rise_over_all_claims(it: &dyn Harness) {
    let (one, two) = (Process::of(it), Process::of(it));
    let mut first = one.session().await;
    let mut second = two.session().await;
    let mut last = 0;
    for round in 0..4 {
        first.enqueue([task(2 * round), task(2 * round + 1)]).await;
        for session in [&mut first, &mut second] {
            let claim = session.claim(1).await;
            assert!(claim.epoch > last, "{} after {last}", claim.epoch);
            last = claim.epoch;
        }
    }
    // Even if no task or claim is left.
    one.kill(it);
    let mut third = two.session().await;
    assert!(third.claim(1).await.epoch > last);
}

pub async fn a_repeated_turn_returns_the_same_claim(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([task(2), task(1), task(3)]).await;
    let mut claim = session.claim(2).await;
    let again = session.turn_again(wanting(2)).await.unwrap();
    claim.tasks.sort_by_key(|task| task.id);
    assert_eq!(again.claim, Some(claim));
    assert!(again.more);
    assert_eq!(process.counts().await.claimed, 2);
}

pub async fn a_repeated_turn_returns_the_tasks_still_held(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let mut other = process.session().await;
    session.enqueue([task(1), task(2)]).await;
    let claim = session.claim(2).await;
    other.report(claim.epoch, 1, done()).await;
    let again = session.turn_again(wanting(2)).await.unwrap().claim.unwrap();
    assert_eq!((again.epoch, again.tasks), (claim.epoch, vec![fresh(2)]));
    other.report(claim.epoch, 2, done()).await;
    assert_eq!(session.turn_again(wanting(2)).await.unwrap().claim, None);
}

pub async fn a_repeated_turn_applies_its_verdicts_once(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([task(1), task(2)]).await;
    let claim = session.claim(1).await;
    // The retry is due at once: what the turn claims is the task that it gave back.
    let turn = wanting(2).verdict(claim.epoch, 1, retry(Duration::ZERO));
    let turned = session.turn(turn.clone()).await;
    let claim = turned.claim.unwrap();
    assert_eq!(ids(&claim), [id(2), id(1)]);
    let again = session.turn_again(turn).await.unwrap().claim.unwrap();
    assert_eq!(
        (again.epoch, ids(&again)),
        (claim.epoch, vec![id(1), id(2)])
    );
    assert_eq!(again.tasks[0].failures, 1);
    let counts = process.counts().await;
    assert_eq!((counts.retried, counts.claimed), (1, 3));
}

pub async fn a_repeated_turn_renews_its_lease(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([task(1)]).await;
    session.claim(1).await;
    it.clock().advance(LEASE - SECOND);
    let again = session.turn_again(wanting(1)).await.unwrap();
    assert_eq!(again.next, Some(LEASE));
}

/// It takes nothing back. Its `next` says that it is time to, and `more` does not.
pub async fn a_repeated_turn_only_reports_expired_leases(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let mut other = process.session().await;
    session.run(task(1), done()).await;
    other.enqueue([task(2)]).await;
    other.claim(1).await;
    it.clock().advance(LEASE);
    let expected = TurnAnswer {
        next: Some(Duration::ZERO),
        ..TurnAnswer::default()
    };
    for turn in [wanting(1), wanting(1).go_idle()] {
        assert_eq!(session.turn_again(turn).await.unwrap(), expected);
    }
    assert_eq!(process.status_of(2).await, TaskState::Running);
}

pub async fn an_idle_turn_does_not_use_its_number(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    assert_eq!(session.turn(wanting(1)).await, TurnAnswer::default());
    let mut other = process.session().await;
    other.enqueue([task(1)]).await;
    // The number was not used, so this turn is not a repetition, and it claims.
    let turned = session.turn_again(wanting(1)).await.unwrap();
    assert_eq!(turned.claim.unwrap().tasks, [fresh(1)]);
}

pub async fn a_turn_with_verdicts_uses_its_number(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let mut other = process.session().await;
    other.enqueue([task(1), task(2)]).await;
    let claim = session.claim(1).await;
    let turn = wanting(0).verdict(claim.epoch, 1, done());
    session.turn(turn.clone()).await;
    assert_eq!(session.turn_again(turn).await.unwrap().claim, None);
    // A repeated number gets the first answer, even if the turn wants more now.
    assert_eq!(session.turn_again(wanting(1)).await.unwrap().claim, None);
    assert_eq!(process.status_of(2).await, TaskState::Waiting);
}

pub async fn a_claim_is_not_repeated_after_an_enqueue(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([task(1)]).await;
    session.claim(1).await;
    session.enqueue([task(2)]).await;
    session.number -= 1;
    assert_refused(session.turn_again(wanting(1)).await);
    session.number += 2;
    let claim = session.turn_again(wanting(1)).await.unwrap().claim.unwrap();
    assert_eq!(ids(&claim), [id(2)]);
}

pub async fn a_session_does_not_get_the_claim_of_another(it: &dyn Harness) {
    let process = Process::of(it);
    let mut first = process.session().await;
    let mut second = process.session().await;
    first.enqueue([task(1)]).await;
    second.number = first.number;
    first.claim(1).await;
    // With the same number, in the same process.
    assert_eq!(second.turn(wanting(1)).await.claim, None);
    assert_eq!(second.number, first.number);
    assert_eq!(second.turn_again(wanting(1)).await.unwrap().claim, None);
}

pub async fn an_older_turn_is_refused(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue((1..=4).map(task)).await;
    let claim = session.claim(1).await;
    session.claim(1).await;
    session.number -= 1;
    assert_refused(session.turn_again(wanting(1)).await);
    let turn = wanting(1).verdict(claim.epoch, 1, done());
    assert_refused(session.turn_again(turn).await);
    assert_eq!(
        process.status([1, 3]).await,
        [TaskState::Running, TaskState::Waiting]
    );
    // The late request has not affected the session, either.
    session.number += 1;
    let again = session.turn_again(wanting(1)).await.unwrap().claim.unwrap();
    assert_eq!(ids(&again), [id(2)]);
}

pub async fn a_turn_of_no_session_is_refused(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([task(1)]).await;
    let claim = session.claim(1).await;
    session.id += 1;
    session.number += 1;
    assert_refused(session.turn_again(wanting(1)).await);
    let turn = wanting(1).verdict(claim.epoch, 1, done());
    assert_refused(session.turn_again(turn).await);
    assert_eq!(process.status_of(1).await, TaskState::Running);
}
