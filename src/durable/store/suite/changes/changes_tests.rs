//! Changes of single tasks: they are made due, move to other queues, and are replayed or deleted.

use std::time::Duration;

use super::Harness;
use super::process::*;
use crate::durable::key::Conflict;
use crate::durable::queue::Priority;
use crate::durable::store::{
    Change, ChangeAnswer, CheckedFilter, ListTasks, NewTask, TaskState, Verdict,
};
use crate::durable::{DeadFilter, Key, Refusal, Status, TaskInfo};

const REPLACEABLE: ChangeAnswer = ChangeAnswer::Refused(Refusal::Replaceable);

/// Checks the rows of the store, and that maintenance finds nothing to repair.
async fn check(it: &dyn Harness, process: &Process) {
    assert_eq!(it.broken_invariants(), [""; 0]);
    while process.maintain(100).await {}
    assert_eq!(process.damage(), None);
    assert_eq!(it.broken_invariants(), [""; 0]);
}

async fn listed(process: &Process, status: Status, queue: Option<&str>) -> Vec<TaskInfo> {
    let filter = CheckedFilter {
        queue: queue.map(queue_name),
        ..CheckedFilter::new(status)
    };
    let request = ListTasks {
        filter,
        after: None,
        limit: 200,
    };
    process.0.0.list(request).await.unwrap().unwrap().tasks
}

// ===== Due now =====

pub async fn a_delayed_task_is_due_now(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.run(task(1), retry(HOUR)).await;
    session.enqueue([delayed(2, HOUR), task(3)]).await;
    for number in [2, 1] {
        assert_eq!(process.run_now(number).await, ChangeAnswer::Changed);
        assert_eq!(process.status_of(number).await, TaskState::Waiting);
        // A repeated change does nothing.
        assert_eq!(process.run_now(number).await, ChangeAnswer::OtherStatus);
    }
    check(it, &process).await;
    let claim = session.claim(9).await;
    assert_eq!(ids(&claim), [3, 2, 1].map(id));
    assert_eq!(claim.tasks[2].failures, 1);
    it.clock().advance(HOUR);
    assert_eq!(session.turn(wanting(9)).await.claim, None);
}

pub async fn tasks_are_made_due_in_the_order_of_the_request(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([1, 2, 3].map(|it| delayed(it, HOUR))).await;
    let request = [3, 1, 3, 2].map(id).to_vec();
    let answers = process.0.0.change(request, Change::RunNow).await.unwrap();
    let (changed, other) = (ChangeAnswer::Changed, ChangeAnswer::OtherStatus);
    assert_eq!(answers, [changed, changed, other, changed]);
    assert_eq!(ids(&session.claim(9).await), [3, 1, 2].map(id));
}

pub async fn a_task_that_is_due_now_wakes_a_worker(it: &dyn Harness) {
    let (process, other) = (Process::of(it), Process::of(it));
    let mut worker = process.session_in("q").await;
    worker.enqueue([in_queue("q", delayed(1, HOUR))]).await;
    worker.rest().await;
    let mut events = process.events();
    assert_eq!(other.run_now(1).await, ChangeAnswer::Changed);
    events.woken().await;
    assert_eq!(ids(&worker.claim(9).await), [id(1)]);
}

pub async fn only_delayed_tasks_are_made_due(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.run(task(1), done()).await;
    session.run(task(2), dead()).await;
    session.enqueue([task(3), task(4)]).await;
    session.claim(1).await;
    let before = process.status(1..=5).await;
    for number in 1..=5 {
        assert_eq!(process.run_now(number).await, ChangeAnswer::OtherStatus);
    }
    assert_eq!(process.status(1..=5).await, before);
}

