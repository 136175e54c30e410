//! Pages of the file that cannot be read.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::super::{
    Backend, DeadFilter, DeadReason, File, NewTask, SqliteStore, TaskState, Worker, done, id, task,
    verdicts,
};
use super::{DamagedStore, RETENTION, dead, is_damaged, is_final};
use crate::durable::failure::{Cause, Effect};

/// Overwrites a page of the file.
fn overwrite(file: &File, page: i64, random: &mut fastrand::Rng) {
    let size = file.number("PRAGMA page_size") as usize;
    let bytes: Vec<_> = std::iter::repeat_with(|| random.u8(..))
        .take(size)
        .collect();
    let opened = OpenOptions::new().write(true).open(&file.path).unwrap();
    opened
        .write_all_at(&bytes, (page as u64 - 1) * size as u64)
        .unwrap();
}

/// Returns the pages of a tree: its root, and its leaves.
fn pages(file: &File, tree: &str) -> (i64, Vec<i64>) {
    let pages = |leaves: &str| {
        file.numbers(&format!(
            "SELECT pageno FROM dbstat WHERE name = '{tree}' AND {leaves} ORDER BY path"
        ))
    };
    (pages("path = '/'")[0], pages("pagetype = 'leaf'"))
}

/// The trees of the database. The flag is `true` if a lost page of the tree may cost tasks.
const TREES: [(&str, bool); 30] = [
    ("throng_task", true),
    ("throng_task_at", false),
    ("throng_task_key", false),
    ("throng_task_window", false),
    ("throng_ready", false),
    ("throng_group", false),
    ("throng_group_name", false),
    ("throng_group_turn", false),
    ("throng_group_run", false),
    ("throng_group_run_name", false),
    ("throng_group_hold", false),
    ("throng_group_hold_until", false),
    ("throng_claim", false),
    ("throng_claim_session", false),
    ("throng_claim_until", false),
    ("throng_claim_queue", false),
    ("throng_queue", false),
    ("throng_session", false),
    ("throng_session_endpoint", false),
    ("throng_payload", true),
    ("sqlite_autoindex_throng_payload_1", false),
    ("throng_error", false),
    ("throng_progress", false),
    ("throng_step", true),
    ("throng_workflow", false),
    ("throng_schedule", false),
    ("throng_schedule_hand_out", false),
    ("throng_stat", false),
    ("throng_stat_report", false),
    ("throng_damaged", false),
];

/// Overwrites a page of each tree that has this page, while the file is open or closed.
async fn overwrite_each(is_open: bool, which: impl Fn(i64, &[i64]) -> Option<i64>) {
    let mut random = fastrand::Rng::with_seed(7);
    for (tree, may_cost) in TREES {
        let mut damaged = DamagedStore::new(180).await;
        damaged.checkpoint().await;
        if !is_open {
            damaged.close().await;
        }
        let (root, leaves) = pages(&damaged.file, tree);
        let Some(page) = which(root, &leaves) else {
            continue;
        };
        overwrite(&damaged.file, page, &mut random);
        match is_open {
            true => damaged.forget_pages().await,
            false => damaged.reopen().await,
        }
        let ends = damaged.work_to_the_end().await;
        let lost = ends
            .values()
            .filter(|end| is_damaged(end) || **end == TaskState::Absent);
        let lost = lost.count();
        for (id, end) in &ends {
            assert!(is_final(end), "{tree}: {id} {end:?}");
        }
        assert!(may_cost || lost == 0, "{tree}: {lost} lost");
        // Only the rows of one page are lost, unless it is the page that leads to all others.
        assert!(lost < 100 || page == root, "{tree}: {lost} lost");
        // Damage of an index that no request reads may stay unnoticed.
        let is_named = [&damaged.holder, &damaged.other]
            .iter()
            .any(|worker| worker.store.damage().is_some());
        assert!(lost == 0 || is_named, "{tree}: {lost} lost");
        damaged.assert_sound().await;
    }
}

impl DamagedStore {
    /// Moves everything from the log into the file.
    async fn checkpoint(&self) {
        let sql = "PRAGMA wal_checkpoint(TRUNCATE)";
        let moved = self.file.connect().query_row(sql, [], |row| row.get(0));
        assert_eq!(moved, Ok(0));
    }

