//! Changes of all tasks that match, a part at a time.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use throng::Retry;
use throng::durable::{
    Bulk, BulkPart, Changed, Counts, Cursor, DurableClient, DurableTask, Key, QueueSettings,
    Refusal, Run, ServedQueue, SpawnOptions, Status, TaskChange, TaskContext, TaskError,
    TaskFilter, TaskId,
};

use crate::harness::{
    App, Number, TestStore, builder, pass_a_millisecond, pass_two_milliseconds, reaches, start,
    start_as,
};
use crate::support::{rounds, within};

on_all_stores! {
    all_waiting_and_delayed_tasks_that_match_are_cancelled,
    a_change_that_stops_half_way_is_continued_from_its_cursor,
    dead_letters_are_replayed_and_deleted,
    a_change_that_does_not_apply_is_refused,
    each_task_ends_once_if_all_are_cancelled_while_workers_drain_them,
    a_task_is_changed_or_the_answer_says_why_not,
    delayed_tasks_are_made_due_and_the_idle_worker_runs_them,
    a_task_that_fails_when_it_is_made_due_is_not_made_due_again,
    a_move_that_stops_half_way_is_continued_from_its_cursor,
    a_part_says_why_tasks_are_refused,
    tasks_that_come_after_the_page_are_not_changed,
    tasks_that_end_after_the_page_are_not_listed,
    dead_letters_that_die_after_the_page_are_not_changed,
    no_task_is_lost_or_runs_twice_if_all_move_while_workers_drain_them,
}

const HOUR: Duration = Duration::from_secs(3600);

/// A task that no worker runs.
#[derive(Serialize, Deserialize)]
struct Other;

impl DurableTask for Other {
    const NAME: &'static str = "other";
    type Output = ();
}

impl Run<App> for Other {
    async fn run(self, _: TaskContext<App>) -> Result<(), TaskError> {
        Ok(())
    }
}

/// Applies all parts. Returns their sum.
async fn all(mut bulk: Bulk<'_>) -> (u64, u64) {
    let (mut changed, mut unchanged) = (0, 0);
    while let Some(part) = bulk.next().await {
        let BulkPart {
            changed: more,
            unchanged: others,
            ..
        } = part.unwrap();
        (changed, unchanged) = (changed + more, unchanged + others);
    }
    (changed, unchanged)
}

fn of(status: Status) -> TaskFilter {
    TaskFilter::new(status).name(Number::NAME)
}

async fn spawn_numbers(client: &DurableClient, count: u64) {
    let numbers = (0..count).map(Number);
    client.spawn_all(numbers).await.unwrap();
}

async fn all_waiting_and_delayed_tasks_that_match_are_cancelled(store: TestStore) {
    let client = store.client().await;
    spawn_numbers(&client, 300).await;
    let other = client.spawn(Other).await.unwrap();
    assert_eq!(
        all(client
            .admin()
            .change_all(of(Status::Delayed), TaskChange::Cancel))
        .await,
        (0, 0)
    );
    assert_eq!(
        all(client
            .admin()
            .change_all(of(Status::Waiting), TaskChange::Cancel))
        .await,
        (300, 0)
    );
    assert_eq!(
        all(client
            .admin()
            .change_all(of(Status::Waiting), TaskChange::Cancel))
        .await,
        (0, 0)
    );
    let counts = client.counts().await.unwrap();
    assert_eq!((counts.waiting, counts.kept), (1, 300));
    assert_eq!(other.status().await.unwrap(), Status::Waiting);
}

async fn a_change_that_stops_half_way_is_continued_from_its_cursor(store: TestStore) {
    let (client, other) = (store.client().await, store.client().await);
    spawn_numbers(&client, 300).await;
    let admin = client.admin();
    let mut first = admin.change_all(of(Status::Waiting), TaskChange::Cancel);
    assert!(first.cursor().is_none());
    let part = first.next().await.unwrap().unwrap();
    assert!((1..=128).contains(&part.changed), "{part:?}");
    let cursor: Cursor = first.cursor().unwrap().to_string().parse().unwrap();
    drop(first);
    let rest = other
        .admin()
        .change_all(of(Status::Waiting), TaskChange::Cancel)
        .after(cursor);
    assert_eq!(all(rest).await, (300 - part.changed, 0));
    assert_eq!(client.counts().await.unwrap().waiting, 0);
}

