//! Tasks in transactions of diesel, in SQLite.

use diesel::prelude::*;
use diesel::result::Error;
use diesel::sql_query;
use diesel::sql_types::Binary;
use throng::durable::{DurableClient, Outbox, OutboxRow, SpawnOptions, SqliteStore};

use self::task::{Ship, assert_shipped, worker};

#[path = "../../task.rs"]
mod task;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_is_stored_with_an_order() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("app.db");
    let client = DurableClient::open(SqliteStore::open(&path).await?);
    let _worker = worker(&client).await;
    let mut db = SqliteConnection::establish(path.to_str().expect("a text"))?;
    sql_query("PRAGMA busy_timeout = 30000").execute(&mut db)?;
    sql_query(Outbox::CREATE).execute(&mut db)?;
    sql_query("CREATE TABLE orders (id INTEGER PRIMARY KEY)").execute(&mut db)?;

    let committed = client.outbox(Ship { order: 7 }, SpawnOptions::new())?;
    db.immediate_transaction(|db| {
        sql_query("INSERT INTO orders VALUES (7)").execute(db)?;
        insert(db, &committed)
    })?;
    let committed = client.committed(committed);

    let undone = client.outbox(Ship { order: 8 }, SpawnOptions::new())?;
    let rolled_back = db.immediate_transaction(|db| {
        insert(db, &undone)?;
        Err::<(), _>(Error::RollbackTransaction)
    });
    assert_eq!(rolled_back, Err(Error::RollbackTransaction));
    assert_shipped(&client, committed, client.committed(undone)).await;
    Ok(())
}

fn insert(db: &mut SqliteConnection, row: &OutboxRow<Ship>) -> QueryResult<()> {
    let inserted = sql_query(Outbox::INSERT_SQLITE)
        .bind::<Binary, _>(row.id_bytes())
        .bind::<Binary, _>(row.body())
        .execute(db);
    inserted.map(drop)
}
