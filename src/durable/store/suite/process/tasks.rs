//! The tasks of the cases, and the verdicts on them.

use std::time::Duration;

use crate::durable::queue::group::GroupName;
use crate::durable::queue::name::QueueName;
use crate::durable::queue::{Priority, QueueSettings};
use crate::durable::schedule::name::ScheduleName;
use crate::durable::store::kind::TypeSet;
use crate::durable::store::{Claimed, DeadReason, NewTask, StepWait, TaskState, Verdict};
use crate::durable::{Key, Status, TaskId};

pub(in crate::durable::store::suite) use crate::durable::queue::Groups;

pub(in crate::durable::store::suite) const SECOND: Duration = Duration::from_secs(1);
pub(in crate::durable::store::suite) const HOUR: Duration = Duration::from_secs(3600);
pub(in crate::durable::store::suite) const LEASE: Duration = Duration::from_secs(30);

/// The names of all tasks.
pub(in crate::durable::store::suite) const NAMES: [&str; 7] = [
    "job",
    "other",
    "even",
    "odd",
    "",
    STRANGE_NAMES[0],
    STRANGE_NAMES[1],
];

/// The statuses of lists.
pub(in crate::durable::store::suite) const LISTED: [Status; 6] = [
    Status::Waiting,
    Status::Delayed,
    Status::Running,
    Status::Done,
    Status::Dead,
    Status::Cancelled,
];

/// Names with special characters.
pub(in crate::durable::store::suite) const STRANGE_NAMES: [&str; 2] =
    ["f\u{fc}r \u{1f980}\u{0} '\"%_;--", "\u{feff}\n"];

pub(in crate::durable::store::suite) fn set(names: &[&str]) -> TypeSet {
    let set = TypeSet::of_names(names.iter().copied());
    set.expect("no two of these names have one hash")
}

/// Returns the id of the task with this number. The ids have the order of the numbers.
pub(in crate::durable::store) fn id(number: u64) -> TaskId {
    TaskId::from_bytes(u128::from(number).to_be_bytes())
}

pub(in crate::durable::store) fn task(number: u64) -> NewTask {
    NewTask {
        id: id(number),
        name: "job".into(),
        envelope: 1,
        version: 1,
        queue: QueueName::DEFAULT,
        group: None,
        priority: Priority::Normal,
        key: None,
        payload: number.to_be_bytes().to_vec(),
        delay: Duration::ZERO,
        retention: HOUR,
        max_crashes: 3,
        parent: None,
    }
}

pub(in crate::durable::store::suite) fn delayed(number: u64, delay: Duration) -> NewTask {
    NewTask {
        delay,
        ..task(number)
    }
}

/// Returns a task in the queue `q`.
pub(in crate::durable::store::suite) fn queued(number: u64) -> NewTask {
    in_queue("q", task(number))
}

pub(in crate::durable::store::suite) fn in_queue(queue: &str, task: NewTask) -> NewTask {
    let queue = queue_name(queue);
    NewTask { queue, ..task }
}

/// Returns a task in a group of the queue `q`.
pub(in crate::durable::store::suite) fn grouped(group: &str, number: u64) -> NewTask {
    NewTask {
        group: Some(GroupName::new(group).expect("it is a valid name")),
        ..queued(number)
    }
}

pub(in crate::durable::store::suite) fn groups(groups: Groups) -> QueueSettings {
    QueueSettings::new().grouped(groups)
}

/// Returns a verdict that also holds the group of the task.
pub(in crate::durable::store::suite) fn hold(wait: Duration, then: Verdict) -> Verdict {
    let then = Box::new(then);
    Verdict::HoldGroup { wait, then }
}

pub(in crate::durable::store::suite) fn at_priority(priority: Priority, task: NewTask) -> NewTask {
    NewTask { priority, ..task }
}

/// Returns a task with the key "key", which it holds until it ends.
pub(in crate::durable::store::suite) fn keyed(number: u64) -> NewTask {
    with_key(Key::new("key"), task(number))
}

pub(in crate::durable::store) fn with_key(key: Key, task: NewTask) -> NewTask {
    let delay = key.delay().unwrap_or(task.delay);
    let key = key.of(&task.name, &task.queue);
    let key = Some(key.expect("the options of the key do not exclude each other"));
    NewTask { delay, key, ..task }
}

/// Returns the queue with this name. An empty name is that of the default queue.
pub(in crate::durable::store::suite) fn queue_name(name: &str) -> QueueName {
    match name {
        "" => QueueName::DEFAULT,
        name => QueueName::new(name).expect("it is a valid name"),
    }
}

pub(in crate::durable::store::suite) fn schedule_name(name: &str) -> ScheduleName {
    ScheduleName::new(name).expect("it is a valid name")
}

pub(in crate::durable::store::suite) fn max_running(max_running: u32) -> QueueSettings {
    QueueSettings::new().max_running(max_running)
}

/// Returns the task with this number as it is claimed for the first time.
pub(in crate::durable::store::suite) fn fresh(number: u64) -> Claimed {
    Claimed {
        id: id(number),
        name: "job".into(),
        group: None,
        payload: Ok(number.to_be_bytes().to_vec()),
        failures: 0,
        failing_for: None,
        waited: None,
        crashes: 0,
        lost: 0,
        quarantined: false,
        steps: 0,
        wait: StepWait::Over,
    }
}

pub(in crate::durable::store::suite) fn done() -> Verdict {
    Verdict::Done(b"output".to_vec())
}

pub(in crate::durable::store::suite) fn retry(after: Duration) -> Verdict {
    let error = "error".to_owned();
    Verdict::Retry {
        after,
        error,
        took: None,
    }
}

pub(in crate::durable::store::suite) fn dead() -> Verdict {
    Verdict::Dead {
        reason: DeadReason::Fatal,
        error: "fatal".to_owned(),
        took: None,
    }
}

/// The state of a task after the verdict [`dead`].
pub(in crate::durable::store::suite) fn state_dead() -> TaskState {
    TaskState::Dead {
        reason: DeadReason::Fatal,
        error: "fatal".to_owned(),
    }
}

/// The state of a task after the verdict [`done`].
pub(in crate::durable::store::suite) fn state_done() -> TaskState {
    TaskState::Done(b"output".to_vec())
}

/// Even tasks are of one type, odd ones of another.
pub(in crate::durable::store::suite) fn typed(number: u64) -> NewTask {
    let name = if number.is_multiple_of(2) {
        "even"
    } else {
        "odd"
    };
    NewTask {
        name: name.into(),
        ..task(number)
    }
}
