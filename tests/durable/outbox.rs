//! Tasks in a user's transactions: they are stored exactly once if the transaction commits, and not otherwise.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use throng::durable::{
    DeadFilter, DeadReason, DurableClient, Key, OutboxRow, Priority, SpawnOptions, Status, TaskId,
};

use self::database::Statement::{Add, Sql};
use self::database::{Database, add};
use crate::harness::{Number, builder, id, reaches, spawn_as, start, start_as, until};
use crate::support::rounds;

#[path = "outbox/database.rs"]
mod database;
#[path = "outbox/drivers.rs"]
mod drivers;

/// Defines a test of each function for each store that has an outbox. The functions take a [`Database`].
macro_rules! on_stores_with_outbox {
    ($($name:ident,)*) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                let database = super::database::Database::file().await;
                $crate::harness::in_time(super::$name(database)).await;
            })*
        }

        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                if $crate::postgres_server::is_installed() {
                    let database = super::database::Database::server().await;
                    $crate::harness::in_time(super::$name(database)).await;
                }
            })*
        }
    };
}

on_stores_with_outbox! {
    a_task_of_a_committed_transaction_runs,
    a_task_of_a_transaction_that_is_rolled_back_does_not_exist,
    a_task_of_a_savepoint_that_is_rolled_back_does_not_exist,
    a_task_starts_soon_if_nobody_reports_the_commit,
    a_task_in_the_outbox_waits,
    a_handle_awaits_a_task_in_the_outbox,
    a_task_in_the_outbox_can_be_cancelled,
    a_task_in_the_outbox_can_be_signalled,
    a_task_has_its_options,
    a_task_whose_key_is_held_is_joined,
    a_task_whose_key_is_held_replaces_the_payload,
    a_task_whose_key_is_held_is_rejected,
    a_task_whose_id_exists_is_stored_once,
    two_rows_with_one_id_are_one_task,
    tasks_run_once_if_several_engines_move_them,
    many_tasks_are_moved_in_their_order,
    a_row_of_a_later_version_is_left,
    a_row_that_cannot_be_read_is_a_dead_letter,
    leases_are_renewed_while_a_transaction_is_open,
}

/// Returns a client of another database. It makes rows, but never moves those of the tested database.
async fn maker() -> (Database, DurableClient) {
    let other = Database::file().await;
    let client = other.client().await;
    (other, client)
}

fn row(client: &DurableClient, number: u64, options: SpawnOptions) -> OutboxRow<Number> {
    let row = client.outbox(Number(number), options);
    row.expect("it can be stored")
}

async fn a_task_of_a_committed_transaction_runs(database: Database) {
    let client = database.client().await;
    let _executor = start(&client, |number, _| async move { Ok(number + 1) }).await;
    let row = row(&client, 7, SpawnOptions::new());
    let order = "INSERT INTO orders VALUES (7)";
    let statements = [Sql("BEGIN"), Sql(order), add(&row), Sql("COMMIT")];
    database.run(&statements).await;
    let handle = client.committed(row);
    assert_eq!(handle.await.expect("it succeeds"), 8);
    assert_eq!((database.orders().await, database.rows().await), (1, 0));
    assert_eq!(client.counts().await.expect("an answer").stored, 1);
}

async fn a_task_of_a_transaction_that_is_rolled_back_does_not_exist(database: Database) {
    let client = database.client().await;
    let row = row(&client, 7, SpawnOptions::new());
    let order = "INSERT INTO orders VALUES (7)";
    let statements = [Sql("BEGIN"), Sql(order), add(&row), Sql("ROLLBACK")];
    database.run(&statements).await;
    let handle = client.committed(row);
    assert!(handle.await.is_err_and(|error| error.is_expired()));
    assert_eq!((database.orders().await, database.rows().await), (0, 0));
    assert_eq!(client.counts().await.expect("an answer").stored, 0);
}

