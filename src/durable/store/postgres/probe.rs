//! Determines how durable the writes of a server are.

use super::error::Fault;
use super::view::View;
use crate::durable::Durability;

/// Selects the settings on which the durability of an acknowledged write depends. `synchronous_commit` may be set for the server, the
/// database or the user.
const SETTINGS: &str = "SELECT current_setting('fsync') AS fsync,
    current_setting('synchronous_commit') AS synchronous_commit,
    current_setting('full_page_writes') AS full_page_writes,
    (SELECT setting::bigint FROM pg_settings WHERE name = 'wal_writer_delay') AS delay";

/// The longest `wal_writer_delay` in milliseconds with which a server that is killed loses no more than two seconds of writes: an
/// asynchronous commit is written after three times this delay.
const MAX_DELAY: i64 = 666;

/// Returns the failures that an acknowledged write survives.
pub(super) async fn probe(view: &View) -> Result<Durability, Fault> {
    let row = view.row(SETTINGS, &[]).await?;
    let row = row.ok_or_else(|| Fault::Corrupt(String::from("the server has no settings")))?;
    let text = |name| row.try_get::<_, String>(name);
    let is_asynchronous = text("synchronous_commit")? == "off";
    let is_synced = text("fsync")? == "on" && text("full_page_writes")? == "on";
    Ok(match (is_asynchronous, is_synced) {
        (true, _) if row.try_get::<_, i64>("delay")? > MAX_DELAY => Durability::Unknown,
        (true, _) => Durability::Buffered,
        // The server hands its log to the system before it answers.
        (false, false) => Durability::Process,
        (false, true) => Durability::Synced,
    })
}
