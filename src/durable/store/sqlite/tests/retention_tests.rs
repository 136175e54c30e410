//! The retention in a file: how SQLite finds what is in excess, and what becomes of damaged settings.

use super::super::retention::FIRST_TO_EXPIRE;
use super::*;
use crate::durable::Retention;

#[tokio::test]
async fn the_first_to_expire_are_found_by_an_index() {
    let file = File::new();
    drop(file.open().await);
    let db = file.connect();
    let mut plan = db
        .prepare(&format!("EXPLAIN QUERY PLAN {FIRST_TO_EXPIRE}"))
        .unwrap();
    let rows = plan.query_map([3, 1], |row| row.get::<_, String>(3));
    let plan = rows.unwrap().collect::<Result<Vec<_>, _>>().unwrap();
    let expected = "SEARCH throng_task USING COVERING INDEX throng_task_at (state=? AND at>?)";
    assert_eq!(plan, [expected]);
}

/// A setting that cannot be read is that of a new store. The others stay.
#[tokio::test]
async fn damaged_settings_are_those_of_a_new_store() {
    let base = Retention::default();
    let hour = Duration::from_secs(3600);
    let strict = base.dead_for(hour).dead_most(1).kept_most(1);
    for garbage in ["'garbage'", "x'00'", "-1"] {
        for (column, expected) in [
            ("dead_for", strict.dead_for(base.dead_for)),
            ("dead_most", strict.dead_most(base.dead_most)),
            ("kept_most", strict.kept_most(None)),
            ("dead_since", strict),
        ] {
            let file = File::new();
            let store = file.open().await;
            store.set_retention(strict).await.unwrap();
            file.sql(&format!("UPDATE throng_meta SET {column} = {garbage}"));
            assert!(!store.maintain(9).await.unwrap(), "{column} {garbage}");
            assert_eq!(store.retention().await.unwrap(), expected, "{column}");
            let (rows, last) = store.damage().expect("it is reported");
            assert!(rows == 1 && last.contains(column), "{last}");
        }
    }
}

#[tokio::test]
async fn the_settings_stay_when_all_processes_have_exited() {
    let file = File::new();
    let strict = Retention::default().dead_most(0).kept_most(9);
    let store = file.open().await;
    store.set_retention(strict).await.unwrap();
    drop(store);
    let store = file.open().await;
    assert_eq!(store.retention().await.unwrap(), strict);
}
