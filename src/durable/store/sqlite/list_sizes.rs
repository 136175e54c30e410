//! The numbers of waiting tasks in lists and in queues. [`ListSizes`] does not count long lists task by task.

use std::collections::BTreeMap;

use rusqlite::{Connection, params};

use super::ready_queue;
use crate::durable::queue::name::QueueName;
use crate::durable::store::routes::ListId;

/// The number of tasks that are counted in all lists together. An observer opens the file for each query, so it reads them from there.
const MAX_COUNTED_IN_ALL: u64 = 20_000;
/// The number of tasks that are counted in each list, however many lists there are.
const MIN_COUNTED: u64 = 100;
/// The maximum number of tasks of a list that are counted.
#[cfg(not(test))]
const MAX_COUNTED: u64 = 10_000;
#[cfg(test)]
const MAX_COUNTED: u64 = MIN_COUNTED;

/// Selects the number of tasks in a list, or the limit if there are more, and how many of them have no group, with the positions of the
/// first and the last of these.
pub(super) const COUNT: &str = "
    SELECT count(*), count(*) FILTER (WHERE sublist = 0), min(place) FILTER (WHERE sublist = 0), max(place) FILTER (WHERE sublist = 0)
    FROM (SELECT sublist, place FROM throng_ready WHERE list = ?1 ORDER BY sublist, place LIMIT ?2)";

/// The tasks at the head of a list.
struct ListHead {
    size: u64,
    /// The number of these tasks that have no group, and the number of positions between their ends.
    ungrouped: u64,
    span: u64,
}

/// The numbers of waiting tasks in all lists. The numbers of long lists are estimates, but if only one list is long, its number is exact,
/// since the total is known.
pub(super) struct ListSizes(BTreeMap<ListId, u64>);

impl ListSizes {
    /// Reads the sizes of the lists, which contain `waiting` tasks in total.
    pub(super) fn load(db: &Connection, waiting: u64) -> Result<Self, rusqlite::Error> {
        let (mut sizes, mut long, mut left) = (BTreeMap::new(), Vec::new(), waiting);
        let lists = ready_queue::lists(db)?;
        let most = max_counted(lists.len());
        for list in lists {
            let head = head(db, list, most)?;
            let size = head.size;
            match size > most {
                true => long.push((list, head.extrapolated(span(db, list)?))),
                false => {
                    left = left.saturating_sub(size);
                    sizes.insert(list, size);
                }
            }
        }
        // The total is known, so the long lists share the remaining tasks in proportion to their estimates.
        let sum: u128 = long.iter().map(|&(_, size)| u128::from(size)).sum();
        for (list, size) in long {
            let share = u128::from(left) * u128::from(size) / sum.max(1);
            sizes.insert(list, (share as u64).max(most));
        }
        Ok(Self(sizes))
    }

    pub(super) fn of(&self, list: ListId) -> u64 {
        self.0.get(&list).copied().unwrap_or_default()
    }

    /// Returns the numbers of waiting tasks in the queues.
    pub(super) fn by_queue(
        &self,
        db: &Connection,
    ) -> Result<BTreeMap<QueueName, u64>, rusqlite::Error> {
        let mut queues = BTreeMap::new();
        for (&list, size) in &self.0 {
            if let Some(queue) = ready_queue::queue_of(db, list)? {
                *queues.entry(queue).or_default() += size;
            }
        }
        Ok(queues)
    }
}

/// Counts the waiting tasks of a queue.
pub(super) fn count_in_queue(db: &Connection, queue: &QueueName) -> Result<u64, rusqlite::Error> {
    let mut waiting = 0;
    for list in ready_queue::lists(db)? {
        if ready_queue::queue_of(db, list)?.as_ref() == Some(queue) {
            waiting += ready_queue::count(db, list)?;
        }
    }
    Ok(waiting)
}

/// Returns the number of tasks that are counted in each list, given the number of lists.
fn max_counted(lists: usize) -> u64 {
    let share = MAX_COUNTED_IN_ALL / (lists as u64).max(1);
    share.clamp(MIN_COUNTED, MAX_COUNTED)
}

