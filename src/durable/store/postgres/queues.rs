//! Named queues: their limits, and which tasks may start under them.
//!
//! The number of running tasks of a queue is not stored. It is the number of tasks that its claims hold, so it is correct even if
//! their workers have died.
//!
//! The default queue has no limits, so no request reads them. It has a row only for the turns of its priorities.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio_postgres::Row;

use super::error::Fault;
use super::text;
use super::time::Now;
use super::transaction::Transaction;
use super::view::View;
use crate::durable::queue::name::QueueName;
use crate::durable::queue::priority::PriorityTurns;
use crate::durable::queue::{Groups, QueueSettings, Rate};

const LOAD: &str = "SELECT paused, max_running, interval, burst, group_max, quantum, revision,
        used_until, since_normal, since_low
    FROM throng.queue WHERE name = $1";

/// Selects the rows of the first queues.
const LOAD_FIRST: &str =
    "SELECT name, paused, max_running, interval, burst, group_max, quantum, revision,
        used_until, since_normal, since_low
    FROM throng.queue ORDER BY name LIMIT $1";

const SAVE: &str =
    "INSERT INTO throng.queue (name, paused, max_running, interval, burst, group_max,
        quantum, revision, used_until, since_normal, since_low)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
    ON CONFLICT (name) DO UPDATE SET
        paused = excluded.paused, max_running = excluded.max_running, interval = excluded.interval,
        burst = excluded.burst, group_max = excluded.group_max, quantum = excluded.quantum,
        revision = excluded.revision, used_until = excluded.used_until,
        since_normal = excluded.since_normal, since_low = excluded.since_low";

const RUNNING: &str = "SELECT coalesce(sum(cardinality(held)), 0)::bigint FROM throng.claim
    WHERE queue = $1";

const RUNNING_IN_DEFAULT: &str = "SELECT coalesce(sum(cardinality(held)), 0)::bigint
    FROM throng.claim WHERE queue IS NULL";

/// A row of the table `queue`.
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
}

impl Allowance {
    const UNLIMITED: Self = Self {
        tasks: usize::MAX,
        wait: None,
    };
}

/// Returns what the limits of a queue let start.
pub(super) async fn allowance(view: &View, queue: &QueueName) -> Result<Allowance, Fault> {
    match queue.is_default() {
        true => Ok(Allowance::UNLIMITED),
        false => {
            QueueRow::load(view, queue)
                .await?
                .allowance(view, queue)
                .await
        }
    }
}

/// Returns `true` if tasks of a queue may start, if its rate does not matter.
pub(super) async fn has_permits(view: &View, queue: &QueueName) -> Result<bool, Fault> {
    if queue.is_default() {
        return Ok(true);
    }
    let row = QueueRow::load(view, queue).await?;
    Ok(row.permits(view, queue).await? > 0)
}

/// Returns the column `queue` of a task or a claim.
pub(super) fn queue_column(queue: &QueueName) -> Option<String> {
    (!queue.is_default()).then(|| text::stored(queue.as_str()).into_owned())
}

/// Returns the number of tasks of a queue that run.
pub(super) async fn running(view: &View, queue: &QueueName) -> Result<u64, Fault> {
    let running: Option<i64> = match queue_column(queue) {
        None => view.value(RUNNING_IN_DEFAULT, &[]).await?,
        Some(name) => view.value(RUNNING, &[&name]).await?,
    };
    Ok(running.unwrap_or_default() as u64)
}

/// Returns `true` if a queue or its groups have a maximum of running tasks.
pub(super) async fn has_maximum(view: &View, queue: &QueueName) -> Result<bool, Fault> {
    let settings = QueueRow::load(view, queue).await?.settings;
    let most = settings.max_running.or(settings.groups.max_running);
    Ok(most.is_some())
}

impl QueueRow {
    /// Reads the row of a queue. Without one, the queue has no limits.
    pub(super) async fn load(view: &View, queue: &QueueName) -> Result<Self, Fault> {
        let name = text::stored(queue.as_str());
        let row = view.row(LOAD, &[&name]).await?;
        row.map_or(Ok(Self::default()), |row| read(&row))
    }

    /// Reads the rows of the first queues.
    pub(super) async fn first(
        view: &View,
        limit: usize,
    ) -> Result<BTreeMap<QueueName, Self>, Fault> {
        let rows = view.rows(LOAD_FIRST, &[&(limit as i64)]).await?;
        let named = rows.iter().map(|row| {
            let name = text::loaded(row.try_get("name")?);
            let name = QueueName::from(Some(name).filter(|name| !name.is_empty()));
            Ok((name, read(row)?))
        });
        named.collect()
    }

    pub(super) async fn save(&self, tx: &Transaction, queue: &QueueName) -> Result<(), Fault> {
        let settings = self.settings;
        let number = |limit: Option<u32>| limit.map(i64::from);
        let interval = settings.rate.map(|rate| rate.interval_micros as i64);
        tx.execute(
            SAVE,
            &[
                &text::stored(queue.as_str()),
                &self.is_paused,
                &number(settings.max_running),
                &interval,
                &number(settings.rate.map(|rate| rate.burst)),
                &number(settings.groups.max_running),
                &i64::from(settings.groups.quantum),
                &i64::from(settings.revision),
                &i64::try_from(self.used_until).unwrap_or(i64::MAX),
                &(self.turns.since_normal as i64),
                &(self.turns.since_low as i64),
            ],
        )
        .await?;
        Ok(())
    }

    /// Returns what may start now.
    pub(super) async fn allowance(
        &self,
        view: &View,
        queue: &QueueName,
    ) -> Result<Allowance, Fault> {
        let (permits, now) = (self.permits(view, queue).await?, view.now.micros() as u64);
        let Some(rate) = self.settings.rate else {
            let wait = None;
            return Ok(Allowance {
                tasks: permits,
                wait,
            });
        };
        let available = rate.available(self.used_until, now) as usize;
        let wait = Duration::from_micros(rate.wait(self.used_until, now));
        Ok(Allowance {
            tasks: permits.min(available),
            wait: (permits > 0 && available == 0).then_some(wait),
        })
    }

    /// Returns the number of tasks that may start, if the rate does not matter.
    pub(super) async fn permits(&self, view: &View, queue: &QueueName) -> Result<usize, Fault> {
        match self.settings.max_running {
            _ if self.is_paused => Ok(0),
            None => Ok(usize::MAX),
            Some(most) => {
                let running = running(view, queue).await?;
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

fn read(row: &Row) -> Result<QueueRow, Fault> {
    let (interval, burst) = (number(row, "interval")?, number(row, "burst")?);
    let rate = interval.zip(burst).map(|(interval, burst)| Rate {
        interval_micros: interval,
        burst: burst as u32,
    });
    let limit = |column| -> Result<_, Fault> { Ok(number(row, column)?.map(|it| it as u32)) };
    Ok(QueueRow {
        settings: QueueSettings {
            max_running: limit("max_running")?,
            rate,
            groups: Groups {
                max_running: limit("group_max")?,
                quantum: limit("quantum")?.unwrap_or(1),
            },
            revision: number(row, "revision")?.unwrap_or_default() as u32,
        },
        is_paused: row.try_get("paused")?,
        used_until: number(row, "used_until")?.unwrap_or_default(),
        turns: PriorityTurns {
            since_normal: number(row, "since_normal")?.unwrap_or_default(),
            since_low: number(row, "since_low")?.unwrap_or_default(),
        },
    })
}

fn number(row: &Row, column: &str) -> Result<Option<u64>, Fault> {
    let number: Option<i64> = row.try_get(column)?;
    Ok(number.map(|number| number as u64))
}
