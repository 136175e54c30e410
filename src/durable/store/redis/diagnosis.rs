//! Examines what an overview does not show.

use std::sync::Arc;
use std::time::Duration;

use super::each_partition::ask_each;
use super::inner::Inner;
use super::probe;
use super::reply::Reader;
use super::schedule_row;
use super::scripts::Arguments;
use super::stats;
use super::workers;
use crate::durable::failure::Failure;
use crate::durable::schedule::name::ScheduleName;
use crate::durable::store::{Diagnoses, Diagnosis, StoredSchedule, UnclaimedType};

/// Returns the diagnoses of the partitions that answer, and what the server's settings show.
pub(super) async fn diagnose(inner: Arc<Inner>) -> Result<Diagnoses, Failure> {
    let read = |inner: Arc<Inner>, partition| async move { part(&inner, partition).await };
    let (parts, missing_partitions) = ask_each(&inner, inner.partitions.all(), read).await?;
    Ok(Diagnoses {
        partitions: parts.into_iter().map(|(_, part)| part).collect(),
        missing_partitions,
        server: probe::findings(&inner).await?,
        newer_outbox_rows: 0,
    })
}

async fn part(inner: &Inner, partition: usize) -> Result<Diagnosis, Failure> {
    let script = &inner.scripts.diagnose;
    let answer = inner.run(script, partition, Arguments::default()).await?;
    let mut parts = Reader::new(answer)?;
    let mut number = || Ok::<_, Failure>(parts.number()?.max(0) as u64);
    let [now, dead, dead_most, overdue_claims] = [number()?, number()?, number()?, number()?];
    let workers = parts.list()?.rest(|part| workers::worker(part.list()?))?;
    let schedules = parts
        .list()?
        .rest(|part| Ok((part.text()?, part.bytes()?)))?;
    let unclaimed = parts.list()?.rest(|part| unclaimed(part.list()?))?;
    let schedules = schedules.into_iter();
    Ok(Diagnosis {
        now,
        dead,
        dead_most,
        overdue_claims,
        workers,
        schedules: schedules
            .filter_map(|(name, row)| schedule(&name, &row, partition))
            .collect(),
        unclaimed: unclaimed.into_iter().flatten().collect(),
    })
}

/// Reads a schedule. Returns `None` if its row cannot be read, since maintenance removes it.
fn schedule(name: &str, row: &[u8], partition: usize) -> Option<StoredSchedule> {
    Some(StoredSchedule {
        name: ScheduleName::new(name).ok()?,
        partition,
        row: schedule_row::unpack(row)?,
    })
}

/// Reads a type that no worker claims. Returns `None` if its name cannot be read.
fn unclaimed(mut parts: Reader) -> Result<Option<UnclaimedType>, Failure> {
    let names = parts.bytes()?;
    let (is_known, ready_for) = (parts.number()? != 0, parts.number()?);
    let ready_for = u64::try_from(ready_for).unwrap_or_default();
    Ok(stats::run_type(&names).map(|run_type| UnclaimedType {
        run_type,
        is_known,
        ready_for: Some(Duration::from_millis(ready_for)),
    }))
}
