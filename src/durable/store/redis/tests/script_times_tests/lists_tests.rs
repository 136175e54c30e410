//! Lists of tasks, in which few of many tasks match.

use super::*;
use crate::durable::Status;
use crate::durable::store::{CheckedFilter, ListTasks};

const TASKS: u64 = 8 * BATCH;
const MILLION: u64 = 1_000_000;

/// Reads two pages in which no task matches.
async fn search(scene: &mut Scene, status: Status) {
    let mut request = ListTasks {
        filter: CheckedFilter {
            name: Some(String::from("nobody")),
            ..CheckedFilter::new(status)
        },
        after: None,
        limit: 200,
    };
    for _ in 0..2 {
        let list = scene.other.store.list(request.clone());
        let page = scene.meter.measure(list).await.unwrap().unwrap();
        assert_eq!(page.tasks, []);
        let Some(next) = page.next else { return };
        request.after = next.position_in(status).ok();
    }
}

#[tokio::test]
async fn pages_without_a_match() {
    needs_redis!();
    in_short_scripts(async |scene| {
        scene.store(TASKS, task).await;
        search(scene, Status::Waiting).await;
        let claims = scene.claim_all(MAX_BATCH_TASKS).await;
        search(scene, Status::Running).await;
        for (nth, claim) in claims.iter().enumerate() {
            let retry = || Verdict::Retry {
                after: Duration::from_secs(60),
                error: String::from("error"),
                took: None,
            };
            let verdict = || if nth % 2 == 0 { retry() } else { dead(1000)() };
            scene.turn(verdicts(claim, verdict), 0).await;
        }
        search(scene, Status::Delayed).await;
        search(scene, Status::Dead).await;
    })
    .await;
}

/// All groups wait, and the others are cancelled: so the head of the queue examines as many entries as it may.
#[tokio::test]
async fn the_head_of_a_queue_with_many_groups() {
    needs_redis!();
    in_short_scripts(async |scene| {
        let _served = Worker::of_queue(&scene.worker.store, "q").await;
        let group = |number: u64| grouped(number, "q", &format!("group-{}", number % 500));
        scene.store(4 * BATCH, group).await;
        scene
            .store(8 * BATCH, |number| queued(10_000 + number, "q"))
            .await;
        for numbers in (0..8 * BATCH).collect::<Vec<_>>().chunks(100) {
            let ids = numbers.iter().map(|number| id(10_000 + number)).collect();
            scene.worker.store.cancel(ids).await.unwrap();
        }
        let head = scene.other.store.head(queue_name("q"), 50);
        let head = scene.meter.measure(head).await.unwrap();
        assert_eq!(head.tasks.len(), 50);
        let find = scene.other.store.find(id(9));
        assert!(scene.meter.measure(find).await.unwrap().is_some());
    })
    .await;
}

/// A page takes no longer if the store has a million tasks.
#[tokio::test]
#[ignore = "it stores two million tasks: `scripts/test --long` runs it"]
async fn pages_of_a_million_tasks() {
    needs_redis!();
    let mut scene = Scene::new().await;
    scene.store(MILLION, task).await;
    scene.meter.taken.clear();
    search(&mut scene, Status::Waiting).await;
    let later = |number| NewTask {
        delay: Duration::from_secs(3600 + number % 1000),
        ..task(MILLION + number)
    };
    scene.store(MILLION, later).await;
    scene.meter.taken.clear();
    for status in [Status::Waiting, Status::Delayed] {
        search(&mut scene, status).await;
    }
    println!("pages: {:?}", scene.meter.taken);
    assert!(scene.meter.taken.iter().all(|taken| *taken <= LIMIT));
}
