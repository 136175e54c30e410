//! One task in detail.

use crate::durable::admin::detail::KeyState;
use crate::durable::admin::excerpt::Excerpt;
use crate::durable::clock::time_of;
use crate::durable::envelope::seal_output;
use crate::durable::queue::Priority;
use crate::durable::store::suite::Harness;
use crate::durable::store::suite::process::*;
use crate::durable::store::{
    Beginning, DEAD_LETTER_RETENTION, DeadReason, FoundTask, MAX_PAYLOAD_BYTES, MAX_READ_BYTES,
    NewTask, Progress, ProgressReport, Verdict,
};
use crate::durable::{DeadFilter, Key, Status};

impl Process {
    async fn try_find(&self, number: u64) -> Option<FoundTask> {
        self.0.0.find(id(number)).await.unwrap()
    }

    /// Returns a task, which must exist.
    async fn find(&self, number: u64) -> FoundTask {
        let found = self.try_find(number).await.expect("the task exists");
        assert_eq!(found.detail.task.id, id(number));
        assert_eq!(found.detail.damage, None);
        found
    }
}

fn payload(number: u64) -> Option<Beginning> {
    Some(Beginning::of(number.to_be_bytes().to_vec()))
}

pub async fn an_absent_task_is_not_found(it: &dyn Harness) {
    let process = Process::of(it);
    assert_eq!(process.try_find(1).await, None);
    let mut session = process.session().await;
    let without_retention = NewTask {
        retention: std::time::Duration::ZERO,
        ..task(1)
    };
    session.run(without_retention, done()).await;
    assert_eq!(process.try_find(1).await, None);
}

pub async fn a_waiting_task_is_found(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session_in("q").await;
    session.enqueue([grouped("g", 1)]).await;
    it.clock().advance(3 * SECOND);
    let found = process.find(1).await;
    assert_eq!(found.payload, payload(1));
    let detail = &found.detail;
    assert_eq!(detail.task.status, Status::Waiting);
    let names = (
        detail.task.name.as_deref(),
        detail.task.queue.as_deref(),
        detail.task.group.as_deref(),
    );
    assert_eq!(names, (Some("job"), Some("q"), Some("g")));
    assert_eq!(detail.task.ready_for, Some(3 * SECOND));
    assert_eq!(detail.now, time_of(it.clock().wall()));
    assert_eq!(detail.priority, Some(Priority::Normal));
    assert_eq!(detail.key, None);
    assert_eq!((&detail.errors[..], &detail.error), (&[][..], &None));
    assert_eq!((detail.lease_left, &detail.runner), (None, &None));
    assert_eq!((&found.output, &detail.progress), (&None, &None));
}

pub async fn a_task_that_was_moved_back_still_names_its_parent(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session_in("q").await;
    let child = NewTask {
        parent: Some(id(2)),
        ..task(1)
    };
    session.enqueue([in_queue("q", child)]).await;
    process.move_all_to("").await;
    process.move_all_to("q").await;
    assert_eq!(process.find(1).await.detail.parent, Some(id(2)));
}

pub async fn a_delayed_task_has_the_errors_of_its_attempts(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.run(task(1), retry(SECOND)).await;
    it.clock().advance(SECOND);
    session.run_first(id(1), retry(3 * SECOND)).await;
    it.clock().advance(SECOND);
    let found = process.find(1).await;
    let detail = &found.detail;
    assert_eq!(detail.task.status, Status::Delayed);
    assert_eq!(detail.task.due_in, Some(2 * SECOND));
    assert_eq!(detail.task.ready_for, None);
    assert_eq!(detail.task.failures, Some(2));
    let errors: Vec<_> = detail
        .errors
        .iter()
        .map(|it| (it.attempt, &*it.error, it.age))
        .collect();
    assert_eq!(errors, [(1, "error", 2 * SECOND), (2, "error", SECOND)]);
    assert_eq!(found.payload, payload(1));
}

