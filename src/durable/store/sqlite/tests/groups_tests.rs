//! Groups: how their turns are looked up, what damage does to them, and how long a turn takes with many of them.

use std::time::Instant;

use super::*;
use crate::durable::queue::group::GroupName;
use crate::durable::queue::{Groups, QueueSettings};
use crate::durable::store::QueueChange;
use crate::durable::store::kind::Kind;
use crate::durable::store::routes::Routes;

fn grouped(n: u64, group: &str) -> NewTask {
    NewTask {
        queue: queue(),
        group: Some(GroupName::new(group).unwrap()),
        ..task(n).0
    }
}

fn queue() -> QueueName {
    QueueName::new("q").unwrap()
}

async fn worker(store: &Arc<SqliteStore>) -> Worker {
    let set = TypeSet::of_names(["name"]).unwrap().in_queue(queue());
    let session = store.open_session(Some(set)).await.unwrap();
    Worker {
        session,
        ..Worker::new(store).await
    }
}

async fn set(store: &SqliteStore, groups: Groups) {
    let change = QueueChange::Settings(QueueSettings::new().grouped(groups));
    store.change_queue(queue(), change).await.unwrap();
}

/// Stores tasks, in batches.
async fn store_all(worker: &Worker, tasks: Vec<NewTask>) {
    for batch in tasks.chunks(256) {
        worker.enqueue(batch.to_vec()).await;
    }
}

#[tokio::test]
async fn the_next_group_is_looked_up_in_an_index() {
    let file = File::new();
    drop(file.open().await);
    let db = file.connect();
    let sql = "EXPLAIN QUERY PLAN SELECT sublist, name, turn FROM throng_group
         WHERE list = 1 AND turn IS NOT NULL AND (turn, name) > (1, 'a')
         ORDER BY turn, name LIMIT 64";
    let plan: String = db.query_row(sql, [], |row| row.get(3)).unwrap();
    assert!(
        plan.contains("throng_group_turn (list=? AND (turn,name)>(?,?))")
            || plan.contains("throng_group_turn (list=? AND turn>?"),
        "{plan}"
    );
}

/// One tenant has 20,000 tasks, and 50 tenants have 20 each.
#[tokio::test]
async fn a_large_tenant_delays_no_other() {
    let file = File::new();
    let worker = worker(&file.open().await).await;
    let large = (0..20_000).map(|n| grouped(n, "large"));
    store_all(&worker, large.collect()).await;
    let small = (0..1_000).map(|n| grouped(20_000 + n, &format!("small {}", n / 20)));
    store_all(&worker, small.collect()).await;
    let (mut started, mut left) = (0, 1_000);
    while left > 0 {
        let claim = worker.claim(10).await;
        started += claim.tasks.len();
        left -= claim
            .tasks
            .iter()
            .filter(|task| task.id >= id(20_000))
            .count();
    }
    // 1,020 are ideal.
    assert!(started <= 1_050, "{started}");
}

/// The ring is not scanned: a turn takes as long as with few groups.
#[tokio::test]
async fn many_groups_do_not_slow_a_turn_down() {
    let file = File::new();
    let worker = worker(&file.open().await).await;
    set(&worker.store, Groups::new().max_running(1)).await;
    let groups = if std::env::var_os("THRONG_LONG").is_some() {
        100_000
    } else {
        5_000
    };
    let tasks = (0..2 * groups).map(|n| grouped(n, &(n % groups).to_string()));
    store_all(&worker, tasks.collect()).await;
    let mut shortest = Duration::MAX;
    for _ in 0..20 {
        let start = Instant::now();
        let claim = worker.claim(16).await;
        shortest = shortest.min(start.elapsed());
        worker.turn(done(&claim, vec![]), 0).await;
    }
    println!("a turn of 16 tasks takes {shortest:?}");
    assert!(shortest < Duration::from_millis(50), "{shortest:?}");
}

/// The rows are derived from those of the tasks.
#[tokio::test]
async fn damaged_rows_of_groups_are_restored() {
    for damage in [
        "DELETE FROM throng_group",
        "DELETE FROM throng_group WHERE name = 'b'",
        "UPDATE throng_group SET name = 'b' || rowid WHERE 0; UPDATE throng_group SET sublist = sublist + 7",
        "UPDATE throng_group SET turn = 1 << 60",
        "DELETE FROM throng_group_run",
        "UPDATE throng_group_run SET id = randomblob(16) WHERE rowid IN (SELECT 1) OR 1",
        "UPDATE throng_task SET sublist = 77",
        "UPDATE throng_ready SET sublist = 0 WHERE sublist = 1",
        "DELETE FROM throng_ready",
        "UPDATE throng_meta SET group_turn = -1",
    ] {
        let file = File::new();
        let worker = worker(&file.open().await).await;
        set(&worker.store, Groups::new().max_running(1)).await;
        let tasks = (0..12).map(|n| grouped(n, ["a", "b", "c"][n as usize % 3]));
        worker.enqueue(tasks).await;
        let claim = worker.claim(2).await;
        let db = file.connect();
        if db.execute_batch(damage).is_err() {
            continue;
        }
        worker.turn(vec![], 0).await;
        worker.store.maintain(100).await.unwrap();
        let next = worker.turn(vec![], 9).await.claim.unwrap();
        let held = claim
            .tasks
            .iter()
            .chain(&next.tasks)
            .map(|task| task.group.clone());
        let groups: std::collections::BTreeSet<_> = held.collect();
        assert_eq!((next.tasks.len(), groups.len()), (1, 3), "{damage}");
        let mut ended = 0;
        for claim in [claim, next] {
            ended += claim.tasks.len();
            worker.turn(done(&claim, vec![]), 0).await;
        }
        while let Some(claim) = worker.turn(vec![], 9).await.claim {
            assert!(claim.tasks.len() <= 3, "{damage}");
            ended += claim.tasks.len();
            worker.turn(done(&claim, vec![]), 0).await;
        }
        assert_eq!(ended, 12, "{damage}");
        for table in ["throng_group", "throng_group_run", "throng_ready"] {
            assert_eq!(
                file.number(&format!("SELECT count(*) FROM {table}")),
                0,
                "{damage}"
            );
        }
    }
}

