//! Processes are killed around and within a commit: each time a little later.

use std::collections::HashSet;

use rustix::process::Signal;
use throng::durable::TaskId;

use super::child::{Role, nth_id};
use super::job::Job;
use super::process::Process;
use super::site::{Site, WORK, outcomes};

const POINTS: [&str; 3] = [
    "sqlite.before-commit",
    "sqlite.in-commit",
    "sqlite.after-commit",
];

/// The first commit of a worker begins its session, the second claims, those that follow also bring
/// what has ended.
#[tokio::test]
async fn a_worker_dies_at_each_commit() {
    for point in POINTS {
        for nth in 1..=5 {
            worker_dies_at(&format!("{point}:{nth}")).await;
        }
    }
}

async fn worker_dies_at(point: &str) {
    let site = Site::new().await;
    let handles = site.spawn_all(Job::Work(1), 20).await;
    let plan = site.plan(Role::Worker(WORK));
    let mut deadly = Process::start_deadly(&plan, point);
    deadly.was_killed_by(Signal::KILL).await;

    let _worker = site.worker(WORK).await;
    assert_eq!(outcomes(handles).await.len(), 20, "{point}");
    let counts = site.settled().await;
    assert_eq!(
        (counts.stored, counts.done),
        (20, 20),
        "{point}: {counts:?}"
    );
    assert_eq!((counts.kept, counts.dead), (20, 0), "{point}: {counts:?}");
    assert_eq!(counts.retried, 0, "{point}: {counts:?}");
}

const TASKS: usize = 4;

/// The first commit of a producer begins its session, each that follows stores a task; the last, four.
#[tokio::test]
async fn a_producer_dies_at_each_commit_and_starts_over() {
    for point in POINTS {
        for nth in 1..=TASKS + 2 {
            producer_dies_at(&format!("{point}:{nth}")).await;
        }
    }
}

async fn producer_dies_at(point: &str) {
    let site = Site::new().await;
    let plan = site.plan(Role::Producer { tasks: TASKS });
    let mut deadly = Process::start_deadly(&plan, point);
    let _worker = site.worker(WORK).await;
    deadly.was_killed_by(Signal::KILL).await;

    // What it was told is stored, is; what it was not told may be.
    let told = stored(&deadly);
    site.settled().await;
    let handles = told.iter().map(|&id| site.client.attach::<Job>(id));
    outcomes(handles).await;
    assert!(told.len() <= 2 * TASKS, "{point}: {told:?}");

    let mut again = Process::start(&plan);
    again.hears("all stored").await;
    assert!(again.died().await.success());
    assert_eq!(stored(&again).len(), 2 * TASKS);
    let handles = (0..2 * TASKS).map(|n| site.client.attach::<Job>(nth_id(n)));
    outcomes(handles).await;
    let counts = site.settled().await;
    assert_eq!(counts.stored as usize, 2 * TASKS, "{point}: {counts:?}");
    assert_eq!(
        site.folder.ledger().len(),
        4 * TASKS,
        "{point}: one run each"
    );
}

/// The ids that a producer was told are stored.
fn stored(producer: &Process) -> HashSet<TaskId> {
    let ids = producer.heard("stored ").into_iter();
    ids.map(|id| id.parse().expect("an id")).collect()
}
