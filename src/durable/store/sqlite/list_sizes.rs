//! The numbers of waiting tasks in lists and in queues. [`ListSizes`] does not count long lists task by task.

use std::collections::BTreeMap;

use rusqlite::{Connection, params};

use super::ready_queue;
use crate::durable::queue::name::QueueName;
use crate::durable::store::routes::ListId;

/// The maximum number of tasks of a list that are counted.
#[cfg(not(test))]
const MAX_COUNTED: u64 = 10_000;
#[cfg(test)]
const MAX_COUNTED: u64 = 100;

/// Selects the number of tasks in a list, or the limit if there are more.
pub(super) const COUNT: &str =
    "SELECT count(*) FROM (SELECT 1 FROM throng_ready WHERE list = ?1 LIMIT ?2)";

/// The numbers of waiting tasks in all lists. The numbers of long lists are estimates, but if only one list is long, its number is exact,
/// since the total is known.
pub(super) struct ListSizes(BTreeMap<ListId, u64>);

impl ListSizes {
    /// Reads the sizes of the lists, which contain `waiting` tasks in total.
    pub(super) fn load(db: &Connection, waiting: u64) -> Result<Self, rusqlite::Error> {
        let (mut sizes, mut long, mut left) = (BTreeMap::new(), Vec::new(), waiting);
        for list in ready_queue::lists(db)? {
            let size = count(db, list)?;
            match size > MAX_COUNTED {
                true => long.push((list, span(db, list)?.max(size))),
                false => {
                    left = left.saturating_sub(size);
                    sizes.insert(list, size);
                }
            }
        }
        // Each new task gets the next position, in all lists. So the long lists share the remaining tasks about in proportion to the
        // positions between their ends.
        let spans: u64 = long.iter().map(|(_, span)| span).sum();
        for (list, span) in long {
            let share = u128::from(left) * u128::from(span) / u128::from(spans.max(1));
            sizes.insert(list, (share as u64).max(MAX_COUNTED));
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

/// Counts the tasks of a list, up to one more than the maximum.
fn count(db: &Connection, list: ListId) -> Result<u64, rusqlite::Error> {
    let mut statement = db.prepare_cached(COUNT)?;
    let params = params![list.number(), MAX_COUNTED as i64 + 1];
    statement.query_row(params, |row| row.get::<_, i64>(0).map(|count| count as u64))
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
    fn the_sizes_of_long_lists_add_up_to_the_total() {
        let found = sizes(&[(0, 1000), (1, 5), (2, 500)]);
        // The estimates are rounded down.
        assert_eq!(
            (found[1], (found[0] + found[2]).abs_diff(1500) < 2),
            (5, true)
        );
        assert!(found[0] > 700 && found[2] > 700, "{found:?}");
    }
}
