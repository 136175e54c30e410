//! Types that are paused: their tasks wait, and everything else goes on.

use super::Harness;
use super::process::*;
use crate::durable::DeadFilter;
use crate::durable::store::{NewTask, TaskState, Verdict};

pub async fn a_paused_type_is_not_claimed(it: &dyn Harness) {
    let process = Process::of(it);
    let mut both = process.session_of(&["even", "odd"]).await;
    both.enqueue((0..10).map(typed)).await;
    process.pause("odd").await;
    process.pause("odd").await;
    assert_eq!(process.paused_types().await, ["odd"]);
    assert_eq!(claim_all(&mut both).await.0, [0, 2, 4, 6, 8].map(id));
    // A worker that starts later does not claim them either, even if it knows nothing else.
    let other = Process::of(it);
    let mut odd = other.session_of(&["odd"]).await;
    assert_eq!(claim_all(&mut odd).await.0, []);
    odd.close().await;
    both.enqueue((10..14).map(typed)).await;
    assert_eq!(claim_all(&mut both).await.0, [10, 12].map(id));
    let turned = both.turn(wanting(9).go_idle()).await;
    assert_eq!((turned.claim, turned.more), (None, false));
    assert_eq!(other.status_of(1).await, TaskState::Waiting);

    process.resume("odd").await;
    process.resume("odd").await;
    assert_eq!(other.paused_types().await, [""; 0]);
    assert_eq!(
        claim_all(&mut both).await.0,
        [1, 3, 5, 7, 9, 11, 13].map(id)
    );
}

pub async fn the_only_type_is_paused(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session_of(&["odd"]).await;
    session.enqueue([typed(1), typed(3)]).await;
    process.pause("odd").await;
    session.enqueue([typed(5)]).await;
    let turned = session.turn(wanting(9).go_idle()).await;
    assert_eq!((turned.claim, turned.more), (None, false));
    while process.maintain(100).await {}
    assert_eq!(claim_all(&mut session).await.0, []);
    process.resume("odd").await;
    assert_eq!(claim_all(&mut session).await.0, [1, 3, 5].map(id));
}

/// Tasks are released, retried, due and replayed while their type is paused.
pub async fn tasks_of_a_paused_type_keep_their_order(it: &dyn Harness) {
    let process = Process::of(it);
    let mut both = process.session_of(&["even", "odd"]).await;
    both.run(typed(9), dead()).await;
    both.enqueue([1, 3, 5, 7].map(typed)).await;
    let claim = both.claim(4).await;
    let due = NewTask {
        delay: SECOND,
        ..typed(11)
    };
    both.enqueue([typed(13), due]).await;
    process.pause("odd").await;
    let turn = wanting(0)
        .verdict(claim.epoch, 1, Verdict::Release)
        .verdict(claim.epoch, 3, retry(2 * SECOND))
        .verdict(claim.epoch, 5, Verdict::Release)
        .verdict(claim.epoch, 7, done());
    assert_eq!(both.turn(turn).await.refused, []);
    it.clock().advance(SECOND);
    assert_eq!(claim_all(&mut both).await.0, []);
    assert_eq!(process.replay_dead_letters(DeadFilter::all()).await, 1);
    it.clock().advance(SECOND);
    assert_eq!(claim_all(&mut both).await.0, []);
    process.resume("odd").await;
    assert_eq!(claim_all(&mut both).await.0, [1, 5, 13, 11, 9, 3].map(id));
}

pub async fn a_run_of_a_paused_type_goes_on(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session_of(&["odd"]).await;
    session.enqueue([1, 3, 5].map(typed)).await;
    let claim = session.claim(2).await;
    process.pause("odd").await;
    assert_eq!(process.renew([claim.epoch]).await, Default::default());
    session.report(claim.epoch, 1, done()).await;
    assert_eq!(process.status_of(1).await, state_done());
    // The claim is taken back, and its other task waits.
    for _ in 0..3 {
        it.clock().advance(LEASE);
        assert_eq!(claim_all(&mut session).await.0, []);
    }
    assert_eq!(process.status_of(3).await, TaskState::Waiting);
    process.resume("odd").await;
    assert_eq!(claim_all(&mut session).await.0, [3, 5].map(id));
}

/// The pause gives each type a list of its own, and the list that they had before is empty.
pub async fn a_task_that_returns_after_a_pause_is_claimed_at_once(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session_of(&["even", "odd"]).await;
    session.enqueue([typed(0)]).await;
    let claim = session.claim(9).await;
    process.pause("odd").await;
    let turn = wanting(9).verdict(claim.epoch, 0, Verdict::Release);
    let claim = session.turn(turn).await.claim;
    assert_eq!(ids(&claim.expect("it waits")), [id(0)]);
}

pub async fn a_type_stays_paused_after_all_processes_exit(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session_of(&["even", "odd"]).await;
    session.enqueue((0..6).map(typed)).await;
    process.pause("odd").await;
    process.pause("another").await;
    session.close().await;
    while process.maintain(100).await {}
    process.kill(it);
    let process = Process::of(it);
    let mut session = process.session_of(&["odd", "even"]).await;
    assert_eq!(claim_all(&mut session).await.0, [0, 2, 4].map(id));
    assert_eq!(process.paused_types().await, ["another", "odd"]);
    process.resume("odd").await;
    assert_eq!(claim_all(&mut session).await.0, [1, 3, 5].map(id));
}

