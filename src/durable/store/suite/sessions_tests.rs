//! Tasks return when their process dies, or their session is closed.

use super::Harness;
use super::process::*;
use crate::durable::store::{RenewAnswer, TaskState};

pub async fn the_tasks_of_a_dead_process_return_at_once(it: &dyn Harness) {
    let (one, two) = (Process::of(it), Process::of(it));
    let mut first = one.session().await;
    let mut second = one.session().await;
    first.enqueue([task(1), task(2), task(3)]).await;
    first.claim(1).await;
    let claim = second.claim(1).await;
    one.renew([claim.epoch]).await;
    let mut other = two.session().await;
    one.kill(it);
    // No time has passed.
    let mut tasks = other.claim(9).await.tasks;
    tasks.sort_by_key(|task| task.id);
    let counted: Vec<_> = tasks
        .iter()
        .map(|task| (task.id, task.lost, task.crashes))
        .collect();
    assert_eq!(counted, [(id(1), 1, 0), (id(2), 0, 1), (id(3), 0, 0)]);
    let counts = two.counts().await;
    assert_eq!((counts.lost, counts.crashed, counts.running), (1, 1, 3));
}

pub async fn a_live_process_keeps_its_claims(it: &dyn Harness) {
    let (one, two, three) = (Process::of(it), Process::of(it), Process::of(it));
    let mut first = one.session().await;
    first.enqueue([task(1), task(2)]).await;
    first.claim(1).await;
    let mut second = two.session().await;
    let held = second.claim(1).await.epoch;
    let mut third = three.session().await;
    one.kill(it);
    assert_eq!(ids(&third.claim(9).await), [id(1)]);
    assert_eq!(two.renew([held]).await, RenewAnswer::default());
    second.report(held, 2, done()).await;
    assert_eq!(two.status([1, 2]).await, [TaskState::Running, state_done()]);
}

pub async fn a_closed_session_returns_its_tasks(it: &dyn Harness) {
    let process = Process::of(it);
    let mut first = process.session().await;
    let mut second = process.session().await;
    second.enqueue([task(1), task(2), task(3)]).await;
    first.claim(1).await;
    let held = second.claim(1).await.epoch;
    first.close().await;
    let claim = second.claim(9).await;
    assert_eq!(ids(&claim), [id(1), id(3)]);
    assert_eq!(claim.tasks[0].lost, 1);
    second.report(held, 2, done()).await;
}

pub async fn a_closed_session_is_unknown(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([task(1)]).await;
    session.claim(1).await;
    process.0.0.close_session(session.id).await.unwrap();
    assert_refused(session.turn_again(wanting(1)).await);
    session.number += 1;
    assert_refused(session.turn_again(wanting(1)).await);
    assert_refused(session.enqueue_again([task(2)]).await);
    assert_eq!(
        process.status([1, 2]).await,
        [TaskState::Waiting, TaskState::Absent]
    );
}

pub async fn a_session_is_issued_once(it: &dyn Harness) {
    let (one, two) = (Process::of(it), Process::of(it));
    let mut issued = Vec::new();
    for _ in 0..3 {
        let session = one.session().await;
        issued.push(session.id);
        session.close().await;
        issued.push(two.session().await.id);
    }
    let mut process = two;
    for _ in 0..3 {
        process.kill(it);
        process = Process::of(it);
        issued.push(process.session().await.id);
    }
    let unique: std::collections::BTreeSet<_> = issued.iter().collect();
    assert_eq!(unique.len(), issued.len(), "{issued:?}");
}

pub async fn a_new_process_never_repeats_the_claim_of_a_dead_one(it: &dyn Harness) {
    let one = Process::of(it);
    let mut first = one.session().await;
    first.enqueue([task(1)]).await;
    let old = first.claim(1).await.epoch;
    let number = first.number;
    one.kill(it);
    let two = Process::of(it);
    let mut second = two.session().await;
    second.number = number;
    let claim = second.turn_again(wanting(1)).await.unwrap().claim.unwrap();
    assert!(claim.epoch > old);
    assert_eq!(claim.tasks[0].lost, 1);
}
