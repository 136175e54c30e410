//! Which indexes the statements use that would read many rows without them.

use super::needs_postgres;
use super::scene::*;
use crate::durable::store::postgres::{groups, keys, reap, ring, silent_sessions};

/// The settings of the connections of a store, as far as they concern plans.
const SETTINGS: &str = "SET enable_hashjoin = off; SET enable_mergejoin = off;
    SET enable_seqscan = off; SET plan_cache_mode = force_generic_plan";

/// Returns the plan of a statement, whatever its parameters are.
fn plan(scene: &PostgresScene, sql: &str, params: &str) -> String {
    let sql = sql.replace("throng.", "$S.");
    let explain =
        format!("{SETTINGS}; PREPARE it AS {sql}; EXPLAIN EXECUTE it ({params}); DEALLOCATE it");
    scene.ask(&explain).concat().join("\n")
}

/// Opens a store in which 20,000 groups of one kind are full, and a few others are not.
async fn store_of_full_groups() -> (PostgresScene, Caller) {
    let scene = PostgresScene::new();
    let caller = scene.open().await;
    scene.ask(
        "INSERT INTO $S.group_line (kind, name, queue, priority, turn)
         SELECT -1, number::text, 'q', 1, CASE WHEN number > 20000 THEN number END
         FROM generate_series(1, 20010) AS number;
         ANALYZE $S.group_line",
    );
    (scene, caller)
}

#[tokio::test]
async fn the_next_groups_are_looked_up_by_their_turns() {
    needs_postgres!();
    let (scene, _caller) = store_of_full_groups().await;
    let plan = plan(
        &scene,
        ring::NEXT_GROUPS,
        "'{-1,-2}', 0, '', 16, 'q', true, 1",
    );
    let index = "group_line_turn on group_line line";
    assert!(plan.contains(index), "{plan}");
    assert!(plan.contains("(ROW(turn, name) > ROW($2, $3))"), "{plan}");
}

/// A turn that leaves nothing must find that out, however many groups are full.
#[tokio::test]
async fn full_groups_are_not_read_to_find_one_that_is_not() {
    needs_postgres!();
    let (scene, _caller) = store_of_full_groups().await;
    for is_quarantined in ["true", "false"] {
        let params = format!("'{{-1,-2}}', {is_quarantined}");
        let plan = plan(&scene, groups::IS_ANY_READY, &params);
        assert!(plan.contains("group_line_turn on group_line"), "{plan}");
        assert!(!plan.contains("group_line_pkey"), "{plan}");
    }
}

#[tokio::test]
async fn the_holder_of_a_key_is_looked_up_by_the_key() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let _caller = scene.open().await;
    let active = plan(&scene, keys::HOLDER, r"'\x00'");
    assert!(active.contains("task_key on task"), "{active}");
    let ended = plan(&scene, keys::HOLDER_IN_WINDOW, r"'\x00', 0, 0, 0");
    assert!(ended.contains("task_window on task"), "{ended}");
    assert!(ended.contains("(key_until > $2)"), "{ended}");
}

/// Each turn looks for late claims.
#[tokio::test]
async fn late_claims_are_looked_up_by_the_ends_of_their_leases() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let _caller = scene.open().await;
    let plan = plan(&scene, reap::LATE, "64, 0");
    assert!(plan.contains("claim_until on claim"), "{plan}");
    assert!(plan.contains("(until <= $2)"), "{plan}");
}

#[tokio::test]
async fn those_who_await_tasks_are_read_behind_a_row() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let _caller = scene.open().await;
    let remove = silent_sessions::REMOVE_WATCHES;
    let plan = plan(&scene, remove, "gen_random_uuid(), 0, 10");
    assert!(plan.contains("(ROW(id, endpoint) > ROW($1, $2))"), "{plan}");
    assert!(!plan.contains("Seq Scan"), "{plan}");
}