pub async fn limits_and_holds_apply_to_a_task_that_is_due_now(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session_in("q").await;
    session.run(grouped("held", 1), hold(HOUR, dead())).await;
    let later = |group, number| NewTask {
        delay: 2 * HOUR,
        ..grouped(group, number)
    };
    session.enqueue([later("held", 2), later("free", 3)]).await;
    process.set_queue("q", max_running(1)).await;
    session.enqueue([queued(4)]).await;
    for number in [2, 3] {
        assert_eq!(process.run_now(number).await, ChangeAnswer::Changed);
    }
    let claim = session.claim(9).await;
    assert_eq!(ids(&claim), [id(3)]);
    assert_eq!(session.turn(wanting(9)).await.claim, None);
    session.report(claim.epoch, 3, done()).await;
    process.pause_queue("q").await;
    assert_eq!(session.turn(wanting(9)).await.claim, None);
    process.resume_queue("q").await;
    let claim = session.claim(9).await;
    assert_eq!(ids(&claim), [id(4)]);
    session.report(claim.epoch, 4, done()).await;
    it.clock().advance(HOUR);
    assert_eq!(ids(&session.claim(9).await), [id(2)]);
}

pub async fn a_task_that_is_due_now_can_still_be_replaced(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let debounced = |number| with_key(Key::new("key").replace(), delayed(number, HOUR));
    session.enqueue([debounced(1)]).await;
    assert_eq!(process.run_now(1).await, ChangeAnswer::Changed);
    check(it, &process).await;
    session.number += 1;
    let enqueued = session.enqueue_again([debounced(2)]).await.unwrap();
    assert_eq!(enqueued.conflicts[0].resolution, Conflict::Replace);
    assert_eq!(process.status_of(1).await, TaskState::Delayed);
    check(it, &process).await;
    assert_eq!(process.run_now(1).await, ChangeAnswer::Changed);
    let claim = session.claim(9).await;
    assert_eq!(claim.tasks[0].payload, Ok(2_u64.to_be_bytes().to_vec()));
    assert_eq!(ids(&claim), [id(1)]);
}

// ===== Moves =====

pub async fn a_waiting_task_moves_behind_those_that_wait_there(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let mut other = process.session_in("q").await;
    session.enqueue((1..=4).map(task).chain([queued(5)])).await;
    for number in [2, 1] {
        assert_eq!(process.move_to("q", number).await, ChangeAnswer::Changed);
        assert_eq!(process.move_to("q", number).await, ChangeAnswer::Same);
        assert_eq!(process.status_of(number).await, TaskState::Waiting);
    }
    check(it, &process).await;
    session.enqueue([queued(6)]).await;
    assert_eq!(ids(&session.claim(9).await), [id(3), id(4)]);
    assert_eq!(ids(&other.claim(9).await), [5, 2, 1, 6].map(id));
    assert_eq!(session.turn(wanting(9)).await.claim, None);
    check(it, &process).await;
}

pub async fn a_delayed_task_moves_and_stays_delayed(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let mut other = process.session_in("q").await;
    session.enqueue([delayed(1, HOUR)]).await;
    assert_eq!(process.move_to("q", 1).await, ChangeAnswer::Changed);
    assert_eq!(process.status_of(1).await, TaskState::Delayed);
    check(it, &process).await;
    it.clock().advance(HOUR);
    assert_eq!(session.turn(wanting(9)).await.claim, None);
    assert_eq!(other.claim(9).await.tasks, [fresh(1)]);
}

pub async fn a_task_moves_back(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let mut other = process.session_in("q").await;
    session.enqueue([1, 2].map(task)).await;
    for queue in ["q", "", "q", "r", ""] {
        assert_eq!(process.move_to(queue, 1).await, ChangeAnswer::Changed);
        check(it, &process).await;
    }
    assert_eq!(other.turn(wanting(9)).await.claim, None);
    let claim = session.claim(9).await;
    assert_eq!(ids(&claim), [id(2), id(1)]);
    session.report(claim.epoch, 1, done()).await;
    assert_eq!(session.turn(wanting(9)).await.claim, None);
    check(it, &process).await;
}

