//! Tasks in transactions of the user whose store is elsewhere: a relay moves them.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use throng::durable::{
    DurableClient, Key, OutboxRelay, OutboxRow, SpawnOptions, Status, TaskFilter, TaskId,
};

use super::database::Statement::{Add, Sql};
use super::database::{Statement, add};
use super::relay_database::AppDatabase;
use crate::harness::{
    Number, TestStore, builder, id, run_due, start, start_as, start_inline, timed, until,
};

/// Makes a test for each database that can have an outbox of functions that take an [`AppDatabase`]. The tasks are in Redis.
macro_rules! on_app_databases {
    ($($name:ident,)*) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                needs_redis!();
                let database = super::AppDatabase::file().await;
                $crate::harness::in_time(super::$name(database)).await;
            })*
        }

        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                needs_redis!();
                if $crate::postgres_server::is_installed() {
                    let database = super::AppDatabase::shared().await;
                    $crate::harness::in_time(super::$name(database)).await;
                }
            })*
        }
    };
}

#[path = "relay_failures.rs"]
mod failures;
#[path = "relay_opening.rs"]
mod opening;
#[path = "relay_rows.rs"]
mod rows;

on_app_databases! {
    a_task_of_a_committed_transaction_is_stored,
    a_task_of_a_transaction_that_is_rolled_back_does_not_exist,
    a_task_starts_soon_if_nobody_reports_the_commit,
    a_task_has_its_options,
    two_relays_share_the_rows,
    many_rows_are_moved_in_their_order,
    a_row_that_is_added_again_changes_nothing,
    an_end_is_kept_for_a_day,
    a_row_of_a_later_version_is_left,
    a_row_that_cannot_be_read_is_found_by_an_operator,
    a_task_with_a_key_is_refused,
    a_relay_that_is_closed_moves_nothing,
    a_relay_of_a_closed_client_ends,
}

fn row(relay: &OutboxRelay, number: u64, options: SpawnOptions) -> OutboxRow<Number> {
    let row = relay.outbox(Number(number), options);
    row.expect("it can be stored")
}

/// Returns a relay that makes rows, and never moves any of the tested database: its own is another one.
async fn maker(client: &DurableClient) -> (AppDatabase, OutboxRelay) {
    let other = AppDatabase::file().await;
    let relay = other.relay(client).await;
    (other, relay)
}

/// Returns a transaction that adds rows.
fn transaction(rows: &[OutboxRow<Number>]) -> Vec<Statement> {
    let rows = rows.iter().map(add);
    let statements = [Sql("BEGIN")].into_iter().chain(rows);
    statements.chain([Sql("COMMIT")]).collect()
}

