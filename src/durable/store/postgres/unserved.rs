//! Counts the waiting tasks whose kind no live session knows.

use std::collections::BTreeSet;

use super::error::Fault;
use super::kind_sizes::KindSizes;
use super::kinds::all_kinds;
use super::view::View;

/// Counts the waiting tasks whose kind no live session knows, given the number of all waiting tasks. A paused type counts as any other. A
/// large number may be an estimate.
pub(super) async fn count(view: &View, waiting: u64) -> Result<u64, Fault> {
    let live = view.live_sets().await?;
    let known: BTreeSet<_> = live.keys().flat_map(all_kinds).collect();
    let kinds = view.waiting_kinds().await?;
    if kinds.iter().all(|it| known.contains(&it.kind)) {
        return Ok(0);
    }
    let sizes = KindSizes::load(view, &kinds, waiting).await?;
    let unknown = kinds.iter().filter(|it| !known.contains(&it.kind));
    Ok(unknown.map(|it| sizes.size(it.kind)).sum())
}