/// The turn of a group is lost, although its tasks may start.
#[tokio::test]
async fn a_group_whose_turn_is_lost_is_served() {
    let file = File::new();
    let worker = worker(&file.open().await).await;
    worker.enqueue((0..3).map(|n| grouped(n, "a"))).await;
    let db = file.connect();
    db.execute_batch("UPDATE throng_group SET turn = NULL")
        .unwrap();
    worker.turn(vec![], 0).await;
    worker.store.maintain(100).await.unwrap();
    let claim = worker.turn(vec![], 9).await.claim;
    assert_eq!(claim.map(|claim| claim.tasks.len()), Some(3));
}

/// Returns `true` if a list drains, according to the stored routes.
fn is_any_draining(file: &File) -> bool {
    let db = file.connect();
    let sql = "SELECT routes FROM throng_meta";
    let text: String = db.query_row(sql, [], |row| row.get(0)).unwrap();
    let routes: Routes = serde_json::from_str(&text).unwrap();
    routes.sets().any(|set| !routes.draining(set).is_empty())
}

#[tokio::test]
async fn a_list_with_full_groups_drains() {
    let file = File::new();
    let store = file.open().await;
    let worker = worker(&store).await;
    set(&store, Groups::new().max_running(1)).await;
    worker.enqueue((0..3).map(|n| grouped(n, "a"))).await;
    assert!(worker.turn(vec![], 1).await.claim.is_some());
    // Of the types that wait in one list until then, this worker knows only one.
    let set = TypeSet::of([Kind::in_envelope("name", 1)]);
    let set = set.in_queue(queue());
    store.open_session(Some(set)).await.unwrap();
    assert!(is_any_draining(&file));
    worker.turn(vec![], 1).await;
    assert!(!is_any_draining(&file));
    assert_eq!(file.number("SELECT count(*) FROM throng_group"), 1);
}

/// Many holds are over at the same time. A turn ends some of them, and says that the next one is to follow at once.
#[tokio::test]
async fn a_turn_ends_a_limited_number_of_holds() {
    let file = File::new();
    let worker = worker(&file.open().await).await;
    store_all(
        &worker,
        (0..600).map(|n| grouped(n, &n.to_string())).collect(),
    )
    .await;
    let db = file.connect();
    db.execute_batch(
        "INSERT INTO throng_group_hold (queue, name, until) SELECT queue, name, 1 FROM throng_group;
         UPDATE throng_group SET turn = NULL",
    )
    .unwrap();
    let mut turns = 0;
    while worker.turn(vec![], 0).await.next == Some(Duration::ZERO) {
        turns += 1;
    }
    assert_eq!(turns, 2);
    let mut started = 0;
    while let Some(claim) = worker.turn(vec![], 256).await.claim {
        started += claim.tasks.len();
    }
    assert_eq!(started, 600);
}

/// A task of each group runs, and others wait. One group is held.
#[tokio::test]
async fn a_change_of_the_limit_reaches_all_groups() {
    let file = File::new();
    let worker = worker(&file.open().await).await;
    let tasks = (0..900).map(|n| grouped(n, &(n % 300).to_string()));
    store_all(&worker, tasks.collect()).await;
    let (one, other) = (worker.claim(256).await, worker.claim(44).await);
    assert_eq!((one.tasks.len(), other.tasks.len()), (256, 44));
    let held = Verdict::HoldGroup {
        wait: Duration::from_secs(60),
        then: Box::new(Verdict::Release),
    };
    let tasks = vec![(other.tasks[43].id, held)];
    let epoch = other.epoch;
    worker.turn(vec![Verdicts { epoch, tasks }], 0).await;
    for (limit, with_turns) in [(1, 0), (2, 299), (3, 299), (1, 0)] {
        set(&worker.store, Groups::new().max_running(limit)).await;
        let sql = "SELECT count(*) FROM throng_group WHERE turn IS NOT NULL";
        assert_eq!(file.number(sql), with_turns, "{limit}");
    }
    set(&worker.store, Groups::new()).await;
    let mut started = 0;
    while let Some(claim) = worker.turn(vec![], 256).await.claim {
        started += claim.tasks.len();
    }
    assert_eq!(started, 2 * 299);
}
