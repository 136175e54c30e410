//! Some rows that are damaged, and what becomes of the tasks that they are about, and of others.

use tokio_postgres::error::SqlState;

use super::needs_postgres;
use super::scene::*;
use crate::durable::failure::{Cause, Effect};
use crate::durable::store::suite::{id, task};
use crate::durable::store::{Backend, DeadReason, NewTask, TaskState};

/// Damage that would keep workers from taking back the claims of others.
const PREVENTED: [&str; 5] = [
    "UPDATE $S.task SET state = -1",
    "UPDATE $S.task SET state = 2",
    "UPDATE $S.task SET state = 6",
    "UPDATE $S.claim SET held = '{NULL}'",
    // The times at which tasks expire would be out of range.
    "UPDATE $S.meta SET aged = 9223372036854775807",
];

#[tokio::test]
async fn rows_that_would_stop_all_workers_are_refused() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let caller = scene.open().await;
    caller.store(1).await.unwrap();
    caller.claim(1).await;
    for damage in PREVENTED {
        let code = scene.try_ask(damage).unwrap_err().code().cloned();
        assert_eq!(code, Some(SqlState::CHECK_VIOLATION), "{damage}");
    }
}

#[tokio::test]
async fn a_row_that_cannot_be_read_costs_only_those_who_await_its_task() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let caller = scene.open().await;
    let new = [1, 2].map(|number| NewTask {
        retention: DEADLINE,
        ..task(number)
    });
    let request = caller.new_enqueue(new);
    caller.store.enqueue(request).await.unwrap();
    let claim = caller.claim(2).await;
    caller.turn(done(&claim), 0).await;
    let damaged = id(1);
    scene.ask(&format!(
        "UPDATE $S.task SET output = NULL WHERE id = '{damaged}'"
    ));
    let ends = caller.store.status(vec![damaged, id(2)]).await.unwrap();
    let is_damaged = matches!(
        ends[0],
        TaskState::Dead {
            reason: DeadReason::Damaged,
            ..
        }
    );
    assert!(is_damaged, "{ends:?}");
    assert!(matches!(ends[1], TaskState::Done(_)), "{ends:?}");
}

#[tokio::test]
async fn a_number_that_is_out_of_range_is_damage() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let caller = scene.open().await;
    caller.store(1).await.unwrap();
    let claim = caller.claim(1).await;
    scene.ask(&format!("UPDATE $S.task SET retention = {}", i64::MAX));
    let request = caller.new_turn(done(&claim), 0);
    let failure = caller.store.turn(request).await.unwrap_err();
    assert_eq!(failure.cause, Cause::Corrupt, "{failure}");
    assert_eq!(failure.effect, Effect::None, "{failure}");
}

#[tokio::test]
async fn a_constraint_that_does_not_hold_is_damage() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let caller = scene.open().await;
    scene.ask("ALTER TABLE $S.task ADD CHECK (failures > 0)");
    let failure = caller.store(1).await.unwrap_err();
    assert_eq!(failure.cause, Cause::Corrupt, "{failure}");
    assert_eq!(failure.effect, Effect::None, "{failure}");
    scene.ask("ALTER TABLE $S.task DROP CONSTRAINT task_failures_check");
    caller.store(1).await.unwrap();
}
