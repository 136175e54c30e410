//! Rows that a relay cannot move as usual: there are many, they cannot be removed, or their contents are hostile.

use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use throng::durable::{
    Clock, InlineExecutor, OutboxRelay, SpawnOptions, Status, TaskFilter, TaskId,
};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::super::database::Statement::{Add, Sql};
use super::super::database::{Statement, add, connect_to};
use super::failures::{assert_not_moved, client_of};
use super::{AppDatabase, TestStore, row, transaction, until_moved};
use crate::harness::{builder, in_time, run_due, start_inline, timed};
use crate::postgres_server::is_installed;
use crate::redis_server::Server as Redis;

on_app_databases! {
    a_moved_row_is_reported_while_others_are_moved,
    all_rows_can_be_awaited_at_once,
    a_task_runs_once_although_its_row_cannot_be_removed_for_a_day,
    a_task_whose_row_another_process_removes_can_be_stored_again,
    rows_that_cannot_be_read_become_a_task_each_even_if_they_are_alike,
    rows_with_extreme_contents_do_not_block_others,
}

/// The type of the tasks that stand for rows that cannot be read.
const UNREADABLE: &str = "throng.unreadable-outbox-row";

async fn a_moved_row_is_reported_while_others_are_moved(database: AppDatabase) {
    // Fewer than the relay moves before it checks which rows others have moved.
    const TASKS: u64 = 4_000;
    let redis = Redis::start();
    let client = client_of(&redis).await;
    let relay = database.relay(&client).await;
    let rows: Vec<_> = (0..TASKS)
        .map(|number| row(&relay, number, SpawnOptions::new()))
        .collect();
    redis.signal(Signal::STOP);
    database.run(&transaction(&rows)).await;
    // The relay takes the first rows meanwhile.
    assert_not_moved(&relay, &rows[0]).await;
    let committed = relay.committed(rows[0].clone());
    tokio::pin!(committed);
    let polled = timeout(Duration::ZERO, &mut committed).await;
    assert!(polled.is_err(), "its row has left the outbox");
    redis.signal(Signal::CONT);
    committed.await.expect("it is moved");
    assert_ne!(database.rows().await, 0);
    until_moved(&database).await;
}

async fn all_rows_can_be_awaited_at_once(database: AppDatabase) {
    let tasks = crate::support::rounds(2_000, 50_000) as u64;
    let store = TestStore::server();
    let client = store.client().await;
    let relay = Arc::new(database.relay(&client).await);
    let rows: Vec<_> = (0..tasks)
        .map(|number| row(&relay, number, SpawnOptions::new()))
        .collect();
    database.run(&transaction(&rows)).await;
    let mut committed = JoinSet::new();
    for row in rows {
        let relay = Arc::clone(&relay);
        committed.spawn(async move { relay.committed(row).await.map(drop) });
    }
    for moved in committed.join_all().await {
        moved.expect("it is moved");
    }
    assert_eq!(database.rows().await, 0);
    assert_eq!(client.counts().await.expect("an answer").stored, tasks);
}

/// The relay goes on trying to remove the row when the store has forgotten the end of its task.
async fn a_task_runs_once_although_its_row_cannot_be_removed_for_a_day(database: AppDatabase) {
    let (clock, client) = timed();
    let relay = database.relay(&client).await;
    let row = row(&relay, 7, SpawnOptions::new());
    database.forbid_removals().await;
    database.run(&[add(&row)]).await;
    let mut executor = start_inline(builder(&client), |number, _| async move { Ok(number) }).await;
    run_and_forget(&mut executor, &clock).await;
    let status = client.status(row.id()).await.expect("an answer");
    assert_eq!((status, database.rows().await), (Status::Absent, 1));
    database.run(&[database.allow_removals()]).await;
    relay.committed(row).await.expect("it is removed");
    assert_eq!(run_due(&mut executor).await, 0);
    assert_eq!(client.counts().await.expect("an answer").stored, 1);
}

