//! Processes are killed around and within a commit, or around a request to a server: each time a little
//! later.

use std::collections::HashSet;

use rustix::process::Signal;
use throng::durable::TaskId;
use tokio::time::timeout;

use super::child::{Role, Work, nth_id};
use super::job::Job;
use super::process::{Process, until};
use super::site::{ALWAYS, Site, outcomes};

const COMMIT: [&str; 3] = [
    "sqlite.before-commit",
    "sqlite.in-commit",
    "sqlite.after-commit",
];
const BEFORE_COMMIT: &str = "postgres.before-commit";
/// The commit is answered, and the notifications of others are on their way.
const AFTER_COMMIT: &str = "postgres.after-commit";
const AFTER_NOTICES: &str = "postgres.after-notices";
const TURN: [&str; 2] = ["redis.before-turn", "redis.after-turn"];
const RENEWAL: [&str; 2] = ["redis.before-renew", "redis.after-renew"];
const ENQUEUE: [&str; 2] = ["redis.before-enqueue", "redis.after-enqueue"];

/// The first commit of a worker begins its session, the second claims, those that follow also bring
/// what has ended.
#[tokio::test]
async fn a_worker_dies_at_each_commit() {
    for point in COMMIT {
        for nth in 1..=5 {
            let site = Site::file().await;
            worker_dies_at(&site, &format!("{point}:{nth}"), 1).await;
        }
    }
}

#[tokio::test]
async fn a_worker_dies_before_each_commit_in_postgres() {
    needs_postgres!();
    worker_dies_in_postgres_at(BEFORE_COMMIT).await;
}

#[tokio::test]
async fn a_worker_dies_after_each_commit_in_postgres() {
    needs_postgres!();
    worker_dies_in_postgres_at(AFTER_COMMIT).await;
}

#[tokio::test]
async fn a_worker_dies_after_all_notices_in_postgres() {
    needs_postgres!();
    worker_dies_in_postgres_at(AFTER_NOTICES).await;
}

/// The first commit of a worker opens the store, the second begins its session, and the third claims. Those that follow also bring what has
/// ended or renew leases.
async fn worker_dies_in_postgres_at(point: &str) {
    for nth in 1..=6 {
        let site = Site::database().await;
        worker_dies_at(&site, &format!("{point}:{nth}"), 1).await;
        site.ends(1).await;
    }
    let site = Site::database().await;
    worker_dies_at(&site, &format!("{point}:5"), 1_500).await;
    site.ends(1).await;
}

/// The first turn of a worker claims, those that follow also bring what has ended. One that ends before
/// or after the first has lost its tasks; later, they have crashed.
#[tokio::test]
async fn a_worker_dies_at_each_turn() {
    needs_redis!();
    for point in TURN {
        for nth in 1..=4 {
            let site = Site::server(&ALWAYS).await;
            worker_dies_at(&site, &format!("{point}:{nth}"), 1).await;
            site.ends(1).await;
        }
    }
}

/// Its tasks take longer than a lease, which is renewed meanwhile.
#[tokio::test]
async fn a_worker_dies_when_it_renews_its_leases() {
    needs_redis!();
    for point in RENEWAL {
        for nth in 1..=2 {
            let site = Site::server(&ALWAYS).await;
            worker_dies_at(&site, &format!("{point}:{nth}"), 1_500).await;
            site.ends(1).await;
        }
    }
}

async fn worker_dies_at(site: &Site, point: &str, millis: u64) {
    let handles = site.spawn_all(Job::Work(millis), 20).await;
    let plan = site.plan(Role::Worker(Work {
        max_running: if millis > 1 { 20 } else { 4 },
        ..site.brief_work()
    }));
    let mut deadly = Process::start_deadly(&plan, point);
    deadly.was_killed_by(Signal::KILL).await;

    let mut worker = Process::start(&plan);
    assert_eq!(outcomes(handles).await.len(), 20, "{point}");
    let counts = site.settled().await;
    assert_eq!(
        (counts.stored, counts.done),
        (20, 20),
        "{point}: {counts:?}"
    );
    assert_eq!((counts.kept, counts.dead), (20, 0), "{point}: {counts:?}");
    assert_eq!(counts.retried, 0, "{point}: {counts:?}");
    worker.stop(0).await;
}

