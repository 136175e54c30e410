//! All waiting tasks that match move to another queue, a part at a time.

use std::time::Duration;

use super::Harness;
use super::process::*;
use crate::durable::queue::name::QueueName;
use crate::durable::store::{ChangeAnswer, CheckedFilter, MoveWaiting, MovedPart, NewTask};
use crate::durable::{Key, Refusal, Status, TaskId};

/// Returns a request to move all waiting tasks to a queue.
pub(in crate::durable::store) fn all_to(queue: &str) -> MoveWaiting {
    MoveWaiting {
        filter: CheckedFilter::new(Status::Waiting),
        until: None,
        queue: queue_name(queue),
        after: None,
        limit: 128,
    }
}

impl Process {
    async fn move_part(&self, request: &MoveWaiting) -> MovedPart {
        let moved = self.0.0.move_waiting(request.clone()).await.unwrap();
        moved.expect("the position is one of this store")
    }

    /// Moves all waiting tasks to a queue.
    pub(in crate::durable::store::suite) async fn move_all_to(&self, queue: &str) {
        let (moved, others) = self.move_all(all_to(queue)).await;
        assert!(moved > 0 && others.is_empty(), "{moved}, {others:?}");
    }

    /// Moves all parts. Returns the number of tasks that have moved, and the other answers.
    async fn move_all(&self, mut request: MoveWaiting) -> (u64, Vec<ChangeAnswer>) {
        let (mut changed, mut others) = (0, Vec::new());
        loop {
            let part = self.move_part(&request).await;
            let (moved, other): (Vec<_>, Vec<_>) = part
                .answers
                .into_iter()
                .partition(|answer| *answer == ChangeAnswer::Changed);
            changed += part.changed + moved.len() as u64;
            others.extend(other);
            request.after = part.next;
            if request.after.is_none() {
                return (changed, others);
            }
        }
    }
}

fn check(it: &dyn Harness) {
    assert_eq!(it.broken_invariants(), [""; 0]);
}

pub(super) async fn all_waiting_tasks_move(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    for batch in 0..5 {
        session
            .enqueue((200 * batch..200 * (batch + 1)).map(typed))
            .await;
    }
    session
        .enqueue([grouped("a", 2_000), grouped("b", 2_001), queued(2_002)])
        .await;
    session.enqueue([delayed(3_000, HOUR)]).await;
    session.claim(10).await;
    assert_eq!(process.cancel([500, 501]).await, 2);
    assert_eq!(process.move_all(all_to("r")).await, (1_003 - 12, vec![]));
    check(it);
    assert_eq!(process.move_all(all_to("r")).await.0, 0);
    let info = process.queue("r").await;
    assert_eq!((info.waiting, process.counts().await.waiting), (991, 991));
    let mut of_queue = process.session_in("r").await;
    assert_eq!(claim_all(&mut of_queue).await.0.len(), 991);
    check(it);
}

pub(super) async fn tasks_move_by_name_and_queue(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue((0..20).map(typed)).await;
    for (queue, numbers) in [("q", 20..40), ("other", 40..60)] {
        let of_queue = numbers.map(|number| in_queue(queue, typed(number)));
        session.enqueue(of_queue).await;
    }
    let mut odd = all_to("r");
    odd.filter.name = Some(String::from("odd"));
    odd.filter.queue = Some(queue_name("q"));
    assert_eq!(process.move_all(odd.clone()).await, (10, vec![]));
    odd.filter.queue = Some(QueueName::DEFAULT);
    assert_eq!(process.move_all(odd.clone()).await, (10, vec![]));
    odd.filter.queue = None;
    assert_eq!(process.move_all(odd).await, (10, vec![]));
    let mut worker = process.session_in("r").await;
    let mut moved = claim_all(&mut worker).await.0;
    moved.sort();
    let expected: Vec<_> = (0..60).filter(|number| number % 2 == 1).map(id).collect();
    assert_eq!(moved, expected);
    check(it);
}

pub(super) async fn tasks_that_came_later_do_not_move(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let at = |millis: u64, last: u8| {
        let mut bytes = [0; 16];
        bytes[..6].copy_from_slice(&millis.to_be_bytes()[2..]);
        (bytes[6], bytes[8], bytes[15]) = (0x70, 0x80, last);
        TaskId::from_bytes(bytes)
    };
    let ids = [at(999, 1), at(1_000, 2), at(1_001, 3), id(7)];
    session
        .enqueue(ids.map(|id| NewTask { id, ..task(0) }))
        .await;
    let until = MoveWaiting {
        until: Some(1_000),
        ..all_to("q")
    };
    assert_eq!(process.move_all(until).await, (2, vec![]));
    let mut worker = process.session_in("q").await;
    let mut moved = claim_all(&mut worker).await.0;
    moved.sort();
    assert_eq!(moved, ids[..2]);
    check(it);
}

pub(super) async fn tasks_that_cannot_move_are_refused_once(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let debounced = |number: u64| {
        let key = Key::new(format!("{number}")).replace();
        with_key(key, task(number))
    };
    session.enqueue((0..9).map(debounced)).await;
    session.enqueue((9..200).map(task)).await;
    let refused = vec![ChangeAnswer::Refused(Refusal::Replaceable); 9];
    assert_eq!(process.move_all(all_to("q")).await, (191, refused));
    check(it);
}

/// A part that is repeated moves nothing twice, and tasks that are claimed or stored meanwhile do not hide others.
pub(super) async fn tasks_move_while_others_come_and_go(it: &dyn Harness) {
    let process = Process::of(it);
    let (mut session, mut request) = (process.session().await, all_to("q"));
    for batch in 0..8 {
        session
            .enqueue((250 * batch..250 * (batch + 1)).map(task))
            .await;
    }
    let (mut next, mut claimed) = (10_000, 0);
    loop {
        let part = process.move_part(&request).await;
        process.move_part(&request).await;
        if part.next.is_none() {
            break;
        }
        if next < 10_100 {
            let turned = session.turn(wanting(20)).await;
            if let Some(claim) = turned.claim {
                claimed += claim.tasks.len();
                let released = claim.tasks.iter().take(5).map(|it| it.id);
                let verdicts = released.map(|id| (id, crate::durable::store::Verdict::Release));
                let verdicts = verdicts.collect::<Vec<_>>();
                claimed -= verdicts.len();
                session
                    .turn(wanting(0).verdicts(claim.epoch, verdicts))
                    .await;
            }
            session.enqueue((next..next + 10).map(task)).await;
            next += 10;
        }
        request.after = part.next;
    }
    check(it);
    // Only tasks that came meanwhile may be left, and those that were given back meanwhile.
    let left = claim_all(&mut session).await.0.len();
    assert!(left <= 100 + 50, "{left}");
    let mut worker = process.session_in("q").await;
    let moved = claim_all(&mut worker).await.0.len();
    assert_eq!(moved + left + claimed, 2_000 + (next - 10_000) as usize);
    it.clock().advance(Duration::from_millis(1));
}

pub(super) async fn foreign_positions_of_moves_are_refused(it: &dyn Harness) {
    let process = Process::of(it);
    process.session().await.enqueue([task(1)]).await;
    for position in [
        &b"x"[..],
        b"",
        b"l",
        b"l\xff",
        b"rx",
        b"l\0short",
        &[255; 60],
    ] {
        let request = MoveWaiting {
            after: Some(position.to_vec()),
            ..all_to("q")
        };
        let answer = process.0.0.move_waiting(request).await.unwrap();
        assert_eq!(answer, None, "{position:?}");
    }
}
