//! Steps in damaged files, and in those to which processes of an earlier version of the crate write, which knows no steps.

use super::*;
use crate::durable::Refusal;
use crate::durable::store::{
    Change, ChangeAnswer, NewStep, SignalAnswer, StepAnswer, StepKind, StepName, StepReplay,
};

const STEPS: &str =
    "SELECT (SELECT count(*) FROM throng_step) + (SELECT count(*) FROM throng_workflow)";

fn name(kind: StepKind) -> StepName {
    StepName::new(kind, "a").unwrap()
}

impl File {
    /// Removes what files of the earlier version lack.
    fn make_earlier(&self) {
        self.sql(
            "DROP TABLE throng_step; DROP TABLE throng_workflow; ALTER TABLE throng_task DROP COLUMN parent;",
        );
    }
}

impl Worker {
    async fn store_step(&self, claim: &Claim) {
        let step = NewStep {
            id: claim.tasks[0].id,
            epoch: claim.epoch,
            name: name(StepKind::Step),
            value: Vec::new(),
        };
        let answers = self.store.store_steps(vec![step]).await.unwrap();
        assert_eq!(answers, [StepAnswer::Stored]);
    }

    async fn signal(&self, number: u64) -> SignalAnswer {
        let signal = self
            .store
            .signal(id(number), name(StepKind::Signal), Vec::new());
        signal.await.unwrap()
    }
}

/// Stores two steps of tasks 1 and 2, which then wait for another one.
async fn tasks_with_steps(file: &File) -> Worker {
    let worker = Worker::new(&file.open().await).await;
    worker.enqueue([task(1).0, task(2).0]).await;
    for number in 1..=2 {
        let claim = worker.claim(1).await;
        worker.store_step(&claim).await;
        assert_eq!(worker.signal(number).await, SignalAnswer::Stored);
        worker.turn(suspend(&claim, 3), 0).await;
    }
    worker
}

/// Suspends the tasks of a claim until they have this number of steps.
fn suspend(claim: &Claim, until: u32) -> Vec<Verdicts> {
    verdicts(claim, |_| Verdict::Suspend {
        after: Duration::from_secs(3600),
        until: Some(until),
        waits_for: String::new(),
    })
}

#[tokio::test]
async fn a_file_of_an_earlier_version_gets_the_tables_of_steps() {
    let file = File::new();
    let worker = Worker::new(&file.open().await).await;
    worker.enqueue([task(1).0, task(2).0]).await;
    worker.store.close().await.unwrap();
    drop(worker);
    file.make_earlier();
    // A process of the earlier version has the file open all the time.
    let earlier = file.connect();
    let mut insert = earlier
        .prepare("INSERT INTO throng_damaged SELECT NULL, 1, 1, name FROM throng_now WHERE id = ?1")
        .unwrap();
    assert_eq!(insert.execute([id(1).to_bytes()]).unwrap(), 1);

    let observer = SqliteStore::observe(&file.path).await.unwrap();
    assert_eq!(observer.0.steps(id(1)).await.unwrap(), []);
    assert_eq!(observer.0.counts().await.unwrap().waiting, 2);

    let worker = Worker::new(&file.open().await).await;
    let claim = worker.claim(1).await;
    worker.store_step(&claim).await;
    worker.turn(suspend(&claim, 2), 0).await;
    assert_eq!(worker.signal(1).await, SignalAnswer::Stored);
    let claim = worker.claim(9).await;
    let claimed: Vec<_> = claim
        .tasks
        .iter()
        .map(|task| (task.id, task.steps))
        .collect();
    assert_eq!(claimed, [(id(2), 0), (id(1), 2)]);
    assert_eq!(worker.store.steps(id(1)).await.unwrap().len(), 2);
    assert_eq!(insert.execute([id(1).to_bytes()]).unwrap(), 1);
}

