//! The commands that change the store.

use std::path::PathBuf;
use std::time::Duration;

use throng::Retry;
use throng::durable::{
    DurableClient, DurableExecutor, DurableHandle, DurableTask, Groups, Key, QueueSettings, Run,
    ServedQueue, SpawnOptions, Status, TaskChange, TaskFilter, TaskId,
};
use tokio::io::AsyncReadExt;

use crate::application::{BILLS, Fragile, Hold};
use crate::{Done, is_server};

const HOUR: Duration = Duration::from_secs(3600);

/// The number of tasks that a worker runs at once.
const MAX_RUNNING: usize = 4;

/// Limits the queue, and lets the tasks of each group run one after the other.
pub(crate) async fn configure(client: &DurableClient) -> Done {
    let groups = Groups::new().max_running(1);
    let settings = QueueSettings::new().max_running(6).grouped(groups);
    client.queue(BILLS).set(settings).await?;
    Ok(())
}

pub(crate) async fn work<B: Run<PathBuf>, M: Run<PathBuf>>(
    client: &DurableClient,
    folder: PathBuf,
    store: &str,
) -> Done {
    // With a file, other processes see at once that one has died.
    let lease = if is_server(store) { 3 } else { 60 };
    let executor = DurableExecutor::builder(client.clone())
        .register::<B>()
        .register::<M>()
        .register::<Hold>()
        .register::<Fragile>()
        .serve(ServedQueue::default_queue())
        .serve(ServedQueue::new(BILLS))
        .max_running(MAX_RUNNING)
        .lease(Duration::from_secs(lease))
        .retry(Retry::exponential().base(Duration::from_millis(20)))
        .start(folder)
        .await?;
    println!("ready");
    tokio::io::stdin().read_to_end(&mut Vec::new()).await?;
    executor.shutdown(Duration::from_secs(20)).await;
    println!("stopped");
    Ok(())
}

pub(crate) async fn hold(client: &DurableClient, gate: &str, number: usize) -> Done {
    let hold = || Hold { gate: gate.into() };
    for handle in client.spawn_all((0..number).map(|_| hold())).await? {
        print("hold", &handle);
    }
    Ok(())
}

/// Stores tasks of each kind. Tasks with keys and tasks with derived ids are the same for all labels.
pub(crate) async fn produce<B: DurableTask, M: DurableTask>(
    client: &DurableClient,
    label: &str,
    bill: impl Fn(u64) -> B,
    mail: impl Fn(String) -> M,
) -> Done {
    let customer = |number| format!("customer-{}", number % 3);
    for number in 0..24 {
        let grouped = SpawnOptions::new().queue(BILLS).group(customer(number));
        print("bill", &client.spawn_with(bill(number), grouped).await?);
        let to = mail(format!("{label}-{number}"));
        print("mail", &client.spawn(to).await?);
    }
    for number in 0..6 {
        let key = Key::new(format!("order {number}")).throttle(HOUR);
        let keyed = SpawnOptions::new().queue(BILLS).key(key);
        let handle = client.spawn_with(bill(100 + number), keyed).await?;
        print(&format!("keyed-{number}"), &handle);
        let id = TaskId::derive("mail", &number.to_be_bytes());
        let derived = SpawnOptions::new().id(id);
        let handle = client.spawn_with(mail(format!("all-{number}")), derived);
        print(&format!("derived-{number}"), &handle.await?);
        let delayed = SpawnOptions::new().delay(HOUR);
        let handle = client.spawn_with(mail(format!("{label}-late")), delayed);
        print("delayed", &handle.await?);
        print("fragile", &client.spawn(Fragile).await?);
    }
    Ok(())
}

pub(crate) async fn change(client: &DurableClient, status: &str, change: &str) -> Done {
    let (status, change) = match (status, change) {
        ("delayed", "cancel") => (Status::Delayed, TaskChange::Cancel),
        ("delayed", "run") => (Status::Delayed, TaskChange::RunNow),
        ("delayed", "move") => (Status::Delayed, TaskChange::move_to(BILLS)),
        ("dead", "replay") => (Status::Dead, TaskChange::Replay),
        ("dead", "delete") => (Status::Dead, TaskChange::Delete),
        _ => return Err(format!("{status} tasks have no change {change}").into()),
    };
    let (filter, mut changed) = (TaskFilter::new(status), 0);
    let admin = client.admin();
    let mut bulk = admin.change_all(filter, change);
    while let Some(part) = bulk.next().await {
        changed += part?.changed;
    }
    println!("{changed}");
    Ok(())
}

fn print<T>(kind: &str, handle: &DurableHandle<T>) {
    println!("{kind} {}", handle.id());
}
