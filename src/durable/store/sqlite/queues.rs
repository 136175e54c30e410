//! Named queues: their limits, and which tasks may start under them.
//!
//! The number of running tasks of a queue is not stored. It is the number of tasks that its claims hold, so it is correct even if
//! their workers have died.
//!
//! The default queue has no limits, so no request reads them. It has a row only for the turns of its priorities.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::claimed_tasks::ClaimedTasks;
use super::meta::MAX_ISSUED;
use super::time::Now;
use crate::durable::queue::name::QueueName;
use crate::durable::queue::priority::PriorityTurns;
use crate::durable::queue::{Groups, QueueSettings, Rate};

/// A row of `throng_queue`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct QueueRow {
    pub(super) settings: QueueSettings,
    pub(super) is_paused: bool,
    /// The time up to which the rate is used, in microseconds since 1970.
    used_until: u64,
    pub(super) turns: PriorityTurns,
}

/// The tasks that the limits of a queue let start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowance {
    /// The number of tasks that may start now.
    pub(super) tasks: usize,
    /// The time until a task may start, if only the rate prevents that now.
    pub(super) wait: Option<Duration>,
    /// This is `true` if the clock was put back, so that a claim must store the time up to which the rate is used.
    pub(super) is_stale: bool,
}

impl Allowance {
    const UNLIMITED: Self = Self {
        tasks: usize::MAX,
        ..Self::NOTHING
    };
    pub(super) const NOTHING: Self = Self {
        tasks: 0,
        wait: None,
        is_stale: false,
    };
}

/// Returns what the limits of a queue let start.
pub(super) fn allowance(
    db: &Connection,
    queue: &QueueName,
    now: Now,
) -> Result<Allowance, rusqlite::Error> {
    match queue.is_default() {
        true => Ok(Allowance::UNLIMITED),
        false => QueueRow::load(db, queue)?.allowance(db, queue, now),
    }
}

/// Returns `true` if tasks of a queue may start, if its rate does not matter.
pub(super) fn has_permits(db: &Connection, queue: &QueueName) -> Result<bool, rusqlite::Error> {
    Ok(queue.is_default() || QueueRow::load(db, queue)?.permits(db, queue)? > 0)
}

/// Returns the column `queue` of a task or a claim.
pub(super) fn queue_column(queue: &QueueName) -> Option<&str> {
    Some(queue.as_str()).filter(|_| !queue.is_default())
}

/// Returns the number of tasks of a queue that run.
pub(super) fn running(db: &Connection, queue: &QueueName) -> Result<u64, rusqlite::Error> {
    // Only a comparison with `=` uses the index of the named queues.
    let sql = match queue.is_default() {
        true => "SELECT coalesce(sum(length(held)), 0) FROM throng_claim WHERE queue IS ?1",
        false => "SELECT coalesce(sum(length(held)), 0) FROM throng_claim WHERE queue = ?1",
    };
    let mut statement = db.prepare_cached(sql)?;
    let bytes = statement.query_row([queue_column(queue)], |row| row.get::<_, i64>(0))?;
    Ok(bytes as u64 / ClaimedTasks::ENTRY_LEN as u64)
}

impl QueueRow {
    /// Reads the row of a queue. Without one, the queue has no limits.
    pub(super) fn load(db: &Connection, queue: &QueueName) -> Result<Self, rusqlite::Error> {
        let mut statement = db.prepare_cached(
            "SELECT paused, max_running, interval, burst, revision, used_until, since_normal, since_low,
                 group_max, quantum
             FROM throng_queue WHERE name = ?1",
        )?;
        let found = statement.query_row([queue.as_str()], read);
        Ok(found.optional()?.unwrap_or_default())
    }

