//! Children: the end of a task is a step of its parent.

use std::time::Duration;

use super::Harness;
use super::process::*;
use crate::durable::DeadFilter;
use crate::durable::store::{
    ChildEnd, DeadReason, MAX_BYTES_WITH_OUTPUTS, MAX_STEP_BYTES, MAX_STEPS, NewStep, NewTask,
    StepAnswer, StepName, StepWait, TaskState, Verdict,
};

use super::steps_tests::step_name;

/// Returns a task whose parent has this number.
fn child(number: u64, parent: u64) -> NewTask {
    NewTask {
        parent: Some(id(parent)),
        ..task(number)
    }
}

fn suspend(until: u32) -> Verdict {
    Verdict::Suspend {
        after: HOUR,
        until: Some(until),
        waits_for: String::new(),
    }
}

impl Process {
    /// Returns the ends of the children that are steps of a task.
    async fn child_ends(&self, parent: u64) -> Vec<(String, ChildEnd)> {
        let steps = self.0.0.steps(id(parent)).await.unwrap();
        let ends = steps.into_iter().filter_map(|step| {
            let end = ChildEnd::decode(&step.value);
            step.name.starts_with("child:").then_some((step.name, end))
        });
        ends.map(|(name, end)| (name, end.expect("it is the end of a child")))
            .collect()
    }
}

fn ended(number: u64, end: TaskState) -> (String, ChildEnd) {
    let name = StepName::of_child(id(number)).as_str().to_owned();
    (name, ChildEnd::Ended(end))
}

pub(super) async fn every_kind_of_end_is_a_step_of_the_parent(it: &dyn Harness) {
    let (process, other) = (Process::of(it), Process::of(it));
    let mut session = process.session().await;
    session.enqueue([task(1)]).await;
    let parent = session.claim(1).await.epoch;
    let unkept = NewTask {
        retention: Duration::ZERO,
        ..child(3, 1)
    };
    let fragile = NewTask {
        max_crashes: 1,
        ..child(7, 1)
    };
    let waiting = NewTask {
        delay: HOUR,
        ..child(6, 1)
    };
    session
        .enqueue([child(2, 1), unkept, child(4, 1), child(5, 1), waiting])
        .await;
    let epoch = session.claim(4).await.epoch;
    process.cancel([5, 6]).await;
    let turn = wanting(0)
        .verdict(epoch, 2, Verdict::Done(b"two".to_vec()))
        .verdict(epoch, 3, Verdict::Done(b"three".to_vec()))
        .verdict(epoch, 4, dead())
        .verdict(epoch, 5, Verdict::Release);
    session.turn(turn).await;
    // The worker of the last one dies.
    session.enqueue([fragile]).await;
    let mut dying = other.session().await;
    let crashed = dying.claim(1).await.epoch;
    other.renew([crashed]).await;
    other.kill(it);
    session.turn(wanting(0)).await;
    let mut ends = process.child_ends(1).await;
    ends.sort_by_key(|(name, _)| name.clone());
    let TaskState::Dead { reason, error } = process.status_of(4).await else {
        panic!("it is a dead letter");
    };
    let expected = [
        ended(2, TaskState::Done(b"two".to_vec())),
        ended(3, TaskState::Done(b"three".to_vec())),
        ended(4, TaskState::Dead { reason, error }),
        ended(5, TaskState::Cancelled),
        ended(6, TaskState::Cancelled),
        ended(
            7,
            TaskState::Dead {
                reason: DeadReason::Crashes,
                error: String::new(),
            },
        ),
    ];
    assert_eq!(ends, expected);
    // Its own steps and those of its children are counted together.
    process.store_step(parent, 1, "own").await;
    session.report(parent, 1, Verdict::Release).await;
    assert_eq!(session.claim(1).await.tasks[0].steps, 7);
}

