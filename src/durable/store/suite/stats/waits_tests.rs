//! The time for which tasks have waited when they are claimed.

use crate::durable::store::suite::Harness;
use crate::durable::store::suite::process::*;

pub async fn a_claim_says_how_long_its_tasks_have_waited(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.run(task(1), retry(3 * SECOND)).await;
    session
        .enqueue([task(2), delayed(3, SECOND), delayed(4, HOUR)])
        .await;
    it.clock().advance(5 * SECOND);
    process.run_now(4).await;
    it.clock().advance(SECOND);
    let expected = [(1, 3), (2, 6), (3, 5), (4, 1)];
    let expected = expected.map(|(number, wait)| (id(number), Some(SECOND * wait)));
    assert_eq!(session.waits(9).await, expected);
}

/// The time with the worker that has died is not known, and is not a time of waiting.
pub async fn the_wait_of_a_task_that_has_crashed_is_not_known(it: &dyn Harness) {
    let (one, two) = (Process::of(it), Process::of(it));
    let mut session = one.session().await;
    session.enqueue([task(1), task(2)]).await;
    let claim = session.claim(1).await;
    one.renew([claim.epoch]).await;
    one.kill(it);
    it.clock().advance(HOUR);
    let mut session = two.session().await;
    let mut waits = session.waits(1).await;
    waits.extend(session.waits(1).await);
    waits.sort_unstable();
    assert_eq!(waits, [(id(1), None), (id(2), Some(HOUR))]);
}
