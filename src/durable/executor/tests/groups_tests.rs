//! Groups of tasks in a named queue, from the public API.

use super::*;
use crate::durable::{Groups, QueueSettings, ServedQueue, Status};
use crate::sync::Number as Count;

async fn spawn_in(client: &DurableClient, group: &str, number: u64) -> DurableHandle<u64> {
    let options = SpawnOptions::new().queue("q").group(group);
    let spawned = client.spawn_with(Number(number), options).await;
    spawned.unwrap()
}

async fn start(client: &DurableClient, permits: usize, app: App) -> DurableExecutor {
    let mut builder = builder(client);
    let builder = builder.max_running(permits).serve(ServedQueue::new("q"));
    builder.start(app).await.unwrap()
}

/// The first task of a group says that its customer has to wait. The other groups are not affected.
#[tokio::test]
async fn a_task_can_hold_its_group() {
    let client = DurableClient::open(MemoryStore::new());
    let held = Duration::from_millis(300);
    let runs = StdArc::new(Count::new(0));
    let act = move |number, cx: TaskContext<App>| {
        let runs = StdArc::clone(&runs);
        async move {
            if cx.group() == Some("a") && number == 0 && runs.add(1) == 0 {
                return Err(TaskError::snooze(held).and_hold_group(held));
            }
            Ok(number)
        }
    };
    let _executor = start(&client, 1, App::new(act)).await;
    let begun = Instant::now();
    let first = spawn_in(&client, "a", 0).await;
    is_delayed(&first).await;
    let second = spawn_in(&client, "a", 1).await;
    let other = spawn_in(&client, "b", 2).await;
    assert_eq!(other.await.unwrap(), 2);
    assert_eq!(second.status().await.unwrap(), Status::Waiting);
    assert_eq!(second.await.unwrap(), 1);
    assert_eq!(first.await.unwrap(), 0);
    let took = begun.elapsed();
    assert!((held..10 * held).contains(&took), "{took:?}");
}

async fn is_delayed(handle: &DurableHandle<u64>) {
    let reached = async {
        while handle.status().await.unwrap() != Status::Delayed {
            sleep(Duration::from_millis(5)).await;
        }
    };
    let reached = timeout(Duration::from_secs(20), reached).await;
    assert!(reached.is_ok(), "it does not run");
}

/// With a limit of 1, the tasks of a group run one after the other, in the order in which they were stored.
#[tokio::test]
async fn a_group_of_one_keeps_its_order() {
    let client = DurableClient::open(MemoryStore::new());
    let settings = QueueSettings::new().grouped(Groups::new().max_running(1));
    assert!(client.queue("q").set(settings).await.unwrap());
    assert_eq!(client.queue("q").info().await.unwrap().settings, settings);
    let running = StdArc::new(Count::new(0));
    let order = StdArc::new(Mutex::new(Vec::new()));
    let (now, seen) = (StdArc::clone(&running), StdArc::clone(&order));
    let act = move |number, _: TaskContext<App>| {
        let (now, seen) = (StdArc::clone(&now), StdArc::clone(&seen));
        async move {
            assert_eq!(now.add(1), 0, "another one runs");
            lock(&seen).push(number);
            sleep(Duration::from_millis(1)).await;
            now.subtract(1);
            Ok(number)
        }
    };
    let _executors = [
        start(&client, 4, App::new(act.clone())).await,
        start(&client, 4, App::new(act)).await,
    ];
    let mut handles = Vec::new();
    for number in 0..20 {
        handles.push(spawn_in(&client, "a", number).await);
    }
    for handle in handles {
        handle.await.unwrap();
    }
    assert_eq!(*lock(&order), (0..20).collect::<Vec<_>>());
}

#[tokio::test]
async fn impossible_groups_are_invalid() {
    let client = DurableClient::open(MemoryStore::new());
    let long = "g".repeat(65);
    for (options, remedy) in [
        (SpawnOptions::new().group("a"), "named queue"),
        (SpawnOptions::new().queue("q").group(""), "empty"),
        (SpawnOptions::new().queue("q").group(&*long), "shorter"),
    ] {
        let error = client.spawn_with(Number(1), options).await.unwrap_err();
        assert!(
            error.is_invalid() && error.to_string().contains(remedy),
            "{error}"
        );
    }
    let settings = QueueSettings::new().grouped(Groups::new().quantum(0));
    let error = client.queue("q").set(settings).await.unwrap_err();
    assert!(error.is_invalid(), "{error}");
}
