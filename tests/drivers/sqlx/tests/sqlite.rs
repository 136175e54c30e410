//! Tasks in transactions of sqlx, in SQLite.

use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};
use throng::durable::{DurableClient, Outbox, SpawnOptions, SqliteStore};

use self::task::{Ship, assert_shipped, worker};

#[path = "../../task.rs"]
mod task;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_is_stored_with_an_order() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("app.db");
    let client = DurableClient::open(SqliteStore::open(&path).await?);
    let _worker = worker(&client).await;
    let pool = SqlitePool::connect_with(SqliteConnectOptions::new().filename(&path)).await?;
    sqlx::query(Outbox::CREATE).execute(&pool).await?;
    sqlx::query("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
        .execute(&pool)
        .await?;

    let mut tx = pool.begin().await?;
    sqlx::query("INSERT INTO orders VALUES (7)")
        .execute(&mut *tx)
        .await?;
    let committed = client.outbox(Ship { order: 7 }, SpawnOptions::new())?;
    sqlx::query(Outbox::INSERT_SQLITE)
        .bind(committed.id_bytes())
        .bind(committed.body())
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    let committed = client.committed(committed);

    let mut tx = pool.begin().await?;
    let undone = client.outbox(Ship { order: 8 }, SpawnOptions::new())?;
    sqlx::query(Outbox::INSERT_SQLITE)
        .bind(undone.id_bytes())
        .bind(undone.body())
        .execute(&mut *tx)
        .await?;
    tx.rollback().await?;
    assert_shipped(&client, committed, client.committed(undone)).await;
    Ok(())
}
