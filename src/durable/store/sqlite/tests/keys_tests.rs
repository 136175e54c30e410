//! Keys: how they are looked up, and what damage does to them.

use super::super::keys::{HOLDER, HOLDER_IN_WINDOW};
use super::*;
use crate::durable::Key;
use crate::durable::store::Enqueued;

fn keyed(n: u64, key: Key) -> NewTask {
    let key = key.of("name", &QueueName::DEFAULT);
    NewTask {
        key: Some(key.unwrap()),
        retention: Duration::from_secs(3600),
        ..task(n).0
    }
}

impl Worker {
    /// Stores a task. Returns the task that holds its key, if there is another one.
    async fn holder(&self, task: NewTask) -> Option<TaskId> {
        let enqueued: Enqueued = self.store.enqueue(self.request([task])).await.unwrap();
        enqueued.conflicts.first().map(|it| it.holder)
    }
}

#[tokio::test]
async fn a_key_is_looked_up_in_an_index() {
    let file = File::new();
    drop(file.open().await);
    let db = file.connect();
    for (sql, index) in [
        (HOLDER, "throng_task_key (key=?)"),
        (
            HOLDER_IN_WINDOW,
            "throng_task_window (key=? AND key_until>?)",
        ),
    ] {
        let mut plan = db.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let params = vec![1; plan.parameter_count()];
        let rows = plan.query_map(rusqlite::params_from_iter(params), |row| row.get(3));
        let plan: Vec<String> = rows.unwrap().collect::<Result<_, _>>().unwrap();
        assert_eq!(plan, [format!("SEARCH throng_task USING INDEX {index}")]);
    }
}

#[tokio::test]
async fn a_damaged_task_frees_its_key() {
    let file = File::new();
    let worker = Worker::new(&file.open().await).await;
    let new = |n| keyed(n, Key::new((n % 3).to_string()));
    worker.enqueue([new(0), new(1), new(2)]).await;
    file.sql("UPDATE throng_task SET max_crashes = -1 WHERE hex(id) LIKE '%01'");
    file.sql("DELETE FROM throng_ready");
    worker.store.maintain(100).await.unwrap();
    assert!(worker.store.damage().is_some());
    assert_eq!(worker.holder(new(3)).await, Some(id(0)));
    assert_eq!(worker.holder(new(4)).await, None);
    assert_eq!(worker.holder(new(5)).await, Some(id(2)));
    // The damaged task is not replayed while another task holds its key.
    let replay = || worker.store.replay_dead_letters(DeadFilter::all());
    assert_eq!(replay().await.unwrap(), 0);
    let claim = worker.claim(9).await;
    worker.turn(done(&claim, vec![]), 0).await;
    assert_eq!(replay().await.unwrap(), 1);
    assert_eq!(worker.holder(new(7)).await, Some(id(1)));
}

#[tokio::test]
async fn a_garbled_answer_counts_as_one_without_conflicts() {
    let file = File::new();
    let worker = Worker::new(&file.open().await).await;
    worker.enqueue([keyed(1, Key::new("key"))]).await;
    let request = worker.request([keyed(2, Key::new("key"))]);
    let answer = worker.store.enqueue(Arc::clone(&request)).await.unwrap();
    assert_eq!(answer.conflicts[0].holder, id(1));
    let repeated = worker.store.enqueue(Arc::clone(&request)).await.unwrap();
    assert_eq!(repeated, answer);
    for garbage in ["x''", "x'0200'", "x'0200000000000000ffff'", "NULL"] {
        file.sql(&format!("UPDATE throng_session SET answer = {garbage}"));
        let repeated = worker.store.enqueue(Arc::clone(&request)).await.unwrap();
        assert_eq!(repeated, Enqueued::default(), "{garbage}");
    }
}

/// A store without keys writes nothing about them.
#[tokio::test]
async fn tasks_without_keys_write_no_data_about_keys() {
    let file = File::new();
    let worker = Worker::new(&file.open().await).await;
    worker.enqueue((0..100).map(|n| task(n).0)).await;
    worker.claim(10).await;
    let sql = "SELECT count(*) FROM throng_task WHERE key IS NOT NULL OR key_since IS NOT NULL";
    assert_eq!(file.number(sql), 0);
    assert_eq!(file.number("SELECT count(answer) FROM throng_session"), 0);
}
