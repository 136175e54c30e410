//! A relay dies between the steps in which it moves tasks from an outbox in another database.

use std::path::PathBuf;
use std::time::Duration;

use rusqlite::Connection;
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use throng::durable::{DurableClient, Outbox, OutboxRelay, OutboxRow, SpawnOptions};
use tokio::sync::mpsc;
use tokio_postgres::{Client, NoTls};

use super::child::{Role, nth_id, say};
use super::job::Job;
use super::postgres_server::{Server, is_installed};
use super::process::{Process, until};
use super::site::{EVERYSEC, Site, outcomes};

/// The address of an outbox.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum OutboxAddress {
    File(PathBuf),
    Server(String),
}

/// Moves tasks from an outbox into the store until the process is told to stop.
pub(crate) async fn relay_until(
    client: &DurableClient,
    outbox: &OutboxAddress,
    mut orders: mpsc::UnboundedReceiver<Duration>,
) {
    let relay = match outbox {
        OutboxAddress::File(path) => OutboxRelay::sqlite(client, path).await,
        OutboxAddress::Server(url) => OutboxRelay::postgres(client, url).await,
    };
    let relay = relay.expect("it can be opened");
    say("ready");
    orders.recv().await.expect("the thread never ends");
    relay.close().await;
    say("stopped");
}

/// Several transactions move the tasks.
const TASKS: usize = 600;

#[tokio::test]
async fn a_relay_from_a_file_dies_while_it_moves_tasks() {
    needs_redis!();
    relay_from_a_file_dies(1).await;
}

#[tokio::test]
async fn a_relay_into_partitions_dies_while_it_moves_tasks() {
    needs_redis!();
    relay_from_a_file_dies(3).await;
}

async fn relay_from_a_file_dies(partitions: usize) {
    for point in points() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("app.db");
        let db = Connection::open(&path).expect("a database");
        db.execute_batch(Outbox::CREATE).expect("a table");
        relay_dies_at(&point, &OutboxAddress::File(path), partitions).await;
    }
}

#[tokio::test]
async fn a_relay_from_postgresql_dies_while_it_moves_tasks() {
    needs_redis!();
    if !is_installed() {
        return;
    }
    let server = Server::start();
    let db = connect(&server.url()).await;
    let created = db.batch_execute(Outbox::CREATE_POSTGRES).await;
    created.expect("it is created");
    for point in points() {
        relay_dies_at(&point, &OutboxAddress::Server(server.url()), 1).await;
    }
}

/// Before rows are removed whose tasks are stored, and before the removal is committed; in the first and in a later transaction.
fn points() -> impl Iterator<Item = String> {
    let points = ["relay.stored", "relay.removed"];
    let points = points.map(|point| (1..=2).map(move |nth| format!("{point}:{nth}")));
    points.into_iter().flatten()
}

async fn relay_dies_at(point: &str, outbox: &OutboxAddress, partitions: usize) {
    let site = Site::partitions(&EVERYSEC, partitions).await;
    let maker = Site::file().await;
    let rows: Vec<_> = (0..TASKS)
        .map(|n| (Job::Work(0), SpawnOptions::new().id(nth_id(n))))
        .map(|(job, options)| maker.client.outbox(job, options.retention(Duration::ZERO)))
        .map(|row| row.expect("it is a row"))
        .collect();
    outbox.add(&rows).await;
    // It ends the tasks of the first relay before the second one stores them again.
    let mut worker = site.worker(site.work()).await;
    let plan = site.plan(Role::Relay(outbox.clone()));
    let mut deadly = Process::start_deadly(&plan, point);
    deadly.was_killed_by(Signal::KILL).await;
    let left = outbox.rows().await;
    let stored = site.at_rest().await.stored;
    assert!(
        left as u64 + stored > TASKS as u64,
        "{point}: {left}, {stored}"
    );

    let mut relay = Process::start(&plan);
    let is_empty = async || (outbox.rows().await == 0).then_some(());
    until("the outbox is empty", is_empty).await;
    relay.stop(0).await;
    let ids: Vec<_> = rows.iter().map(OutboxRow::id).collect();
    let handles = ids.iter().map(|&id| site.client.attach::<Job>(id));
    assert_eq!(outcomes(handles).await.len(), TASKS, "{point}");
    let counts = site.settled().await;
    let expected = (TASKS as u64, TASKS as u64);
    assert_eq!((counts.stored, counts.done), expected, "{point}");
    site.assert_ran_once(&ids);
    worker.stop(0).await;
}

impl OutboxAddress {
    async fn add(&self, rows: &[OutboxRow<Job>]) {
        match self {
            Self::File(path) => {
                let mut db = Connection::open(path).expect("a database");
                let tx = db.transaction().expect("it begins");
                for row in rows {
                    let params = (row.id_bytes(), row.body());
                    let added = tx.execute(Outbox::INSERT_SQLITE, params);
                    added.expect("it is inserted");
                }
                tx.commit().expect("it is committed");
            }
            Self::Server(url) => {
                let mut db = connect(url).await;
                let tx = db.transaction().await.expect("it begins");
                for row in rows {
                    let (id, body) = (row.id_bytes(), row.body());
                    let added = tx.execute(Outbox::INSERT_POSTGRES, &[&id, &body]).await;
                    added.expect("it is inserted");
                }
                tx.commit().await.expect("it is committed");
            }
        }
    }

    async fn rows(&self) -> i64 {
        match self {
            Self::File(path) => {
                let db = Connection::open(path).expect("a database");
                let count = "SELECT count(*) FROM throng_outbox";
                db.query_row(count, [], |row| row.get(0)).expect("a number")
            }
            Self::Server(url) => {
                let count = "SELECT count(*) FROM throng.outbox";
                let row = connect(url).await.query_one(count, &[]).await;
                row.expect("a number").get(0)
            }
        }
    }
}

async fn connect(url: &str) -> Client {
    let connected = tokio_postgres::connect(url, NoTls).await;
    let (client, driver) = connected.expect("the server can be reached");
    tokio::spawn(driver);
    client
}
