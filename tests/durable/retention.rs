//! The time for which ended tasks are kept, and their number.

use std::time::Duration;

use throng::durable::{DeadFilter, Retention, Status, TaskError};

use crate::harness::{TestStore, reaches, spawn, start};
use crate::support::within;

on_all_stores! {
    a_retention_is_kept_for_all_clients,
    an_invalid_retention_changes_nothing,
    handles_of_tasks_in_excess_get_the_error_of_expired_ones,
}

async fn a_retention_is_kept_for_all_clients(store: TestStore) {
    let (client, other) = (store.client().await, store.client().await);
    assert_eq!(
        other.admin().retention().await.unwrap(),
        Retention::default()
    );
    let week = Duration::from_secs(7 * 24 * 3600);
    let retention = Retention::default().dead_for(week).kept_most(5);
    client.admin().set_retention(retention).await.unwrap();
    assert_eq!(other.admin().retention().await.unwrap(), retention);
}

async fn an_invalid_retention_changes_nothing(store: TestStore) {
    let client = store.client().await;
    let base = Retention::default();
    for invalid in [
        base.dead_for(Duration::ZERO),
        base.dead_for(Duration::MAX),
        base.dead_most(u64::MAX),
        base.kept_most(u64::MAX),
    ] {
        let refused = client.admin().set_retention(invalid).await.unwrap_err();
        assert!(refused.is_invalid(), "{refused}");
        assert!(refused.to_string().contains("set `"), "{refused}");
    }
    assert_eq!(client.admin().retention().await.unwrap(), base);
}

async fn handles_of_tasks_in_excess_get_the_error_of_expired_ones(store: TestStore) {
    let client = store.client().await;
    let run = async |client| {
        let act = |number, _| async move {
            match number {
                1 => Err(TaskError::fatal("bad")),
                _ => Ok(number),
            }
        };
        start(client, act).await
    };
    let first = run(&client).await;
    let (dead, done) = (spawn(&client, 1).await, spawn(&client, 2).await);
    reaches(&dead, Status::Dead).await;
    reaches(&done, Status::Done).await;
    drop(first);
    let none = Retention::default().dead_most(0).kept_most(0);
    client.admin().set_retention(none).await.unwrap();
    // An executor begins with maintenance.
    let _second = run(&client).await;
    for handle in [dead, done] {
        reaches(&handle, Status::Absent).await;
        let error = within(handle).await.unwrap_err();
        assert!(error.is_expired(), "{error}");
    }
    let dead_letters = client.dead_letters().list(DeadFilter::all(), 9).await;
    assert_eq!(dead_letters.unwrap(), []);
}
