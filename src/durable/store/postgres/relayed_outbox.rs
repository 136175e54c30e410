//! [`PostgresOutbox`]: an outbox in a PostgreSQL database without a store.
//!
//! The transaction that takes rows locks them until it removes them or gives them back. Other relays skip locked rows.

use std::sync::Arc;

use tokio::time::timeout;
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;

use super::builder::PostgresStoreBuilder;
use super::connection::{BEGIN, Connection};
use super::error::Fault;
use super::outbox::{COUNT_NEWER, FIND, HAS_ROWS, KNOWN, LOOK_INTERVAL, MAX_BYTES, outbox_ids};
use super::server::PostgresServer;
use crate::durable::TaskId;
use crate::durable::failpoint::failpoint;
use crate::durable::failure::{Cause, Effect, Failure};
use crate::durable::store::{
    MAX_BATCH_BYTES, MAX_BATCH_TASKS, OutboxEntry, OutboxLook, RelayedAnswer, RelayedOutbox,
    TakenRow, TakenRows,
};

/// Returns whether a schema contains a store, whether it contains an outbox, and whether the user may move the rows of that. A lock needs
/// the right to change some column.
const EXAMINE: &str = "SELECT meta.oid IS NOT NULL,
        (SELECT count(*) = 2 FROM pg_catalog.pg_attribute
            WHERE attrelid = outbox.oid AND attname IN ('id', 'body') AND atttypid = 'bytea'::regtype),
        has_schema_privilege(pg_namespace.oid, 'USAGE')
            AND has_table_privilege(outbox.oid, 'SELECT')
            AND has_table_privilege(outbox.oid, 'DELETE')
            AND has_any_column_privilege(outbox.oid, 'UPDATE')
    FROM pg_catalog.pg_namespace
    LEFT JOIN pg_catalog.pg_class AS meta
        ON meta.relnamespace = pg_namespace.oid AND meta.relname = 'meta'
    LEFT JOIN pg_catalog.pg_class AS outbox
        ON outbox.relnamespace = pg_namespace.oid AND outbox.relname = 'outbox'
    WHERE nspname = $1";

/// Locks the next rows of the versions up to `$1`, at most `$2`. Returns those of which all but the last have fewer than `$3` bytes in
/// total, and at most `$4` bytes of each body.
const TAKE: &str = "WITH next AS MATERIALIZED (
        SELECT id, octet_length(body)::bigint AS size FROM throng.outbox
        WHERE substring(body FROM 1 FOR 1) <= $1 ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED
    ), sized AS (
        SELECT id, sum(size) OVER (ORDER BY id) - size AS before FROM next
    )
    SELECT id, substring(body FROM 1 FOR $4::integer) FROM throng.outbox JOIN sized USING (id)
        WHERE before < $3::bigint ORDER BY id";

const REMOVE: &str = "DELETE FROM throng.outbox WHERE id = ANY ($1::bytea[])";

/// An outbox in a PostgreSQL database without a store.
pub(crate) struct PostgresOutbox {
    server: PostgresServer,
    /// `None` while a request runs. So a request that fails, or is dropped, closes the connection.
    connection: Option<Connection>,
}

impl PostgresOutbox {
    /// Returns the outbox in the schema `throng` of the database at an address.
    pub(crate) fn new(url: &str) -> Result<Self, Failure> {
        Ok(Self {
            server: PostgresStoreBuilder::new(url).server()?,
            connection: None,
        })
    }

    /// Returns the name of the outbox for messages, which contains neither the user nor the password.
    pub(crate) fn name(url: &str) -> Arc<str> {
        PostgresStoreBuilder::new(url).name()
    }

    /// Makes a request on the connection. Connects first if there is none.
    async fn ask<T>(
        &mut self,
        request: impl AsyncFnOnce(&Connection) -> Result<T, Fault>,
    ) -> Result<T, Failure> {
        let connection = match self.connection.take() {
            Some(connection) if !connection.is_closed() => connection,
            _ => self.server.connect(None).await?,
        };
        let answer = timeout(self.server.answer_timeout, request(&connection)).await;
        let answer = answer.unwrap_or_else(|_| {
            self.server.cancel(&connection);
            Err(Fault::NoAnswer)
        });
        if answer.is_ok() {
            self.connection = Some(connection);
        }
        answer.map_err(|fault| explained(fault).failure(Effect::None))
    }
}