async fn dead_letters_are_replayed_and_deleted(store: TestStore) {
    let client = store.client().await;
    let executor = start(&client, |_, _| async { Err(TaskError::fatal("no")) }).await;
    for handle in client.spawn_all((0..150).map(Number)).await.unwrap() {
        within(handle).await.unwrap_err();
    }
    executor.shutdown(Duration::ZERO).await;
    assert_eq!(
        all(client
            .admin()
            .change_all(of(Status::Dead), TaskChange::Replay))
        .await,
        (150, 0)
    );
    let counts = client.counts().await.unwrap();
    assert_eq!((counts.waiting, counts.dead), (150, 0));

    let executor = start(&client, |_, _| async { Err(TaskError::fatal("no")) }).await;
    let listed = async || client.counts().await.unwrap().dead;
    counts_reach(&client, |counts| counts.dead >= 150).await;
    assert_eq!(
        all(client
            .admin()
            .change_all(of(Status::Dead), TaskChange::Delete))
        .await,
        (150, 0)
    );
    assert_eq!(listed().await, 0);
    drop(executor);
}

async fn a_change_that_does_not_apply_is_refused(store: TestStore) {
    let client = store.client().await;
    let admin = client.admin();
    for (mut bulk, remedy) in [
        (
            admin.change_all(of(Status::Dead), TaskChange::Cancel),
            "waiting, delayed or running",
        ),
        (
            admin.change_all(of(Status::Waiting), TaskChange::Replay),
            "dead letters can be replayed",
        ),
        (
            admin.change_all(of(Status::Done), TaskChange::Delete),
            "dead letters can be deleted",
        ),
    ] {
        let error = bulk.next().await.unwrap().unwrap_err();
        assert!(
            error.is_invalid() && error.to_string().contains(remedy),
            "{error}"
        );
    }
}

async fn each_task_ends_once_if_all_are_cancelled_while_workers_drain_them(store: TestStore) {
    let many = match store {
        // This store searches all tasks for each page.
        TestStore::Memory(_) => 2_000,
        _ => 100_000,
    };
    let tasks = rounds(2_000, many) as u64;
    let client = store.client().await;
    let handles = client.spawn_all((0..tasks).map(Number)).await.unwrap();
    let mut executors = Vec::new();
    for _ in 0..4 {
        let client = store.client().await;
        executors.push(start(&client, |number, _| async move { Ok(number) }).await);
    }
    let admin = client.admin();
    all(admin.change_all(of(Status::Waiting), TaskChange::Cancel)).await;
    let mut ends = BTreeSet::new();
    for handle in handles {
        ends.insert((handle.id(), within(handle).await.is_ok()));
    }
    let counts = client.counts().await.unwrap();
    let done = ends.iter().filter(|(_, is_done)| *is_done).count() as u64;
    assert_eq!((counts.waiting, counts.running, counts.dead), (0, 0, 0));
    assert_eq!((counts.done, counts.kept), (done, tasks));
    let probe = client.spawn(Number(7)).await.unwrap();
    reaches(&probe, Status::Done).await;
}

