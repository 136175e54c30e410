//! Leases: tasks whose worker is silent are taken back.

use super::Harness;
use super::process::*;
use crate::durable::DeadFilter;
use crate::durable::store::{DeadReason, NewTask, RenewAnswer, TaskState, Verdict};

/// The extension of an expired lease.
fn third() -> std::time::Duration {
    LEASE / 3
}

pub async fn a_late_claim_is_suspected_before_it_is_reaped(it: &dyn Harness) {
    let (one, two) = (Process::of(it), Process::of(it));
    let mut silent = one.session().await;
    let mut other = two.session().await;
    silent.enqueue([task(1)]).await;
    silent.claim(1).await;
    let millisecond = SECOND / 1000;
    it.clock().advance(LEASE - millisecond);
    assert_eq!(other.turn(wanting(1)).await.claim, None);
    it.clock().advance(millisecond);
    let turned = other.turn(wanting(1)).await;
    assert_eq!(turned.claim, None);
    assert!(turned.next <= Some(third()), "{:?}", turned.next);
    it.clock().advance(third() - millisecond);
    assert_eq!(other.turn(wanting(1)).await.claim, None);
    it.clock().advance(millisecond);
    let claim = other.claim(1).await;
    assert_eq!((ids(&claim), claim.tasks[0].lost), (vec![id(1)], 1));
}

pub async fn a_renewal_clears_suspicion(it: &dyn Harness) {
    let (one, two) = (Process::of(it), Process::of(it));
    let mut slow = one.session().await;
    let mut other = two.session().await;
    slow.enqueue([task(1)]).await;
    let epoch = slow.claim(1).await.epoch;
    for _ in 0..3 {
        it.clock().advance(LEASE);
        assert_eq!(other.turn(wanting(1)).await.claim, None);
        assert_eq!(one.renew([epoch]).await, RenewAnswer::default());
    }
    // A whole lease again, then suspicion again.
    it.clock().advance(LEASE);
    assert_eq!(other.turn(wanting(1)).await.claim, None);
    it.clock().advance(third());
    assert_eq!(ids(&other.claim(1).await), [id(1)]);
}

pub async fn a_renewal_extends_a_lease(it: &dyn Harness) {
    let (one, two) = (Process::of(it), Process::of(it));
    let mut slow = one.session().await;
    let mut other = two.session().await;
    slow.enqueue([task(1)]).await;
    let epoch = slow.claim(1).await.epoch;
    for _ in 0..5 {
        it.clock().advance(LEASE - SECOND);
        one.renew([epoch]).await;
        assert_eq!(other.turn(wanting(1)).await.claim, None);
    }
    slow.report(epoch, 1, done()).await;
    let counts = one.counts().await;
    assert_eq!((counts.done, counts.lost, counts.crashed), (1, 0, 0));
}

pub async fn verdicts_on_a_suspect_claim_are_accepted(it: &dyn Harness) {
    let (one, two) = (Process::of(it), Process::of(it));
    let mut slow = one.session().await;
    let mut other = two.session().await;
    slow.enqueue([task(1)]).await;
    let epoch = slow.claim(1).await.epoch;
    it.clock().advance(LEASE);
    other.turn(wanting(1)).await;
    // Later than any lease. No other worker has made a turn, so the tasks are still held.
    it.clock().advance(LEASE);
    slow.report(epoch, 1, done()).await;
    assert_eq!(one.status_of(1).await, state_done());
}

pub async fn an_unconfirmed_claim_is_lost(it: &dyn Harness) {
    let (one, two) = (Process::of(it), Process::of(it));
    let mut silent = one.session().await;
    let mut other = two.session().await;
    silent.enqueue([task(1)]).await;
    silent.claim(1).await;
    reap(it, &mut other).await;
    let claim = other.claim(1).await;
    assert_eq!((claim.tasks[0].lost, claim.tasks[0].crashes), (1, 0));
    let counts = two.counts().await;
    assert_eq!((counts.lost, counts.crashed, counts.running), (1, 0, 1));
}

pub async fn a_claim_confirmed_by_a_renewal_has_crashed(it: &dyn Harness) {
    let (one, two) = (Process::of(it), Process::of(it));
    let mut silent = one.session().await;
    let mut other = two.session().await;
    silent.enqueue([task(1)]).await;
    let epoch = silent.claim(1).await.epoch;
    one.renew([epoch]).await;
    reap(it, &mut other).await;
    let claim = other.claim(1).await;
    assert_eq!((claim.tasks[0].lost, claim.tasks[0].crashes), (0, 1));
    let counts = two.counts().await;
    assert_eq!((counts.lost, counts.crashed), (0, 1));
}