/// Counts the tasks of a list, up to one more than the maximum.
fn head(db: &Connection, list: ListId, most: u64) -> Result<ListHead, rusqlite::Error> {
    let mut statement = db.prepare_cached(COUNT)?;
    statement.query_row(params![list.number(), most as i64 + 1], |row| {
        let ends = row.get::<_, Option<i64>>(2)?.zip(row.get(3)?);
        Ok(ListHead {
            size: row.get::<_, i64>(0)? as u64,
            ungrouped: row.get::<_, i64>(1)? as u64,
            span: ends.map_or(1, |(first, last): (i64, i64)| last.abs_diff(first) + 1),
        })
    })
}

impl ListHead {
    /// Estimates the size of the whole list, given the number of positions between its ends. Each new task gets the next position, in all
    /// lists. So a list whose tasks arrive half as often has half as many tasks at as many positions.
    fn extrapolated(&self, span: u64) -> u64 {
        let size = u128::from(span) * u128::from(self.ungrouped) / u128::from(self.span);
        (size as u64).max(self.size)
    }
}

/// Returns the number of positions between the ends of a list.
fn span(db: &Connection, list: ListId) -> Result<u64, rusqlite::Error> {
    let sql =
        |end| format!("SELECT {end}(place) FROM throng_ready WHERE list = ?1 AND sublist = 0");
    let end = |end| -> Result<i64, rusqlite::Error> {
        let mut statement = db.prepare_cached(&sql(end))?;
        let place = statement.query_row([list.number()], |row| row.get::<_, Option<i64>>(0))?;
        Ok(place.unwrap_or_default())
    };
    Ok(end("max")?.abs_diff(end("min")?) + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a database in which this many tasks wait in each list.
    fn database(sizes: &[(i64, i64)]) -> Connection {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch(
            "CREATE TABLE throng_ready (list INTEGER, sublist INTEGER, place INTEGER,
                 PRIMARY KEY (list, sublist, place)) WITHOUT ROWID",
        )
        .unwrap();
        let longest = sizes.iter().map(|&(_, size)| size).max().unwrap_or(0);
        for &(list, size) in sizes {
            for nth in 0..size {
                // The tasks of all lists have arrived at the same time.
                let place = nth * longest / size;
                let sql = "INSERT INTO throng_ready VALUES (?1, 0, ?2)";
                db.execute(sql, [list, place]).unwrap();
            }
        }
        db
    }

    fn sizes(of: &[(i64, i64)]) -> Vec<u64> {
        let waiting = of.iter().map(|&(_, size)| size as u64).sum();
        let sizes = ListSizes::load(&database(of), waiting).unwrap();
        let lists = of.iter().map(|&(list, _)| ListId::from_number(list));
        lists.map(|list| sizes.of(list)).collect()
    }

    #[test]
    fn sizes_are_exact_if_one_list_is_long() {
        assert!(sizes(&[]).is_empty());
        assert_eq!(sizes(&[(0, 7), (-3, 100), (4, 1)]), [7, 100, 1]);
        assert_eq!(sizes(&[(0, 7), (-3, 1234), (4, 100)]), [7, 1234, 100]);
    }

    #[test]
    fn lists_that_are_short_are_counted_however_many_there_are() {
        assert_eq!([1, 3].map(max_counted), [MAX_COUNTED; 2]);
        assert_eq!(max_counted(100_000), MIN_COUNTED);
    }

    #[test]
    fn the_sizes_of_long_lists_add_up_to_the_total() {
        let found = sizes(&[(0, 1000), (1, 5), (2, 500)]);
        // The estimates are rounded down.
        assert_eq!(
            (found[1], (found[0] + found[2]).abs_diff(1500) < 2),
            (5, true)
        );
        // The tasks of one list arrive twice as often.
        assert!(found[0].abs_diff(1000) < 10, "{found:?}");
        assert!(found[2].abs_diff(500) < 10, "{found:?}");
    }
}