/// In Redis, an entry of the task from before it failed is left in the list.
pub async fn a_moved_task_whose_old_entry_differs_moves_as_it_is(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let mut other = process.session_in("q").await;
    session.enqueue([1, 2].map(task)).await;
    assert_eq!(process.move_to("q", 1).await, ChangeAnswer::Changed);
    other.run_first(id(1), retry(Duration::ZERO)).await;
    for queue in ["", "q"] {
        assert_eq!(process.move_to(queue, 1).await, ChangeAnswer::Changed);
        check(it, &process).await;
    }
    let claim = other.claim(9).await;
    assert_eq!((ids(&claim), claim.tasks[0].failures), (vec![id(1)], 1));
    assert_eq!(ids(&session.claim(9).await), [id(2)]);
    check(it, &process).await;
}

pub async fn only_waiting_and_delayed_tasks_move(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.run(task(1), done()).await;
    session.run(task(2), dead()).await;
    session.enqueue([task(3)]).await;
    let claim = session.claim(1).await;
    let before = process.status(1..=4).await;
    for number in 1..=4 {
        let moved = process.move_to("q", number).await;
        assert_eq!(moved, ChangeAnswer::OtherStatus);
    }
    assert_eq!(process.status(1..=4).await, before);
    session.report(claim.epoch, 3, Verdict::Release).await;
    assert_eq!(ids(&session.claim(9).await), [id(3)]);
}

pub async fn a_moved_task_is_as_before(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let mut other = process.session_in("q").await;
    let large = NewTask {
        payload: vec![7; 100_000],
        retention: SECOND,
        ..task(1)
    };
    session.run(task(2), retry(HOUR)).await;
    session.run(large, retry(Duration::ZERO)).await;
    let errors = async |number| process.0.0.errors(id(number)).await.unwrap();
    let before = [errors(1).await, errors(2).await];
    for number in [1, 2] {
        assert_eq!(process.move_to("q", number).await, ChangeAnswer::Changed);
    }
    assert_eq!([errors(1).await, errors(2).await], before);
    check(it, &process).await;
    let claim = other.claim(9).await;
    assert_eq!(claim.tasks[0].payload, Ok(vec![7; 100_000]));
    assert_eq!(claim.tasks[0].failures, 1);
    other.report(claim.epoch, 1, done()).await;
    it.clock().advance(HOUR);
    assert_eq!(process.status_of(1).await, TaskState::Absent);
    let claim = other.claim(9).await;
    assert_eq!((ids(&claim), claim.tasks[0].failures), (vec![id(2)], 1));
}

pub async fn a_moved_task_keeps_its_priority_and_its_group(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let mut other = process.session_in("r").await;
    let high = |task| at_priority(Priority::High, task);
    session
        .enqueue([
            grouped("g", 1),
            high(grouped("g", 2)),
            high(task(3)),
            task(4),
        ])
        .await;
    let last = || in_queue("r", task(5));
    session.enqueue([last()]).await;
    for number in 1..=4 {
        assert_eq!(process.move_to("r", number).await, ChangeAnswer::Changed);
    }
    check(it, &process).await;
    let claims = [other.claim(9).await, other.claim(9).await];
    let tasks: Vec<_> = claims.iter().flat_map(|claim| &claim.tasks).collect();
    let found: Vec<_> = tasks.iter().map(|task| task.id).collect();
    assert_eq!(found, [2, 3, 1, 5, 4].map(id));
    let groups = tasks.iter().map(|task| task.group.as_ref());
    let groups: Vec<_> = groups.map(|it| it.map(|it| it.as_str())).collect();
    assert_eq!(groups, [Some("g"), None, Some("g"), None, None]);
    for (claim, number) in [(0, 2), (1, 1)] {
        let epoch = claims[claim].epoch;
        other.report(epoch, number, Verdict::Release).await;
        // The default queue has no groups.
        assert_eq!(process.move_to("", number).await, ChangeAnswer::Changed);
    }
    check(it, &process).await;
    let claims = [session.claim(9).await, session.claim(9).await];
    let found: Vec<_> = claims.iter().flat_map(|claim| &claim.tasks).collect();
    assert_eq!([found[0].id, found[1].id], [id(2), id(1)]);
    assert!(found.iter().all(|task| task.group.is_none()));
}

