//! Which sessions are alive, as far as the server can tell.

use std::collections::BTreeMap;

use super::error::Fault;
use super::session::read_set;
use super::view::View;
use crate::durable::store::kind::TypeSet;

/// The time for which a session must have sent nothing before it may count as gone, in milliseconds. A worker sends a request at least once
/// a minute. The difference of times is absolute, since a clock may have been set back.
pub(super) const SILENCE_LIMIT: i64 = 180_000;

/// Selects the sets of sessions that are not gone, and the numbers of these sessions. A session is gone if it is silent and its process is
/// not connected.
const LIVE_SETS: &str = "SELECT types, queue, count(*) AS sessions FROM throng.session_now
    WHERE types IS NOT NULL AND (abs($1 - seen) < $2 OR is_connected) GROUP BY types, queue";

impl View {
    /// Returns the sets of the sessions that are alive, and the numbers of these sessions.
    pub(super) async fn live_sets(&self) -> Result<BTreeMap<TypeSet, u64>, Fault> {
        let rows = self
            .rows(LIVE_SETS, &[&self.now.wall, &SILENCE_LIMIT])
            .await?;
        let mut live = BTreeMap::new();
        for row in &rows {
            if let Some(set) = read_set(row)? {
                *live.entry(set).or_default() += row.try_get::<_, i64>("sessions")? as u64;
            }
        }
        Ok(live)
    }
}
