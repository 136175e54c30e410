//! The upkeep of the store, which each turn does: it takes back claims, and makes delayed tasks ready.

use super::error::Fault;
use super::reap::{self, FoundClaims};
use super::transaction::Transaction;
use super::view::View;

/// Selects `true` if a claim belongs to no session, if the lease of one has expired, or if a delayed task is due.
pub(super) const IS_ANY: &str = "SELECT EXISTS (
        SELECT 1 FROM throng.claim
        WHERE NOT EXISTS (SELECT 1 FROM throng.session WHERE session.id = claim.session)
    ) OR EXISTS (
        SELECT 1 FROM throng.claim WHERE until <= $1
    ) OR EXISTS (
        SELECT 1 FROM throng.task WHERE state = 1 AND at <= $2
    )";

/// Returns `true` if there is upkeep.
pub(super) async fn is_any(view: &View) -> Result<bool, Fault> {
    let now = view.now;
    let is_any: Option<bool> = view.value(IS_ANY, &[&now.boot, &now.wall]).await?;
    Ok(is_any.unwrap_or_default())
}

/// The upkeep that a turn has done.
#[derive(Debug, Default)]
pub(super) struct Upkeep {
    /// `true` if anything has changed.
    pub(super) changed: bool,
    /// `true` if claims may be left to take back.
    pub(super) leaves_claims: bool,
}

/// Takes back claims of closed sessions and those whose leases are over, and makes delayed tasks ready that are due. `session` is the
/// session that makes this request.
pub(super) async fn keep_up(tx: &mut Transaction, session: i64) -> Result<Upkeep, Fault> {
    let found = [
        reap::reap_dead(tx).await?,
        reap::reap_late(tx, session).await?,
    ];
    // This may make tasks due.
    tx.tell_parents().await?;
    let made_due = tx.make_due().await?;
    Ok(Upkeep {
        changed: made_due || found.iter().any(|&found| found != FoundClaims::Nothing),
        leaves_claims: found.contains(&FoundClaims::Some),
    })
}
