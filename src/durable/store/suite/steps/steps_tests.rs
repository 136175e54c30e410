//! The steps that runs store.

use std::time::Duration;

use super::Harness;
use super::process::*;
use crate::durable::store::{
    Epoch, MAX_BATCH_BYTES, MAX_BATCH_TASKS, MAX_STEP_BYTES, MAX_STEPS, MAX_TOTAL_STEP_BYTES,
    NewStep, NewTask, SignalAnswer, StepAnswer, StepKind, StepName, Verdict,
};
use crate::durable::{DeadFilter, TaskId};

pub(super) fn step_name(name: &str) -> StepName {
    StepName::new(StepKind::Step, name).expect("it is a valid name")
}

fn signal_name(name: &str) -> StepName {
    StepName::new(StepKind::Signal, name).expect("it is a valid name")
}

/// Returns a step whose value is its name.
fn step(epoch: Epoch, number: u64, name: &str) -> NewStep {
    NewStep {
        id: id(number),
        epoch,
        name: step_name(name),
        value: name.as_bytes().to_vec(),
    }
}

impl Process {
    pub(super) async fn store_steps(&self, steps: Vec<NewStep>) -> Vec<StepAnswer> {
        self.0.0.store_steps(steps).await.unwrap()
    }

    /// Stores a step whose value is its name.
    pub(super) async fn store_step(&self, epoch: Epoch, number: u64, name: &str) {
        let answers = self.store_steps(vec![step(epoch, number, name)]).await;
        assert_eq!(answers, [StepAnswer::Stored]);
    }

    /// Returns the names of the steps of a task. Their values must be their names.
    pub(super) async fn steps(&self, number: u64) -> Vec<String> {
        let steps = self.0.0.steps(id(number)).await.unwrap();
        let names = steps.into_iter().map(|step| {
            let (_, name) = step.name.split_once(':').expect("names have prefixes");
            assert_eq!(name.as_bytes(), step.value);
            name.to_owned()
        });
        names.collect()
    }

    /// Sends a signal whose value is its name.
    pub(super) async fn signal(&self, number: u64, name: &str) -> SignalAnswer {
        let signal = self.0.0.signal(id(number), signal_name(name), name.into());
        signal.await.unwrap()
    }
}

pub async fn the_first_value_of_a_step_stands(it: &dyn Harness) {
    let (process, other) = (Process::of(it), Process::of(it));
    let mut session = process.session().await;
    session.enqueue([task(1)]).await;
    let epoch = session.claim(1).await.epoch;
    process.store_step(epoch, 1, "a").await;
    let again = NewStep {
        value: b"another value".to_vec(),
        ..step(epoch, 1, "a")
    };
    let found = StepAnswer::Found(b"a".to_vec());
    assert_eq!(
        other.store_steps(vec![again.clone()]).await,
        std::slice::from_ref(&found)
    );
    // In one request, too.
    let twice = vec![
        step(epoch, 1, "b"),
        again,
        NewStep {
            value: Vec::new(),
            ..step(epoch, 1, "b")
        },
    ];
    let expected = [StepAnswer::Stored, found, StepAnswer::Found(b"b".to_vec())];
    assert_eq!(process.store_steps(twice).await, expected);
    // Kinds have names of their own.
    assert_eq!(process.signal(1, "a").await, SignalAnswer::Stored);
    assert_eq!(process.steps(1).await, ["a", "b", "a"]);
    assert_eq!(process.store_steps(Vec::new()).await, []);
}

pub async fn steps_are_read_in_the_order_in_which_they_were_stored(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([task(1), task(2)]).await;
    let epoch = session.claim(2).await.epoch;
    let names: Vec<_> = (0..40_u64).map(|n| format!("{}", n * 7 % 40)).collect();
    for names in names.chunks(7) {
        let steps = names
            .iter()
            .flat_map(|name| [2, 1].map(|number| step(epoch, number, name)));
        process.store_steps(steps.collect()).await;
    }
    assert_eq!(process.steps(1).await, names);
    assert_eq!(process.steps(2).await, names);
    assert_eq!(process.steps(3).await, [""; 0]);
}

