//! Changes queues.

use super::error::Fault;
use super::queues::QueueRow;
use super::transaction::Transaction;
use crate::durable::queue::name::QueueName;
use crate::durable::store::QueueChange;

/// Changes a queue. Returns `false` if that has no effect.
pub(super) async fn change(
    tx: &mut Transaction,
    queue: &QueueName,
    change: QueueChange,
) -> Result<bool, Fault> {
    tx.require_exclusive()?;
    let mut row = QueueRow::load(tx, queue).await?;
    match change {
        QueueChange::Settings(settings) if settings.revision < row.settings.revision => {
            return Ok(false);
        }
        QueueChange::Settings(settings) => row.settings = settings,
        QueueChange::Paused(is_paused) => row.is_paused = is_paused,
    }
    row.save(tx, queue).await?;
    tx.running_groups_changed(queue).await?;
    // Perhaps waiting tasks may start now.
    tx.notices.changed.insert(queue.clone());
    Ok(true)
}
