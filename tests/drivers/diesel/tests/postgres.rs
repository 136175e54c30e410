//! Tasks in transactions of diesel, in PostgreSQL.

use diesel::prelude::*;
use diesel::result::Error;
use diesel::sql_query;
use diesel::sql_types::Binary;
use throng::durable::{DurableClient, Outbox, OutboxRow, PostgresStore, SpawnOptions};

use self::postgres_server::Server;
use self::task::{Ship, assert_shipped, worker};

#[path = "../../../support/postgres_server.rs"]
#[allow(dead_code, reason = "other tests need all of it")]
mod postgres_server;
#[path = "../../task.rs"]
mod task;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_is_stored_with_an_order() -> Result<(), Box<dyn std::error::Error>> {
    let server = Server::start();
    let client = DurableClient::open(PostgresStore::open(&server.url()).await?);
    let _worker = worker(&client).await;
    let mut db = PgConnection::establish(&server.url())?;
    sql_query("CREATE TABLE orders (id bigint PRIMARY KEY)").execute(&mut db)?;

    let committed = client.outbox(Ship { order: 7 }, SpawnOptions::new())?;
    db.transaction(|db| {
        sql_query("INSERT INTO orders VALUES (7)").execute(db)?;
        insert(db, &committed)
    })?;
    let committed = client.committed(committed);

    let undone = client.outbox(Ship { order: 8 }, SpawnOptions::new())?;
    let rolled_back = db.transaction(|db| {
        insert(db, &undone)?;
        Err::<(), _>(Error::RollbackTransaction)
    });
    assert_eq!(rolled_back, Err(Error::RollbackTransaction));
    assert_shipped(&client, committed, client.committed(undone)).await;
    Ok(())
}

fn insert(db: &mut PgConnection, row: &OutboxRow<Ship>) -> QueryResult<()> {
    let inserted = sql_query(Outbox::INSERT_POSTGRES)
        .bind::<Binary, _>(row.id_bytes())
        .bind::<Binary, _>(row.body())
        .execute(db);
    inserted.map(drop)
}