async fn a_task_is_changed_or_the_answer_says_why_not(store: TestStore) {
    let client = store.client().await;
    let admin = client.admin();
    let hour = SpawnOptions::new().delay(HOUR);
    let id = client.spawn_with(Number(1), hour).await.unwrap().id();
    for (change, expected) in [
        (TaskChange::Replay, Changed::NotIn(Status::Delayed)),
        (TaskChange::RunNow, Changed::Yes),
        (TaskChange::RunNow, Changed::NotIn(Status::Waiting)),
        (TaskChange::move_to("bulk"), Changed::Yes),
        (TaskChange::move_to("bulk"), Changed::Already),
        (TaskChange::MoveTo(None), Changed::Yes),
        (TaskChange::Cancel, Changed::Yes),
        (TaskChange::Cancel, Changed::NotIn(Status::Cancelled)),
        (TaskChange::MoveTo(None), Changed::NotIn(Status::Cancelled)),
    ] {
        let changed = admin.change(id, change.clone()).await.unwrap();
        assert_eq!(changed, expected, "{change:?}");
    }
    let absent = admin.change(TaskId::new(), TaskChange::Delete).await;
    assert_eq!(absent.unwrap(), Changed::NotThere);
    let error = admin.change(id, TaskChange::move_to("no name")).await;
    assert!(error.unwrap_err().is_invalid());

    let replace = SpawnOptions::new().key(Key::new("key").replace());
    let id = client.spawn_with(Number(2), replace).await.unwrap().id();
    let refused = admin.change(id, TaskChange::move_to("bulk")).await.unwrap();
    assert_eq!(refused, Changed::Refused(Refusal::Replaceable));
}

async fn delayed_tasks_are_made_due_and_the_idle_worker_runs_them(store: TestStore) {
    let client = store.client().await;
    let executor = start(&client, |number, _| async move { Ok(number) }).await;
    let hour = SpawnOptions::new().delay(HOUR);
    let tasks = (0..300).map(|number| (Number(number), hour.clone()));
    let handles = client.spawn_all_with(tasks).await.unwrap();
    let admin = client.admin();
    let mut first = admin.change_all(of(Status::Delayed), TaskChange::RunNow);
    let changed = first.next().await.unwrap().unwrap().changed;
    let cursor = first.cursor().unwrap().clone();
    drop(first);
    let other = store.client().await;
    let rest = other
        .admin()
        .change_all(of(Status::Delayed), TaskChange::RunNow);
    assert_eq!(all(rest.after(cursor)).await, (300 - changed, 0));
    for handle in handles {
        within(handle).await.unwrap();
    }
    let again = admin.change_all(of(Status::Delayed), TaskChange::RunNow);
    assert_eq!(all(again).await, (0, 0));
    drop(executor);
}

/// A task that fails is delayed for longer, so it comes again behind the cursor.
async fn a_task_that_fails_when_it_is_made_due_is_not_made_due_again(store: TestStore) {
    let client = store.client().await;
    let minute = SpawnOptions::new().delay(HOUR / 60);
    let tasks = (0..300).map(|number| (Number(number), minute.clone()));
    client.spawn_all_with(tasks).await.unwrap();
    let mut failing = builder(&client);
    failing.retry(Retry::exponential().base(HOUR).attempts(9));
    let fail = |_, _| async { Err(TaskError::retry("again")) };
    let executor = start_as(&failing, fail).await;
    let admin = client.admin();
    let mut bulk = admin.change_all(of(Status::Delayed), TaskChange::RunNow);
    let mut changed = 0;
    while let Some(part) = bulk.next().await {
        changed += part.unwrap().changed;
        assert!(changed <= 300, "{changed}");
        counts_reach(&client, |counts| counts.retried >= changed).await;
    }
    assert_eq!(changed, 300);
    assert_eq!(client.counts().await.unwrap().delayed, 300);
    drop(executor);
}

