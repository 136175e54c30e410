//! Creates the tables of a store.

use super::connection::{Connection, quoted};
use super::error::Fault;
use super::meta;
use super::shared::Shared;
use crate::durable::Retention;
use crate::durable::store::kept::Limits;

/// The statements that create the tables.
const SCHEMA: &str = include_str!("schema.sql");

const FIND_TABLE: &str = "SELECT 1 FROM pg_catalog.pg_class
    JOIN pg_catalog.pg_namespace ON pg_namespace.oid = relnamespace
    WHERE nspname = $1 AND relname = 'meta'";

/// Creates the tables if they do not exist, and checks the layout of the store.
pub(super) async fn migrate(db: &Connection, shared: &Shared) -> Result<(), Fault> {
    if !exists(db, shared).await? {
        db.batch("BEGIN").await?;
        let created = create(db, shared).await;
        let end = if created.is_ok() {
            "COMMIT"
        } else {
            "ROLLBACK"
        };
        db.batch(end).await?;
        created?;
    }
    check(db, shared).await
}

/// Checks that the store exists and has a layout that this process knows.
pub(super) async fn check(db: &Connection, shared: &Shared) -> Result<(), Fault> {
    meta::load(db, shared).await.map(drop)
}

/// Returns `true` if the store has tables.
pub(super) async fn exists(db: &Connection, shared: &Shared) -> Result<bool, Fault> {
    Ok(db
        .row(FIND_TABLE, &[&&*shared.server.schema])
        .await?
        .is_some())
}

async fn create(db: &Connection, shared: &Shared) -> Result<(), Fault> {
    // Two processes may do this at the same time.
    db.batch(&format!(
        "SELECT pg_advisory_xact_lock({})",
        shared.store_lock
    ))
    .await?;
    if exists(db, shared).await? {
        return Ok(());
    }
    let schema = quoted(&shared.server.schema);
    let sql = db.in_schema(SCHEMA);
    db.batch(&sql.replace("EXISTS throng;", &format!("EXISTS {schema};")))
        .await?;
    let now = shared.time.now(meta::server_time(db).await?);
    let [dead_for, dead_most, kept_most, dead_since] =
        Limits::of(Retention::default(), 0).numbers();
    let row = format!(
        "INSERT INTO throng.meta (layout, aged, aged_at, dead_for, dead_most, kept_most, dead_since)
         VALUES ({}, 0, {}, {dead_for}, {dead_most}, {kept_most}, {dead_since})",
        shared.layouts.newest, now.boot
    );
    db.batch(&db.in_schema(&row)).await?;
    Ok(())
}
