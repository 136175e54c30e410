//! Types of tasks: the workers that claim them, the order, and the workers that are woken.

use super::Harness;
use super::process::*;
use crate::durable::TaskId;
use crate::durable::store::kind::{Kind, TypeSet};
use crate::durable::store::{NewTask, TaskState, Verdict};

pub async fn a_claim_has_only_types_that_its_session_knows(it: &dyn Harness) {
    let process = Process::of(it);
    let mut even = process.session_of(&["even"]).await;
    let mut odd = process.session_of(&["odd", "job"]).await;
    even.enqueue((0..20).map(typed)).await;
    let evens: Vec<_> = (0..20).step_by(2).map(id).collect();
    let odds: Vec<_> = (1..20).step_by(2).map(id).collect();
    assert_eq!(claim_all(&mut even).await.0, evens);
    assert_eq!(claim_all(&mut odd).await.0, odds);
}

pub async fn a_task_of_an_unknown_type_waits_for_a_worker(it: &dyn Harness) {
    let process = Process::of(it);
    let mut even = process.session_of(&["even"]).await;
    even.enqueue((0..9).map(typed)).await;
    claim_all(&mut even).await;
    it.clock().advance(1_000 * HOUR);
    let turned = even.turn(wanting(9)).await;
    assert_eq!((turned.claim, turned.more), (None, false));
    assert_eq!(process.status_of(3).await, TaskState::Waiting);
    let mut odd = process.session_of(&["odd"]).await;
    assert_eq!(claim_all(&mut odd).await.0, [1, 3, 5, 7].map(id));
}

/// A newer build stores tasks in an envelope that this build cannot read.
pub async fn a_task_in_a_newer_envelope_waits_for_a_newer_worker(it: &dyn Harness) {
    let newer = |number, delay| NewTask {
        envelope: 3,
        ..delayed(number, delay)
    };
    let now = std::time::Duration::ZERO;
    let process = Process::of(it);
    let mut old = process.session_of(&["job"]).await;
    let tasks = [newer(1, now), task(2), newer(3, SECOND), newer(4, now)];
    old.enqueue(tasks).await;
    it.clock().advance(1_000 * HOUR);
    assert_eq!(claim_all(&mut old).await.0, [id(2)]);
    let set = TypeSet::of([Kind::in_envelope("job", 3)]);
    let mut new = process.session_with(set.clone()).await;
    let claim = new.claim(9).await;
    assert_eq!(ids(&claim), [1, 4, 3].map(id));
    // A released task keeps its kind.
    let turn = wanting(0)
        .verdict(claim.epoch, 1, Verdict::Release)
        .verdict(claim.epoch, 4, retry(SECOND));
    new.turn(turn).await;
    new.close().await;
    it.clock().advance(1_000 * HOUR);
    assert_eq!(claim_all(&mut old).await.0, []);
    assert_eq!(
        process.status([1, 3, 4]).await,
        [const { TaskState::Waiting }; 3]
    );
    let mut new = process.session_with(set).await;
    assert_eq!(claim_all(&mut new).await.0, [3, 1, 4].map(id));
}

/// Tasks at the head of the queue whose type a worker does not know do not delay it.
pub async fn a_backlog_of_another_type_delays_no_task(it: &dyn Harness) {
    let process = Process::of(it);
    let mut even = process.session_of(&["even"]).await;
    for first in (1..1_000).step_by(200) {
        let foreign = (first..first + 200).filter(|number| number % 2 == 1);
        even.enqueue(foreign.map(typed)).await;
    }
    even.enqueue([typed(2_000)]).await;
    assert_eq!(ids(&even.claim(9).await), [id(2_000)]);
}

/// A worker joins that knows one of two types that wait in one list.
pub async fn types_that_are_split_keep_their_order(it: &dyn Harness) {
    let process = Process::of(it);
    let mut both = process.session_of(&["even", "odd"]).await;
    for first in (0..1_000).step_by(250) {
        both.enqueue((first..first + 250).map(typed)).await;
    }
    let mut odd = process.session_of(&["odd"]).await;
    both.enqueue((1_000..1_100).map(typed)).await;
    let (claimed, turns) = claim_all(&mut odd).await;
    let odds: Vec<_> = (1..1_100).step_by(2).map(id).collect();
    assert_eq!(claimed, odds);
    assert!(turns < 12, "{turns} turns");
    let evens: Vec<_> = (0..1_100).step_by(2).map(id).collect();
    assert_eq!(claim_all(&mut both).await.0, evens);
}

pub async fn a_released_task_is_first_among_its_type(it: &dyn Harness) {
    let process = Process::of(it);
    let mut both = process.session_of(&["even", "odd"]).await;
    both.enqueue((0..8).map(typed)).await;
    let claim = both.claim(4).await;
    let mut odd = process.session_of(&["odd"]).await;
    let released = ids(&claim).into_iter().map(|id| (id, Verdict::Release));
    let turn = wanting(0).verdicts(claim.epoch, released.collect());
    both.turn(turn).await;
    assert_eq!(claim_all(&mut odd).await.0, [1, 3, 5, 7].map(id));
    assert_eq!(claim_all(&mut both).await.0, [0, 2, 4, 6].map(id));
}

pub async fn a_due_task_goes_to_workers_that_know_its_type(it: &dyn Harness) {
    let process = Process::of(it);
    let mut even = process.session_of(&["even"]).await;
    let mut odd = process.session_of(&["odd"]).await;
    let later = (0..6).map(|number| NewTask {
        delay: SECOND,
        ..typed(number)
    });
    even.enqueue(later).await;
    it.clock().advance(SECOND);
    assert_eq!(claim_all(&mut even).await.0, [0, 2, 4].map(id));
    assert_eq!(claim_all(&mut odd).await.0, [1, 3, 5].map(id));
}