pub async fn only_the_run_that_holds_the_task_stores_steps(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([task(1), task(2)]).await;
    let refused = [StepAnswer::Refused];
    assert_eq!(process.store_steps(vec![step(1, 1, "a")]).await, refused);
    let first = session.claim(1).await.epoch;
    process.store_step(first, 1, "a").await;
    session.report(first, 1, Verdict::Release).await;
    let late = vec![step(first, 1, "b")];
    assert_eq!(process.store_steps(late.clone()).await, refused);
    let second = session.claim(1).await.epoch;
    assert_eq!(process.store_steps(late).await, refused);
    // Its former name does not help an earlier run either.
    assert_eq!(
        process.store_steps(vec![step(first, 1, "a")]).await,
        refused
    );
    // The other steps of a request are stored.
    let mixed = vec![
        step(second, 2, "c"),
        step(second, 1, "c"),
        step(second, 3, "c"),
        step(second, 1, "a"),
    ];
    let expected = [
        StepAnswer::Refused,
        StepAnswer::Stored,
        StepAnswer::Refused,
        StepAnswer::Found(b"a".to_vec()),
    ];
    assert_eq!(process.store_steps(mixed).await, expected);
    session.report(second, 1, done()).await;
    assert_eq!(
        process.store_steps(vec![step(second, 1, "d")]).await,
        refused
    );
    assert_eq!(process.steps(1).await, [""; 0]);
    assert_eq!(process.steps(2).await, [""; 0]);
}

pub async fn a_claim_says_how_many_steps_its_task_has(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([task(1), task(2)]).await;
    let mut expected = 0;
    for name in ["a", "b", "c"] {
        let claim = session.claim(2).await;
        let steps = |number| {
            claim
                .tasks
                .iter()
                .find(|task| task.id == id(number))
                .unwrap()
                .steps
        };
        assert_eq!((steps(1), steps(2)), (expected, 0));
        process.store_step(claim.epoch, 1, name).await;
        expected += 1;
        // A repeated claim says how many there are now.
        let again = session.turn_again(wanting(2)).await.unwrap();
        let again = again.claim.unwrap().tasks;
        assert_eq!(
            again.iter().map(|task| task.steps).collect::<Vec<_>>(),
            [expected, 0]
        );
        let verdicts = wanting(0)
            .verdict(claim.epoch, 1, Verdict::Release)
            .verdict(claim.epoch, 2, Verdict::Release);
        session.turn(verdicts).await;
    }
}

pub async fn steps_are_kept_when_the_task_runs_again(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([task(1)]).await;
    let snooze = Verdict::Snooze { after: SECOND };
    let (mut names, verdicts) = (Vec::new(), [retry(SECOND), snooze, Verdict::Release]);
    for (number, verdict) in verdicts.into_iter().enumerate() {
        let claim = session.claim(1).await;
        assert_eq!(claim.tasks[0].steps, number as u32);
        names.push(format!("{number}"));
        process.store_step(claim.epoch, 1, &names[number]).await;
        session.report(claim.epoch, 1, verdict).await;
        assert_eq!(process.steps(1).await, names);
        it.clock().advance(SECOND);
    }
}

pub async fn steps_are_kept_when_a_worker_dies(it: &dyn Harness) {
    let (one, two) = (Process::of(it), Process::of(it));
    let mut session = one.session().await;
    session.enqueue([task(1)]).await;
    let epoch = session.claim(1).await.epoch;
    one.store_step(epoch, 1, "a").await;
    one.kill(it);
    let mut session = two.session().await;
    let claim = session.claim(1).await;
    assert_eq!(claim.tasks[0].steps, 1);
    assert_eq!(
        two.store_steps(vec![step(epoch, 1, "b")]).await,
        [StepAnswer::Refused]
    );
    two.store_step(claim.epoch, 1, "b").await;
    assert_eq!(two.steps(1).await, ["a", "b"]);
}

