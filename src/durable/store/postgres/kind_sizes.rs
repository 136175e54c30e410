//! The numbers of waiting tasks of each kind. [`KindSizes`] does not count many tasks one by one.

use std::collections::BTreeMap;

use tokio_postgres::Row;

use super::error::Fault;
use super::view::View;
use super::waiting_kinds::WaitingKind;

/// The number of tasks that are counted of all kinds together.
const MAX_COUNTED_IN_ALL: i64 = 20_000;
/// The number of tasks that are counted of each kind, however many kinds there are.
const MIN_COUNTED: i64 = 100;
/// The maximum number of tasks of a kind that are counted.
#[cfg(not(test))]
const MAX_COUNTED: i64 = 10_000;
#[cfg(test)]
const MAX_COUNTED: i64 = MIN_COUNTED;

/// Selects the number of tasks of each kind, or `$2` if there are more, and how many of them have no group and were not given back, with
/// the places of the first and the last of these. If there may be more tasks, it also selects the last of all places.
const HEADS: &str = "SELECT own.kind, head.*, CASE WHEN size = $2 THEN (
            SELECT max(place) FROM throng.ready WHERE ready.kind = own.kind AND group_name = ''
        ) END AS last
    FROM unnest($1::bigint[]) AS own (kind) CROSS JOIN LATERAL (
        SELECT count(*) AS size, count(*) FILTER (WHERE is_plain) AS plain,
            min(place) FILTER (WHERE is_plain) AS first,
            max(place) FILTER (WHERE is_plain) AS end_of_head
        FROM (
            SELECT place, group_name = '' AND place > 0 AS is_plain FROM throng.ready
            WHERE ready.kind = own.kind ORDER BY ready.group_name, ready.place LIMIT $2
        ) AS entry
    ) AS head";

/// The first tasks of a kind.
struct KindHead {
    kind: i64,
    size: u64,
    /// The number of these tasks that have no group and were not given back, and the number of places between their ends.
    plain: u64,
    span: u64,
    /// The number of places between the first of these tasks and the last task of the kind.
    whole_span: u64,
}

/// The numbers of waiting tasks of all kinds. Large numbers are estimates, but if only one is large, it is exact, since the total is known.
#[derive(Default)]
pub(super) struct KindSizes(BTreeMap<i64, u64>);

impl KindSizes {
    /// Reads the numbers of the waiting tasks of the kinds, `waiting` in total.
    pub(super) async fn load(
        view: &View,
        kinds: &[WaitingKind],
        waiting: u64,
    ) -> Result<Self, Fault> {
        let most = max_counted(kinds.len());
        let kinds: Vec<_> = kinds.iter().map(|it| it.kind).collect();
        let heads = heads(view, &kinds, most + 1).await?;
        Ok(Self::of(&heads, most as u64, waiting))
    }

    /// Returns the sizes, given the first tasks of each kind, of which at most one more than `most` were counted.
    fn of(heads: &[KindHead], most: u64, waiting: u64) -> Self {
        let (long, short): (Vec<_>, Vec<_>) = heads.iter().partition(|head| head.size > most);
        let sizes = short.iter().map(|head| (head.kind, head.size));
        let mut sizes: BTreeMap<_, _> = sizes.collect();
        // The total is known, so the others share the remaining tasks in proportion to their estimates.
        let left = waiting.saturating_sub(sizes.values().sum());
        let sum: u128 = long.iter().map(|head| u128::from(head.estimate())).sum();
        for head in long {
            let share = u128::from(left) * u128::from(head.estimate()) / sum.max(1);
            sizes.insert(head.kind, (share as u64).max(most));
        }
        Self(sizes)
    }

    /// Returns the number of waiting tasks of a kind.
    pub(super) fn size(&self, kind: i64) -> u64 {
        self.0.get(&kind).copied().unwrap_or_default()
    }
}

/// Returns the number of tasks that are counted of each kind, given the number of kinds.
fn max_counted(kinds: usize) -> i64 {
    let share = MAX_COUNTED_IN_ALL / (kinds as i64).max(1);
    share.clamp(MIN_COUNTED, MAX_COUNTED)
}

/// Reads the first tasks of each kind, at most `most`.
async fn heads(view: &View, kinds: &[i64], most: i64) -> Result<Vec<KindHead>, Fault> {
    let rows = view.rows(HEADS, &[&kinds, &most]).await?;
    rows.iter().map(KindHead::read).collect()
}

impl KindHead {
    fn read(row: &Row) -> Result<Self, Fault> {
        let count = |column| -> Result<_, Fault> { Ok(row.try_get::<_, i64>(column)? as u64) };
        let first: Option<i64> = row.try_get("first")?;
        let span = |end: Option<i64>| {
            let ends = first.zip(end);
            ends.map_or(1, |(first, end)| end.abs_diff(first) + 1)
        };
        Ok(Self {
            kind: row.try_get("kind")?,
            size: count("size")?,
            plain: count("plain")?,
            span: span(row.try_get("end_of_head")?),
            whole_span: span(row.try_get("last")?),
        })
    }

    /// Estimates the number of tasks. Each new task gets the next place, whatever its kind. So a kind whose tasks arrive half as often has
    /// half as many tasks at as many places.
    fn estimate(&self) -> u64 {
        let size = u128::from(self.whole_span) * u128::from(self.plain) / u128::from(self.span);
        (size as u64).max(self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the sizes that are found if this many tasks of each kind wait, which have arrived at the same time.
    fn sizes(of: &[(i64, u64)]) -> Vec<u64> {
        let most = MAX_COUNTED as u64;
        let longest = of.iter().map(|&(_, size)| size).max().unwrap_or(0);
        let heads = of.iter().map(|&(kind, size)| {
            let place = |nth: u64| 1 + nth * longest / size;
            let head = size.min(most + 1);
            KindHead {
                kind,
                size: head,
                plain: head,
                span: place(head - 1) - place(0) + 1,
                whole_span: place(size - 1) - place(0) + 1,
            }
        });
        let waiting = of.iter().map(|&(_, size)| size).sum();
        let sizes = KindSizes::of(&heads.collect::<Vec<_>>(), most, waiting);
        of.iter().map(|&(kind, _)| sizes.size(kind)).collect()
    }

    #[test]
    fn sizes_are_exact_if_one_kind_has_many_tasks() {
        assert!(sizes(&[]).is_empty());
        assert_eq!(sizes(&[(0, 7), (-3, 100), (4, 1)]), [7, 100, 1]);
        assert_eq!(sizes(&[(0, 7), (-3, 1234), (4, 100)]), [7, 1234, 100]);
    }

    #[test]
    fn few_tasks_are_counted_however_many_kinds_there_are() {
        assert_eq!([1, 3].map(max_counted), [MAX_COUNTED; 2]);
        assert_eq!(max_counted(100_000), MIN_COUNTED);
    }

    #[test]
    fn the_sizes_add_up_to_the_total() {
        let found = sizes(&[(0, 1000), (1, 5), (2, 500)]);
        // The estimates are rounded down.
        assert_eq!(
            (found[1], (found[0] + found[2]).abs_diff(1500) < 2),
            (5, true)
        );
        // The tasks of one kind arrive twice as often.
        assert!(found[0].abs_diff(1000) < 10, "{found:?}");
        assert!(found[2].abs_diff(500) < 10, "{found:?}");
    }
}
