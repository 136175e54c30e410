//! Creates the tables of a store.

use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

use super::connection::{BEGIN, Connection, quoted};
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

const FIND_SCHEMA: &str = "SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = $1";

/// The maximum time for which a connection that gives way waits for the store, while the requests of all processes wait behind it.
const SHORT_WAIT: &str = "SET LOCAL lock_timeout = '50ms'";

/// Creates the tables if they do not exist, checks the layout of the store, and raises the epoch. With `gives_way`, fails soon if others
/// use the store.
pub(super) async fn migrate(
    db: &Connection,
    shared: &Shared,
    gives_way: bool,
) -> Result<(), Fault> {
    if !exists(db, shared).await? {
        transact(db, create(db, shared)).await?;
    }
    meta::load(db, shared).await?;
    transact(db, raise_epoch(db, shared, gives_way)).await
}

/// Returns the names of the tables, views and sequences of a store. A name may occur several times.
pub(super) fn relations() -> impl Iterator<Item = &'static str> {
    let created = SCHEMA.lines().filter(|line| line.starts_with("CREATE"));
    created.filter_map(|line| {
        let (_, name) = line.split_once(" throng.")?;
        name.split([' ', ';', '(']).next()
    })
}

/// Runs statements in a transaction.
async fn transact(
    db: &Connection,
    statements: impl Future<Output = Result<(), Fault>>,
) -> Result<(), Fault> {
    db.begin(BEGIN).await?;
    let done = statements.await;
    let end = match done {
        Ok(()) => "COMMIT",
        Err(_) => "ROLLBACK",
    };
    db.batch(end).await?;
    done
}

/// Returns `true` if the store has tables.
pub(super) async fn exists(db: &Connection, shared: &Shared) -> Result<bool, Fault> {
    Ok(db
        .row(FIND_TABLE, &[&&*shared.server.schema])
        .await?
        .is_some())
}

/// Has the store for this transaction alone.
async fn lock_store(db: &Connection, shared: &Shared) -> Result<(), Fault> {
    let lock = format!("SELECT pg_advisory_xact_lock({})", shared.store_lock);
    Ok(db.batch(&lock).await?)
}

async fn raise_epoch(db: &Connection, shared: &Shared, gives_way: bool) -> Result<(), Fault> {
    if gives_way {
        db.batch(SHORT_WAIT).await?;
    }
    lock_store(db, shared).await?;
    // Without this, no connection could be opened while a standby is gone. Later commits ensure that the standby has the epoch.
    db.batch("SET LOCAL synchronous_commit = local").await?;
    let now = shared.time.now(meta::server_time(db).await?);
    db.rows(meta::RAISE_EPOCH, &[&now.micros()]).await?;
    Ok(())
}

async fn create(db: &Connection, shared: &Shared) -> Result<(), Fault> {
    // Two processes may do this at the same time.
    lock_store(db, shared).await?;
    if exists(db, shared).await? {
        return Ok(());
    }
    let created = create_tables(db, shared).await;
    created.map_err(|error| may_not_create(error, shared))?;
    create_meta(db, shared).await
}

async fn create_tables(db: &Connection, shared: &Shared) -> Result<(), Error> {
    let schema = &*shared.server.schema;
    // If the schema exists, the user needs no right to create one.
    if db.row(FIND_SCHEMA, &[&schema]).await?.is_none() {
        db.batch(&format!("CREATE SCHEMA {}", quoted(schema)))
            .await?;
    }
    db.batch(&db.in_schema(SCHEMA)).await
}

/// Adds the remedy to the error if the user may not create the tables.
fn may_not_create(error: Error, shared: &Shared) -> Fault {
    if error.code() != Some(&SqlState::INSUFFICIENT_PRIVILEGE) {
        return Fault::Postgres(error);
    }
    let server = &shared.server;
    let schema = quoted(&server.schema);
    Fault::Denied(format!(
        "the user may not create the tables of the store: an administrator can run `CREATE SCHEMA {schema} AUTHORIZATION {}` in the \
         database",
        quoted(
            server
                .address
                .config
                .get_user()
                .unwrap_or("name of the user")
        )
    ))
}

/// Creates the row about the whole store.
async fn create_meta(db: &Connection, shared: &Shared) -> Result<(), Fault> {
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