async fn a_move_that_stops_half_way_is_continued_from_its_cursor(store: TestStore) {
    let (client, other) = (store.client().await, store.client().await);
    spawn_numbers(&client, 300).await;
    let admin = client.admin();
    let waiting = || of(Status::Waiting);
    let mut first = admin.change_all(waiting(), TaskChange::move_to("bulk"));
    let part = first.next().await.unwrap().unwrap();
    assert!((1..=128).contains(&part.changed), "{part:?}");
    let cursor = first.cursor().unwrap().clone();
    drop(first);
    let rest = other
        .admin()
        .change_all(waiting(), TaskChange::move_to("bulk"));
    let (changed, unchanged) = all(rest.after(cursor)).await;
    assert_eq!(part.changed + changed, 300);
    // In some stores, tasks that have moved come again behind the cursor.
    assert!(unchanged <= 300, "{unchanged}");
    // A process that was killed and has lost the cursor begins again. It passes over tasks that are already there.
    let again = admin.change_all(waiting(), TaskChange::move_to("bulk"));
    assert_eq!(all(again).await, (0, 0));
    let mut bulk = builder(&client);
    bulk.serve(ServedQueue::new("bulk"));
    let executor = start_as(&bulk, |number, _| async move { Ok(number) }).await;
    counts_reach(&client, |counts| counts.done >= 300).await;
    let moved = admin.change_all(waiting(), TaskChange::MoveTo(None));
    assert_eq!(all(moved).await, (0, 0));
    drop(executor);
}