pub async fn a_paused_task_is_cancelled_at_once(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session_of(&["odd"]).await;
    session.enqueue([1, 3, 5].map(typed)).await;
    process.pause("odd").await;
    assert_eq!(process.cancel([1, 3]).await, 2);
    assert_eq!(process.status_of(1).await, TaskState::Cancelled);
    process.resume("odd").await;
    assert_eq!(claim_all(&mut session).await.0, [id(5)]);
}

pub async fn the_only_type_wakes_a_worker_when_it_is_resumed(it: &dyn Harness) {
    let (one, two) = (Process::of(it), Process::of(it));
    let mut events = two.events();
    let mut session = two.session_of(&["odd"]).await;
    one.pause("odd").await;
    let mut producer = one.session_of(&["job"]).await;
    producer.enqueue([typed(1)]).await;
    while session.turn(wanting(9).go_idle()).await.more {}
    events.drain();
    one.resume("odd").await;
    events.until("a wake", |event| event.is_wake()).await;
    assert_eq!(claim_all(&mut session).await.0, [id(1)]);
}

pub async fn a_resumed_type_wakes_a_worker(it: &dyn Harness) {
    let (one, two) = (Process::of(it), Process::of(it));
    let mut events = two.events();
    let mut session = two.session_of(&["even", "odd"]).await;
    let mut producer = one.session_of(&["job"]).await;
    for round in 0..5 {
        one.pause("odd").await;
        producer.enqueue([typed(2 * round + 1)]).await;
        // Tasks may be moved between lists first.
        while session.turn(wanting(9).go_idle()).await.more {}
        events.drain();
        one.resume("odd").await;
        events.until("a wake", |event| event.is_wake()).await;
        assert_eq!(claim_all(&mut session).await.0, [id(2 * round + 1)]);
    }
}

pub async fn a_backlog_of_a_paused_type_delays_no_task(it: &dyn Harness) {
    let process = Process::of(it);
    let mut both = process.session_of(&["even", "odd"]).await;
    for first in (1..1_000).step_by(250) {
        let foreign = (first..first + 250).filter(|number| number % 2 == 1);
        both.enqueue(foreign.map(typed)).await;
    }
    both.enqueue([typed(2_000)]).await;
    process.pause("odd").await;
    let (claimed, turns) = claim_all(&mut both).await;
    assert_eq!(claimed, [id(2_000)]);
    assert!(turns < 6, "{turns} turns");
    // The paused tasks no longer delay claims.
    both.enqueue([typed(2_002)]).await;
    assert_eq!(ids(&both.claim(9).await), [id(2_002)]);
    process.resume("odd").await;
    let odds: Vec<_> = (1..1_000).step_by(2).map(id).collect();
    assert_eq!(claim_all(&mut both).await.0, odds);
}

pub async fn a_paused_task_is_not_unserved(it: &dyn Harness) {
    let process = Process::of(it);
    let unserved = async || process.counts().await.unserved;
    let mut both = process.session_of(&["even", "odd"]).await;
    both.enqueue((0..6).map(typed)).await;
    process.pause("odd").await;
    assert_eq!(unserved().await, 0);
    assert_eq!(claim_all(&mut both).await.0.len(), 3);
    assert_eq!(unserved().await, 0);
    both.close().await;
    assert_eq!(process.counts().await.waiting, 6);
    assert_eq!(unserved().await, 6);
    process.resume("odd").await;
    assert_eq!(unserved().await, 6);
}

pub async fn an_unknown_type_can_be_paused(it: &dyn Harness) {
    let process = Process::of(it);
    process.pause("odd").await;
    let mut even = process.session_of(&["even"]).await;
    even.enqueue((0..6).map(typed)).await;
    assert_eq!(claim_all(&mut even).await.0, [0, 2, 4].map(id));
    let mut odd = process.session_of(&["odd"]).await;
    assert_eq!(claim_all(&mut odd).await.0, []);
    process.resume("odd").await;
    assert_eq!(claim_all(&mut odd).await.0, [1, 3, 5].map(id));
}

/// A worker ends while its type is paused, and another one starts after the type was resumed.
pub async fn a_returned_task_is_claimed_with_those_that_wait(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session_of(&["even", "odd"]).await;
    session.enqueue([1, 3, 5].map(typed)).await;
    session.claim(1).await;
    process.pause("odd").await;
    session.close().await;
    process.resume("odd").await;
    let mut session = process.session_of(&["even", "odd"]).await;
    assert_eq!(claim_all(&mut session).await.0, [1, 3, 5].map(id));
}

/// Their list drains into another one, which also drains.
pub async fn tasks_that_pass_two_lists_are_claimed_at_once(it: &dyn Harness) {
    let names = ["job", "other", "even", "odd"];
    for name in names {
        let process = Process::of(it);
        let mut session = process.session_of(&names).await;
        let named = |number| NewTask {
            name: name.into(),
            retention: std::time::Duration::ZERO,
            ..task(number)
        };
        session.enqueue([1, 2].map(named)).await;
        session.claim(1).await;
        process.pause(name).await;
        session.close().await;
        process.resume(name).await;
        let mut session = process.session_of(&names).await;
        let claim = session.claim(9).await;
        assert_eq!(ids(&claim), [1, 2].map(id), "{name}");
        let turn = wanting(0).verdict(claim.epoch, 1, done());
        session.turn(turn.verdict(claim.epoch, 2, done())).await;
        session.close().await;
    }
}
