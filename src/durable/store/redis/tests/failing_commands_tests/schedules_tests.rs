//! Commands that fail while schedules are handed out, fired or changed.

use super::*;
use crate::durable::clock::millis;
use crate::durable::schedule::name::ScheduleName;
use crate::durable::store::{
    HAND_OUT_INTERVAL, HandOut, ScheduleAnswer, ScheduleChange, ScheduleRow,
};
use crate::durable::{Key, TaskId};

fn name() -> ScheduleName {
    ScheduleName::new("a").unwrap()
}

fn row(version: u64, needs: u8, time: Option<Duration>) -> ScheduleRow {
    ScheduleRow {
        version,
        needs,
        time: time.map(millis),
        started: 0,
        skipped: 0,
        last_task: None,
        body: b"body".to_vec(),
    }
}

fn change(before: Option<u64>, after: Option<ScheduleRow>) -> ScheduleChange {
    ScheduleChange {
        name: name(),
        before: before.map(|version| (version, 0)),
        after,
        queue: QueueName::DEFAULT,
        tasks: Vec::new(),
    }
}

/// Defines a schedule that is due in a second.
async fn define(scene: &Scene) {
    let new = row(1, 1, Some(scene.clock.wall() + SECOND));
    let changed = scene
        .other
        .store
        .change_schedule(Arc::new(change(None, Some(new))))
        .await;
    assert!(changed.unwrap().is_some());
}

async fn read(scene: &Scene) -> ScheduleAnswer {
    scene.other.store.schedule(name()).await.unwrap()
}

/// Returns the number of schedules that are handed out.
async fn due(scene: &Scene) -> usize {
    scene.worker.store.hand_out(3).await.unwrap().due.len()
}

/// Returns the version that the store has.
async fn version(scene: &Scene) -> Option<u64> {
    read(scene).await.found.map(|found| found.row.version)
}

/// Returns a new task, one that is too large for an entry, one with a key, and one whose key the third task holds.
fn tasks() -> Vec<NewTask> {
    let key = Key::new("held").of("job", &QueueName::DEFAULT).unwrap();
    let keyed = |number| NewTask {
        key: Some(key),
        ..task(number)
    };
    vec![task(NEW), large(NEW + 1), keyed(NEW + 2), keyed(NEW + 3)]
}

/// Sends a change, of which one command fails, and checks that it has taken effect if and only if the answer says so.
async fn assert_whole(scene: &Scene, trial: Trial, change: ScheduleChange) -> bool {
    let before = version(scene).await;
    let after = change.after.as_ref().map(|row| row.version);
    let tasks: Vec<TaskId> = change.tasks.iter().map(|task| task.id).collect();
    let change = Arc::new(change);
    let send = || scene.other.store.change_schedule(Arc::clone(&change));
    let (answer, has_failed) = scene.send(trial, false, send).await;
    scene.check(trial);
    if let Err(failure) = &answer {
        assert_eq!(failure.effect, Effect::None, "{trial:?}: {failure}");
        assert_eq!(version(scene).await, before, "{trial:?}");
        let seen = scene.other.store.status(tasks.clone()).await.unwrap();
        assert!(seen.iter().all(|it| *it == TaskState::Absent), "{trial:?}");
        // It is handed out again after the usual interval, and not at once.
        assert_eq!(due(scene).await, 0, "{trial:?}");
        assert!(send().await.unwrap().is_some(), "{trial:?}");
    } else {
        assert!(answer.unwrap().is_some(), "{trial:?}");
    }
    scene.check(trial);
    assert_eq!(version(scene).await, after, "{trial:?}");
    let seen = scene.other.store.status(tasks).await.unwrap();
    for (nth, state) in seen.iter().enumerate() {
        let expected = if nth < 3 {
            TaskState::Waiting
        } else {
            TaskState::Absent
        };
        assert_eq!(*state, expected, "{trial:?}: {nth}");
    }
    has_failed
}

#[tokio::test]
async fn a_schedule_fires_as_a_whole() {
    needs_redis!();
    for_each_command(async |scene, trial| {
        define(scene).await;
        scene.clock.advance(SECOND);
        assert_eq!(due(scene).await, 1);
        let row = ScheduleRow {
            started: 4,
            ..row(2, 2, Some(scene.clock.wall() + HOUR))
        };
        let fire = ScheduleChange {
            tasks: tasks(),
            ..change(Some(1), Some(row))
        };
        let has_failed = assert_whole(scene, trial, fire).await;
        let row = read(scene).await.found.unwrap().row;
        assert_eq!((row.started, row.skipped), (3, 1), "{trial:?}");
        assert_eq!(row.last_task, Some(id(NEW + 2)), "{trial:?}");
        has_failed
    })
    .await;
}

#[tokio::test]
async fn a_schedule_is_defined_as_a_whole() {
    needs_redis!();
    for_each_command(async |scene, trial| {
        let new = row(1, 1, Some(scene.clock.wall() + SECOND));
        assert_whole(scene, trial, change(None, Some(new))).await
    })
    .await;
}

#[tokio::test]
async fn a_schedule_is_paused_or_removed_as_a_whole() {
    needs_redis!();
    for is_removed in [false, true] {
        for_each_command(async |scene, trial| {
            define(scene).await;
            let after = (!is_removed).then(|| row(2, 1, None));
            let has_failed = assert_whole(scene, trial, change(Some(1), after)).await;
            scene.clock.advance(HOUR);
            let handed_out = scene.worker.store.hand_out(3).await.unwrap();
            assert_eq!(handed_out, HandOut::default(), "{trial:?}");
            has_failed
        })
        .await;
    }
}

#[tokio::test]
async fn a_due_schedule_is_handed_out_again_after_a_failure() {
    needs_redis!();
    for_each_command(async |scene, trial| {
        define(scene).await;
        scene.clock.advance(SECOND);
        let send = || scene.worker.store.hand_out(3);
        let (_, has_failed) = scene.send(trial, true, send).await;
        scene.check(trial);
        scene.clock.advance(HAND_OUT_INTERVAL);
        assert_eq!(due(scene).await, 1, "{trial:?}");
        has_failed
    })
    .await;
}

#[tokio::test]
async fn maintenance_repairs_schedules_after_a_failure() {
    needs_redis!();
    for_each_command(async |scene, trial| {
        define(scene).await;
        scene.run(&format!("{ID} return call('DEL', 'schedule_times:1')"));
        let maintain = || scene.other.store.maintain(100);
        let (answer, has_failed) = scene.send(trial, true, maintain).await;
        answer.unwrap();
        while scene.other.store.maintain(100).await.unwrap() {}
        scene.clock.advance(SECOND);
        assert_eq!(due(scene).await, 1, "{trial:?}");
        has_failed
    })
    .await;
}