pub async fn a_success_and_a_cancellation_remove_steps(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let unkept = |number| NewTask {
        retention: Duration::ZERO,
        ..task(number)
    };
    session
        .enqueue([task(1), unkept(2), task(3), unkept(4), task(5), task(6)])
        .await;
    let epoch = session.claim(6).await.epoch;
    for number in 1..=6 {
        process.store_step(epoch, number, "a").await;
    }
    // The others are running, waiting and delayed when they are cancelled. The first one has a large output, and the third has failed.
    let turn = wanting(0)
        .verdict(epoch, 1, Verdict::Done(vec![7; 5_000]))
        .verdict(epoch, 2, done())
        .verdict(epoch, 3, retry(Duration::ZERO))
        .verdict(epoch, 5, Verdict::Release)
        .verdict(epoch, 6, Verdict::Snooze { after: HOUR });
    session.turn(turn).await;
    process.cancel([4, 5, 6]).await;
    session.report(epoch, 4, Verdict::Release).await;
    session.run_first(id(3), done()).await;
    for number in 1..=6 {
        assert_eq!(process.steps(number).await, [""; 0], "{number}");
    }
    // A claim removes the entry of the cancelled task from its list.
    session.turn(wanting(9)).await;
    session.close().await;
    it.age(HOUR);
    while process.maintain(9).await {}
    assert_eq!(it.leftovers(), 0);
}

pub async fn a_dead_letter_keeps_its_steps(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([task(1), task(2), task(3)]).await;
    let epoch = session.claim(3).await.epoch;
    for number in 1..=3 {
        process.store_step(epoch, number, "a").await;
        session.report(epoch, number, dead()).await;
    }
    assert_eq!(process.signal(1, "b").await, SignalAnswer::Absent);
    assert_eq!(process.steps(1).await, ["a"]);
    process.replay_dead_letters(DeadFilter::ids([id(1)])).await;
    let claim = session.claim(1).await;
    assert_eq!(claim.tasks[0].steps, 1);
    process.store_step(claim.epoch, 1, "b").await;
    assert_eq!(process.steps(1).await, ["a", "b"]);
    session.report(claim.epoch, 1, done()).await;
    process.delete_dead_letters(DeadFilter::ids([id(2)])).await;
    assert_eq!(process.steps(2).await, [""; 0]);
    session.close().await;
    it.age(31 * 24 * HOUR);
    while process.maintain(9).await {}
    assert_eq!(it.leftovers(), 0);
}

pub async fn a_dead_letter_of_crashes_keeps_its_steps(it: &dyn Harness) {
    let (one, two) = (Process::of(it), Process::of(it));
    let mut session = one.session().await;
    let fragile = NewTask {
        max_crashes: 1,
        ..task(1)
    };
    session.enqueue([fragile]).await;
    let epoch = session.claim(1).await.epoch;
    one.renew([epoch]).await;
    one.store_step(epoch, 1, "a").await;
    one.kill(it);
    let mut session = two.session().await;
    session.turn(wanting(0)).await;
    assert_eq!(two.steps(1).await, ["a"]);
    two.replay_dead_letters(DeadFilter::all()).await;
    assert_eq!(session.claim(1).await.tasks[0].steps, 1);
}

pub async fn another_task_with_the_same_id_has_no_steps(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([task(1), task(2)]).await;
    let epoch = session.claim(2).await.epoch;
    for number in [1, 2] {
        process.store_step(epoch, number, "a").await;
    }
    session.report(epoch, 1, done()).await;
    session.report(epoch, 2, dead()).await;
    it.age(31 * 24 * HOUR);
    session.enqueue([task(1), task(2)]).await;
    let claim = session.claim(2).await;
    let steps: Vec<_> = claim.tasks.iter().map(|task| task.steps).collect();
    assert_eq!(steps, [0, 0]);
    assert_eq!(process.steps(1).await, [""; 0]);
    assert_eq!(process.steps(2).await, [""; 0]);
}

