//! Replays from a step, which ask before they remove something, and values that no worker can read.

use std::time::Duration;

use throng::durable::{DurableClient, DurableTask, Status, TaskId, TaskWait};

use super::Result;
use super::scene::{Family, Order, id, reaches, with_id, worker};
use super::store::TestStore;

/// Spawns a workflow. Returns its id when it waits for a signal, and no worker runs any more.
async fn waiting<T: DurableTask>(client: &DurableClient, task: T) -> Result<TaskId> {
    let executor = worker(client).await?;
    let task = client.spawn_with(task, with_id(40)).await?.id();
    loop {
        reaches(client, task, Status::Delayed).await?;
        let detail = client.admin().task(task).await?.ok_or("it is there")?;
        let is_for_signal = |it: &_| matches!(it, TaskWait::Signal { .. });
        if detail.waits_for.iter().any(is_for_signal) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    executor.shutdown(Duration::from_secs(10)).await;
    Ok(task)
}

/// Returns the exit status and the messages of a replay without a confirmation.
fn replay(store: &TestStore, task: TaskId, from: &str) -> Result<(Option<i32>, String)> {
    let output = store.run(&["task", "replay", &task.to_string(), "--from", from])?;
    let text = [output.stdout, output.stderr].concat();
    Ok((output.status.code(), String::from_utf8(text)?))
}

/// The second children end after the first, so what precedes them may go, too.
#[tokio::test]
async fn a_replay_from_a_spawn_names_the_ends_of_the_children() -> Result {
    let store = TestStore::sqlite()?;
    let client = store.open().await?;
    let task = waiting(&client, Family).await?;
    for (from, number) in [
        ("spawn:first", "first of these: 4 steps"),
        ("spawn:second", "first of these: at most 3 steps"),
    ] {
        let (code, message) = replay(&store, task, from)?;
        assert_eq!(code, Some(2), "{message}");
        assert!(message.contains("the ends of its children"), "{message}");
        assert!(message.contains(number), "{message}");
    }
    Ok(client.close().await?)
}

/// A run may store the step again before the replay reaches the store.
#[tokio::test]
async fn a_replay_from_a_step_that_is_not_stored_again_is_confirmed() -> Result {
    let store = TestStore::sqlite()?;
    let client = store.open().await?;
    let task = waiting(&client, Order).await?;
    let first = ["task", "replay", &task.to_string(), "--from", "reserve"];
    let first = store.run(&[&first[..], &["--yes"]].concat())?;
    assert!(first.status.success(), "{first:?}");
    for from in ["reserve", "step:reserve"] {
        let (code, message) = replay(&store, task, from)?;
        assert_eq!(code, Some(2), "{message}");
        let question = format!("if a run has stored `{from}` again by then");
        assert!(message.contains(&question), "{message}");
    }
    let (code, message) = replay(&store, task, "unknown")?;
    assert_eq!(code, Some(3), "{message}");
    Ok(client.close().await?)
}

/// The steps of such a task can be read: it has none.
#[tokio::test]
async fn a_replay_of_a_task_whose_payload_is_damaged_is_not_confirmed() -> Result {
    let store = TestStore::sqlite()?;
    let client = store.open().await?;
    let task = client.spawn_with(Order, with_id(40)).await?.id();
    let file = rusqlite::Connection::open(store.file())?;
    let damaged = file.execute("UPDATE throng_task SET payload = x'ff'", [])?;
    assert_eq!(damaged, 1);
    let detail = client.admin().task(task).await?.ok_or("it is there")?;
    assert!(detail.damage.is_some());
    let (code, message) = replay(&store, task, "reserve")?;
    assert_eq!(code, Some(3), "{message}");
    assert!(message.contains("no step with this name"), "{message}");
    Ok(client.close().await?)
}

#[tokio::test]
async fn a_value_that_no_worker_can_read_is_refused() -> Result {
    let store = TestStore::sqlite()?;
    let client = store.open().await?;
    let task = client.spawn_with(Order, with_id(40)).await?.id();
    let (id, new) = (task.to_string(), id(41).to_string());
    let signal = ["task", "signal", &*id, "shipped"];
    let spawn = ["spawn", "order", "--id", &*new];
    let nested = format!("{}{}", "[".repeat(200), "]".repeat(200));
    for (value, reason) in [
        (r#""\ud800""#, "hex escape"),
        ("[1e400]", "number out of range"),
        (&*nested, "recursion limit exceeded"),
    ] {
        for command in [signal, spawn] {
            let output = store.run(&[&command[..], &[value]].concat())?;
            let message = String::from_utf8(output.stderr)?;
            assert_eq!(output.status.code(), Some(2), "{message}");
            assert!(message.contains("no worker could read the"), "{message}");
            assert!(message.contains(reason), "{message}");
        }
    }
    for command in [signal, spawn] {
        let value = "[123456789012345678901234567890, 1e300]";
        let output = store.run(&[&command[..], &[value]].concat())?;
        assert!(output.status.success(), "{output:?}");
    }
    Ok(client.close().await?)
}