pub(super) async fn the_last_child_wakes_its_parent(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([task(1)]).await;
    let parent = session.claim(1).await.epoch;
    session
        .enqueue((2..=4).map(|number| child(number, 1)))
        .await;
    let epoch = session.claim(3).await.epoch;
    session.report(epoch, 2, done()).await;
    // The run has not seen the first end.
    session.report(parent, 1, suspend(3)).await;
    session.report(epoch, 3, dead()).await;
    assert_eq!(process.status_of(1).await, TaskState::Delayed);
    assert_eq!(session.turn(wanting(9)).await.claim, None);
    // The turn that ends the last child makes the parent ready, and claims it.
    let turned = session.turn(wanting(9).verdict(epoch, 4, done())).await;
    let claim = turned.claim.expect("the parent is due");
    assert_eq!((ids(&claim), claim.tasks[0].steps), (vec![id(1)], 3));
    assert_eq!(claim.tasks[0].wait, StepWait::Over);
}

pub(super) async fn a_child_that_ends_before_the_suspension_counts(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([task(1)]).await;
    let parent = session.claim(1).await.epoch;
    session.enqueue([child(2, 1)]).await;
    session.run_first(id(2), done()).await;
    session.report(parent, 1, suspend(1)).await;
    assert_eq!(ids(&session.claim(9).await), [id(1)]);
    // A child that is retried has not ended.
    session.enqueue([child(3, 1)]).await;
    session.run_first(id(3), retry(SECOND)).await;
    assert_eq!(process.child_ends(1).await.len(), 1);
}

pub(super) async fn the_first_end_of_a_child_counts(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([task(1)]).await;
    session.claim(1).await;
    session.enqueue([child(2, 1)]).await;
    session.run_first(id(2), dead()).await;
    let ends = process.child_ends(1).await;
    process.replay_dead_letters(DeadFilter::all()).await;
    session.run_first(id(2), done()).await;
    assert_eq!(process.child_ends(1).await, ends);
}

/// A replay finds the ends of the children, whose results may not be kept any more.
pub(super) async fn a_dead_letter_is_told_of_ends(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([task(1)]).await;
    let parent = session.claim(1).await.epoch;
    session
        .enqueue((2..=5).map(|number| child(number, 1)))
        .await;
    let epoch = session.claim(4).await.epoch;
    session.report(parent, 1, suspend(1)).await;
    // The first end wakes the parent. Two more arrive in the turn in which the parent dies, one of them in
    // the same transaction: verdicts of one claim share it if they follow each other.
    session.report(epoch, 2, done()).await;
    session.enqueue([child(6, 1)]).await;
    let both = session.claim(2).await.epoch;
    let turn = wanting(0)
        .verdict(both, 1, dead())
        .verdict(both, 6, dead())
        .verdict(epoch, 3, dead());
    session.turn(turn).await;
    session
        .report(epoch, 4, Verdict::Done(b"four".to_vec()))
        .await;
    process.cancel([5]).await;
    session.report(epoch, 5, Verdict::Release).await;
    let ends = process.child_ends(1).await;
    let mut names: Vec<_> = ends.iter().map(|(name, _)| name.clone()).collect();
    names.sort();
    let all = (2..=6).map(|number| StepName::of_child(id(number)).as_str().to_owned());
    assert_eq!(names, all.collect::<Vec<_>>());
    assert!(ends.contains(&ended(4, TaskState::Done(b"four".to_vec()))));
    let filter = DeadFilter::ids([id(1)]);
    assert_eq!(process.replay_dead_letters(filter).await, 1);
    let claim = session.claim(1).await;
    assert_eq!((ids(&claim), claim.tasks[0].steps), (vec![id(1)], 5));
    session.report(claim.epoch, 1, done()).await;
    process.delete_dead_letters(DeadFilter::all()).await;
    session.close().await;
    it.age(HOUR);
    while process.maintain(9).await {}
    assert_eq!(it.leftovers(), 0);
}