pub async fn a_claim_confirmed_by_a_later_turn_has_crashed(it: &dyn Harness) {
    let (one, two) = (Process::of(it), Process::of(it));
    let mut silent = one.session().await;
    let mut other = two.session().await;
    silent.enqueue([task(1), task(2)]).await;
    silent.claim(1).await;
    // The second turn confirms the first claim, but not its own, and neither does its repetition.
    silent.claim(1).await;
    silent.turn_again(wanting(1)).await.unwrap();
    reap(it, &mut other).await;
    let claim = other.claim(9).await;
    let crashed = claim.tasks.iter().find(|task| task.id == id(1)).unwrap();
    let lost = claim.tasks.iter().find(|task| task.id == id(2)).unwrap();
    assert_eq!((crashed.crashes, crashed.lost), (1, 0));
    assert_eq!((lost.crashes, lost.lost), (0, 1));
}

pub async fn too_many_crashes_make_a_dead_letter(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let mut other = process.session().await;
    let new = NewTask {
        max_crashes: 3,
        ..task(1)
    };
    session.enqueue([new, task(2)]).await;
    for crashes in 0..3 {
        let claim = session.claim(1).await;
        let found = &claim.tasks[0];
        assert_eq!((found.id, found.crashes), (id(1), crashes));
        assert_eq!(found.quarantined, crashes == 2, "one death before");
        process.renew([claim.epoch]).await;
        reap(it, &mut other).await;
    }
    let reason = DeadReason::Crashes;
    assert!(
        matches!(process.status_of(1).await, TaskState::Dead { reason: found, .. } if found == reason)
    );
    let dead_letters = process.dead_letters(DeadFilter::all(), 9).await;
    assert_eq!(
        (dead_letters[0].reason, dead_letters[0].crashes),
        (reason, 3)
    );
    let counts = process.counts().await;
    assert_eq!((counts.crashed, counts.died, counts.dead), (3, 0, 1));
    assert_eq!(ids(&session.claim(9).await), [id(2)]);
}

/// The task may have killed its worker at once, so all its losses count as one death.
pub async fn a_loss_counts_as_one_death(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let mut other = process.session().await;
    let new = NewTask {
        max_crashes: 3,
        ..task(1)
    };
    session.enqueue([new]).await;
    for _ in 0..2 {
        session.claim(1).await;
        reap(it, &mut other).await;
    }
    for crashes in 0..2 {
        let claim = session.claim(1).await;
        let found = &claim.tasks[0];
        assert_eq!((found.lost, found.crashes), (2, crashes));
        assert_eq!(found.quarantined, crashes == 1, "one death before");
        process.renew([claim.epoch]).await;
        reap(it, &mut other).await;
    }
    assert!(matches!(process.status_of(1).await, TaskState::Dead { .. }));
}

pub async fn a_loss_after_a_crash_can_be_the_last_death(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let mut other = process.session().await;
    session.enqueue([task(1)]).await;
    for crashes in 0..2 {
        let claim = session.claim(1).await;
        assert_eq!(claim.tasks[0].crashes, crashes);
        process.renew([claim.epoch]).await;
        reap(it, &mut other).await;
    }
    session.claim(1).await;
    reap(it, &mut other).await;
    assert!(matches!(process.status_of(1).await, TaskState::Dead { .. }));
    let counts = process.counts().await;
    assert_eq!((counts.crashed, counts.lost), (2, 1));
}

pub async fn a_late_copy_of_an_idle_turn_costs_nothing(it: &dyn Harness) {
    let (one, two) = (Process::of(it), Process::of(it));
    let mut worker = one.session().await;
    let mut other = two.session().await;
    assert_eq!(worker.turn(wanting(1)).await.claim, None);
    other.enqueue([task(1), task(2)]).await;
    // The answer is lost.
    let late = worker.turn_again_without_answer(wanting(1)).await;
    assert_eq!(late.claim.map(|claim| ids(&claim)), Some(vec![id(1)]));
    let epoch = worker.claim(1).await.epoch;
    worker.report(epoch, 2, done()).await;
    it.clock().advance(LEASE);
    other.turn(wanting(0)).await;
    worker.turn(wanting(0)).await;
    it.clock().advance(third());
    assert_eq!(other.claim(1).await.tasks, [fresh(1)]);
    let counts = two.counts().await;
    assert_eq!((counts.lost, counts.crashed), (1, 0));
}

/// The worker does not know the claim: its turn was repeated, or the store was restored from an older copy.
pub async fn a_claim_that_a_live_worker_does_not_renew_has_not_crashed(it: &dyn Harness) {
    let (one, two) = (Process::of(it), Process::of(it));
    let mut worker = one.session().await;
    let mut other = two.session().await;
    worker.enqueue((1..=3).map(task)).await;
    let kept = worker.claim(1).await.epoch;
    for (by_renewal, number) in [(true, 2), (false, 3)] {
        let abandoned = worker.claim(1).await;
        one.renew([abandoned.epoch, kept]).await;
        it.clock().advance(LEASE - SECOND);
        one.renew([kept]).await;
        it.clock().advance(SECOND);
        other.turn(wanting(0)).await;
        match by_renewal {
            true => drop(one.renew([kept]).await),
            false => drop(worker.turn(wanting(0)).await),
        }
        it.clock().advance(third());
        let claim = other.claim(1).await;
        assert_eq!(claim.tasks, [fresh(number)]);
        other.report(claim.epoch, number, done()).await;
        let counts = two.counts().await;
        assert_eq!((counts.lost, counts.crashed), (number - 1, 0));
    }
}

