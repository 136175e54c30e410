//! Counts the waiting tasks whose kind no live session knows.

use std::collections::BTreeSet;

use super::error::Fault;
use super::kind_sizes::KindSizes;
use super::kinds::all_kinds;
use super::view::View;

/// Counts the waiting tasks of the kinds `$1`, up to `$2`.
const COUNT: &str = "SELECT count(*) FROM (
        SELECT 1 FROM throng.ready WHERE kind = ANY ($1) LIMIT $2
    ) AS waiting";

/// The number of tasks that are counted one by one. More than these are estimated.
const MAX_COUNTED: i64 = 10_000;

/// Counts the waiting tasks whose kind no live session knows, given the number of all waiting tasks. A paused type counts as any other. A
/// large number may be an estimate.
pub(super) async fn count(view: &View, waiting: u64) -> Result<u64, Fault> {
    let live = view.live_sets().await?;
    let known: BTreeSet<_> = live.keys().flat_map(all_kinds).collect();
    let kinds = view.waiting_kinds().await?;
    let unknown = kinds.iter().map(|it| it.kind);
    let unknown: Vec<_> = unknown.filter(|kind| !known.contains(kind)).collect();
    if unknown.is_empty() {
        return Ok(0);
    }
    let counted: Option<i64> = view.value(COUNT, &[&unknown, &MAX_COUNTED]).await?;
    match counted.unwrap_or_default() {
        MAX_COUNTED.. => {
            let sizes = KindSizes::load(view, &kinds, waiting).await?;
            Ok(unknown.iter().map(|&kind| sizes.size(kind)).sum())
        }
        counted => Ok(counted as u64),
    }
}