async fn counts_reach(client: &DurableClient, condition: impl Fn(Counts) -> bool) {
    within(async {
        while !condition(client.counts().await.unwrap()) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

async fn a_part_says_why_tasks_are_refused(store: TestStore) {
    let client = store.client().await;
    let replace = |text: &str| SpawnOptions::new().key(Key::new(text).replace());
    spawn_numbers(&client, 3).await;
    for text in ["one", "two"] {
        client.spawn_with(Number(9), replace(text)).await.unwrap();
    }
    let mut moved = client
        .admin()
        .change_all(of(Status::Waiting), TaskChange::move_to("bulk"));
    let (mut changed, mut refused) = (0, 0);
    while let Some(part) = moved.next().await {
        let part = part.unwrap();
        assert!(part.refused.keys().all(|it| *it == Refusal::Replaceable));
        changed += part.changed;
        refused += part.refused.values().sum::<u64>();
    }
    assert_eq!((changed, refused), (3, 2));
}

async fn tasks_that_come_after_the_page_are_not_changed(store: TestStore) {
    let client = store.client().await;
    let hour = || SpawnOptions::new().delay(HOUR);
    let spawn = async || client.spawn_with(Number(1), hour()).await.unwrap();
    let seen = [spawn().await.id(), spawn().await.id()];
    let derived = SpawnOptions::new()
        .id(TaskId::derive("number", b"1"))
        .delay(HOUR);
    client.spawn_with(Number(1), derived).await.unwrap();
    let admin = client.admin();
    // Ids have whole milliseconds.
    pass_a_millisecond(&client).await;
    let page = admin.tasks(&of(Status::Delayed), None, 50).await.unwrap();
    assert_eq!(page.tasks.len(), 3);
    pass_a_millisecond(&client).await;
    let later = spawn().await;
    let until = of(Status::Delayed).until(page.now);
    let listed = admin.tasks(&until, None, 50).await.unwrap();
    let listed: BTreeSet<_> = listed.tasks.iter().map(|task| task.id).collect();
    assert_eq!(listed, BTreeSet::from(seen));
    assert_eq!(
        all(admin.change_all(until, TaskChange::Cancel)).await,
        (2, 0)
    );
    assert_eq!(later.status().await.unwrap(), Status::Delayed);
}

async fn tasks_that_end_after_the_page_are_not_listed(store: TestStore) {
    let client = store.client().await;
    let admin = client.admin();
    let executor = start(&client, |number, _| async move { Ok(number) }).await;
    let done = async |number| {
        let handle = client.spawn(Number(number)).await.unwrap();
        let id = handle.id();
        within(handle).await.unwrap();
        id
    };
    let cancelled = async || {
        let later = SpawnOptions::new().delay(HOUR);
        let handle = client.spawn_with(Number(1), later).await.unwrap();
        handle.cancel().await.unwrap();
        handle.id()
    };
    let first = [done(1).await, cancelled().await];
    pass_two_milliseconds(&client).await;
    let page = admin.tasks(&of(Status::Done), None, 50).await.unwrap();
    pass_a_millisecond(&client).await;
    done(2).await;
    cancelled().await;
    for (status, first) in [Status::Done, Status::Cancelled].into_iter().zip(first) {
        let all = admin.tasks(&of(status), None, 50).await.unwrap();
        assert_eq!(all.tasks.len(), 2, "{status:?}");
        let until = of(status).until(page.now);
        let listed = admin.tasks(&until, None, 50).await.unwrap();
        let listed: Vec<_> = listed.tasks.iter().map(|task| task.id).collect();
        assert_eq!(listed, [first], "{status:?}");
    }
    drop(executor);
}

async fn dead_letters_that_die_after_the_page_are_not_changed(store: TestStore) {
    let client = store.client().await;
    let executor = start(&client, |_, _| async { Err(TaskError::fatal("no")) }).await;
    let die = async |number| {
        let handle = client.spawn(Number(number)).await.unwrap();
        let id = handle.id();
        within(handle).await.unwrap_err();
        id
    };
    let first = die(1).await;
    pass_two_milliseconds(&client).await;
    let admin = client.admin();
    let page = admin.tasks(&of(Status::Dead), None, 50).await.unwrap();
    assert_eq!(page.tasks.len(), 1);
    pass_a_millisecond(&client).await;
    let second = die(2).await;
    let until = of(Status::Dead).until(page.now);
    assert_eq!(
        all(admin.change_all(until, TaskChange::Delete)).await,
        (1, 0)
    );
    let left = admin.tasks(&of(Status::Dead), None, 50).await.unwrap();
    assert_eq!((left.tasks.len(), left.tasks[0].id), (1, second));
    assert_ne!(first, second);
    drop(executor);
}

/// With `THRONG_LONG=1`, this moves as many tasks as an operator would.
async fn no_task_is_lost_or_runs_twice_if_all_move_while_workers_drain_them(store: TestStore) {
    let many = match store {
        // This store searches all tasks for each page.
        TestStore::Memory(_) => 1_000,
        _ => 10_000,
    };
    let tasks = rounds(600, many) as u64;
    let client = store.client().await;
    let limit = |most| QueueSettings::new().max_running(most);
    client.queue("one").set(limit(2)).await.unwrap();
    client.queue("two").set(limit(3)).await.unwrap();
    let options = |number| match number % 3 {
        0 => SpawnOptions::new().queue("one"),
        1 => SpawnOptions::new()
            .queue("one")
            .group(format!("{}", number % 7)),
        _ => SpawnOptions::new()
            .queue("one")
            .delay(Duration::from_millis(number % 50)),
    };
    let all_tasks = (0..tasks).map(|number| (Number(number), options(number)));
    let handles = client.spawn_all_with(all_tasks).await.unwrap();
    let runs = Arc::new(Mutex::new(Vec::new()));
    let mut executors = Vec::new();
    for _ in 0..4 {
        let (client, runs) = (store.client().await, Arc::clone(&runs));
        let mut workers = builder(&client);
        workers
            .serve(ServedQueue::new("one"))
            .serve(ServedQueue::new("two"));
        let run = move |number, _| {
            runs.lock().unwrap().push(number);
            async move { Ok(number) }
        };
        executors.push(start_as(&workers, run).await);
    }
    let admin = client.admin();
    for queue in ["two", "one", "two"] {
        for status in [Status::Waiting, Status::Delayed] {
            all(admin.change_all(of(status), TaskChange::move_to(queue))).await;
        }
    }
    for handle in handles {
        within(handle).await.unwrap();
    }
    let mut runs = runs.lock().unwrap().clone();
    runs.sort_unstable();
    assert!(
        runs.iter().copied().eq(0..tasks),
        "a task is lost, or ran twice"
    );
    let counts = client.counts().await.unwrap();
    assert_eq!((counts.waiting, counts.running, counts.done), (0, 0, tasks));
}