    /// Closes the file in all processes.
    async fn close(&self) {
        for worker in [&self.holder, &self.other] {
            worker.store.close().await.unwrap();
        }
        let folder = self.file.path.parent().unwrap();
        assert_eq!(std::fs::read_dir(folder).unwrap().count(), 1);
    }

    /// Opens the file again in both processes.
    async fn reopen(&mut self) {
        for worker in [&mut self.holder, &mut self.other] {
            let store = SqliteStore::open_with(&self.file.path, self.clock.clone()).await;
            *worker = Worker::new(&Arc::new(store.unwrap())).await;
        }
    }

    /// Removes the pages of the file from the memory of all processes.
    async fn forget_pages(&self) {
        for worker in [&self.holder, &self.other] {
            worker.pragma("cache_size = 1").await;
            worker.pragma("shrink_memory").await;
            let ask = worker.store.reader.run(|reader| {
                reader.snapshot(|db| {
                    Ok(db.execute_batch("PRAGMA cache_size = 1; PRAGMA shrink_memory")?)
                })
            });
            ask.await.unwrap();
        }
    }
}

#[tokio::test]
async fn the_root_of_each_table_can_be_lost() {
    overwrite_each(true, |root, _| Some(root)).await;
}

#[tokio::test]
async fn the_first_page_of_each_table_can_be_lost() {
    // The only page of a table is its root.
    overwrite_each(true, |_, leaves| match leaves {
        [first, _, ..] => Some(*first),
        _ => None,
    })
    .await;
}

#[tokio::test]
async fn the_last_page_of_each_table_can_be_lost() {
    overwrite_each(true, |_, leaves| match leaves {
        [_, .., last] => Some(*last),
        _ => None,
    })
    .await;
}

#[tokio::test]
async fn a_page_in_the_middle_of_each_table_can_be_lost() {
    overwrite_each(true, |_, leaves| match leaves {
        [_, middle @ .., _] => middle.get(middle.len() / 2).copied(),
        _ => None,
    })
    .await;
}

#[tokio::test]
async fn the_root_of_each_table_can_be_lost_while_the_file_is_closed() {
    overwrite_each(false, |root, _| Some(root)).await;
}

/// SQLite cannot remove data that it cannot read, but the tasks end nevertheless.
#[tokio::test]
async fn pages_of_large_data_cost_their_own_task() {
    let mut random = fastrand::Rng::with_seed(7);
    let file = File::new();
    let mut worker = Worker::new(&file.open().await).await;
    let large = |n| NewTask {
        retention: RETENTION,
        ..task(n).payload(vec![1; 20_000]).0
    };
    worker
        .enqueue([large(1), large(2), large(3), large(4)])
        .await;
    let held = worker.claim(2).await;
    let sql = "PRAGMA wal_checkpoint(TRUNCATE)";
    assert_eq!(file.number(sql), 0);
    let pages = file.numbers(
        "SELECT max(pageno) FROM dbstat WHERE name = 'throng_payload' AND pagetype = 'overflow'
         GROUP BY substr(path, 1, 5) ORDER BY path",
    );
    // These pages hold the data of the second and of the third task.
    for &page in &pages[1..3] {
        overwrite(&file, page - 1, &mut random);
    }
    worker.sound_turn(done(&held, vec![1]), 0).await;
    assert_eq!(worker.claim_all().await, 2);
    let seen = worker
        .store
        .status((1..=4).map(id).collect())
        .await
        .unwrap();
    assert!(seen.iter().all(is_final), "{seen:?}");
    let damaged: Vec<_> = seen.iter().map(is_damaged).collect();
    assert_eq!(damaged, [false, false, true, false]);
}

