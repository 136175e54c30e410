//! Versions of a type: a session gets only tasks of versions that it knows.

use std::time::Duration;

use super::Harness;
use super::keys_tests::{assert_stored, replacing, store};
use super::process::*;
use crate::durable::key::Conflict;
use crate::durable::store::kind::TypeSet;
use crate::durable::store::{NewTask, TaskState, Verdict};

/// Returns a task that a version of its type has encoded.
fn versioned(version: u8, task: NewTask) -> NewTask {
    let envelope = if version == 1 { 1 } else { 2 };
    NewTask {
        envelope,
        version,
        ..task
    }
}

async fn session_up_to(process: &Process, newest: u8) -> Session<'_> {
    let set = TypeSet::of_versions([("job", newest)]);
    process.session_with(set.expect("it is one name")).await
}

pub async fn a_task_of_a_newer_version_waits_for_a_newer_worker(it: &dyn Harness) {
    let process = Process::of(it);
    let mut old = session_up_to(&process, 1).await;
    let tasks = [(2, 1), (1, 2), (3, 3), (2, 4)];
    let tasks = tasks.map(|(version, number)| versioned(version, task(number)));
    old.enqueue(tasks).await;
    it.clock().advance(1_000 * HOUR);
    assert_eq!(claim_all(&mut old).await.0, [id(2)]);
    assert_eq!(process.counts().await.unserved, 3);
    let mut new = session_up_to(&process, 2).await;
    assert_eq!(process.counts().await.unserved, 1);
    let claim = new.claim(9).await;
    assert_eq!(ids(&claim), [1, 4].map(id));
    // A task keeps its version.
    let turn = wanting(0)
        .verdict(claim.epoch, 1, Verdict::Release)
        .verdict(claim.epoch, 4, retry(SECOND));
    new.turn(turn).await;
    new.close().await;
    it.clock().advance(SECOND);
    assert_eq!(claim_all(&mut old).await.0, []);
    let waiting = [const { TaskState::Waiting }; 3];
    assert_eq!(process.status([1, 3, 4]).await, waiting);
    let mut newest = session_up_to(&process, 3).await;
    assert_eq!(claim_all(&mut newest).await.0.len(), 3);
}

pub async fn all_versions_of_a_type_are_paused(it: &dyn Harness) {
    let process = Process::of(it);
    process.pause("job").await;
    let mut old = session_up_to(&process, 1).await;
    old.enqueue((1..4).map(|version| versioned(version, task(version.into()))))
        .await;
    let mut new = session_up_to(&process, 3).await;
    for session in [&mut old, &mut new] {
        assert_eq!(claim_all(session).await.0, []);
    }
    process.resume("job").await;
    // Until then, the versions had lists of their own.
    let mut claimed = claim_all(&mut new).await.0;
    claimed.sort_unstable();
    assert_eq!(claimed, [1, 2, 3].map(id));
    process.pause("job").await;
    old.enqueue((4..7).map(|number| versioned(3, task(number))))
        .await;
    assert_eq!(claim_all(&mut new).await.0, []);
    new.rest().await;
    let mut events = process.events();
    process.resume("job").await;
    events.woken().await;
    assert_eq!(claim_all(&mut new).await.0, [4, 5, 6].map(id));
}

pub async fn a_replaced_task_has_the_version_of_its_payload(it: &dyn Harness) {
    let process = Process::of(it);
    let mut old = session_up_to(&process, 1).await;
    let mut new = session_up_to(&process, 2).await;
    assert_stored(&mut old, replacing(1, Duration::ZERO)).await;
    let newer = versioned(2, replacing(2, Duration::ZERO));
    let replaced = [(0, 1, Conflict::Replace)];
    assert_eq!(store(&mut new, [newer.clone()]).await, replaced);
    assert_eq!(claim_all(&mut old).await.0, []);
    let claim = new.claim(9).await;
    assert_eq!(ids(&claim), [id(1)]);
    assert_eq!(claim.tasks[0].payload, Ok(newer.payload));
    // A program that was taken back replaces the task of a newer one.
    assert_stored(&mut new, versioned(2, replacing(3, SECOND))).await;
    let older = [replacing(4, Duration::ZERO)];
    assert_eq!(store(&mut old, older).await, [(0, 3, Conflict::Replace)]);
    assert_eq!(claim_all(&mut old).await.0, [id(3)]);
}

pub async fn a_worker_knows_many_versions(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = session_up_to(&process, u8::MAX).await;
    let tasks = (1..=u8::MAX).map(|version| versioned(version, task(version.into())));
    session.enqueue(tasks).await;
    let all: Vec<_> = (1..=255).map(id).collect();
    assert_eq!(claim_all(&mut session).await.0, all);
}

pub async fn a_version_that_no_worker_knows_is_unserved_while_its_type_is_paused(it: &dyn Harness) {
    let process = Process::of(it);
    let mut new = session_up_to(&process, 2).await;
    new.enqueue([task(1), versioned(2, task(2))]).await;
    process.pause("job").await;
    let mut old = session_up_to(&process, 1).await;
    assert_eq!(process.counts().await.unserved, 0);
    new.close().await;
    assert_eq!(process.counts().await.unserved, 1);
    old.enqueue([versioned(2, task(3)), task(4)]).await;
    assert_eq!(process.counts().await.unserved, 2);
    process.resume("job").await;
    assert_eq!(claim_all(&mut old).await.0, [1, 4].map(id));
    let mut new = session_up_to(&process, 2).await;
    assert_eq!(claim_all(&mut new).await.0, [2, 3].map(id));
}
