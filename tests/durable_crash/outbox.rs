//! Processes die around the commit of a transaction that stores a task together with a row of the user, and while they move such tasks.

use rusqlite::Connection;
use rustix::process::{Signal, getpid, kill_process};
use serde::{Deserialize, Serialize};
use throng::durable::{DurableClient, Outbox, SpawnOptions, Status};

use super::child::{Role, nth_id};
use super::job::{Folder, Job};
use super::process::Process;
use super::site::{Site, outcomes};

/// The point at which a buyer dies, relative to its commit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Death {
    Before,
    Within,
    After,
}

/// Stores an order and its task in one transaction, and dies.
pub(crate) fn buy(client: &DurableClient, folder: &Folder, death: Death) {
    let mut db = open(folder);
    if death == Death::Within {
        // Old versions of rusqlite return `()`.
        _ = db.commit_hook(Some(|| -> bool { die() }));
    }
    let tx = db.transaction().expect("it begins");
    tx.execute("INSERT INTO orders VALUES (0)", [])
        .expect("it is inserted");
    let row = client.outbox(Job::Work(1), SpawnOptions::new().id(nth_id(0)));
    let row = row.expect("it is a row");
    tx.execute(row.insert(), (row.id_bytes(), row.body()))
        .expect("it is inserted");
    if death == Death::Before {
        die();
    }
    tx.commit().expect("it is committed");
    die();
}

fn die() -> ! {
    kill_process(getpid(), Signal::KILL).ok();
    std::process::abort()
}

/// Opens the file of the store, which also contains the user's table.
fn open(folder: &Folder) -> Connection {
    Connection::open(folder.0.join("tasks.db")).expect("a database")
}

async fn site() -> Site {
    let site = Site::file().await;
    let db = open(&site.folder);
    db.execute_batch(Outbox::CREATE).expect("a table");
    db.execute_batch("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
        .expect("a table");
    site
}

fn count(site: &Site, table: &str) -> u64 {
    let sql = format!("SELECT count(*) FROM {table}");
    let count = open(&site.folder).query_row(&sql, [], |row| row.get::<_, i64>(0));
    count.expect("a number") as u64
}

#[tokio::test]
async fn an_order_has_its_task_whenever_the_buyer_dies() {
    for death in [Death::Before, Death::Within, Death::After] {
        let site = site().await;
        let mut buyer = Process::start(&site.plan(Role::Buyer(death)));
        buyer.was_killed_by(Signal::KILL).await;
        let expected = u64::from(death == Death::After);
        assert_eq!(count(&site, "orders"), expected, "{death:?}");

        let mut worker = site.worker(site.work()).await;
        let handle = site.client.attach::<Job>(nth_id(0));
        match expected {
            0 => assert_eq!(handle.status().await.expect("an answer"), Status::Absent),
            _ => drop(outcomes([handle]).await),
        }
        assert_eq!(site.settled().await.stored, expected, "{death:?}");
        assert_eq!(count(&site, "throng_outbox"), 0, "{death:?}");
        worker.stop(0).await;
    }
}

/// The first commit of a worker begins its session. Others move tasks, claim them and end them.
#[tokio::test]
async fn a_worker_dies_while_it_moves_tasks() {
    let moved = (1..=3).map(|nth| format!("outbox.removed:{nth}"));
    let commits = [
        "sqlite.before-commit",
        "sqlite.in-commit",
        "sqlite.after-commit",
    ];
    let commits = commits.map(|point| (1..=4).map(move |nth| format!("{point}:{nth}")));
    for point in moved.chain(commits.into_iter().flatten()) {
        worker_dies_at(&point).await;
    }
}

/// Enough tasks that several transactions are needed to move them.
const TASKS: usize = 600;

async fn worker_dies_at(point: &str) {
    let site = site().await;
    let maker = Site::file().await;
    let rows: Vec<_> = (0..TASKS)
        .map(|n| (Job::Work(0), SpawnOptions::new().id(nth_id(n))))
        .map(|(job, options)| maker.client.outbox(job, options).expect("it is a row"))
        .collect();
    let mut db = open(&site.folder);
    let tx = db.transaction().expect("it begins");
    for row in &rows {
        tx.execute(row.insert(), (row.id_bytes(), row.body()))
            .expect("it is inserted");
    }
    tx.commit().expect("it is committed");

    let plan = site.plan(Role::Worker(site.brief_work()));
    let mut deadly = Process::start_deadly(&plan, point);
    deadly.was_killed_by(Signal::KILL).await;

    let mut worker = Process::start(&plan);
    let handles = rows.iter().map(|row| site.client.attach::<Job>(row.id()));
    assert_eq!(outcomes(handles).await.len(), TASKS, "{point}");
    let counts = site.settled().await;
    let expected = (TASKS as u64, TASKS as u64);
    assert_eq!(
        (counts.stored, counts.done),
        expected,
        "{point}: {counts:?}"
    );
    assert_eq!(count(&site, "throng_outbox"), 0, "{point}");
    worker.stop(0).await;
}