/// As after a commit of the relay whose answer was lost.
async fn a_task_whose_row_another_process_removes_can_be_stored_again(database: AppDatabase) {
    let (clock, client) = timed();
    let relay = database.relay(&client).await;
    let row = row(&relay, 7, SpawnOptions::new());
    database.forbid_removals().await;
    database.run(&[add(&row)]).await;
    let mut executor = start_inline(builder(&client), |number, _| async move { Ok(number) }).await;
    run_and_forget(&mut executor, &clock).await;
    let delete = match database {
        AppDatabase::File(_) => Sql("DELETE FROM throng_outbox"),
        _ => Sql("DELETE FROM throng.outbox"),
    };
    let removal = [
        Sql("BEGIN"),
        database.allow_removals(),
        delete,
        Sql("COMMIT"),
    ];
    database.run(&removal).await;
    relay.committed(row.clone()).await.expect("it is removed");
    database.run(&[add(&row)]).await;
    relay.committed(row).await.expect("it is moved");
    assert_eq!(run_due(&mut executor).await, 1);
    assert_eq!(client.counts().await.expect("an answer").stored, 2);
}

/// Runs a task once it is stored, and has the store remove its end.
async fn run_and_forget(executor: &mut InlineExecutor, clock: &Clock) {
    const HOUR: Duration = Duration::from_secs(3600);
    while run_due(executor).await == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for hours in [23, 2] {
        clock.advance(hours * HOUR);
        run_due(executor).await;
    }
}

async fn rows_that_cannot_be_read_become_a_task_each_even_if_they_are_alike(database: AppDatabase) {
    let store = TestStore::server();
    let client = store.client().await;
    let _relay = database.relay(&client).await;
    // In SQLite, all of them have the same number.
    for key in [&b"one"[..], b"two", &TaskId::new().to_bytes()] {
        database
            .run(&[Add(key.into(), b"\x01garbage".into())])
            .await;
        until_moved(&database).await;
    }
    let waiting = TaskFilter::new(Status::Waiting).name(UNREADABLE);
    let page = client.admin().tasks(&waiting, None, 50).await;
    assert_eq!(page.expect("an answer").tasks.len(), 3);
}

async fn rows_with_extreme_contents_do_not_block_others(database: AppDatabase) {
    let store = TestStore::server();
    let client = store.client().await;
    let relay = database.relay(&client).await;
    let rows = extreme_bodies().map(|body| Add(TaskId::new().to_bytes().into(), body));
    let count = rows.len() as u64;
    database.run(&rows).await;
    let known = row(&relay, 7, SpawnOptions::new());
    database.run(&[add(&known)]).await;
    relay.committed(known).await.expect("it is moved");
    until_moved(&database).await;
    assert_eq!(client.counts().await.expect("an answer").stored, count + 1);
}

/// Returns bodies that can be read, or nearly.
fn extreme_bodies() -> [Vec<u8>; 6] {
    let long = "n".repeat(60_000);
    let texts = [
        head(&long, "\"q\"", u64::MAX),
        head("", "null", 0),
        head("zero \\u0000 \\\" \\ud83e\\udd80", "\"q\"", u64::MAX),
        // This is no name of a queue.
        head("a", "\"a b\"", 1),
        head("a", "\"\"", 1),
        head(&long.repeat(2), "null", 1),
    ];
    texts.map(|text| {
        let len = (text.len() as u32).to_be_bytes();
        [&[1][..], &len, text.as_bytes(), b"\x01{}"].concat()
    })
}