pub async fn a_running_task_shows_its_worker(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([task(1)]).await;
    let epoch = session.claim(1).await.epoch;
    let progress = Progress {
        epoch,
        number: 1,
        bytes: b"7".to_vec(),
    };
    let report = ProgressReport {
        id: id(1),
        progress,
    };
    process.0.0.report_progress(vec![report]).await.unwrap();
    it.clock().advance(SECOND);
    let found = process.find(1).await;
    let detail = &found.detail;
    assert_eq!(detail.task.status, Status::Running);
    assert_eq!(detail.task.fencing_token, Some(epoch));
    assert_eq!(detail.lease_left, Some(LEASE - SECOND));
    let runner = detail.runner.as_ref().expect("the worker is known");
    assert_eq!((runner.session, runner.is_suspect), (session.id, false));
    let described = runner.process.as_deref().unwrap_or_default();
    let own = format!("process {}", std::process::id());
    assert!(described.is_empty() || described.starts_with(&own));
    assert!(!detail.is_cancel_requested);
    assert_eq!(detail.progress, Some(Excerpt::new(b"7", 1)));
    assert_eq!(found.payload, payload(1));
    // The progress is kept, and the run is over.
    session.report(epoch, 1, retry(SECOND)).await;
    let detail = process.find(1).await.detail;
    assert_eq!(detail.progress, Some(Excerpt::new(b"7", 1)));
    assert_eq!((detail.lease_left, detail.runner), (None, None));
}

pub async fn a_suspect_is_shown_until_it_is_taken_back(it: &dyn Harness) {
    let process = Process::of(it);
    let (mut session, mut other) = (process.session().await, process.session().await);
    session.enqueue([task(1)]).await;
    session.claim(1).await;
    it.clock().advance(LEASE + SECOND);
    let detail = process.find(1).await.detail;
    assert_eq!(detail.lease_left, Some(std::time::Duration::ZERO));
    other.turn(wanting(1)).await;
    let detail = process.find(1).await.detail;
    assert_eq!(detail.lease_left, Some(LEASE / 3));
    assert!(detail.runner.is_some_and(|it| it.is_suspect));
    it.clock().advance(LEASE / 3);
    let claim = other.claim(1).await;
    let detail = process.find(1).await.detail;
    assert_eq!(detail.task.fencing_token, Some(claim.epoch));
    let runner = detail.runner.expect("the worker is known");
    assert_eq!((runner.session, runner.is_suspect), (other.id, false));
}

pub async fn a_cancelled_run_is_shown_until_it_ends(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([task(1), task(2)]).await;
    let epoch = session.claim(2).await.epoch;
    process.cancel([1]).await;
    assert!(process.find(1).await.detail.is_cancel_requested);
    assert!(!process.find(2).await.detail.is_cancel_requested);
    session.report(epoch, 1, retry(SECOND)).await;
    let found = process.find(1).await;
    assert_eq!(found.status(), Status::Cancelled);
    assert!(!found.detail.is_cancel_requested);
}

pub async fn a_dead_letter_has_its_payload_and_its_whole_error(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session_in("q").await;
    session.run(grouped("g", 1), retry(SECOND)).await;
    it.clock().advance(SECOND);
    let error = "\u{fc}".repeat(200);
    let verdict = Verdict::Dead {
        reason: DeadReason::Fatal,
        error: error.clone(),
        took: None,
    };
    session.run_first(id(1), verdict).await;
    it.age(SECOND);
    let found = process.find(1).await;
    let detail = &found.detail;
    assert_eq!(detail.task.status, Status::Dead);
    assert_eq!(detail.task.reason, Some(DeadReason::Fatal));
    assert_eq!(detail.task.error.as_deref(), Some(&error[..160]));
    assert_eq!(detail.error.as_deref(), Some(&*error));
    assert_eq!(detail.task.kept_for, Some(DEAD_LETTER_RETENTION - SECOND));
    assert_eq!(detail.task.group.as_deref(), Some("g"));
    assert_eq!((detail.errors.len(), detail.task.failures), (1, Some(2)));
    assert_eq!(found.payload, payload(1));
}

