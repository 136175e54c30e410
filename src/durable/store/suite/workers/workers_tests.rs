//! The list of workers.

use std::time::Duration;

use super::Harness;
use super::process::*;
use crate::durable::clock::time_of;
use crate::durable::store::{NewSession, SessionId, WorkerCard};
use crate::durable::{WorkerInfo, WorkerState, WorkersPage};

/// The session of a worker of a queue, with a number of permits by which tests recognize it.
pub(in crate::durable::store::suite) fn worker(queue: &str, permits: usize) -> NewSession {
    let queue = match queue {
        "" => Default::default(),
        queue => queue_name(queue),
    };
    NewSession {
        set: Some(set(&NAMES).in_queue(queue.clone())),
        card: Some(WorkerCard::new(&queue, permits, NAMES)),
    }
}

async fn open(process: &Process, session: NewSession) -> SessionId {
    process.0.0.open_session_with(session).await.unwrap()
}

async fn page(process: &Process, after: Option<&WorkersPage>, limit: usize) -> WorkersPage {
    let after = after.map(|page| page.next.as_ref().expect("there is another page"));
    let after = after.map(|cursor| cursor.position_in_workers().unwrap());
    let page = process.0.0.workers(after, limit).await.unwrap();
    let page = page.expect("the position is one of this store");
    assert!(page.workers.len() <= limit, "{page:?}");
    page
}

async fn all(process: &Process) -> Vec<WorkerInfo> {
    let page = page(process, None, 200).await;
    assert_eq!(page.next, None);
    page.workers
}

async fn the_worker(process: &Process) -> WorkerInfo {
    let [worker] = <[_; 1]>::try_from(all(process).await).expect("there is one worker");
    worker
}

pub async fn a_worker_is_listed_with_its_card(it: &dyn Harness) {
    let (process, other) = (Process::of(it), Process::of(it));
    let session = open(&process, worker("q", 7)).await;
    it.clock().advance(3 * SECOND);
    let now = page(&other, None, 9).await.now;
    assert_eq!(now, time_of(it.clock().wall()));
    let found = the_worker(&other).await;
    assert_eq!((found.session, found.permits), (session, 7));
    assert_eq!(found.queue.as_deref(), Some("q"));
    let mut names = NAMES;
    names.sort_unstable();
    assert_eq!(found.types, names);
    assert_eq!((found.other_types, found.state), (0, WorkerState::Live));
    assert_eq!(found.process, std::process::id());
    assert_eq!(found.crate_version, env!("CARGO_PKG_VERSION"));
    assert!(!found.program.is_empty() && !found.host.is_empty());
    assert_eq!(found.started, 3 * SECOND);
    assert!(found.last_seen.is_some_and(|seen| seen <= 3 * SECOND));
    assert!(found.layouts.is_none_or(|known| known.contains(&2)));
    open(&process, worker("", 1)).await;
    let queues: Vec<_> = all(&other).await.into_iter().map(|it| it.queue).collect();
    assert!(queues.contains(&None), "{queues:?}");
}

pub async fn a_session_without_a_card_is_not_listed(it: &dyn Harness) {
    let process = Process::of(it);
    assert_eq!(all(&process).await, []);
    let _session = process.session().await;
    process.0.0.open_session(None).await.unwrap();
    assert_eq!(all(&process).await, []);
}

pub async fn a_worker_is_found_by_its_session(it: &dyn Harness) {
    let (process, other) = (Process::of(it), Process::of(it));
    let mut sessions = Vec::new();
    for (nth, queue) in ["", "q", "r", "s", "t"].into_iter().enumerate() {
        sessions.push(open(&process, worker(queue, nth)).await);
    }
    let hidden = process.0.0.open_session(None).await.unwrap();
    it.clock().advance(SECOND);
    let listed = all(&other).await;
    for (permits, &session) in sessions.iter().enumerate() {
        let found = other.0.0.worker(session).await.unwrap();
        assert_eq!(found.as_ref().map(|it| it.permits), Some(permits));
        assert!(listed.contains(&found.unwrap()), "{listed:?}");
    }
    for absent in [hidden, 0, u64::MAX, sessions[0].wrapping_sub(1)] {
        assert_eq!(other.0.0.worker(absent).await.unwrap(), None, "{absent}");
    }
    process.0.0.close_session(sessions[1]).await.unwrap();
    assert_eq!(other.0.0.worker(sessions[1]).await.unwrap(), None);
}