/// A repair cannot restore lost data of a task. If a page is lost afterwards, the store must still be repaired.
#[tokio::test]
async fn a_page_can_be_lost_just_after_the_data_of_a_task() {
    let mut random = fastrand::Rng::with_seed(7);
    let mut damaged = DamagedStore::new(60).await;
    let large = task(9000).payload(vec![1; 20_000]).0;
    damaged.other.enqueue([large]).await;
    damaged.checkpoint().await;
    let data =
        "SELECT max(pageno) FROM dbstat WHERE name = 'throng_payload' AND pagetype = 'overflow'";
    let data = damaged.file.number(data);
    // The last page of the data leads to no other page, so its content may be anything.
    overwrite(&damaged.file, data - 1, &mut random);
    damaged.forget_pages().await;
    assert_eq!(damaged.other.claim_all().await, 61);
    let seen = damaged.other.store.status(vec![id(9000)]).await.unwrap();
    assert!(is_damaged(&seen[0]), "{seen:?}");

    for tree in ["throng_task", "throng_claim_until", "throng_session"] {
        damaged.checkpoint().await;
        let (root, _) = pages(&damaged.file, tree);
        overwrite(&damaged.file, root, &mut random);
        damaged.forget_pages().await;
        damaged.other.sound_enqueue(task(9001).0).await;
        damaged.other.claim_all().await;
    }
    let ends = damaged.work_to_the_end().await;
    assert!(ends.values().all(is_final), "{ends:?}");
    damaged.assert_sound().await;
}

/// An output is not lost if only a page that leads to it is.
#[tokio::test]
async fn an_output_is_read_though_its_index_is_lost() {
    let mut random = fastrand::Rng::with_seed(7);
    for tree in ["throng_payload", "sqlite_autoindex_throng_payload_1"] {
        let damaged = DamagedStore::new(180).await;
        damaged.checkpoint().await;
        let (root, _) = pages(&damaged.file, tree);
        // The next reader reads it from the file.
        damaged.file.sql("UPDATE throng_meta SET layout = layout");
        overwrite(&damaged.file, root, &mut random);
        // The outputs of these tasks are retained, every third one outside the row of its task.
        let ids: Vec<_> = (1000..1180).map(id).collect();
        let seen = damaged.other.store.status(ids).await.unwrap();
        let lost = seen
            .iter()
            .filter(|seen| !matches!(seen, TaskState::Done(_)));
        let most = if tree == "throng_payload" { 60 } else { 0 };
        assert!(lost.count() <= most, "{tree}");
        assert!(damaged.other.store.damage().is_some());
    }
}

/// The other tasks of the same request keep their outputs.
#[tokio::test]
async fn an_output_that_is_lost_costs_its_own_task() {
    let mut random = fastrand::Rng::with_seed(7);
    let file = File::new();
    let worker = Worker::new(&file.open().await).await;
    let kept = |n| NewTask {
        retention: RETENTION,
        ..task(n).0
    };
    worker.enqueue([kept(1), kept(2), kept(3)]).await;
    let claim = worker.claim(3).await;
    worker.turn(done(&claim, vec![1; 20_000]), 0).await;
    assert_eq!(file.number("PRAGMA wal_checkpoint(TRUNCATE)"), 0);
    let page =
        "SELECT max(pageno) FROM dbstat WHERE name = 'throng_payload' AND pagetype = 'overflow'";
    let page = file.number(page);
    // The next reader reads it from the file.
    file.sql("UPDATE throng_meta SET layout = layout");
    overwrite(&file, page - 1, &mut random);
    for _ in 0..2 {
        let seen = worker
            .store
            .status((1..=3).map(id).collect())
            .await
            .unwrap();
        let damaged: Vec<_> = seen.iter().map(is_damaged).collect();
        assert_eq!(damaged, [false, false, true], "{seen:?}");
    }
    assert!(worker.store.damage().is_some());
    assert_eq!(worker.store.shared.damage.repairs(), 0);
}