pub async fn ends_are_found_until_they_expire(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let output = seal_output("job", &7).expect("it can be encoded");
    session.run(task(1), Verdict::Done(output.clone())).await;
    session.run(task(2), dead()).await;
    session.enqueue([task(3)]).await;
    process.cancel([3]).await;
    it.age(SECOND);
    let found = process.find(1).await;
    assert_eq!(found.status(), Status::Done);
    assert_eq!(found.output, Some(Beginning::of(output)));
    assert_eq!(found.payload, None);
    assert_eq!(found.detail.task.name.as_deref(), Some("job"));
    assert_eq!(found.detail.task.kept_for, Some(HOUR - SECOND));
    let found = process.find(3).await;
    assert_eq!(found.status(), Status::Cancelled);
    assert_eq!((found.output, found.payload), (None, None));
    assert_eq!(found.detail.task.kept_for, Some(HOUR - SECOND));
    it.age(HOUR);
    assert_eq!(process.try_find(1).await, None);
    assert_eq!(process.try_find(3).await, None);
    assert!(process.try_find(2).await.is_some());
    it.age(DEAD_LETTER_RETENTION);
    assert_eq!(process.try_find(2).await, None);
}

/// A payload of the maximum size, and one that a store may keep elsewhere than small ones.
pub async fn large_data_is_found_with_its_length(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    for (number, len) in [(1, MAX_PAYLOAD_BYTES), (2, 1_000)] {
        let payload = vec![number as u8; len];
        let read = &payload[..len.min(MAX_READ_BYTES)];
        let is_read = |found: Option<Beginning>| {
            let found = found.expect("the data is found");
            assert_eq!(found.len, len);
            assert!(found.bytes == read);
        };
        let new = NewTask {
            payload: payload.clone(),
            ..task(number)
        };
        session.enqueue([new]).await;
        is_read(process.find(number).await.payload);
        let claim = session.claim(1).await;
        is_read(process.find(number).await.payload);
        session.report(claim.epoch, number, retry(SECOND)).await;
        is_read(process.find(number).await.payload);
        it.clock().advance(SECOND);
        session.run_first(id(number), dead()).await;
        is_read(process.find(number).await.payload);
        let filter = DeadFilter::ids([id(number)]);
        assert_eq!(process.replay_dead_letters(filter).await, 1);
        session
            .run_first(id(number), Verdict::Done(payload.clone()))
            .await;
        is_read(process.find(number).await.output);
    }
}

pub async fn a_key_is_held_or_released(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([keyed(1)]).await;
    let key = async |number| process.find(number).await.detail.key;
    assert_eq!(key(1).await, Some(KeyState::Held));
    let epoch = session.claim(1).await.epoch;
    assert_eq!(key(1).await, Some(KeyState::Held));
    session.report(epoch, 1, dead()).await;
    assert_eq!(key(1).await, Some(KeyState::Released));
    session.enqueue([keyed(2)]).await;
    assert_eq!(key(1).await, Some(KeyState::Released));
    assert_eq!(key(2).await, Some(KeyState::Held));
    // A store may forget a key that a task held until it started.
    let until_started = with_key(Key::new("other").until_started(), task(3));
    session.enqueue([until_started]).await;
    assert_eq!(key(3).await, Some(KeyState::Held));
    session.claim(2).await;
    assert_ne!(key(3).await, Some(KeyState::Held));
    // A dead letter holds its key in its window.
    let in_window = with_key(Key::new("window").throttle(HOUR), task(4));
    session.run(in_window, dead()).await;
    assert_eq!(key(4).await, Some(KeyState::Held));
    it.age(HOUR);
    assert_eq!(key(4).await, Some(KeyState::Released));
    session.enqueue([task(5)]).await;
    assert_eq!(key(5).await, None);
}

pub async fn every_priority_is_known(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    for (number, priority) in (1..).zip(Priority::ALL) {
        let new = at_priority(priority, task(number));
        let newer = NewTask {
            version: 9,
            envelope: 2,
            ..at_priority(priority, queued(10 + number))
        };
        session.enqueue([new, newer]).await;
        for number in [number, 10 + number] {
            let found = process.find(number).await;
            assert_eq!(found.detail.priority, Some(priority));
        }
    }
    for claimed in session.claim(1).await.tasks {
        let found = process.0.0.find(claimed.id).await.unwrap();
        let found = found.expect("the task exists");
        assert_eq!(found.detail.priority, Some(Priority::High));
    }
}

pub async fn finding_tasks_writes_nothing(it: &dyn Harness) {
    let process = Process::of(it);
    let before = it.leftovers();
    process.try_find(1).await;
    process.0.0.head(queue_name("q"), 9).await.unwrap();
    assert_eq!(it.leftovers(), before);
}