pub async fn a_moved_task_keeps_its_key(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let mut other = process.session_in("q").await;
    session.enqueue([keyed(1)]).await;
    assert_eq!(process.move_to("q", 1).await, ChangeAnswer::Changed);
    check(it, &process).await;
    let holder = async |session: &mut Session<'_>, task| {
        session.number += 1;
        let enqueued = session.enqueue_again([task]).await.unwrap();
        enqueued.conflicts.first().map(|it| it.holder)
    };
    // The key belongs to the queue in which the task was spawned.
    assert_eq!(holder(&mut session, keyed(2)).await, Some(id(1)));
    let in_q = with_key(Key::new("key"), queued(3));
    assert_eq!(holder(&mut session, in_q).await, None);
    let claim = other.claim(9).await;
    assert_eq!(ids(&claim), [id(1), id(3)]);
    assert_eq!(holder(&mut session, keyed(4)).await, Some(id(1)));
    other.report(claim.epoch, 1, done()).await;
    assert_eq!(holder(&mut session, keyed(5)).await, None);
    check(it, &process).await;
}

pub async fn a_task_that_a_spawn_may_replace_does_not_move(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let debounced = |text, task| with_key(Key::new(text).replace(), task);
    let tasks = [debounced("a", task(1)), debounced("b", delayed(2, HOUR))];
    session.enqueue(tasks).await;
    for number in [1, 2] {
        assert_eq!(process.move_to("q", number).await, REPLACEABLE);
        assert_eq!(process.move_to("", number).await, ChangeAnswer::Same);
    }
    check(it, &process).await;
    // A claim frees the key.
    session.run_first(id(1), retry(HOUR)).await;
    assert_eq!(process.move_to("q", 1).await, ChangeAnswer::Changed);
    check(it, &process).await;
}

pub async fn a_moved_task_wakes_a_worker_of_its_queue(it: &dyn Harness) {
    let (process, other) = (Process::of(it), Process::of(it));
    let mut worker = process.session_in("q").await;
    let mut producer = other.session().await;
    producer.enqueue([task(1)]).await;
    worker.rest().await;
    let mut events = process.events();
    assert_eq!(other.move_to("q", 1).await, ChangeAnswer::Changed);
    events.woken().await;
    assert_eq!(ids(&worker.claim(9).await), [id(1)]);
}

pub async fn a_moved_task_is_cancelled_and_counted_once(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let mut other = process.session_in("q").await;
    session.enqueue([1, 2].map(task)).await;
    for number in [1, 2] {
        assert_eq!(process.move_to("q", number).await, ChangeAnswer::Changed);
    }
    assert_eq!(process.counts().await.waiting, 2);
    assert_eq!(process.queue("q").await.waiting, 2);
    assert_eq!(process.cancel([1]).await, 1);
    assert_eq!(process.counts().await.waiting, 1);
    check(it, &process).await;
    assert_eq!(session.turn(wanting(9)).await.claim, None);
    assert_eq!(ids(&other.claim(9).await), [id(2)]);
    assert_eq!(process.counts().await.running, 1);
    check(it, &process).await;
}

pub async fn a_moved_task_is_listed_in_its_queue(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([task(1), delayed(2, HOUR)]).await;
    for number in [1, 2] {
        assert_eq!(process.move_to("q", number).await, ChangeAnswer::Changed);
    }
    for (status, number) in [(Status::Waiting, 1), (Status::Delayed, 2)] {
        let found = listed(&process, status, Some("q")).await;
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].id, &*found[0].queue.clone().unwrap()),
            (id(number), "q")
        );
        assert_eq!(found[0].name.as_deref(), Some("job"));
    }
}

pub async fn a_moved_task_keeps_to_the_limit_of_its_queue(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let mut other = process.session_in("q").await;
    process.set_queue("q", max_running(1)).await;
    session.enqueue([1, 2].map(task)).await;
    for number in [1, 2] {
        assert_eq!(process.move_to("q", number).await, ChangeAnswer::Changed);
    }
    let claim = other.claim(9).await;
    assert_eq!(ids(&claim), [id(1)]);
    assert_eq!(other.turn(wanting(9)).await.claim, None);
    // It runs, so it does not move, and it gives its permit back.
    assert_eq!(process.move_to("", 1).await, ChangeAnswer::OtherStatus);
    other.report(claim.epoch, 1, done()).await;
    assert_eq!(ids(&other.claim(9).await), [id(2)]);
    check(it, &process).await;
}

