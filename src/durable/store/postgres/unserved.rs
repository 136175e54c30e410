//! Counts the waiting tasks whose kind no live session knows.

use std::collections::BTreeSet;

use super::error::Fault;
use super::kinds::all_kinds;
use super::view::View;

/// Counts the waiting tasks whose kind is not one of `$1`.
const COUNT: &str = "WITH RECURSIVE own (kind) AS (
        SELECT min(kind) FROM throng.ready
        UNION ALL
        SELECT (SELECT min(ready.kind) FROM throng.ready WHERE ready.kind > own.kind)
        FROM own WHERE own.kind IS NOT NULL
    )
    SELECT coalesce(sum(size), 0)::bigint FROM own CROSS JOIN LATERAL (
        SELECT count(*) AS size FROM throng.ready WHERE ready.kind = own.kind
    ) AS waiting
    WHERE own.kind <> ALL ($1)";

/// Counts the waiting tasks whose kind no live session knows. A paused type counts as any other.
pub(super) async fn count(view: &View) -> Result<u64, Fault> {
    let live = view.live_sets().await?;
    let known: BTreeSet<_> = live.keys().flat_map(all_kinds).collect();
    let known: Vec<_> = known.into_iter().collect();
    let count: Option<i64> = view.value(COUNT, &[&known]).await?;
    Ok(count.unwrap_or_default() as u64)
}