pub(super) async fn a_parent_that_has_ended_is_not_told(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([task(1), task(2)]).await;
    let epoch = session.claim(2).await.epoch;
    session
        .enqueue([child(3, 1), child(4, 2), child(5, 99), child(6, 6)])
        .await;
    session.report(epoch, 1, done()).await;
    session.report(epoch, 2, dead()).await;
    let epoch = session.claim(4).await.epoch;
    for number in 3..=6 {
        session.report(epoch, number, done()).await;
    }
    for number in [1, 6, 99] {
        assert_eq!(process.child_ends(number).await, []);
    }
    // A dead letter keeps its steps.
    assert_eq!(process.child_ends(2).await.len(), 1);
    process.delete_dead_letters(DeadFilter::all()).await;
    session.close().await;
    it.age(HOUR);
    while process.maintain(9).await {}
    assert_eq!(it.leftovers(), 0);
}

/// Ends of children have no more than half of the bytes that a task may have.
pub(super) async fn outputs_of_children_leave_room(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([task(1)]).await;
    let parent = session.claim(1).await.epoch;
    session
        .enqueue((2..=20).map(|number| child(number, 1)))
        .await;
    let epoch = session.claim(19).await.epoch;
    let name_len = StepName::of_child(id(2)).as_str().len();
    let len = MAX_BYTES_WITH_OUTPUTS / 16 - name_len - 1;
    // One byte too many, and as many as fit then.
    let lens = |number| match number {
        17 => len + 1,
        18 => len - name_len - 9,
        _ => len,
    };
    for number in 2..=18 {
        let done = Verdict::Done(vec![7; lens(number)]);
        session.report(epoch, number, done).await;
    }
    session.report(epoch, 19, dead()).await;
    session.report(epoch, 20, Verdict::Done(Vec::new())).await;
    let ends = process.child_ends(1).await;
    for (number, (_, end)) in (2..=20).zip(&ends) {
        let expected = match number {
            17 => ChildEnd::TooLarge(len + 1),
            2..=18 => ChildEnd::Ended(TaskState::Done(vec![7; lens(number)])),
            19 => ChildEnd::Ended(TaskState::Dead {
                reason: DeadReason::Fatal,
                error: String::new(),
            }),
            _ => ChildEnd::TooLarge(0),
        };
        assert_eq!(*end, expected, "{number}");
    }
    assert_eq!(ends.len(), 19);
    // The parent uses the other half.
    for number in 0..15 {
        let step = NewStep {
            id: id(1),
            epoch: parent,
            name: step_name(&number.to_string()),
            value: vec![7; MAX_STEP_BYTES],
        };
        let answers = process.store_steps(vec![step]).await;
        assert_eq!(answers, [StepAnswer::Stored], "{number}");
    }
}

pub(super) async fn an_end_is_stored_even_if_there_is_no_room(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([task(1)]).await;
    let parent = session.claim(1).await.epoch;
    session
        .enqueue([child(2, 1), child(3, 1), child(4, 1)])
        .await;
    let epoch = session.claim(3).await.epoch;
    let done = |len| Verdict::Done(vec![7; len]);
    session.report(epoch, 2, done(MAX_STEP_BYTES - 1)).await;
    session.report(epoch, 3, done(MAX_STEP_BYTES)).await;
    // The others leave no room.
    for first in (0..MAX_STEPS - 2).step_by(256) {
        let steps = (first..(first + 256).min(MAX_STEPS - 2)).map(|number| NewStep {
            id: id(1),
            epoch: parent,
            name: step_name(&number.to_string()),
            value: Vec::new(),
        });
        let answers = process.store_steps(steps.collect()).await;
        assert!(answers.iter().all(|it| *it == StepAnswer::Stored));
    }
    session.report(epoch, 4, done(9)).await;
    let ends = process.child_ends(1).await;
    let expected = [
        ended(2, TaskState::Done(vec![7; MAX_STEP_BYTES - 1])),
        (
            StepName::of_child(id(3)).as_str().to_owned(),
            ChildEnd::TooLarge(MAX_STEP_BYTES),
        ),
        ended(4, TaskState::Done(vec![7; 9])),
    ];
    assert_eq!(ends, expected);
}
