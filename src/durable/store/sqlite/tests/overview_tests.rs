//! The overview and the statistics: how SQLite finds what they need.

use super::super::diagnosis::{FIRST as FIRST_UNCLAIMED, OVERDUE};
use super::super::list_sizes::COUNT;
use super::super::overview::{FIRST, FIRST_TYPE};
use super::super::ready_queue::QUEUE;
use super::super::stats::BUCKETS;
use super::*;

/// No query of the overview reads all tasks of a list, and none sorts.
#[tokio::test]
async fn an_index_finds_what_an_overview_needs() {
    let file = File::new();
    drop(file.open().await);
    let db = file.connect();
    let ready = "SEARCH throng_ready USING PRIMARY KEY";
    let plans = [
        (FIRST, vec![format!("{ready} (list=? AND sublist=?)")]),
        (
            FIRST_TYPE,
            vec![
                String::from("SEARCH ready USING PRIMARY KEY (list=?)"),
                String::from("SEARCH task USING PRIMARY KEY (id=?)"),
            ],
        ),
        (
            QUEUE,
            vec![
                String::from("SEARCH ready USING PRIMARY KEY (list=?)"),
                String::from("SEARCH task USING PRIMARY KEY (id=?)"),
            ],
        ),
        (
            FIRST_UNCLAIMED,
            vec![
                String::from("SEARCH ready USING PRIMARY KEY (list=?)"),
                String::from("SEARCH task USING PRIMARY KEY (id=?)"),
            ],
        ),
        (
            OVERDUE,
            vec![String::from(
                "SEARCH throng_claim USING INDEX throng_claim_until (until<?)",
            )],
        ),
        (
            BUCKETS,
            vec![String::from(
                "SEARCH throng_stat USING PRIMARY KEY (hours=? AND bucket>? AND bucket<?)",
            )],
        ),
    ];
    let plan = |sql: &str| {
        let mut plan = db.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let params = vec![1; plan.parameter_count()];
        let rows = plan.query_map(rusqlite::params_from_iter(params), |row| row.get(3));
        rows.unwrap().collect::<Result<Vec<String>, _>>().unwrap()
    };
    for (sql, expected) in plans {
        assert_eq!(plan(sql), expected);
    }
    // The limit ends the search.
    let counted = plan(COUNT);
    let searches = counted
        .iter()
        .filter(|line| **line == format!("{ready} (list=?)"));
    assert_eq!(searches.count(), 1, "{counted:?}");
}
