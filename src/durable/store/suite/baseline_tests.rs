//! The totals add up, and nothing is left in the end.

use std::time::Duration;

use super::Harness;
use super::process::*;
use crate::durable::store::{
    DEAD_LETTER_RETENTION, NewStep, NewTask, Progress, ProgressReport, StepAnswer, StepKind,
    StepName, Verdict,
};
use crate::durable::{Counts, DeadFilter};

/// Returns `true` if every claim of a task has ended once or is still held.
pub(super) fn adds_up(counts: &Counts) -> bool {
    let ended = counts.done + counts.retried + counts.snoozed + counts.died;
    let taken = counts.released + counts.crashed + counts.lost + counts.cancelled;
    counts.claimed == ended + taken + counts.running
}

pub async fn the_totals_add_up(it: &dyn Harness) {
    let (one, two) = (Process::of(it), Process::of(it));
    let mut session = one.session().await;
    let mut other = two.session().await;
    everything(it, &one, &mut session, &mut other).await;
    let counts = two.counts().await;
    assert!(adds_up(&counts), "{counts:?}");
    let expected = Counts {
        waiting: 2,
        unserved: 0,
        delayed: 2,
        running: 1,
        kept: 3,
        dead: 1,
        stored: 10,
        claimed: 10,
        done: 1,
        retried: 1,
        snoozed: 1,
        died: 1,
        released: 1,
        crashed: 2,
        lost: 1,
        cancelled: 1,
    };
    assert_eq!(counts, expected);
}

pub async fn nothing_is_left(it: &dyn Harness) {
    let (one, two) = (Process::of(it), Process::of(it));
    let mut session = one.session().await;
    let mut other = two.session().await;
    everything(it, &one, &mut session, &mut other).await;
    one.kill(it);
    other.turn(wanting(0)).await;
    it.clock().advance(LEASE);
    // All tasks that are alive end now.
    while let Some(claim) = other.turn(wanting(4)).await.claim {
        let flags = two.cancel([1, 2, 3]).await;
        assert!(flags <= 3);
        for (index, id) in ids(&claim).into_iter().enumerate() {
            let verdict = if index == 0 { dead() } else { done() };
            other
                .turn(wanting(0).verdicts(claim.epoch, vec![(id, verdict)]))
                .await;
        }
    }
    let counts = two.counts().await;
    assert_eq!((counts.waiting, counts.delayed, counts.running), (0, 0, 0));
    two.delete_dead_letters(DeadFilter::ids([id(1)])).await;
    other.close().await;
    it.age(DEAD_LETTER_RETENTION);
    two.kill(it);
    // The last process removes what the others have left.
    let last = Process::of(it);
    let mut session = last.session().await;
    session.turn(wanting(1)).await;
    session.close().await;
    let mut rounds = 0;
    while last.maintain(3).await {
        rounds += 1;
        assert!(rounds < 100, "maintenance comes to no end");
    }
    let counts = last.counts().await;
    assert_eq!((counts.kept, counts.dead), (0, 0));
    assert!(adds_up(&counts), "{counts:?}");
    assert_eq!(it.leftovers(), 0);
}

/// Runs ten tasks, each with another outcome.
async fn everything(
    it: &dyn Harness,
    process: &Process,
    session: &mut Session<'_>,
    other: &mut Session<'_>,
) {
    let unkept = NewTask {
        retention: Duration::ZERO,
        ..task(10)
    };
    session.enqueue((1..=9).map(task).chain([unkept])).await;
    // The first two claims are confirmed, the third is not, and all three are taken back.
    let confirmed = session.claim(2).await.epoch;
    process.renew([confirmed]).await;
    session.claim(1).await;
    it.clock().advance(LEASE);
    other.turn(wanting(0)).await;
    it.clock().advance(LEASE);
    other.turn(wanting(0)).await;
    process.cancel([3, 10]).await;
    let claim = session.claim(7).await;
    let expected = [1, 2, 4, 5, 6, 7, 8].map(id);
    assert_eq!(ids(&claim), expected);
    let reports = ids(&claim).into_iter().map(|id| ProgressReport {
        id,
        progress: Progress {
            epoch: claim.epoch,
            number: 1,
            bytes: b"1".to_vec(),
        },
    });
    let refused = process.0.0.report_progress(reports.collect()).await;
    assert_eq!(refused.unwrap(), []);
    let steps = ids(&claim).into_iter().map(|id| NewStep {
        id,
        epoch: claim.epoch,
        name: StepName::new(StepKind::Step, "a").unwrap(),
        value: b"1".to_vec(),
    });
    let answers = process.0.0.store_steps(steps.collect()).await.unwrap();
    assert_eq!(answers, vec![StepAnswer::Stored; expected.len()]);
    process.cancel([6]).await;
    let snooze = Verdict::Snooze { after: SECOND };
    let turn = wanting(0)
        .verdict(claim.epoch, 1, done())
        .verdict(claim.epoch, 2, dead())
        .verdict(claim.epoch, 4, retry(SECOND))
        .verdict(claim.epoch, 5, snooze)
        .verdict(claim.epoch, 6, retry(SECOND))
        .verdict(claim.epoch, 7, Verdict::Release);
    assert_eq!(session.turn(turn).await.refused, []);
    session.enqueue([delayed(1, SECOND)]).await;
}