fn head(name: &str, queue: &str, number: u64) -> String {
    format!(
        "{{\"name\":\"{name}\",\"queue\":{queue},\"group\":null,\"priority\":\"high\",\"key\":null,\
         \"delay\":{number},\"retention\":{number},\"max_crashes\":{}}}",
        number as u32
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_in_postgresql_that_commits_late_is_not_skipped() {
    needs_redis!();
    if !is_installed() {
        return;
    }
    let database = AppDatabase::shared().await;
    let store = TestStore::server();
    let client = store.client().await;
    let relay = database.relay(&client).await;
    let [early, late] = [1, 2].map(|number| row(&relay, number, SpawnOptions::new()));
    let mut db = connect_to(&database.url()).await;
    let tx = db.transaction().await.expect("it begins");
    let (id, body) = (early.id_bytes(), early.body());
    let added = tx.execute(early.insert(), &[&id, &body]).await;
    assert_eq!(added.expect("it is inserted"), 1);
    database.run(&[add(&late)]).await;
    in_time(async {
        relay.committed(late).await.expect("it is moved");
        tx.commit().await.expect("it is committed");
        let handle = relay.committed(early).await.expect("it is moved");
        assert_eq!(handle.status().await.expect("an answer"), Status::Waiting);
    })
    .await;
}

/// The relay gives the COMMIT up, which then takes effect on the primary alone. Otherwise, its rows would be locked until the standby
/// returns.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgresql_standby_that_is_gone_delays_a_removal_only_for_a_time() {
    needs_redis!();
    if !is_installed() {
        return;
    }
    let database = AppDatabase::server().await;
    // The user does not wait for the standby.
    let db = connect_to(&database.url()).await;
    for statement in [
        "ALTER ROLE throng SET synchronous_commit = local",
        "ALTER SYSTEM SET synchronous_standby_names = 'gone'",
        "SELECT pg_reload_conf()",
    ] {
        db.batch_execute(statement).await.expect("it is executed");
    }
    let url = format!("{} options='-c synchronous_commit=on'", database.url());
    // The setting takes effect after a moment.
    let db = connect_to(&url).await;
    let write = "SELECT pg_logical_emit_message(true, 'prefix', 'text')";
    while timeout(Duration::from_millis(100), db.batch_execute(write))
        .await
        .is_ok()
    {}

    let store = TestStore::server();
    let client = store.client().await;
    let relay = OutboxRelay::postgres(&client, &url).await;
    let relay = relay.expect("it can be opened");
    let row = row(&relay, 7, SpawnOptions::new());
    database.run(&[add(&row)]).await;
    in_time(async { drop(relay.committed(row).await.expect("it is moved")) }).await;
    assert_eq!(client.counts().await.expect("an answer").stored, 1);
}

/// The mode is that of the user.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_journal_mode_of_a_file_stays_as_it_is() {
    needs_redis!();
    let store = TestStore::server();
    let client = store.client().await;
    for (set, mode) in [
        ("PRAGMA journal_mode = WAL", "wal"),
        ("PRAGMA journal_mode = TRUNCATE", "truncate"),
    ] {
        let database = AppDatabase::file().await;
        let db = database.open();
        let read = |sql: &str| db.query_row(sql, [], |row| row.get::<_, String>(0));
        assert_eq!(read(set).expect("a mode"), mode);
        let relay = database.relay(&client).await;
        let row = row(&relay, 7, SpawnOptions::new());
        database
            .run(&[Sql("BEGIN"), add(&row), Sql("COMMIT")])
            .await;
        in_time(async { drop(relay.committed(row).await.expect("it is moved")) }).await;
        relay.close().await;
        assert_eq!(read("PRAGMA journal_mode").expect("a mode"), mode);
    }
    assert_eq!(client.counts().await.expect("an answer").stored, 2);
}

impl AppDatabase {
    /// Has each removal of a row of the outbox fail.
    async fn forbid_removals(&self) {
        const FILE: Statement = Sql("CREATE TRIGGER keep BEFORE DELETE ON throng_outbox
            BEGIN SELECT RAISE(ABORT, 'kept'); END");
        const SERVER: Statement = Sql("
            CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''kept''; END';
            CREATE TRIGGER keep BEFORE DELETE ON throng.outbox
                for each row EXECUTE FUNCTION keep()");
        match self {
            Self::File(_) => self.run(&[FILE]).await,
            _ => self.run(&[SERVER]).await,
        }
    }

    /// Returns the statement after which they succeed.
    fn allow_removals(&self) -> Statement {
        match self {
            Self::File(_) => Sql("DROP TRIGGER keep"),
            _ => Sql("DROP TRIGGER keep ON throng.outbox"),
        }
    }
}