/// A worker that finds its own lease expired is alive.
pub async fn a_worker_that_suspects_itself_has_not_crashed(it: &dyn Harness) {
    let process = Process::of(it);
    let mut worker = process.session().await;
    worker.enqueue([task(1)]).await;
    let epoch = worker.claim(1).await.epoch;
    process.renew([epoch]).await;
    it.clock().advance(LEASE);
    worker.turn(wanting(0)).await;
    it.clock().advance(third());
    let mut other = process.session().await;
    assert_eq!(other.claim(1).await.tasks, [fresh(1)]);
    let counts = process.counts().await;
    assert_eq!((counts.lost, counts.crashed), (1, 0));
}

/// A worker that was active only before its claims were suspected may have died since.
pub async fn a_worker_that_was_last_active_in_its_lease_has_crashed(it: &dyn Harness) {
    let (one, two) = (Process::of(it), Process::of(it));
    let mut worker = one.session().await;
    let mut other = two.session().await;
    worker.enqueue([task(1)]).await;
    worker.claim(1).await;
    it.clock().advance(LEASE - SECOND);
    worker.turn(wanting(0)).await;
    it.clock().advance(SECOND);
    other.turn(wanting(0)).await;
    it.clock().advance(third());
    let claim = other.claim(1).await;
    assert_eq!((claim.tasks[0].crashes, claim.tasks[0].lost), (1, 0));
}

pub async fn lost_claims_never_make_a_dead_letter(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let mut other = process.session().await;
    let new = NewTask {
        max_crashes: 0,
        ..task(1)
    };
    session.enqueue([new]).await;
    for lost in 0..6 {
        let claim = session.claim(1).await;
        assert_eq!((claim.tasks[0].lost, claim.tasks[0].crashes), (lost, 0));
        reap(it, &mut other).await;
    }
    // One crash is enough.
    let claim = session.claim(1).await;
    process.renew([claim.epoch]).await;
    reap(it, &mut other).await;
    assert!(matches!(process.status_of(1).await, TaskState::Dead { .. }));
}

pub async fn a_renewal_reports_lost_claims(it: &dyn Harness) {
    let (one, two) = (Process::of(it), Process::of(it));
    let mut slow = one.session().await;
    let mut other = two.session().await;
    slow.enqueue((1..=3).map(task)).await;
    let reaped = slow.claim(1).await.epoch;
    it.clock().advance(LEASE);
    other.turn(wanting(0)).await;
    let held = slow.claim(1).await.epoch;
    let ended = slow.claim(1).await.epoch;
    slow.report(ended, 3, done()).await;
    it.clock().advance(third());
    other.turn(wanting(0)).await;
    let expected = RenewAnswer {
        lost: vec![reaped, ended, 999],
        cancelled: vec![],
        ..RenewAnswer::default()
    };
    assert_eq!(one.renew([reaped, held, ended, 999]).await, expected);
    assert_eq!(
        one.status([1, 2]).await,
        [TaskState::Waiting, TaskState::Running]
    );
}

pub async fn reaped_tasks_go_before_waiting_tasks(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let mut other = process.session().await;
    session.enqueue([3, 1, 2].map(task)).await;
    session.claim(3).await;
    session.enqueue([task(0)]).await;
    reap(it, &mut other).await;
    let claim = session.claim(9).await;
    assert_eq!(ids(&claim), [1, 2, 3, 0].map(id));
}

/// Lets the leases and their extensions expire, and has another session make a turn each time.
async fn reap(it: &dyn Harness, other: &mut Session<'_>) {
    it.clock().advance(LEASE);
    other.turn(wanting(0)).await;
    it.clock().advance(third());
    other.turn(wanting(0)).await;
}

pub async fn a_worker_holds_one_quarantined_task(it: &dyn Harness) {
    let process = Process::of(it);
    let mut worker = process.session().await;
    worker.enqueue((1..=4).map(task)).await;
    // Two of them crash until the next crash makes them dead letters.
    for _ in 1..task(1).max_crashes {
        let mut victim = process.session().await;
        let epoch = victim.claim(2).await.epoch;
        process.renew([epoch]).await;
        process.0.0.close_session(victim.id).await.unwrap();
    }
    worker.enqueue([task(5)]).await;
    let turned = worker.turn(wanting(9).without_quarantined()).await;
    assert!(!turned.more, "what is left is not for this worker");
    let claim = turned.claim.expect("three have not crashed");
    assert_eq!(ids(&claim), [id(3), id(4), id(5)]);
    worker.report(claim.epoch, 3, Verdict::Release).await;
    // One quarantined task, and all others.
    let turned = worker.turn(wanting(9)).await;
    assert!(!turned.more, "it has a quarantined one now");
    let claim = turned.claim.expect("one is quarantined");
    assert_eq!(ids(&claim), [id(3), id(1)]);
    assert!(!claim.tasks[0].quarantined && claim.tasks[1].quarantined);
    let claim = worker.claim(9).await;
    assert_eq!(ids(&claim), [id(2)]);
}