    pub(super) fn save(&self, db: &Connection, queue: &QueueName) -> Result<(), rusqlite::Error> {
        let mut statement = db.prepare_cached(
            "INSERT OR REPLACE INTO throng_queue
                 (name, paused, max_running, interval, burst, revision, used_until, since_normal, since_low,
                 group_max, quantum)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
        )?;
        let rate = self.settings.rate;
        let row = params![
            queue.as_str(),
            self.is_paused,
            self.settings.max_running,
            rate.map(|rate| rate.interval_micros as i64),
            rate.map(|rate| rate.burst),
            self.settings.revision,
            self.used_until.min(MAX_ISSUED as u64) as i64,
            self.turns.since_normal as i64,
            self.turns.since_low as i64,
            self.settings.groups.max_running,
            self.settings.groups.quantum,
        ];
        statement.execute(row).map(drop)
    }

    /// Returns what may start now.
    pub(super) fn allowance(
        &self,
        db: &Connection,
        queue: &QueueName,
        now: Now,
    ) -> Result<Allowance, rusqlite::Error> {
        let (permits, now) = (self.permits(db, queue)?, now.micros() as u64);
        let Some(rate) = self.settings.rate else {
            return Ok(Allowance {
                tasks: permits,
                ..Allowance::NOTHING
            });
        };
        let available = rate.available(self.used_until, now) as usize;
        let wait = Duration::from_micros(rate.wait(self.used_until, now));
        Ok(Allowance {
            tasks: permits.min(available),
            wait: (permits > 0 && available == 0).then_some(wait),
            is_stale: rate.use_up(self.used_until, now, 0) < self.used_until,
        })
    }

    /// Returns the number of tasks that may start, if the rate does not matter.
    pub(super) fn permits(
        &self,
        db: &Connection,
        queue: &QueueName,
    ) -> Result<usize, rusqlite::Error> {
        match self.settings.max_running {
            _ if self.is_paused => Ok(0),
            None => Ok(usize::MAX),
            Some(most) => {
                let running = running(db, queue)?;
                Ok(u64::from(most).saturating_sub(running) as usize)
            }
        }
    }

    /// Records that tasks have started.
    pub(super) fn started(&mut self, now: Now, tasks: usize) {
        if let Some(rate) = self.settings.rate {
            let used = rate.use_up(self.used_until, now.micros() as u64, tasks as u64);
            if tasks > 0 || used < self.used_until {
                self.used_until = used;
            }
        }
    }
}

fn read(row: &Row<'_>) -> Result<QueueRow, rusqlite::Error> {
    let rate = match (row.get::<_, Option<i64>>(2)?, row.get(3)?) {
        (Some(_), Some(burst @ 1..)) => Some(Rate {
            interval_micros: positive(row, 2)?,
            burst,
        }),
        (None, None) => None,
        // A part of the rate is lost.
        _ => return Err(rusqlite::Error::IntegralValueOutOfRange(3, 0)),
    };
    Ok(QueueRow {
        settings: QueueSettings {
            max_running: limit(row, 1)?,
            rate,
            groups: Groups {
                max_running: limit(row, 8)?,
                quantum: limit(row, 9)?.unwrap_or(1),
            },
            revision: row.get(4)?,
        },
        is_paused: match row.get(0)? {
            0 => false,
            1 => true,
            other => return Err(rusqlite::Error::IntegralValueOutOfRange(0, other)),
        },
        used_until: number(row, 5)?,
        turns: PriorityTurns {
            since_normal: number(row, 6)?,
            since_low: number(row, 7)?,
        },
    })
}

/// Reads a limit, which is at least 1 if there is one.
fn limit(row: &Row<'_>, column: usize) -> Result<Option<u32>, rusqlite::Error> {
    match row.get(column)? {
        Some(0) => Err(rusqlite::Error::IntegralValueOutOfRange(column, 0)),
        most => Ok(most),
    }
}

fn positive(row: &Row<'_>, column: usize) -> Result<u64, rusqlite::Error> {
    match number(row, column)? {
        0 => Err(rusqlite::Error::IntegralValueOutOfRange(column, 0)),
        number => Ok(number),
    }
}

fn number(row: &Row<'_>, column: usize) -> Result<u64, rusqlite::Error> {
    match row.get(column)? {
        number @ 0..=MAX_ISSUED => Ok(number as u64),
        number => Err(rusqlite::Error::IntegralValueOutOfRange(column, number)),
    }
}
