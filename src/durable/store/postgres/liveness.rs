//! Which sessions are alive, as far as the server can tell.

use std::collections::BTreeMap;

use super::error::Fault;
use super::session::read_set;
use super::silent_sessions::WORKER_SILENCE;
use super::view::View;
use crate::durable::store::kind::TypeSet;

/// Selects the sets of sessions that are not gone, and the numbers of these sessions. A session is gone if it is silent and its process
/// does not listen. The difference of times is absolute, since a clock may have been set back.
const LIVE_SETS: &str = "SELECT types, queue, count(*) AS sessions FROM throng.session
    WHERE types IS NOT NULL
        AND (abs($1 - seen) < $2 OR endpoint = ANY (ARRAY(SELECT endpoint FROM throng.listener)))
    GROUP BY types, queue";

impl View {
    /// Returns the sets of the sessions that are alive, and the numbers of these sessions.
    pub(super) async fn live_sets(&self) -> Result<BTreeMap<TypeSet, u64>, Fault> {
        let rows = self
            .rows(LIVE_SETS, &[&self.now.wall, &WORKER_SILENCE])
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