/// A process that stores a task and exits when it has its answer has woken a worker by then.
#[tokio::test]
async fn a_producer_dies_after_its_answer_and_a_worker_knows() {
    for round in 0..4 {
        // The first answer is that to its session.
        worker_knows(&Site::file().await, round, "sqlite.after-answer:2").await;
    }
}

#[tokio::test]
async fn a_producer_dies_after_its_answer_and_a_worker_knows_in_postgres() {
    needs_postgres!();
    for round in 0..4 {
        // The first two answers are that to the opening of the store and that to its session.
        worker_knows(&Site::database().await, round, "postgres.after-answer:3").await;
    }
}

async fn worker_knows(site: &Site, round: usize, point: &str) {
    let mut worker = site.worker(site.work()).await;
    until("it rests", async || {
        (site.idle_workers() == 1).then_some(())
    })
    .await;
    let plan = site.plan(Role::Producer { tasks: TASKS });
    let mut deadly = Process::start_deadly(&plan, point);
    deadly.was_killed_by(Signal::KILL).await;
    let handle = site.client.attach::<Job>(nth_id(0));
    let ran = timeout(site.soon(), handle).await;
    let outcome = ran.unwrap_or_else(|_| panic!("round {round}: nobody was woken"));
    assert_eq!(outcome.expect("it succeeds").pid, worker.pid());
    worker.stop(0).await;
}

const TASKS: usize = 4;

/// The first commit of a producer begins its session, each that follows stores a task; the last, four.
#[tokio::test]
async fn a_producer_dies_at_each_commit_and_starts_over() {
    for point in COMMIT {
        for nth in 1..=TASKS + 2 {
            let site = Site::file().await;
            producer_dies_at(&site, &format!("{point}:{nth}")).await;
        }
    }
}

/// The same; the first commit of a producer opens the store.
#[tokio::test]
async fn a_producer_dies_at_each_commit_in_postgres_and_starts_over() {
    needs_postgres!();
    for point in [BEFORE_COMMIT, AFTER_COMMIT, AFTER_NOTICES] {
        for nth in 1..=TASKS + 3 {
            let site = Site::database().await;
            producer_dies_at(&site, &format!("{point}:{nth}")).await;
            // It had two sessions, of which one may never have been used.
            site.ends(2).await;
        }
    }
}

/// Each request but the last stores a task.
#[tokio::test]
async fn a_producer_dies_at_each_request_and_starts_over() {
    needs_redis!();
    for point in ENQUEUE {
        for nth in 1..=TASKS + 1 {
            let site = Site::server(&ALWAYS).await;
            producer_dies_at(&site, &format!("{point}:{nth}")).await;
            // It had two, of which one may never have been used.
            site.ends(2).await;
        }
    }
}

/// Its last tasks go to both partitions at the same time, so it may die when one of them has stored its part, and the other has not.
#[tokio::test]
async fn a_producer_dies_at_each_request_to_partitions_and_starts_over() {
    needs_redis!();
    for point in ENQUEUE {
        for nth in TASKS + 1..=TASKS + 2 {
            let site = Site::partitions(&ALWAYS, 2).await;
            producer_dies_at(&site, &format!("{point}:{nth}")).await;
            site.ends(2).await;
        }
    }
}

async fn producer_dies_at(site: &Site, point: &str) {
    let plan = site.plan(Role::Producer { tasks: TASKS });
    let mut deadly = Process::start_deadly(&plan, point);
    let mut worker = site.worker(site.work()).await;
    deadly.was_killed_by(Signal::KILL).await;

    // What it was told is stored, is; what it was not told may be, if it had asked for it.
    let told = stored(&deadly);
    let first = site.settled().await.stored as usize;
    let asked = if told.len() < TASKS { 1 } else { TASKS };
    let possible = told.len()..=told.len() + asked;
    assert!(possible.contains(&first), "{point}: {first}, {told:?}");
    let handles = told.iter().map(|&id| site.client.attach::<Job>(id));
    outcomes(handles).await;
    assert!(told.len() <= 2 * TASKS, "{point}: {told:?}");

    let mut again = Process::start(&plan);
    again.wait_for_line("all stored").await;
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
    worker.stop(0).await;
}

/// The ids that a producer was told are stored.
fn stored(producer: &Process) -> HashSet<TaskId> {
    let ids = producer.heard("stored ").into_iter();
    ids.map(|id| id.parse().expect("an id")).collect()
}
