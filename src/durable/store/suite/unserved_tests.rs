//! The number of waiting tasks whose type no live worker has registered.

use super::Harness;
use super::process::*;
use crate::durable::store::{NewTask, Verdict};

fn named(name: &'static str, number: u64) -> NewTask {
    NewTask {
        name: name.into(),
        ..task(number)
    }
}

/// Tasks of two types, alternately.
fn mixed(count: u64) -> impl Iterator<Item = NewTask> {
    let name = |number: u64| {
        if number.is_multiple_of(2) {
            "even"
        } else {
            "odd"
        }
    };
    (0..count).map(move |number| named(name(number), number))
}

/// The numbers of waiting and of unserved tasks.
async fn counts(process: &Process) -> (u64, u64) {
    let counts = process.counts().await;
    (counts.waiting, counts.unserved)
}

pub async fn tasks_that_no_live_worker_knows_are_unserved(it: &dyn Harness) {
    let process = Process::of(it);
    assert_eq!(counts(&process).await, (0, 0));
    let mut even = process.session_of(&["even"]).await;
    even.enqueue(mixed(9)).await;
    let later = NewTask {
        delay: SECOND,
        ..named("odd", 11)
    };
    let newer = NewTask {
        envelope: 3,
        ..named("even", 12)
    };
    even.enqueue([later, newer, named("odd", 13)]).await;
    assert_eq!(counts(&process).await, (11, 6));
    // The delayed task is due.
    it.clock().advance(SECOND);
    even.claim(9).await;
    assert_eq!(counts(&process).await, (7, 7));
    let odd = process.session_of(&["odd"]).await;
    assert_eq!(counts(&process).await, (7, 1));
    odd.close().await;
    assert_eq!(counts(&process).await, (7, 7));
    even.close().await;
    assert_eq!(counts(&process).await, (12, 12));
}

pub async fn a_worker_that_is_killed_serves_nothing(it: &dyn Harness) {
    let (one, two, three) = (Process::of(it), Process::of(it), Process::of(it));
    let mut even = one.session_of(&["even"]).await;
    two.session_of(&["even", "odd"]).await;
    three.session_of(&["odd"]).await;
    even.enqueue(mixed(10)).await;
    assert_eq!(counts(&one).await, (10, 0));
    two.kill(it);
    assert_eq!(counts(&one).await, (10, 0));
    three.kill(it);
    assert_eq!(counts(&one).await, (10, 5));
    // Maintenance removes the sessions of the dead process.
    while one.maintain(100).await {}
    assert_eq!(counts(&one).await, (10, 5));
    assert_eq!(ids(&even.claim(9).await).len(), 5);
    assert_eq!(counts(&one).await, (5, 5));
    let producer = Process::of(it);
    one.kill(it);
    assert_eq!(counts(&producer).await, (5, 5));
}

/// Both types wait in one list when a worker joins that knows one of them.
pub async fn unserved_tasks_in_a_draining_list_are_counted(it: &dyn Harness) {
    let process = Process::of(it);
    let mut both = process.session_of(&["even", "odd"]).await;
    for _ in 0..4 {
        let first = both.number * 250;
        both.enqueue(mixed(first + 250).skip(first as usize)).await;
    }
    let mut odd = process.session_of(&["odd"]).await;
    both.close().await;
    assert_eq!(counts(&process).await, (1_000, 500));
    let claim = odd.claim(10).await;
    let claimed = claim.tasks.len() as u64;
    assert_eq!(counts(&process).await, (1_000 - claimed, 500));
    let released = ids(&claim).into_iter().map(|id| (id, Verdict::Release));
    odd.turn(wanting(0).verdicts(claim.epoch, released.collect()))
        .await;
    assert_eq!(counts(&process).await, (1_000, 500));
    odd.close().await;
    assert_eq!(counts(&process).await, (1_000, 1_000));
}

pub async fn a_cancelled_task_is_not_unserved(it: &dyn Harness) {
    let process = Process::of(it);
    let mut even = process.session_of(&["even"]).await;
    even.enqueue(mixed(20)).await;
    assert_eq!(process.cancel([0, 1, 2, 3, 5]).await, 5);
    assert_eq!(counts(&process).await, (15, 7));
    even.claim(3).await;
    assert_eq!(counts(&process).await, (12, 7));
    process.cancel([7, 9, 11, 13, 15, 17, 19]).await;
    assert_eq!(counts(&process).await, (5, 0));
}