async fn until_moved(database: &AppDatabase) {
    while database.rows().await > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn a_task_of_a_committed_transaction_is_stored(database: AppDatabase) {
    let store = TestStore::server();
    let client = store.client().await;
    let relay = database.relay(&client).await;
    let row = row(&relay, 7, SpawnOptions::new());
    let order = "INSERT INTO orders VALUES (7)";
    let statements = [Sql("BEGIN"), Sql(order), add(&row), Sql("COMMIT")];
    database.run(&statements).await;
    let handle = relay.committed(row).await.expect("it is moved");
    assert_eq!(handle.status().await.expect("an answer"), Status::Waiting);
    assert_eq!((database.orders().await, database.rows().await), (1, 0));
    let _executor = start(&client, |number, _| async move { Ok(number + 1) }).await;
    assert_eq!(handle.await.expect("it succeeds"), 8);
    assert_eq!(client.counts().await.expect("an answer").stored, 1);
}

async fn a_task_of_a_transaction_that_is_rolled_back_does_not_exist(database: AppDatabase) {
    let store = TestStore::server();
    let client = store.client().await;
    let relay = database.relay(&client).await;
    let row = row(&relay, 7, SpawnOptions::new());
    let order = "INSERT INTO orders VALUES (7)";
    let statements = [Sql("BEGIN"), Sql(order), add(&row), Sql("ROLLBACK")];
    database.run(&statements).await;
    let handle = relay.committed(row).await.expect("there is no row");
    assert!(handle.await.is_err_and(|error| error.is_expired()));
    assert_eq!((database.orders().await, database.rows().await), (0, 0));
    assert_eq!(client.counts().await.expect("an answer").stored, 0);
}

/// The machine may be busy, so the shortest time of several counts.
async fn a_task_starts_soon_if_nobody_reports_the_commit(database: AppDatabase) {
    let store = TestStore::server();
    let client = store.client().await;
    let relay = database.relay(&client).await;
    let _executor = start(&client, |number, _| async move { Ok(number) }).await;
    let mut shortest = Duration::MAX;
    for number in 0..5 {
        let row = row(&relay, number, SpawnOptions::new());
        database.run(&[add(&row)]).await;
        let committed = Instant::now();
        until_moved(&database).await;
        let handle = client.attach::<Number>(row.id());
        assert_eq!(handle.await.expect("it succeeds"), number);
        shortest = shortest.min(committed.elapsed());
        if shortest < Duration::from_millis(1_100) {
            return;
        }
    }
    panic!("a task starts {shortest:?} after the commit");
}

async fn a_task_has_its_options(database: AppDatabase) {
    let store = TestStore::server();
    let client = store.client().await;
    let relay = database.relay(&client).await;
    let options = SpawnOptions::new()
        .id(id(7))
        .queue("mail")
        .group("customer 7")
        .delay(Duration::from_secs(3600));
    let row = row(&relay, 7, options);
    assert_eq!(row.id(), id(7));
    database.run(&[add(&row)]).await;
    let handle = relay.committed(row).await.expect("it is moved");
    assert_eq!(handle.status().await.expect("an answer"), Status::Delayed);
    let found = client.admin().task(id(7)).await.expect("an answer");
    let task = found.expect("it is stored").task;
    assert_eq!(task.name.as_deref(), Some("number"));
    assert_eq!(task.queue.as_deref(), Some("mail"));
    assert_eq!(task.group.as_deref(), Some("customer 7"));
}

/// Those of two processes, which look at the same time.
async fn two_relays_share_the_rows(database: AppDatabase) {
    const TASKS: u64 = 2_000;
    let store = TestStore::server();
    let clients = [store.client().await, store.client().await];
    let relays = [
        database.relay(&clients[0]).await,
        database.relay(&clients[1]).await,
    ];
    let runs = Arc::new(Mutex::new(Vec::new()));
    let ran = Arc::clone(&runs);
    let executor = start_as(builder(&clients[0]), move |number, _| {
        ran.lock().expect("no panic").push(number);
        async move { Ok(number) }
    })
    .await;
    let rows: Vec<_> = (0..TASKS)
        .map(|number| row(&relays[0], number, SpawnOptions::new()))
        .collect();
    database.run(&transaction(&rows)).await;
    // Both are told at the same time, too.
    let [first, last] = [&rows[0], &rows[rows.len() - 1]].map(Clone::clone);
    let moved = tokio::join!(relays[0].committed(last), relays[1].committed(first));
    drop((moved.0.expect("it is moved"), moved.1.expect("it is moved")));
    let has_all = || runs.lock().expect("no panic").len() as u64 >= TASKS;
    until("all have run", has_all).await;
    until_moved(&database).await;
    executor.shutdown(Duration::from_secs(10)).await;
    let mut runs = runs.lock().expect("no panic").clone();
    runs.sort_unstable();
    assert!(runs.into_iter().eq(0..TASKS));
    let counts = clients[1].counts().await.expect("an answer");
    assert_eq!((counts.stored, counts.done), (TASKS, TASKS), "{counts:?}");
}

async fn many_rows_are_moved_in_their_order(database: AppDatabase) {
    let tasks = crate::support::rounds(5_000, 100_000) as u64;
    let store = TestStore::server();
    let client = store.client().await;
    let relay = database.relay(&client).await;
    let rows: Vec<_> = (0..tasks)
        .map(|number| row(&relay, number, SpawnOptions::new().queue("q")))
        .collect();
    database.run(&transaction(&rows)).await;
    let begun = Instant::now();
    let last = rows[rows.len() - 1].clone();
    relay.committed(last).await.expect("it is moved");
    println!("{tasks} tasks were moved in {:?}", begun.elapsed());
    assert_eq!(database.rows().await, 0);
    assert_eq!(client.counts().await.expect("an answer").stored, tasks);
    let head = client.admin().head(Some("q"), 50).await.expect("an answer");
    let first = head.tasks.iter().map(|task| task.id);
    assert!(first.eq(rows.iter().take(50).map(OutboxRow::id)));
}

/// As after the death of a relay between its two steps.
async fn a_row_that_is_added_again_changes_nothing(database: AppDatabase) {
    let store = TestStore::server();
    let client = store.client().await;
    let relay = database.relay(&client).await;
    let executor = start(&client, |number, _| async move { Ok(number) }).await;
    let row = row(&relay, 7, SpawnOptions::new().retention(Duration::ZERO));
    for _ in 0..2 {
        database.run(&[add(&row)]).await;
        let handle = relay.committed(row.clone()).await.expect("it is moved");
        assert_eq!(handle.await.expect("it succeeds"), 7);
    }
    assert_eq!(client.counts().await.expect("an answer").stored, 1);
    assert_eq!(executor.metrics().completed, 1);
}

/// A store in memory has a clock that can be set.
async fn an_end_is_kept_for_a_day(database: AppDatabase) {
    const HOUR: Duration = Duration::from_secs(3600);
    let (clock, client) = timed();
    let relay = database.relay(&client).await;
    let rows =
        [HOUR, 30 * HOUR].map(|retention| row(&relay, 7, SpawnOptions::new().retention(retention)));
    database.run(&transaction(&rows)).await;
    let [short, long] = rows;
    let short = relay.committed(short).await.expect("it is moved");
    let long = relay.committed(long).await.expect("it is moved");
    let mut executor = start_inline(builder(&client), |number, _| async move { Ok(number) }).await;
    assert_eq!(run_due(&mut executor).await, 2);
    for (hours, expected) in [
        (23, [Status::Done, Status::Done]),
        (2, [Status::Absent, Status::Done]),
        (6, [Status::Absent, Status::Absent]),
    ] {
        clock.advance(hours * HOUR);
        run_due(&mut executor).await;
        let found = [
            short.status().await.expect("an answer"),
            long.status().await.expect("an answer"),
        ];
        assert_eq!(found, expected, "after {hours} more hours");
    }
}

async fn a_row_of_a_later_version_is_left(database: AppDatabase) {
    let store = TestStore::server();
    let client = store.client().await;
    let relay = database.relay(&client).await;
    let [later, known] = [1, 2].map(|number| row(&relay, number, SpawnOptions::new()));
    let mut body = later.body().to_vec();
    body[0] += 1;
    let rows = [Add(later.id_bytes().to_vec(), body), add(&known)];
    database.run(&rows).await;
    relay.committed(known).await.expect("it is moved");
    assert_eq!(database.rows().await, 1);
    let later = client.status(later.id()).await.expect("an answer");
    assert_eq!(later, Status::Absent);
}

async fn a_row_that_cannot_be_read_is_found_by_an_operator(database: AppDatabase) {
    const NAME: &str = "throng.unreadable-outbox-row";
    let store = TestStore::server();
    let client = store.client().await;
    let relay = database.relay(&client).await;
    let known = row(&relay, 2, SpawnOptions::new());
    let body = || b"\x01garbage".to_vec();
    let rows = [
        Add(TaskId::new().to_bytes().to_vec(), body()),
        Add(b"no id".to_vec(), known.body().to_vec()),
        Add(b"the same".to_vec(), known.body().to_vec()),
        // A task has this id already, and another row has this body.
        Add(id(9).to_bytes().to_vec(), body()),
        add(&known),
    ];
    client
        .spawn_with(Number(9), SpawnOptions::new().id(id(9)))
        .await
        .expect("it is stored");
    database.run(&rows).await;
    relay.committed(known).await.expect("it is moved");
    until_moved(&database).await;
    let waiting = TaskFilter::new(Status::Waiting).name(NAME);
    let page = client.admin().tasks(&waiting, None, 50).await;
    assert_eq!(page.expect("an answer").tasks.len(), 4);
    let _executor = start(&client, |number, _| async move { Ok(number) }).await;
    let report = client.admin().report().await.expect("an answer");
    let findings: Vec<_> = report.findings.iter().map(|it| it.id).collect();
    assert!(findings.contains(&"types.unserved"), "{findings:?}");
}

async fn a_task_with_a_key_is_refused(database: AppDatabase) {
    let store = TestStore::server();
    let client = store.client().await;
    let relay = database.relay(&client).await;
    let options = SpawnOptions::new().key(Key::new("k"));
    let error = relay.outbox(Number(1), options).unwrap_err();
    assert!(error.is_invalid(), "{error}");
    assert!(
        error.to_string().contains("`DurableClient::derive_id`"),
        "{error}"
    );
}

async fn a_relay_that_is_closed_moves_nothing(database: AppDatabase) {
    let store = TestStore::server();
    let client = store.client().await;
    let relay = database.relay(&client).await;
    let row = row(&relay, 7, SpawnOptions::new());
    relay.close().await;
    database.run(&[add(&row)]).await;
    let relay = database.relay(&client).await;
    relay.committed(row).await.expect("it is moved");
    assert_eq!(database.rows().await, 0);
}

async fn a_relay_of_a_closed_client_ends(database: AppDatabase) {
    let store = TestStore::server();
    let client = store.client().await;
    let relay = database.relay(&client).await;
    client.close().await.expect("it ends in order");
    let row = row(&relay, 7, SpawnOptions::new());
    database.run(&[add(&row)]).await;
    let error = relay.committed(row).await.unwrap_err();
    assert!(error.is_closed(), "{error}");
    assert_eq!(database.rows().await, 1, "it stays there");
    relay.close().await;
}

/// The relay that has made a row need not move it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_is_stored_in_a_transaction_of_rusqlite() {
    needs_redis!();
    let database = AppDatabase::file().await;
    let store = TestStore::server();
    let client = store.client().await;
    let (_other, maker) = maker(&client).await;
    let relay = database.relay(&client).await;
    let mut db = database.open();
    let tx = db.transaction().expect("it begins");
    let row = maker.spawn_in(&tx, Number(1)).expect("it is inserted");
    tx.commit().expect("it is committed");
    let handle = relay.committed(row).await.expect("it is moved");
    assert_eq!(handle.status().await.expect("an answer"), Status::Waiting);
}