/// A list of dead letters does not read payloads, and the other payloads can be read.
#[tokio::test]
async fn a_lost_payload_costs_its_own_dead_letter() {
    let mut random = fastrand::Rng::with_seed(7);
    let file = File::new();
    let worker = Worker::new(&file.open().await).await;
    let new = |n| task(n).payload(vec![n as u8; 20_000]).0;
    worker.enqueue([new(1), new(2), new(3), new(4)]).await;
    let claim = worker.claim(4).await;
    let fatal = |_| dead(DeadReason::Fatal);
    worker.turn(verdicts(&claim, fatal), 0).await;
    assert_eq!(file.number("PRAGMA wal_checkpoint(TRUNCATE)"), 0);
    let page =
        "SELECT max(pageno) FROM dbstat WHERE name = 'throng_payload' AND pagetype = 'overflow'";
    let page = file.number(page);
    // The next reader reads it from the file.
    file.sql("DELETE FROM throng_payload WHERE hex(id) LIKE '%01'");
    overwrite(&file, page - 1, &mut random);
    let payload_of = async |n| {
        let found = worker.store.dead_letter_payload(id(n)).await.unwrap();
        found.expect("it is a dead letter").payload
    };
    for _ in 0..2 {
        for n in [2, 3] {
            assert_eq!(payload_of(n).await, Ok(vec![n as u8; 20_000]), "{n}");
        }
        for n in [1, 4] {
            let lost = payload_of(n).await.unwrap_err();
            assert!(lost.starts_with("its data cannot be read"), "{n}: {lost}");
        }
        let dead_letters = worker.store.dead_letters(DeadFilter::all(), 9).await;
        assert_eq!(dead_letters.unwrap().len(), 4);
        // Each lost payload counts once, however often it is read.
        assert_eq!(worker.store.damage().map(|(rows, _)| rows), Some(2));
    }
    assert_eq!(worker.store.shared.damage.repairs(), 0);
}

#[tokio::test]
async fn the_payload_of_a_damaged_dead_letter_is_no_new_damage() {
    let file = File::new();
    let worker = Worker::new(&file.open().await).await;
    worker.enqueue([task(1).payload(vec![1; 20_000]).0]).await;
    let claim = worker.claim(1).await;
    let damaged = |_| dead(DeadReason::Damaged);
    worker.turn(verdicts(&claim, damaged), 0).await;
    file.sql("DELETE FROM throng_payload");
    let found = worker.store.dead_letter_payload(id(1)).await.unwrap();
    assert!(found.is_some_and(|found| found.payload.is_err()));
    assert_eq!(worker.store.damage(), None);
}

/// The first page contains the names of the tables, and identifies the file as a database.
#[tokio::test]
async fn a_store_without_its_first_page_fails_until_it_is_restored() {
    let mut random = fastrand::Rng::with_seed(7);
    let mut damaged = DamagedStore::new(20).await;
    damaged.checkpoint().await;
    let copy = std::fs::read(&damaged.file.path).unwrap();
    // The next reader reads it from the file.
    damaged.file.sql("UPDATE throng_meta SET layout = layout");
    overwrite(&damaged.file, 1, &mut random);
    let failures = [
        damaged.other.try_enqueue([task(9000).0]).await.unwrap_err(),
        damaged.other.try_turn(vec![], 1, true).await.unwrap_err(),
        damaged
            .other
            .store
            .status(vec![id(1000)])
            .await
            .unwrap_err(),
        damaged.other.store.maintain(100).await.unwrap_err(),
    ];
    for failure in failures {
        assert_eq!(
            (&failure.cause, failure.effect),
            (&Cause::Corrupt, Effect::None)
        );
        assert!(failure.to_string().contains("put a copy"), "{failure}");
    }
    std::fs::write(&damaged.file.path, &copy).unwrap();
    let ends = damaged.work_to_the_end().await;
    assert!(
        ends.values().all(|end| is_final(end) && !is_damaged(end)),
        "{ends:?}"
    );

    damaged.checkpoint().await;
    damaged.close().await;
    let copy = std::fs::read(&damaged.file.path).unwrap();
    for page in damaged
        .file
        .numbers("SELECT pageno FROM dbstat WHERE name = 'sqlite_schema'")
    {
        overwrite(&damaged.file, page, &mut random);
        let error = SqliteStore::open(&damaged.file.path).await.unwrap_err();
        assert!(error.is_corrupt(), "page {page}: {error}");
        assert!(
            error.to_string().contains("put a copy"),
            "page {page}: {error}"
        );
        std::fs::write(&damaged.file.path, &copy).unwrap();
    }
    damaged.reopen().await;
    damaged.assert_sound().await;
}