pub async fn a_cancelled_task_leaves_its_list(it: &dyn Harness) {
    let process = Process::of(it);
    let mut even = process.session_of(&["even"]).await;
    even.enqueue((0..6).map(typed)).await;
    assert_eq!(process.cancel([1, 2, 3]).await, 3);
    let mut odd = process.session_of(&["odd"]).await;
    assert_eq!(claim_all(&mut odd).await.0, [id(5)]);
    assert_eq!(claim_all(&mut even).await.0, [id(0), id(4)]);
    // Another task with the same id may have another type.
    let other = NewTask {
        name: "odd".into(),
        ..typed(0)
    };
    it.clock().advance(2 * HOUR);
    process.cancel([0, 4]).await;
    even.enqueue([NewTask { id: id(8), ..other }, typed(6)])
        .await;
    assert_eq!(claim_all(&mut odd).await.0, [id(8)]);
    assert_eq!(claim_all(&mut even).await.0, [id(6)]);
}

/// The last worker of a type leaves, and another one with other types joins.
pub async fn workers_come_and_go_and_nothing_is_lost(it: &dyn Harness) {
    let (one, two) = (Process::of(it), Process::of(it));
    let mut producer = two.session_of(&["job"]).await;
    let both = one.session_of(&["even", "odd"]).await;
    producer.enqueue((0..10).map(typed)).await;
    both.close().await;
    producer.enqueue((10..20).map(typed)).await;
    let odd = two.session_of(&["odd"]).await;
    producer.enqueue((20..30).map(typed)).await;
    odd.close().await;
    two.maintain(100).await;
    let mut both = two.session_of(&["odd", "even"]).await;
    producer.enqueue((30..40).map(typed)).await;
    let (claimed, _) = claim_all(&mut both).await;
    for rest in 0..2 {
        let of_type = |id: &&TaskId| id.to_bytes()[15] % 2 == rest;
        let claimed: Vec<_> = claimed.iter().filter(of_type).copied().collect();
        let expected: Vec<_> = (u64::from(rest)..40).step_by(2).map(id).collect();
        assert_eq!(claimed, expected);
    }
}

/// Maintenance removes only sets that no session has.
pub async fn a_session_keeps_its_set(it: &dyn Harness) {
    let process = Process::of(it);
    let mut even = process.session_of(&["even"]).await;
    let mut odd = process.session_of(&["odd"]).await;
    while process.maintain(100).await {}
    even.enqueue((0..6).map(typed)).await;
    assert_eq!(claim_all(&mut even).await.0, [0, 2, 4].map(id));
    assert_eq!(claim_all(&mut odd).await.0, [1, 3, 5].map(id));
    // Two processes close and open sessions of equal sets at the same time.
    let again = process.session_of(&["odd"]).await;
    odd.close().await;
    while process.maintain(100).await {}
    even.enqueue([typed(7)]).await;
    let mut odd = again;
    // The tasks of the closed session were returned.
    assert_eq!(claim_all(&mut odd).await.0, [1, 3, 5, 7].map(id));
}

pub async fn a_wake_up_goes_to_a_worker_that_knows_the_type(it: &dyn Harness) {
    let (one, two, three) = (Process::of(it), Process::of(it), Process::of(it));
    let (mut even_events, mut odd_events) = (two.events(), three.events());
    let mut even = two.session_of(&["even"]).await;
    let mut odd = three.session_of(&["odd"]).await;
    for session in [&mut even, &mut odd] {
        session.turn(wanting(1)).await;
    }
    // In some stores, a new session makes other workers check again.
    for session in [&mut even, &mut odd] {
        assert_eq!(session.turn(wanting(1).go_idle()).await.claim, None);
    }
    even_events.drain();
    odd_events.drain();
    let mut producer = one.session_of(&["job"]).await;
    for round in 0..20 {
        // A session that was woken for the producer is idle again.
        for session in [&mut even, &mut odd] {
            assert_eq!(session.turn(wanting(1).go_idle()).await.claim, None);
        }
        let number = 100 + round;
        producer.enqueue([typed(number)]).await;
        let (session, events) = match number % 2 {
            0 => (&mut even, &mut even_events),
            _ => (&mut odd, &mut odd_events),
        };
        events.until("a wake", |event| event.is_wake()).await;
        assert_eq!(ids(&session.claim(1).await), [id(number)]);
    }
}

/// Workers that know different types run as fast as they can. An idle worker waits for a wake-up, so it needs one for
/// every task that is stored or moved between its turn and its wait.
pub async fn no_wake_up_for_a_type_is_lost(it: &dyn Harness) {
    const TASKS: u64 = 120;
    let (one, two, three) = (Process::of(it), Process::of(it), Process::of(it));
    let store = async {
        let mut session = one.session_of(&["job"]).await;
        for number in 0..TASKS {
            session.enqueue([typed(number)]).await;
            for _ in 0..number % 5 {
                tokio::task::yield_now().await;
            }
        }
    };
    let work = async |process: &Process, types: &[&'static str], expected: u64| {
        let mut events = process.events();
        let mut session = process.session_of(types).await;
        let mut claimed = 0;
        while claimed < expected {
            let turned = session.turn(wanting(2).go_idle()).await;
            match turned.claim {
                Some(claim) => claimed += claim.tasks.len() as u64,
                None if turned.more || turned.next == Some(std::time::Duration::ZERO) => {}
                None => events.woken().await,
            }
        }
    };
    tokio::join!(
        store,
        work(&two, &["even"], TASKS / 2),
        work(&three, &["odd"], TASKS / 2)
    );
}
