//! Rows that cannot be read.

use throng::durable::{DeadFilter, DeadReason, SpawnOptions, TaskId};

use super::database::Statement::Add;
use super::database::{Database, add};
use super::{maker, row, until_moved};
use crate::harness::{Number, spawn_as, start};

on_stores_with_outbox! {
    a_row_that_cannot_be_read_is_a_dead_letter,
    the_error_of_a_row_is_short,
    a_large_row_is_cut_off,
}

async fn a_row_that_cannot_be_read_is_a_dead_letter(database: Database) {
    let (_other, maker) = maker().await;
    let known = row(&maker, 2, SpawnOptions::new());
    let [first, second] = [TaskId::new(), TaskId::new()];
    let rows = [
        Add(first.to_bytes().to_vec(), b"\x01garbage".to_vec()),
        Add(b"no id".to_vec(), known.body().to_vec()),
        Add(second.to_bytes().to_vec(), Vec::new()),
        add(&known),
    ];
    database.run(&rows).await;
    let client = database.client().await;
    // A task with one of these ids runs nevertheless.
    let same_id = spawn_as(&client, 3, SpawnOptions::new().id(second)).await;
    let _executor = start(&client, |number, _| async move { Ok(number) }).await;
    let handle = client.attach::<Number>(known.id());
    assert_eq!(handle.await.expect("it succeeds"), 2);
    assert_eq!(same_id.await.expect("it succeeds"), 3);
    until_moved(&database).await;
    let error = client.attach::<Number>(first).await.unwrap_err();
    assert_eq!(error.dead_reason(), Some(DeadReason::Unreadable));
    assert!(error.to_string().contains("a row of the outbox"), "{error}");
    let dead_letters = client.dead_letters().list(DeadFilter::all(), 10).await;
    assert_eq!(dead_letters.expect("an answer").len(), 3);
}

/// The error of a value that is not known contains the value.
async fn the_error_of_a_row_is_short(database: Database) {
    let client = database.client().await;
    let priority = "x".repeat(50_000);
    let text = format!(
        r#"{{"name":"a","queue":null,"group":null,"priority":"{priority}","key":null,"delay":1,"retention":2,"max_crashes":3}}"#
    );
    let len = (text.len() as u32).to_be_bytes();
    let body = [&[1][..], &len, text.as_bytes(), b"\x01payload"].concat();
    let id = TaskId::new();
    database.run(&[Add(id.to_bytes().to_vec(), body)]).await;
    drop(client.committed(row(&client, 1, SpawnOptions::new())));
    until_moved(&database).await;
    let error = client.attach::<Number>(id).await.unwrap_err();
    assert!(error.to_string().contains("a row of the outbox"), "{error}");
    assert!(error.to_string().len() < 3_000, "{error}");
}

async fn a_large_row_is_cut_off(database: Database) {
    let client = database.client().await;
    let id = TaskId::new();
    let row_of = |body| Add(id.to_bytes().to_vec(), body);
    database.run(&[row_of(vec![1; 20 << 20])]).await;
    let known = row(&client, 2, SpawnOptions::new());
    database.run(&[add(&known)]).await;
    let _executor = start(&client, |number, _| async move { Ok(number) }).await;
    assert_eq!(client.committed(known).await.expect("it succeeds"), 2);
    until_moved(&database).await;
    let error = client.attach::<Number>(id).await.unwrap_err();
    assert_eq!(error.dead_reason(), Some(DeadReason::Unreadable));
    let payload = client.dead_letters().payload(id).await;
    let payload = payload.expect("an answer").expect("a payload");
    assert!(
        (1_000_000..=1 << 20).contains(&payload.len()),
        "{}",
        payload.len()
    );
}