async fn a_task_of_a_savepoint_that_is_rolled_back_does_not_exist(database: Database) {
    let client = database.client().await;
    let _executor = start(&client, |number, _| async move { Ok(number) }).await;
    let [undone, done] = [1, 2].map(|number| row(&client, number, SpawnOptions::new()));
    let statements = [
        Sql("BEGIN"),
        Sql("SAVEPOINT inner_one"),
        add(&undone),
        Sql("ROLLBACK TO SAVEPOINT inner_one"),
        add(&done),
        Sql("COMMIT"),
    ];
    database.run(&statements).await;
    assert_eq!(client.committed(done).await.expect("it succeeds"), 2);
    let undone = client.attach::<Number>(undone.id());
    assert_eq!(undone.status().await.expect("an answer"), Status::Absent);
}

/// The machine may be busy, so only the shortest of several times counts.
async fn a_task_starts_soon_if_nobody_reports_the_commit(database: Database) {
    let (_other, maker) = maker().await;
    let client = database.client().await;
    let started = Arc::new(Mutex::new(HashSet::new()));
    let ran = Arc::clone(&started);
    let _executor = start(&client, move |number, _| {
        let ran = Arc::clone(&ran);
        async move {
            ran.lock().expect("no panic").insert(number);
            Ok(number)
        }
    })
    .await;
    let mut shortest = Duration::MAX;
    for number in 0..5 {
        let row = row(&maker, number, SpawnOptions::new());
        database.run(&[add(&row)]).await;
        let committed = Instant::now();
        let has_started = || started.lock().expect("no panic").contains(&number);
        until("it starts", has_started).await;
        shortest = shortest.min(committed.elapsed());
        if shortest < Duration::from_millis(1_100) {
            return;
        }
    }
    panic!("a task starts {shortest:?} after the commit");
}

async fn a_task_in_the_outbox_waits(database: Database) {
    let (_other, maker) = maker().await;
    let client = database.client().await;
    let row = row(&maker, 7, SpawnOptions::new());
    let handle = client.attach::<Number>(row.id());
    assert_eq!(handle.status().await.expect("an answer"), Status::Absent);
    database.run(&[add(&row)]).await;
    assert_eq!(handle.status().await.expect("an answer"), Status::Waiting);
    assert_eq!(database.rows().await, 1, "nobody has moved it");
    assert_eq!(client.counts().await.expect("an answer").waiting, 0);
}

async fn a_handle_awaits_a_task_in_the_outbox(database: Database) {
    let (_other, maker) = maker().await;
    let client = database.client().await;
    let row = row(&maker, 7, SpawnOptions::new());
    database.run(&[add(&row)]).await;
    let mut progress = client.attach::<Number>(row.id()).progress::<u64>();
    let handle = tokio::spawn(client.attach::<Number>(row.id()));
    let has_progress = tokio::time::timeout(Duration::from_millis(300), progress.next());
    assert!(has_progress.await.is_err(), "the stream waits, too");
    assert!(!handle.is_finished());
    let _executor = start(
        &database.client().await,
        |number, _| async move { Ok(number) },
    )
    .await;
    assert_eq!(handle.await.expect("no panic").expect("it succeeds"), 7);
    assert!(progress.next().await.is_none());
}

async fn a_task_in_the_outbox_can_be_cancelled(database: Database) {
    let (_other, maker) = maker().await;
    let client = database.client().await;
    let row = row(&maker, 7, SpawnOptions::new());
    database.run(&[add(&row)]).await;
    let handle = client.attach::<Number>(row.id());
    assert!(handle.cancel().await.expect("an answer"));
    assert_eq!(database.rows().await, 0);
    assert!(handle.await.is_err_and(|error| error.is_cancelled()));
}

