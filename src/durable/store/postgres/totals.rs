//! The numbers of tasks. Each connection that writes adds to a row of its own, so that their commits do not wait for one another.
//!
//! The row of the main connection of a process has the endpoint of the process, and that of the second one the negated endpoint.

use super::deltas::{Deltas, field_of, stored_fields};
use super::error::Fault;
use super::shared::EndpointId;
use super::state::State;
use super::transaction::Transaction;
use super::view::View;
use crate::durable::Counts;

pub(super) const ADD: &str = "INSERT INTO throng.total
        (endpoint, waiting, delayed, running, results, dead, stored, claimed, done, retried, snoozed,
         died, released, crashed, lost, cancelled)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)
    ON CONFLICT (endpoint) DO UPDATE SET
        waiting = total.waiting + excluded.waiting, delayed = total.delayed + excluded.delayed,
        running = total.running + excluded.running, results = total.results + excluded.results,
        dead = total.dead + excluded.dead, stored = total.stored + excluded.stored,
        claimed = total.claimed + excluded.claimed, done = total.done + excluded.done,
        retried = total.retried + excluded.retried, snoozed = total.snoozed + excluded.snoozed,
        died = total.died + excluded.died, released = total.released + excluded.released,
        crashed = total.crashed + excluded.crashed, lost = total.lost + excluded.lost,
        cancelled = total.cancelled + excluded.cancelled";

const SUM: &str = "SELECT sum(waiting)::bigint, sum(delayed)::bigint, sum(running)::bigint,
        sum(results)::bigint, sum(dead)::bigint, sum(stored)::bigint, sum(claimed)::bigint,
        sum(done)::bigint, sum(retried)::bigint, sum(snoozed)::bigint, sum(died)::bigint,
        sum(released)::bigint, sum(crashed)::bigint, sum(lost)::bigint, sum(cancelled)::bigint
    FROM throng.total";

/// Selects up to 100 rows of processes that have no session, and removes them.
const TAKE: &str = "DELETE FROM throng.total WHERE endpoint IN (
        SELECT endpoint FROM throng.total WHERE endpoint <> 0 AND abs(endpoint) <> $1
            AND NOT EXISTS (
                SELECT 1 FROM throng.session WHERE session.endpoint = abs(total.endpoint)
            )
        LIMIT 100
    )
    RETURNING waiting, delayed, running, results, dead, stored, claimed, done, retried, snoozed,
        died, released, crashed, lost, cancelled";

/// The row of all processes that are gone.
const GONE: EndpointId = 0;

impl Transaction {
    /// Counts tasks that go from one state to another.
    pub(super) fn moved(&mut self, from: State, to: State, tasks: usize) {
        self.deltas.add(field_of(from), -(tasks as i64));
        self.deltas.add(field_of(to), tasks as i64);
    }

    /// Adds changes of the numbers to the row of the connection.
    pub(super) async fn write_deltas(&self, deltas: Deltas) -> Result<(), Fault> {
        let endpoint = self.shared.endpoint;
        let row = match self.connection().is_second() {
            true => -endpoint,
            false => endpoint,
        };
        self.add_to(row, deltas).await
    }

    async fn add_to(&self, endpoint: EndpointId, mut deltas: Deltas) -> Result<(), Fault> {
        let numbers = deltas.numbers();
        if numbers.iter().all(|&number| number == 0) {
            return Ok(());
        }
        let numbers = numbers.iter().map(|number| number as _);
        let params: Vec<_> = std::iter::once(&endpoint as _).chain(numbers).collect();
        self.execute(ADD, &params).await?;
        Ok(())
    }
}

/// Adds the rows of processes that have no session to that of all which are gone.
pub(super) async fn fold(tx: &Transaction) -> Result<(), Fault> {
    tx.require_exclusive()?;
    let mut gone = Deltas::default();
    for row in tx.rows(TAKE, &[&tx.shared.endpoint]).await? {
        for (column, field) in stored_fields().enumerate() {
            gone.add(field, row.try_get(column)?);
        }
    }
    tx.add_to(GONE, gone).await
}

impl View {
    /// Returns the numbers of tasks, except those that are not served.
    pub(super) async fn totals(&self) -> Result<Counts, Fault> {
        let mut counts = Counts::default();
        if let Some(row) = self.row(SUM, &[]).await? {
            for (column, field) in stored_fields().enumerate() {
                let number: Option<i64> = row.try_get(column)?;
                *field(&mut counts) = u64::try_from(number.unwrap_or_default()).unwrap_or_default();
            }
        }
        Ok(counts)
    }
}
