//! An outbox with many rows, of which a relay takes some at a time.

use super::server::Server;
use super::{ServerConnection, needs_postgres};
use crate::durable::store::postgres::PostgresOutbox;
use crate::durable::store::{MAX_BATCH_BYTES, MAX_BATCH_TASKS, RelayedOutbox, TakenRow};
use crate::durable::{Outbox, TaskId};

/// An outbox whose rows have the ids from 1 to `rows`.
struct FullOutbox {
    database: ServerConnection,
    outbox: PostgresOutbox,
    rows: u128,
}

impl FullOutbox {
    /// Fills an outbox. The server computes the body of each row from the expression `body`, in which `n` is the number of the row.
    async fn new(rows: u128, body: &str) -> Self {
        let name = format!("t{}", TaskId::new()).replace('-', "");
        let url = Server::shared().url();
        ServerConnection::to(url.clone()).ask(&format!("CREATE DATABASE {name}"));
        let url = url.replace("dbname=postgres", &format!("dbname={name}"));
        let database = ServerConnection::to(url.clone());
        database.ask(Outbox::CREATE_POSTGRES);
        database.ask(&format!(
            "INSERT INTO throng.outbox SELECT decode(lpad(to_hex(n), 32, '0'), 'hex'), {body}
             FROM generate_series(1, {rows}) AS n"
        ));
        let mut outbox = PostgresOutbox::new(&url).unwrap();
        outbox.open().await.unwrap();
        Self {
            database,
            outbox,
            rows,
        }
    }

    /// Moves all rows, and passes each part to a check.
    async fn move_all(mut self, check: impl Fn(&[TakenRow])) {
        let mut moved = Vec::new();
        let mut more = true;
        while more {
            let taken = self.outbox.take().await.unwrap();
            check(&taken.rows);
            moved.extend(taken.rows.iter().map(|row| row.entry.id));
            self.outbox.remove(&taken.rows).await.unwrap();
            more = taken.more;
        }
        let ids = 1..=self.rows;
        let expected = ids.map(|number| Some(TaskId::from_bytes(number.to_be_bytes())));
        assert!(
            moved.into_iter().eq(expected),
            "some are missing, or moved twice"
        );
        assert_eq!(
            self.database.number("SELECT count(*) FROM throng.outbox"),
            0
        );
    }
}

#[tokio::test]
async fn many_rows_are_taken_in_parts_and_each_once() {
    needs_postgres!();
    let outbox = FullOutbox::new(100_000, "decode('01', 'hex')").await;
    outbox
        .move_all(|part| assert!(part.len() <= MAX_BATCH_TASKS))
        .await;
}

/// A part may exceed the limit only because of its last row.
#[tokio::test]
async fn large_rows_are_taken_in_parts_and_each_once() {
    needs_postgres!();
    const LARGE: usize = MAX_BATCH_BYTES / 4 * 3;
    let body =
        format!("convert_to(repeat(chr(1), CASE WHEN n % 7 < 3 THEN {LARGE} ELSE 1 END), 'UTF8')");
    let outbox = FullOutbox::new(60, &body).await;
    outbox
        .move_all(|part| {
            let sizes = part.iter().map(|row| row.entry.body.len());
            let but_last = sizes.rev().skip(1).sum::<usize>();
            assert!(but_last < MAX_BATCH_BYTES, "{but_last} bytes");
        })
        .await;
}