async fn a_task_in_the_outbox_can_be_signalled(database: Database) {
    let (_other, maker) = maker().await;
    let client = database.client().await;
    let row = row(&maker, 7, SpawnOptions::new());
    database.run(&[add(&row)]).await;
    let sent = client.signal(row.id(), "paid", &35_u64).await;
    assert!(sent.expect("it has not ended"));
    let _executor = start(&client, |number, cx| async move {
        Ok(number + cx.signal::<u64>("paid").await?)
    })
    .await;
    let handle = client.attach::<Number>(row.id());
    assert_eq!(handle.await.expect("it succeeds"), 42);
}

async fn a_task_has_its_options(database: Database) {
    let client = database.client().await;
    let options = SpawnOptions::new()
        .id(id(7))
        .queue("mail")
        .group("customer 7")
        .priority(Priority::High)
        .max_crashes(5)
        .delay(Duration::from_secs(3600));
    let row = row(&client, 7, options);
    assert_eq!(row.id(), id(7));
    database.run(&[add(&row)]).await;
    reaches(&client.committed(row), Status::Delayed).await;
    let found = client.admin().task(id(7)).await.expect("an answer");
    let detail = found.expect("it is stored");
    let task = &detail.task;
    assert_eq!(task.name.as_deref(), Some("number"));
    assert_eq!(task.queue.as_deref(), Some("mail"));
    assert_eq!(task.group.as_deref(), Some("customer 7"));
    assert_eq!(detail.priority, Some(Priority::High));
    assert_eq!(client.counts().await.expect("an answer").delayed, 1);
}

async fn a_task_whose_key_is_held_is_joined(database: Database) {
    let client = database.client().await;
    let with_key = || SpawnOptions::new().key(Key::new("k"));
    let holder = spawn_as(&client, 1, with_key()).await;
    let row = row(&client, 2, with_key());
    database.run(&[add(&row)]).await;
    let mut handle = client.committed(row);
    until_moved(&database).await;
    assert_eq!(handle.status().await.expect("an answer"), Status::Waiting);
    let _executor = start(&client, |number, _| async move { Ok(number) }).await;
    assert_eq!((&mut handle).await.expect("it succeeds"), 1);
    assert!(handle.was_joined() && handle.id() == holder.id());
    let counts = client.counts().await.expect("an answer");
    assert_eq!((counts.stored, counts.done), (1, 1));
}

async fn a_task_whose_key_is_held_replaces_the_payload(database: Database) {
    let client = database.client().await;
    let with_key = || SpawnOptions::new().key(Key::new("k").replace());
    let holder = spawn_as(&client, 1, with_key()).await;
    let row = row(&client, 2, with_key());
    database.run(&[add(&row)]).await;
    let mut handle = client.committed(row);
    until_moved(&database).await;
    let _executor = start(&client, |number, _| async move { Ok(number) }).await;
    assert_eq!((&mut handle).await.expect("it succeeds"), 2);
    assert!(handle.has_replaced() && handle.id() == holder.id());
    assert_eq!(holder.await.expect("it succeeds"), 2);
}

async fn a_task_whose_key_is_held_is_rejected(database: Database) {
    let client = database.client().await;
    let with_key = || SpawnOptions::new().key(Key::new("k").reject());
    let holder = spawn_as(&client, 1, with_key()).await;
    let row = row(&client, 2, with_key());
    database.run(&[add(&row)]).await;
    let error = client.committed(row.clone()).await.unwrap_err();
    assert!(error.is_conflict(), "{error}");
    assert_eq!(error.task_id(), Some(holder.id()));
    // Another client gets the same answer later.
    let later = database.client().await.attach::<Number>(row.id()).await;
    assert!(later.is_err_and(|error| error.is_conflict()));
    assert_eq!(client.counts().await.expect("an answer").stored, 1);
}

