//! Schedules in SQLite: their index, other processes, and damage.

use super::super::schedules::EARLIEST;
use super::*;
use crate::durable::schedule::name::ScheduleName;
use crate::durable::store::{ScheduleChange, ScheduleRow};

const SECOND: Duration = Duration::from_secs(1);

fn name(name: &str) -> ScheduleName {
    ScheduleName::new(name).unwrap()
}

/// Returns a change that defines a schedule, which is due in a second.
fn new_schedule(of: &str, clock: &Clock) -> ScheduleChange {
    ScheduleChange {
        name: name(of),
        before: None,
        after: Some(ScheduleRow {
            version: u64::MAX,
            needs: 1,
            time: Some((clock.wall() + SECOND).as_millis() as u64),
            started: 0,
            skipped: 0,
            last_task: Some(id(1)),
            body: b"body".to_vec(),
        }),
        queue: QueueName::DEFAULT,
        tasks: Vec::new(),
    }
}

impl Worker {
    async fn define(&self, of: &str, clock: &Clock) {
        let change = Arc::new(new_schedule(of, clock));
        let changed = self.store.change_schedule(change).await.unwrap();
        assert!(changed.is_some(), "{of}");
    }

    async fn due(&self) -> Vec<String> {
        let due = self.store.hand_out(3).await.unwrap().due;
        let names = due.iter().map(|due| due.schedule.name.as_str().to_owned());
        names.collect()
    }
}

async fn worker(file: &File, clock: &Clock) -> Worker {
    let store = SqliteStore::open_with(&file.path, clock.clone()).await;
    Worker::new(&Arc::new(store.unwrap())).await
}

#[tokio::test]
async fn the_next_schedule_is_looked_up_in_an_index() {
    let file = File::new();
    drop(file.open().await);
    let db = file.connect();
    let mut plan = db
        .prepare(&format!("EXPLAIN QUERY PLAN {EARLIEST}"))
        .unwrap();
    let rows = plan.query_map([1], |row| row.get(3));
    let plan: Vec<String> = rows.unwrap().collect::<Result<_, _>>().unwrap();
    assert_eq!(plan.len(), 1);
    let index = "throng_schedule USING COVERING INDEX throng_schedule_hand_out";
    assert!(plan[0].contains(index), "{plan:?}");
}

#[tokio::test]
async fn another_process_is_handed_what_is_due() {
    let (file, clock) = (File::new(), Clock::manual());
    let one = worker(&file, &clock).await;
    let two = worker(&file, &clock).await;
    two.go_idle().await;
    one.define("a", &clock).await;
    let turned = two.turn(vec![], 1).await;
    assert_eq!(turned.next_tick, Some(SECOND));
    clock.advance(SECOND);
    assert_eq!(two.due().await, ["a"]);
    assert_eq!(one.due().await, [""; 0]);
}

/// At most the schedule of the garbled row is lost, and it can be defined again.
#[tokio::test]
async fn a_garbled_row_affects_no_other_schedule() {
    let file = File::new();
    drop(file.open().await);
    let columns = file.texts("SELECT name FROM pragma_table_info('throng_schedule')");
    assert_eq!(columns.len(), 9);
    for column in columns {
        for garbage in [
            "NULL",
            "x'00ff'",
            "CAST(x'ff' AS TEXT)",
            "'a b'",
            "-1",
            "1e300",
        ] {
            assert_survives(&format!("{column} = {garbage}")).await;
        }
    }
}

async fn assert_survives(garbled: &str) {
    let (file, clock) = (File::new(), Clock::manual());
    let worker = worker(&file, &clock).await;
    for name in ["a", "b"] {
        worker.define(name, &clock).await;
    }
    let sql = format!("UPDATE throng_schedule SET {garbled} WHERE name = 'a'");
    // Not every value can be written into every column.
    if file.connect().execute(&sql, []).is_err() {
        return;
    }
    clock.advance(SECOND);
    worker.enqueue([task(1).0]).await;
    assert!(worker.due().await.contains(&"b".to_owned()), "{garbled}");
    worker.store.maintain(10).await.unwrap();
    let listed = worker.store.schedules(None, 9).await.unwrap();
    assert!((1..=2).contains(&listed.len()), "{garbled}");
    let found = worker.store.schedule(name("a")).await.unwrap().found;
    let change = ScheduleChange {
        before: found.map(|found| (found.row.version, 0)),
        ..new_schedule("a", &clock)
    };
    let change = match change.before {
        // Each change needs a new version.
        Some(_) => ScheduleChange {
            after: change.after.map(|row| ScheduleRow { version: 3, ..row }),
            ..change
        },
        None => change,
    };
    let changed = worker.store.change_schedule(Arc::new(change)).await;
    assert!(changed.unwrap().is_some(), "{garbled}");
    clock.advance(SECOND);
    assert_eq!(worker.due().await, ["a"], "{garbled}");
    assert_eq!(worker.claim(9).await.tasks.len(), 1, "{garbled}");
}
