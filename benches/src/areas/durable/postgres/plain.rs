//! A peer that is PostgreSQL and a few lines: a table from which `FOR UPDATE SKIP LOCKED` takes batches of messages, as with pgmq.

use std::sync::Arc;

use tokio::task::JoinSet;
use tokio_postgres::{Client, Statement};

use super::ours::runtime;
use super::server::{Server, with_server};
use super::{CHUNK, SPAWNED, STORED};
use crate::areas::durable::SPAWNERS;
use crate::areas::durable::plain::{decode, encode};
use crate::areas::durable::tasks::Payload;
use crate::areas::on_worker;
use crate::measure::{Rules, Sample};

/// The connections of 64 spawners.
const CONNECTIONS: u64 = 10;

const CREATE: &str = "CREATE TABLE message (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        visible_at timestamptz NOT NULL DEFAULT clock_timestamp(),
        reads integer NOT NULL DEFAULT 0,
        body bytea NOT NULL
    );
    CREATE INDEX ON message (visible_at)";

const STORE: &str = "INSERT INTO message (body) VALUES ($1)";

const STORE_ALL: &str = "INSERT INTO message (body) SELECT * FROM unnest($1::bytea[])";

const READ: &str =
    "UPDATE message SET visible_at = clock_timestamp() + interval '30 s', reads = reads + 1
    WHERE id IN (
        SELECT id FROM message WHERE visible_at <= clock_timestamp()
        ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED
    ) RETURNING id, body";

const DELETE: &str = "DELETE FROM message WHERE id = ANY ($1)";

/// One client runs tasks that are there, so many at a time, with two commits for them.
pub(super) fn drain(rules: &Rules, permits: usize) -> Sample {
    with_server(rules, |server| {
        let runtime = runtime();
        let tasks = rules.scaled(STORED);
        let client = runtime.block_on(table(server));
        let client = on_worker(&runtime, fill(client, tasks));
        let meter = server.meter();
        let ran = on_worker(&runtime, run(client, permits));
        assert_eq!(ran, tasks);
        meter.end(tasks)
    })
}

/// 64 spawners, each of which waits for each of its tasks.
pub(super) fn spawn(rules: &Rules) -> Sample {
    with_server(rules, |server| {
        let runtime = runtime();
        let mut clients = vec![runtime.block_on(table(server))];
        clients.extend((1..CONNECTIONS).map(|_| runtime.block_on(server.connect())));
        let clients: Vec<_> = clients
            .into_iter()
            .map(|client| Arc::new(runtime.block_on(Storing::new(client))))
            .collect();
        let share = rules.scaled(SPAWNED).div_ceil(SPAWNERS);
        let meter = server.meter();
        on_worker(&runtime, async move {
            let spawners = (0..SPAWNERS).map(|spawner| {
                let client = Arc::clone(&clients[(spawner % CONNECTIONS) as usize]);
                async move { client.store(spawner * share..(spawner + 1) * share).await }
            });
            spawners.collect::<JoinSet<_>>().join_all().await;
        });
        meter.end(share * SPAWNERS)
    })
}

async fn table(server: &Server) -> Client {
    let client = server.connect().await;
    let created = client.batch_execute(CREATE).await;
    created.expect("a table can be made");
    client
}

async fn prepare(client: &Client, sql: &str) -> Statement {
    let prepared = client.prepare(sql).await;
    prepared.expect("there is such a table")
}

async fn fill(client: Client, tasks: u64) -> Client {
    let store = prepare(&client, STORE_ALL).await;
    for first in (0..tasks).step_by(CHUNK as usize) {
        let chunk = first..tasks.min(first + CHUNK);
        let bodies: Vec<_> = chunk.map(|number| encode(&Payload::new(number))).collect();
        let stored = client.execute(&store, &[&bodies]).await;
        stored.expect("messages can be stored");
    }
    client
}

/// Runs tasks until there are none. Returns how many there were.
async fn run(client: Client, permits: usize) -> u64 {
    let read = prepare(&client, READ).await;
    let delete = prepare(&client, DELETE).await;
    let mut ran = 0;
    loop {
        let rows = client.query(&read, &[&(permits as i64)]).await;
        let rows = rows.expect("messages can be read");
        if rows.is_empty() {
            return ran;
        }
        rows.iter().for_each(|row| decode(row.get(1)));
        let ids: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
        let deleted = client.execute(&delete, &[&ids]).await;
        ran += deleted.expect("messages can be removed");
    }
}

/// A connection that stores messages.
struct Storing {
    client: Client,
    statement: Statement,
}

impl Storing {
    async fn new(client: Client) -> Self {
        let statement = prepare(&client, STORE).await;
        Self { client, statement }
    }

    async fn store(&self, numbers: std::ops::Range<u64>) {
        for number in numbers {
            let body = encode(&Payload::new(number));
            let stored = self.client.execute(&self.statement, &[&body]).await;
            stored.expect("a message can be stored");
        }
    }
}