async fn a_task_whose_id_exists_is_stored_once(database: Database) {
    let client = database.client().await;
    let first = spawn_as(&client, 1, SpawnOptions::new().id(id(9))).await;
    let row = row(&client, 2, SpawnOptions::new().id(id(9)));
    database.run(&[add(&row)]).await;
    let second = client.committed(row);
    until_moved(&database).await;
    let _executor = start(&client, |number, _| async move { Ok(number) }).await;
    assert_eq!(first.await.expect("it succeeds"), 1);
    assert_eq!(second.await.expect("it succeeds"), 1);
    assert_eq!(client.counts().await.expect("an answer").stored, 1);
}

async fn two_rows_with_one_id_are_one_task(database: Database) {
    let (_other, maker) = maker().await;
    let rows = [1, 2].map(|number| row(&maker, number, SpawnOptions::new().id(id(9))));
    // The second row does not make the transaction fail.
    let statements = [
        Sql("BEGIN"),
        add(&rows[0]),
        add(&rows[1]),
        Sql("INSERT INTO orders VALUES (1)"),
        Sql("COMMIT"),
    ];
    database.run(&statements).await;
    assert_eq!((database.orders().await, database.rows().await), (1, 1));
    let client = database.client().await;
    let _executor = start(&client, |number, _| async move { Ok(number) }).await;
    let handle = client.attach::<Number>(id(9));
    assert_eq!(handle.await.expect("it succeeds"), 1);
}

/// Several engines look at the same time.
async fn tasks_run_once_if_several_engines_move_them(database: Database) {
    const TASKS: u64 = 2_000;
    let (_other, maker) = maker().await;
    let runs = Arc::new(Mutex::new(Vec::new()));
    let mut executors = Vec::new();
    for _ in 0..3 {
        let runs = Arc::clone(&runs);
        let client = database.client().await;
        let builder = builder(&client);
        let executor = start_as(builder, move |number, _| {
            runs.lock().expect("no panic").push(number);
            async move { Ok(number) }
        });
        executors.push((executor.await, client));
    }
    let rows = (0..TASKS).map(|number| row(&maker, number, SpawnOptions::new()));
    let rows = rows.map(|row| add(&row));
    let statements = [Sql("BEGIN")].into_iter().chain(rows);
    let statements: Vec<_> = statements.chain([Sql("COMMIT")]).collect();
    database.run(&statements).await;
    // The commit is reported to all of them, too.
    for (_, client) in &executors {
        drop(client.committed(row(client, 0, SpawnOptions::new())));
    }
    let has_all = || runs.lock().expect("no panic").len() as u64 >= TASKS;
    until("all have run", has_all).await;
    for (executor, _) in &executors {
        executor.shutdown(Duration::from_secs(10)).await;
    }
    let mut runs = runs.lock().expect("no panic").clone();
    runs.sort_unstable();
    assert!(runs.into_iter().eq(0..TASKS));
    let client = database.client().await;
    let counts = client.counts().await.expect("an answer");
    assert_eq!((counts.stored, counts.done), (TASKS, TASKS), "{counts:?}");
    assert_eq!(database.rows().await, 0);
}

