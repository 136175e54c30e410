//! Reads and changes named queues.

use redis::Value;

use super::inner::Inner;
use super::reply::Reader;
use super::scripts::Arguments;
use crate::durable::failure::Failure;
use crate::durable::queue::name::QueueName;
use crate::durable::queue::{Groups, QueueInfo, QueueSettings, Rate};
use crate::durable::store::QueueChange;

/// Changes a queue. Returns `false` if the store has settings of a later revision.
pub(super) async fn change(
    inner: &Inner,
    queue: &QueueName,
    change: QueueChange,
) -> Result<bool, Failure> {
    let (what, settings) = match change {
        QueueChange::Settings(settings) => ("set", row(&settings)),
        QueueChange::Paused(true) => ("pause", Vec::new()),
        QueueChange::Paused(false) => ("resume", Vec::new()),
    };
    let mut answer = Reader::new(run(inner, queue, what, settings).await?)?;
    let is_done = answer.number()? != 0;
    // A script updates a limited number of groups. If this stops half-way, each of the other groups is updated when a task of it ends.
    loop {
        let cursor = answer.text()?;
        if cursor == "0" {
            return Ok(is_done);
        }
        answer = Reader::new(run(inner, queue, "update", cursor.into()).await?)?;
        answer.number()?;
    }
}

/// Returns the state of a queue.
pub(super) async fn read(inner: &Inner, queue: &QueueName) -> Result<QueueInfo, Failure> {
    info(&mut Reader::new(
        run(inner, queue, "read", Vec::new()).await?,
    )?)
}

/// Reads the state of a queue, as `lua/queue.lua` returns it.
pub(super) fn info(parts: &mut Reader) -> Result<QueueInfo, Failure> {
    let mut number = || Ok::<_, Failure>(parts.number()? as u64);
    let is_paused = number()? != 0;
    let (max_running, interval_micros) = (number()? as u32, number()?);
    let (burst, revision) = (number()? as u32, number()? as u32);
    let (waiting, running) = (number()?, number()?);
    let (group_max, quantum) = (number()? as u32, number()? as u32);
    Ok(QueueInfo {
        settings: QueueSettings {
            max_running: (max_running > 0).then_some(max_running),
            rate: (interval_micros > 0).then_some(Rate {
                interval_micros,
                burst,
            }),
            groups: Groups {
                max_running: (group_max > 0).then_some(group_max),
                quantum,
            },
            revision,
        },
        is_paused,
        waiting,
        running,
    })
}

async fn run(
    inner: &Inner,
    queue: &QueueName,
    what: &str,
    settings: Vec<u8>,
) -> Result<Value, Failure> {
    let mut arguments = Arguments::default();
    arguments.push(queue.as_str());
    arguments.push(what);
    arguments.push(settings);
    let partition = inner.partitions.of_queue(queue).unwrap_or_default();
    inner.run(&inner.scripts.queue, partition, arguments).await
}

/// Returns the settings as they are stored: see `lua/queues.lua`.
fn row(settings: &QueueSettings) -> Vec<u8> {
    let rate = settings.rate;
    let mut row = vec![0];
    row.extend(settings.max_running.unwrap_or_default().to_be_bytes());
    let interval = rate.map_or(0, |rate| rate.interval_micros);
    row.extend(&interval.to_be_bytes()[2..]);
    row.extend(rate.map_or(0, |rate| rate.burst).to_be_bytes());
    row.extend(settings.revision.to_be_bytes());
    let groups = settings.groups;
    row.extend(groups.max_running.unwrap_or_default().to_be_bytes());
    row.extend(groups.quantum.to_be_bytes());
    row
}