pub async fn a_task_has_a_limited_number_of_steps(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([task(1), task(2)]).await;
    let epoch = session.claim(2).await.epoch;
    let names: Vec<_> = (0..MAX_STEPS).map(|number| format!("{number}")).collect();
    for names in names.chunks(MAX_BATCH_TASKS) {
        let steps = names.iter().map(|name| step(epoch, 1, name));
        let answers = process.store_steps(steps.collect()).await;
        assert!(answers.iter().all(|answer| *answer == StepAnswer::Stored));
    }
    let mixed = ["too many", "7"].map(|name| step(epoch, 1, name));
    let mut mixed = mixed.to_vec();
    mixed.push(step(epoch, 2, "of another task"));
    let expected = [
        StepAnswer::Full,
        StepAnswer::Found(b"7".to_vec()),
        StepAnswer::Stored,
    ];
    assert_eq!(process.store_steps(mixed).await, expected);
    assert_eq!(process.signal(1, "too many").await, SignalAnswer::Full);
    assert_eq!(process.steps(1).await, names);
}

pub async fn the_steps_of_a_task_have_a_limited_size(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([task(1)]).await;
    let epoch = session.claim(1).await.epoch;
    let large = |name: &str, len: usize| NewStep {
        value: vec![7; len],
        ..step(epoch, 1, name)
    };
    // The names count, too.
    let size = |name: &str| step_name(name).as_str().len();
    let most = MAX_TOTAL_STEP_BYTES / MAX_STEP_BYTES;
    for number in 1..most {
        let name = format!("{number:02}");
        let answers = process.store_steps(vec![large(&name, MAX_STEP_BYTES - size(&name))]);
        assert_eq!(answers.await, [StepAnswer::Stored]);
    }
    let left = MAX_STEP_BYTES - size("last");
    let last = vec![large("last", left + 1)];
    assert_eq!(process.store_steps(last).await, [StepAnswer::Full]);
    let last = vec![large("last", left), large("none", 0)];
    assert_eq!(
        process.store_steps(last).await,
        [StepAnswer::Stored, StepAnswer::Full]
    );
    assert_eq!(process.signal(1, "a").await, SignalAnswer::Full);
    assert_eq!(process.0.0.steps(id(1)).await.unwrap().len(), most);
}

pub async fn a_full_batch_of_steps_is_stored(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    let numbers = 1..=MAX_BATCH_TASKS as u64;
    session.enqueue(numbers.clone().map(task)).await;
    let epoch = session.claim(MAX_BATCH_TASKS).await.epoch;
    let len = MAX_BATCH_BYTES / MAX_BATCH_TASKS - step_name("large").as_str().len();
    let value = |id: TaskId| vec![id.to_bytes()[15]; len];
    let steps = numbers.clone().map(|number| NewStep {
        value: value(id(number)),
        ..step(epoch, number, "large")
    });
    let answers = process.store_steps(steps.collect()).await;
    assert_eq!(answers, vec![StepAnswer::Stored; MAX_BATCH_TASKS]);
    for number in numbers {
        let steps = process.0.0.steps(id(number)).await.unwrap();
        assert_eq!(steps.len(), 1);
        assert_eq!(steps[0].value, value(id(number)));
    }
}

pub async fn steps_say_how_old_they_are(it: &dyn Harness) {
    let process = Process::of(it);
    let mut session = process.session().await;
    session.enqueue([task(1)]).await;
    let epoch = session.claim(1).await.epoch;
    process.store_step(epoch, 1, "a").await;
    it.clock().advance(3 * SECOND);
    process.store_step(epoch, 1, "b").await;
    it.clock().advance(SECOND);
    let steps = process.0.0.steps(id(1)).await.unwrap();
    let ages: Vec<_> = steps.iter().map(|step| step.age).collect();
    assert_eq!(ages, [4 * SECOND, SECOND]);
}