async fn many_tasks_are_moved_in_their_order(database: Database) {
    let tasks = rounds(10_000, 100_000) as u64;
    let client = database.client().await;
    let rows: Vec<_> = (0..tasks)
        .map(|number| row(&client, number, SpawnOptions::new().queue("q")))
        .collect();
    let statements = [Sql("BEGIN")].into_iter().chain(rows.iter().map(add));
    let statements: Vec<_> = statements.chain([Sql("COMMIT")]).collect();
    database.run(&statements).await;
    let begun = Instant::now();
    drop(client.committed(rows[0].clone()));
    while client.counts().await.expect("an answer").waiting < tasks {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    println!("{tasks} tasks were moved in {:?}", begun.elapsed());
    assert_eq!(client.counts().await.expect("an answer").stored, tasks);
    let head = client.admin().head(Some("q"), 50).await.expect("an answer");
    let first = head.tasks.iter().map(|task| task.id);
    assert!(first.eq(rows.iter().take(50).map(OutboxRow::id)));
}

async fn a_row_of_a_later_version_is_left(database: Database) {
    let (_other, maker) = maker().await;
    let [later, known] = [1, 2].map(|number| row(&maker, number, SpawnOptions::new()));
    let mut body = later.body().to_vec();
    body[0] += 1;
    let rows = [Add(later.id_bytes().to_vec(), body), add(&known)];
    database.run(&rows).await;
    let client = database.client().await;
    let _executor = start(&client, |number, _| async move { Ok(number) }).await;
    let handle = client.attach::<Number>(known.id());
    assert_eq!(handle.await.expect("it succeeds"), 2);
    assert_eq!(database.rows().await, 1);
    let later = client.attach::<Number>(later.id());
    assert_eq!(later.status().await.expect("an answer"), Status::Waiting);
    let report = client.admin().report().await.expect("an answer");
    let findings: Vec<_> = report.findings.iter().map(|it| it.id).collect();
    assert!(findings.contains(&"outbox.newer"), "{findings:?}");
}

async fn a_row_that_cannot_be_read_is_a_dead_letter(database: Database) {
    let (_other, maker) = maker().await;
    let known = row(&maker, 2, SpawnOptions::new());
    let [first, second] = [TaskId::new(), TaskId::new()];
    let rows = [
        Add(first.to_bytes().to_vec(), b"\x01garbage".to_vec()),
        Add(b"no id".to_vec(), known.body().to_vec()),
        Add(second.to_bytes().to_vec(), Vec::new()),
        add(&known),
    ];
    database.run(&rows).await;
    let client = database.client().await;
    // A task with one of these ids runs nevertheless.
    let same_id = spawn_as(&client, 3, SpawnOptions::new().id(second)).await;
    let _executor = start(&client, |number, _| async move { Ok(number) }).await;
    let handle = client.attach::<Number>(known.id());
    assert_eq!(handle.await.expect("it succeeds"), 2);
    assert_eq!(same_id.await.expect("it succeeds"), 3);
    until_moved(&database).await;
    let error = client.attach::<Number>(first).await.unwrap_err();
    assert_eq!(error.dead_reason(), Some(DeadReason::Unreadable));
    assert!(error.to_string().contains("a row of the outbox"), "{error}");
    let letters = client.dead_letters().list(DeadFilter::all(), 10).await;
    assert_eq!(letters.expect("an answer").len(), 3);
}

/// The transaction takes several times as long as a lease.
async fn leases_are_renewed_while_a_transaction_is_open(database: Database) {
    let client = database.client().await;
    let mut builder = builder(&client);
    builder.lease(Duration::from_millis(500));
    let _executor = start_as(builder, |number, _| async move {
        tokio::time::sleep(Duration::from_millis(2_000)).await;
        Ok(number)
    })
    .await;
    let running = spawn_as(&client, 1, SpawnOptions::new()).await;
    reaches(&running, Status::Running).await;
    let row = row(&client, 2, SpawnOptions::new());
    if let Database::Server(_) = database {
        let sleep = Sql("SELECT pg_sleep(3)");
        let statements = [Sql("BEGIN"), add(&row), sleep, Sql("COMMIT")];
        database.run(&statements).await;
    } else {
        // A file has one writer at a time, so this transaction only reads, and the row is inserted afterwards.
        let db = database.open();
        let begin = "BEGIN; SELECT count(*) FROM orders";
        db.execute_batch(begin).expect("it begins");
        tokio::time::sleep(Duration::from_secs(3)).await;
        db.execute_batch("COMMIT").expect("it is committed");
        database.run(&[add(&row)]).await;
    }
    assert_eq!(running.await.expect("it succeeds"), 1);
    assert_eq!(client.committed(row).await.expect("it succeeds"), 2);
    let counts = client.counts().await.expect("an answer");
    assert_eq!((counts.lost, counts.crashed), (0, 0), "{counts:?}");
}

/// Waits until the outbox is empty.
async fn until_moved(database: &Database) {
    while database.rows().await > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