pub async fn a_closed_session_is_no_worker(it: &dyn Harness) {
    let process = Process::of(it);
    let first = open(&process, worker("q", 1)).await;
    let second = open(&process, worker("q", 2)).await;
    process.0.0.close_session(first).await.unwrap();
    assert_eq!(the_worker(&process).await.session, second);
    process.0.0.close_session(second).await.unwrap();
    assert_eq!(all(&process).await, []);
    process.maintain(100).await;
    assert_eq!(it.leftovers(), 0);
}

pub async fn a_dead_worker_is_gone(it: &dyn Harness) {
    let (process, dies) = (Process::of(it), Process::of(it));
    let alive = open(&process, worker("q", 1)).await;
    open(&dies, worker("q", 2)).await;
    dies.kill(it);
    let workers = all(&process).await;
    let gone = workers.iter().find(|it| it.session != alive).unwrap();
    assert_eq!((gone.permits, gone.state), (2, WorkerState::Gone));
    // The next worker that starts, or maintenance, removes it.
    let third = open(&process, worker("q", 3)).await;
    process.maintain(100).await;
    let mut left: Vec<_> = all(&process)
        .await
        .into_iter()
        .map(|it| it.session)
        .collect();
    left.sort_unstable();
    let mut expected = [alive, third];
    expected.sort_unstable();
    assert_eq!(left, expected);
}

pub async fn a_worker_whose_lease_has_expired_is_suspect(it: &dyn Harness) {
    let process = Process::of(it);
    let mut late = process.session_with_card(worker("", 1)).await;
    let mut other = process.session().await;
    late.enqueue([task(1)]).await;
    late.claim(1).await;
    assert_eq!(the_worker(&process).await.state, WorkerState::Live);
    it.clock().advance(LEASE + SECOND);
    other.turn(wanting(1)).await;
    assert_eq!(the_worker(&process).await.state, WorkerState::Suspect);
}

pub async fn pages_of_workers_follow_each_other(it: &dyn Harness) {
    let process = Process::of(it);
    let mut expected = Vec::new();
    for nth in 0..7 {
        process.0.0.open_session(None).await.unwrap();
        expected.push(open(&process, worker("q", nth)).await);
    }
    expected.sort_unstable();
    for limit in [1, 2, 3, 6, 7, 8] {
        let mut last = page(&process, None, limit).await;
        let mut found = last.workers.clone();
        while last.next.is_some() {
            last = page(&process, Some(&last), limit).await;
            found.extend(last.workers.clone());
        }
        let found: Vec<_> = found.into_iter().map(|it| it.session).collect();
        assert_eq!(found, expected, "{limit}");
    }
}

pub async fn foreign_positions_in_workers_are_refused(it: &dyn Harness) {
    let process = Process::of(it);
    open(&process, worker("q", 1)).await;
    for position in [vec![9; 7], vec![9; 10], vec![], vec![255; 9]] {
        let answer = process.0.0.workers(Some(position.clone()), 9).await;
        assert_eq!(answer.unwrap(), None, "{position:?}");
    }
}

/// No request of a session writes its card again.
pub async fn a_card_stays_as_it_was_written(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session_with_card(worker("", 5)).await;
    let before = the_worker(&process).await;
    for number in 0..5 {
        it.clock().advance(Duration::from_secs(40));
        session.enqueue([task(number)]).await;
        session.run_first(id(number), done()).await;
        process.maintain(100).await;
    }
    let after = the_worker(&process).await;
    assert_eq!(after.started, Duration::from_secs(200));
    let last_seen = Some(Duration::from_secs(60));
    assert!(after.last_seen <= last_seen, "{after:?}");
    let started = after.started;
    assert_eq!(
        WorkerInfo {
            started,
            last_seen,
            ..before
        },
        WorkerInfo { last_seen, ..after }
    );
}