impl RelayedOutbox for PostgresOutbox {
    fn open(&mut self) -> RelayedAnswer<'_, ()> {
        Box::pin(async {
            let schema = Arc::clone(&self.server.schema);
            self.ask(async |db| examine(db, &schema).await).await?;
            // A standby has the same tables and rights, but no row of it can be locked.
            self.take().await?;
            self.give_back().await
        })
    }

    fn look(&mut self) -> RelayedAnswer<'_, OutboxLook> {
        Box::pin(self.ask(async |db| {
            let found = db.row(HAS_ROWS, &[&KNOWN]).await?;
            let found = found.map(|row| row.try_get(0)).transpose()?;
            Ok(OutboxLook {
                has_rows: found.unwrap_or(false),
                interval: LOOK_INTERVAL,
            })
        }))
    }

    fn count_newer(&mut self) -> RelayedAnswer<'_, u64> {
        Box::pin(self.ask(async |db| {
            let newer = db.row(COUNT_NEWER, &[&KNOWN]).await?;
            let newer: Option<i64> = newer.map(|row| row.try_get(0)).transpose()?;
            Ok(newer.unwrap_or_default() as u64)
        }))
    }

    fn take(&mut self) -> RelayedAnswer<'_, TakenRows> {
        Box::pin(self.ask(async |db| {
            let limits = (MAX_BATCH_TASKS as i64, MAX_BATCH_BYTES as i64);
            db.begin(BEGIN).await?;
            let rows = db
                .rows(TAKE, &[&KNOWN, &limits.0, &limits.1, &MAX_BYTES])
                .await?;
            let rows = rows.iter().map(taken).collect::<Result<Vec<_>, _>>()?;
            let bytes: usize = rows.iter().map(|row| row.entry.body.len()).sum();
            let more = rows.len() == MAX_BATCH_TASKS || bytes >= MAX_BATCH_BYTES;
            Ok(TakenRows { rows, more })
        }))
    }

    fn remove<'a>(&'a mut self, rows: &'a [TakenRow]) -> RelayedAnswer<'a, ()> {
        Box::pin(self.ask(async |db| {
            let keys: Vec<_> = rows.iter().map(|row| &*row.key).collect();
            db.execute(REMOVE, &[&keys]).await?;
            failpoint("relay.removed");
            Ok(db.batch("COMMIT").await?)
        }))
    }

    fn give_back(&mut self) -> RelayedAnswer<'_, ()> {
        Box::pin(self.ask(async |db| Ok(db.batch("ROLLBACK").await?)))
    }

    fn find(&mut self, ids: Vec<TaskId>) -> RelayedAnswer<'_, Vec<TaskId>> {
        Box::pin(self.ask(async move |db| {
            let rows = db.rows(FIND, &[&outbox_ids(&ids)]).await?;
            let ids = rows.iter().map(|row| row.try_get::<_, &[u8]>(0));
            let ids = ids.collect::<Result<Vec<_>, _>>()?;
            let ids = ids.into_iter().filter_map(|id| id.try_into().ok());
            Ok(ids.map(TaskId::from_bytes).collect())
        }))
    }
}

/// Checks that the database has an outbox whose rows a relay may move.
async fn examine(db: &Connection, schema: &str) -> Result<(), Fault> {
    let found = db.row(EXAMINE, &[&schema]).await?;
    let found =
        found.map(|row| Ok::<_, Fault>((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?)));
    let (has_store, has_outbox, may_move) = found.transpose()?.unwrap_or((false, false, None));
    if has_store {
        return Err(unfit(
            "its schema `throng` contains a store, which moves the rows of the outbox into itself: use the outbox of a client of that \
             store, or drop the schema if the store is no longer used",
        ));
    }
    if !has_outbox {
        return Err(no_outbox());
    }
    match may_move {
        Some(true) => Ok(()),
        _ => Err(Fault::Denied(String::from(
            "the user may not move rows of the outbox: grant it `USAGE` on the schema `throng`, and `SELECT`, `UPDATE` and `DELETE` on \
             `throng.outbox`",
        ))),
    }
}

/// Says so if the outbox was removed while the relay was open.
fn explained(fault: Fault) -> Fault {
    match fault.code() {
        Some(&SqlState::INVALID_SCHEMA_NAME | &SqlState::UNDEFINED_TABLE) => no_outbox(),
        _ => fault,
    }
}

fn no_outbox() -> Fault {
    unfit(
        "it has no table `throng.outbox` with the columns that `Outbox::CREATE_POSTGRES` creates: create it so",
    )
}

fn unfit(reason: &str) -> Fault {
    Fault::Refused(Cause::Unfit(reason.into()))
}

fn taken(row: &Row) -> Result<TakenRow, Fault> {
    let key: Vec<u8> = row.try_get(0)?;
    let id = key.as_slice().try_into().ok().map(TaskId::from_bytes);
    let body = row.try_get(1)?;
    let entry = OutboxEntry { id, body };
    Ok(TakenRow { key, entry })
}