pub async fn a_group_whose_tasks_have_moved_takes_no_turn(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session_in("q").await;
    session
        .enqueue([grouped("a", 1), grouped("b", 2), grouped("a", 3)])
        .await;
    for number in [1, 3] {
        assert_eq!(process.move_to("r", number).await, ChangeAnswer::Changed);
    }
    check(it, &process).await;
    assert_eq!(ids(&session.claim(9).await), [id(2)]);
    assert_eq!(session.turn(wanting(9)).await.claim, None);
    assert_eq!(process.move_to("q", 3).await, ChangeAnswer::Changed);
    check(it, &process).await;
    assert_eq!(ids(&session.claim(9).await), [id(3)]);
    let mut other = process.session_in("r").await;
    assert_eq!(ids(&other.claim(9).await), [id(1)]);
    check(it, &process).await;
}

pub async fn a_task_in_a_long_queue_is_found(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    for batch in 0..10 {
        let numbers = 256 * batch..256 * (batch + 1);
        session.enqueue(numbers.map(task)).await;
    }
    let mut other = process.session_in("q").await;
    let moved = [0, 2559, 1000, 999, 1559, 1560].map(id);
    let change = Change::MoveTo(queue_name("q"));
    let answers = process.0.0.change(moved.to_vec(), change).await.unwrap();
    assert_eq!(answers, [ChangeAnswer::Changed; 6]);
    let mut found = ids(&other.claim(9).await);
    found.sort();
    let mut expected = moved;
    expected.sort();
    assert_eq!(found, expected);
    check(it, &process).await;
    assert_eq!(claim_all(&mut session).await.0.len(), 2560 - 6);
}

// ===== Dead letters, and several tasks =====

pub async fn dead_letters_are_replayed_and_deleted_one_by_one(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.run(keyed(1), dead()).await;
    session.run(task(2), dead()).await;
    session.run(task(3), dead()).await;
    session.enqueue([keyed(4)]).await;
    let held = ChangeAnswer::Refused(Refusal::KeyHeld);
    assert_eq!(process.change_task(1, Change::Replay).await, held);
    assert_eq!(
        process.change_task(2, Change::Replay).await,
        ChangeAnswer::Changed
    );
    assert_eq!(
        process.change_task(3, Change::Delete).await,
        ChangeAnswer::Changed
    );
    for (number, change) in [
        (2, Change::Replay),
        (2, Change::Delete),
        (3, Change::Delete),
    ] {
        let answer = process.change_task(number, change).await;
        assert_eq!(answer, ChangeAnswer::OtherStatus);
    }
    assert_eq!(process.dead_ids(DeadFilter::all(), 9).await, [id(1)]);
    assert_eq!(ids(&session.claim(9).await), [id(4), id(2)]);
    check(it, &process).await;
}

pub async fn a_change_answers_for_each_task(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.run(task(1), done()).await;
    session
        .enqueue([task(2), delayed(3, HOUR), queued(4)])
        .await;
    let (changed, other) = (ChangeAnswer::Changed, ChangeAnswer::OtherStatus);
    let request = [4, 9, 3, 1, 2].map(id).to_vec();
    let move_to = Change::MoveTo(queue_name("q"));
    for (change, answers) in [
        (Change::RunNow, [other, other, changed, other, other]),
        (
            move_to,
            [ChangeAnswer::Same, other, changed, other, changed],
        ),
        (Change::Cancel, [changed, other, changed, other, changed]),
        (Change::Replay, [other; 5]),
    ] {
        let answered = process.0.0.change(request.clone(), change).await.unwrap();
        assert_eq!(answered, answers);
    }
    check(it, &process).await;
}
