//! The commands that print what a store contains.

use std::time::Duration;

use throng::durable::{
    DeadFilter, DurableClient, DurableHandle, Status, TaskDetail, TaskFilter, TaskId,
};
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use crate::Done;
use crate::application::{BILLS, Fragile, Hold};
use crate::second::{Bill, Letter};

/// The maximum time until a task ends.
const TASK_TIMEOUT: Duration = Duration::from_secs(60);

/// The number of tasks, dead letters or workers that one request reads. No store of the test has more dead letters or workers.
const PAGE: usize = 100;

/// Prints the process of each worker.
pub(crate) async fn workers(client: &DurableClient) -> Done {
    for worker in client.admin().workers(None, PAGE).await?.workers {
        println!("{}", worker.process);
    }
    Ok(())
}

/// Prints lines that do not depend on the reader: they contain no ages, and are in order.
pub(crate) async fn read(client: &DurableClient) -> Done {
    let mut text = String::new();
    tokio::io::stdin().read_to_string(&mut text).await?;
    for line in text.lines() {
        let (kind, id) = line.split_once(' ').ok_or("write: KIND ID")?;
        print_task(client, kind, id.parse()?).await?;
    }
    print_dead_letters(client).await?;
    print_lists(client).await?;
    print_numbers(client).await
}

async fn print_task(client: &DurableClient, kind: &str, id: TaskId) -> Done {
    let handle: DurableHandle<String> = match kind.split('-').next() {
        Some("bill" | "keyed") => client.attach::<Bill>(id),
        Some("hold") => client.attach::<Hold>(id),
        Some("fragile") => client.attach::<Fragile>(id),
        _ => client.attach::<Letter>(id),
    };
    let outcome = match timeout(TASK_TIMEOUT, handle).await {
        Ok(Ok(output)) => output,
        Ok(Err(error)) if error.is_cancelled() => "cancelled".into(),
        Ok(Err(error)) if error.is_dead() => "dead".into(),
        Ok(Err(error)) => return Err(format!("{kind} {id}: {error:?}").into()),
        Err(_) => return Err(format!("{kind} {id} has not ended in time").into()),
    };
    let status = client.status(id).await?;
    let errors = client.errors(id).await?;
    let errors: Vec<_> = errors.iter().map(|it| (it.attempt, &it.error)).collect();
    let detail = client.admin().task(id).await?;
    let detail = detail.as_ref().map(facts);
    println!("task {kind} {id} {status:?} | {outcome} | {errors:?} | {detail:?}");
    Ok(())
}

fn facts(it: &TaskDetail) -> String {
    let task = &it.task;
    let place = (&task.name, &task.queue, &task.group);
    let state = (task.status, task.failures, &task.error, it.key, it.version);
    let payload = it.payload.as_ref().map(|it| it.as_str());
    let output = it.output.as_ref().map(|it| it.as_str());
    format!("{place:?} {state:?} {payload:?} {output:?}")
}

async fn print_dead_letters(client: &DurableClient) -> Done {
    let dead_letters = client.dead_letters();
    let mut found = dead_letters.list(DeadFilter::all(), PAGE).await?;
    found.sort_by_key(|it| it.id);
    for it in found {
        let payload = dead_letters.payload(it.id).await?;
        let payload = payload.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let (id, name, reason, error) = (it.id, it.name, it.reason, it.error);
        println!(
            "dead {id} {name} {reason:?} {error:?} {} {payload:?}",
            it.failures
        );
    }
    Ok(())
}

/// Prints the ids of the tasks with each status.
async fn print_lists(client: &DurableClient) -> Done {
    use Status::{Cancelled, Dead, Delayed, Done, Running, Waiting};
    for status in [Waiting, Delayed, Running, Done, Dead, Cancelled] {
        let (filter, mut ids, mut after) = (TaskFilter::new(status), Vec::new(), None);
        loop {
            let page = client.admin().tasks(&filter, after.as_ref(), PAGE).await?;
            ids.extend(page.tasks.iter().map(|task| task.id));
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        ids.sort();
        ids.iter().for_each(|id| println!("{status:?} {id}"));
    }
    Ok(())
}

async fn print_numbers(client: &DurableClient) -> Done {
    let overview = client.admin().overview().await?;
    let (counts, settings) = (overview.counts, client.queue(BILLS).info().await?.settings);
    let alive = counts.waiting + counts.delayed + counts.running;
    println!(
        "numbers alive {alive} stored {} kept {} dead {} crashes {}",
        counts.stored,
        counts.kept,
        counts.dead,
        counts.crashed + counts.lost
    );
    let queues: Vec<_> = overview.queues.iter().map(|it| &it.name).collect();
    let types = overview.types.iter();
    let types: Vec<_> = types
        .map(|it| (&it.name, &it.queue, it.is_paused, it.last_hour.done))
        .collect();
    println!(
        "overview {queues:?} {types:?} {:?}",
        settings.running_limit()
    );
    Ok(())
}
