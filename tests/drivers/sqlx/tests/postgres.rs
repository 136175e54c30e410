//! Tasks in transactions of sqlx, in PostgreSQL.

use sqlx::postgres::{PgConnectOptions, PgPool};
use throng::durable::{DurableClient, Outbox, PostgresStore, SpawnOptions};

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
    let socket = server.socket();
    let options = PgConnectOptions::new()
        .socket(socket.parent().expect("it is in a folder"))
        .username("throng")
        .database("postgres");
    let pool = PgPool::connect_with(options).await?;
    sqlx::query("CREATE TABLE orders (id bigint PRIMARY KEY)")
        .execute(&pool)
        .await?;

    let mut tx = pool.begin().await?;
    sqlx::query("INSERT INTO orders VALUES (7)")
        .execute(&mut *tx)
        .await?;
    let committed = client.outbox(Ship { order: 7 }, SpawnOptions::new())?;
    sqlx::query(Outbox::INSERT_POSTGRES)
        .bind(committed.id_bytes())
        .bind(committed.body())
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    let committed = client.committed(committed);

    let mut tx = pool.begin().await?;
    let undone = client.outbox(Ship { order: 8 }, SpawnOptions::new())?;
    sqlx::query(Outbox::INSERT_POSTGRES)
        .bind(undone.id_bytes())
        .bind(undone.body())
        .execute(&mut *tx)
        .await?;
    tx.rollback().await?;
    assert_shipped(&client, committed, client.committed(undone)).await;
    Ok(())
}
