//! Pauses types.

use super::error::Fault;
use super::queues;
use super::text;
use super::transaction::Transaction;
use crate::durable::queue::name::QueueName;

const PAUSE: &str = "INSERT INTO throng.paused (name) VALUES ($1) ON CONFLICT DO NOTHING";

const RESUME: &str = "DELETE FROM throng.paused WHERE name = $1";

/// Selects the queues that sessions serve.
const SERVED_QUEUES: &str = "SELECT DISTINCT queue FROM throng.session WHERE types IS NOT NULL";

/// Pauses or resumes the type with this name.
pub(super) async fn set_paused(
    tx: &mut Transaction,
    name: &str,
    is_paused: bool,
) -> Result<(), Fault> {
    tx.require_exclusive()?;
    let stored = text::stored(name);
    let sql = if is_paused { PAUSE } else { RESUME };
    tx.execute(sql, &[&stored]).await?;
    tx.reload_meta().await?;
    if !is_paused {
        wake_for_resumed(tx, name).await?;
    }
    Ok(())
}

/// Wakes sessions of each queue that may start tasks of a type.
async fn wake_for_resumed(tx: &mut Transaction, name: &str) -> Result<(), Fault> {
    let served: Vec<Option<String>> = tx.values(SERVED_QUEUES, &[]).await?;
    for queue in served {
        let queue = QueueName::from(queue.map(text::loaded));
        if queues::has_permits(tx, &queue).await? {
            tx.notices.add_resumed(&queue, name);
        }
    }
    Ok(())
}
