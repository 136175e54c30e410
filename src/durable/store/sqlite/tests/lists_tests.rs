//! Lists of tasks: how SQLite finds the first task of a page.

use super::super::list::{BY_TIME, DEAD, RUNNING, WAITING};
use super::*;

/// A page begins at its first task, without a look at those before, and sorts nothing.
#[tokio::test]
async fn a_page_begins_where_an_index_says() {
    let file = File::new();
    drop(file.open().await);
    let db = file.connect();
    let by_time = "SEARCH throng_task USING INDEX throng_task_at";
    let plans = [
        (
            WAITING,
            vec![
                String::from("SEARCH ready USING PRIMARY KEY ((list,sublist,place)<(?,?,?))"),
                String::from("SEARCH task USING PRIMARY KEY (id=?)"),
            ],
        ),
        (
            RUNNING,
            vec![String::from(
                "SEARCH throng_claim USING INTEGER PRIMARY KEY (rowid>?)",
            )],
        ),
        (
            BY_TIME,
            vec![format!("{by_time} (state=? AND (at,id)>(?,?))")],
        ),
        (
            DEAD,
            vec![format!("{by_time} (state=? AND at>? AND (at,id)<(?,?))")],
        ),
    ];
    for (sql, expected) in plans {
        let mut plan = db.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let params = vec![1; plan.parameter_count()];
        let rows = plan.query_map(rusqlite::params_from_iter(params), |row| row.get(3));
        let plan: Vec<String> = rows.unwrap().collect::<Result<_, _>>().unwrap();
        assert_eq!(plan, expected);
    }
}