#[tokio::test]
async fn a_file_with_some_of_the_tables_gets_the_others() {
    for missing in [
        "DROP TABLE throng_step",
        "DROP TABLE throng_workflow",
        "ALTER TABLE throng_task DROP COLUMN parent",
    ] {
        let file = File::new();
        file.open().await.close().await.unwrap();
        file.sql(missing);
        let worker = tasks_with_steps(&file).await;
        assert_eq!(
            worker.store.steps(id(1)).await.unwrap().len(),
            2,
            "{missing}"
        );
    }
}

#[tokio::test]
async fn many_processes_can_add_the_tables_at_once() {
    let file = File::new();
    file.open().await.close().await.unwrap();
    file.make_earlier();
    let opened = (0..8).map(|_| {
        let path = file.path.clone();
        tokio::spawn(async move { SqliteStore::open(&path).await.map(drop) })
    });
    for opened in opened.collect::<Vec<_>>() {
        opened.await.unwrap().unwrap();
    }
    assert_eq!(file.number(STEPS), 0);
}

#[tokio::test]
async fn steps_that_an_earlier_version_has_left_are_removed() {
    let file = File::new();
    let worker = Worker::new(&file.open().await).await;
    worker.enqueue((1..=3).map(|n| task(n).0)).await;
    for number in 1..=3 {
        let claim = worker.claim(1).await;
        worker.store_step(&claim).await;
        worker.turn(suspend(&claim, 9), 0).await;
        assert_eq!(claim.tasks[0].id, id(number));
    }
    // The first task is gone, and the second one is a result that is kept. The earlier version does not touch their steps.
    file.sql(
        "DELETE FROM throng_task WHERE id = (SELECT min(id) FROM throng_task);
         UPDATE throng_task SET state = 3, at = at + 3600000 WHERE id = (SELECT min(id) FROM throng_task);
         UPDATE throng_meta SET delayed = delayed - 2, results = results + 1;",
    );
    assert_eq!(file.number(STEPS), 6);
    worker.enqueue([task(1).0]).await;
    let claim = worker.claim(1).await;
    assert_eq!((claim.tasks[0].id, claim.tasks[0].steps), (id(1), 0));
    assert_eq!(file.number(STEPS), 4);
    while worker.store.maintain(1000).await.unwrap() {}
    assert_eq!(file.number(STEPS), 2);
    assert_eq!(worker.store.steps(id(3)).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_task_that_has_lost_a_step_becomes_a_dead_letter() {
    let file = File::new();
    let worker = tasks_with_steps(&file).await;
    file.sql(
        "DELETE FROM throng_step WHERE name = 'step:a' AND id = (SELECT min(id) FROM throng_step)",
    );
    // The steps are read before a task runs again.
    worker.store.steps(id(1)).await.unwrap();
    let states = worker.store.status(vec![id(1), id(2)]).await.unwrap();
    let TaskState::Dead { reason, error } = &states[0] else {
        panic!("{states:?}");
    };
    assert_eq!(*reason, DeadReason::Damaged);
    assert!(
        error.contains("some of its steps cannot be read"),
        "{error}"
    );
    assert_eq!(states[1], TaskState::Delayed);
    assert_eq!(worker.store.steps(id(2)).await.unwrap().len(), 2);
    assert!(worker.store.damage().is_some());
}

/// A replay counts the steps that are left, so it would hide the loss.
#[tokio::test]
async fn a_replay_from_a_step_keeps_no_gap() {
    let suspend = Verdict::Suspend {
        after: Duration::from_secs(3600),
        until: Some(9),
        waits_for: String::new(),
    };
    let dead = Verdict::Dead {
        reason: DeadReason::Fatal,
        error: String::from("error"),
        took: None,
    };
    for verdict in [suspend, Verdict::Release, dead] {
        let file = File::new();
        let worker = Worker::new(&file.open().await).await;
        worker.enqueue([task(1).0]).await;
        let claim = worker.claim(1).await;
        let names = ["a", "b", "c"].map(|name| StepName::new(StepKind::Step, name).unwrap());
        let steps = names.clone().map(|name| NewStep {
            id: id(1),
            epoch: claim.epoch,
            name,
            value: Vec::new(),
        });
        worker.store.store_steps(steps.to_vec()).await.unwrap();
        let verdicts = verdicts(&claim, |_| verdict.clone());
        worker.turn(verdicts, 0).await;
        file.sql("DELETE FROM throng_step WHERE name = 'step:b'");
        let unreadable = ChangeAnswer::Refused(Refusal::Unreadable);
        let absent = ChangeAnswer::Refused(Refusal::NoSuchStep);
        let before = worker.store.status(vec![id(1)]).await.unwrap();
        let [first, second, third] = names;
        for (step, expected) in [(third, unreadable), (second, absent)] {
            let change = Change::ReplayFrom(StepReplay::new(step, 7));
            let answers = worker.store.change(vec![id(1)], change).await.unwrap();
            assert_eq!(answers, [expected], "{verdict:?}");
            assert_eq!(file.number("SELECT count(*) FROM throng_step"), 2);
            assert_eq!(file.number("SELECT steps FROM throng_workflow"), 3);
            let status = worker.store.status(vec![id(1)]).await.unwrap();
            assert_eq!(status, before);
        }
        // The lost step came later.
        let change = Change::ReplayFrom(StepReplay::new(first, 7));
        let answers = worker.store.change(vec![id(1)], change).await.unwrap();
        assert_eq!(answers, [ChangeAnswer::Changed], "{verdict:?}");
        assert_eq!(worker.claim(1).await.tasks[0].steps, 1, "{verdict:?}");
    }
}

#[tokio::test]
async fn a_repair_wakes_parents_whose_children_it_ends() {
    let file = File::new();
    let worker = Worker::new(&file.open().await).await;
    worker.enqueue([task(1).0]).await;
    let parent = worker.claim(1).await;
    let child = NewTask {
        parent: Some(id(1)),
        ..task(2).0
    };
    worker.enqueue([child]).await;
    worker.turn(suspend(&parent, 1), 0).await;
    file.sql("UPDATE throng_task SET failures = 'x' WHERE state = 0");
    let claim = worker.claim(9).await;
    let claimed: Vec<_> = claim.tasks.iter().map(|task| task.id).collect();
    assert_eq!(claimed, [id(1)]);
    let states = worker.store.status(vec![id(2)]).await.unwrap();
    assert!(matches!(states[..], [TaskState::Dead { .. }]), "{states:?}");
}

/// The task has no steps, so nothing else shows that it waits for some.
#[tokio::test]
async fn a_task_whose_wait_cannot_be_read_is_due() {
    let file = File::new();
    let worker = Worker::new(&file.open().await).await;
    worker.enqueue([task(1).0]).await;
    let claim = worker.claim(1).await;
    worker.turn(suspend(&claim, 1), 0).await;
    file.sql("UPDATE throng_workflow SET until = 'x'");
    assert_eq!(worker.signal(1).await, SignalAnswer::Stored);
    let claim = worker.claim(9).await;
    assert_eq!((claim.tasks[0].id, claim.tasks[0].steps), (id(1), 1));
}

#[tokio::test]
async fn the_number_of_steps_is_restored() {
    let file = File::new();
    let worker = tasks_with_steps(&file).await;
    file.sql("DELETE FROM throng_workflow WHERE id = (SELECT min(id) FROM throng_step)");
    file.sql("UPDATE throng_task SET at = 0 WHERE state = 1");
    let claim = worker.claim(9).await;
    let claimed = claim.tasks.iter().map(|task| (task.id, task.steps));
    let mut claimed: Vec<_> = claimed.collect();
    claimed.sort_unstable();
    assert_eq!(claimed, [(id(1), 2), (id(2), 2)]);
    assert_eq!(worker.store.steps(id(1)).await.unwrap().len(), 2);
}
