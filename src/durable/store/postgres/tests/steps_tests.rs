//! The steps of tasks, while several processes store them.

use tokio::{join, try_join};

use super::needs_postgres;
use super::scene::*;
use crate::durable::store::suite::{id, task};
use crate::durable::store::{Backend, NewTask, StepKind, StepName};

fn child(number: u64, parent: u64) -> NewTask {
    NewTask {
        parent: Some(id(parent)),
        ..task(number)
    }
}

/// Stores tasks, with one request.
async fn store(caller: &Caller, tasks: Vec<NewTask>) {
    let request = caller.new_enqueue(tasks);
    caller.store.enqueue(request).await.unwrap();
}

fn signal(number: u64) -> StepName {
    StepName::new(StepKind::Signal, &number.to_string()).expect("it is a valid name")
}

/// Returns the number of steps of a task, as it is stored, and that of its rows.
async fn steps(scene: &PostgresScene, caller: &Caller, number: u64) -> (i64, usize) {
    let id = id(number);
    let counted = scene.number(&format!("SELECT steps FROM $S.workflow WHERE id = '{id}'"));
    (counted, caller.store.steps(id).await.unwrap().len())
}

#[tokio::test]
async fn all_ends_of_children_are_stored_while_signals_arrive() {
    const ROUNDS: u64 = 40;
    needs_postgres!();
    let scene = PostgresScene::new();
    let (one, two) = (scene.open().await, scene.open().await);
    one.store(0).await.unwrap();
    one.claim(1).await;
    let children = (1..=2 * ROUNDS).map(|number| child(number, 0));
    store(&one, children.collect()).await;
    for round in 0..ROUNDS {
        let (first, second) = join!(one.claim(1), two.claim(1));
        let signalled = two.store.signal(id(0), signal(round), b"value".to_vec());
        let (.., signalled) = join!(
            one.turn(done(&first), 0),
            two.turn(done(&second), 0),
            signalled
        );
        signalled.unwrap();
    }
    let expected = 3 * ROUNDS;
    assert_eq!(
        steps(&scene, &one, 0).await,
        (expected as i64, expected as usize)
    );
}

/// The transactions of the two processes would wait for one another if each locked the parents in the order of the verdicts.
#[tokio::test]
async fn children_of_two_parents_end_in_two_processes() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let (one, two) = (scene.open().await, scene.open().await);
    one.store(1).await.unwrap();
    one.store(2).await.unwrap();
    one.claim(2).await;
    for round in 1..=20 {
        store(&one, vec![child(10 * round, 1), child(10 * round + 1, 2)]).await;
        let first = one.claim(2).await;
        store(
            &one,
            vec![child(10 * round + 2, 2), child(10 * round + 3, 1)],
        )
        .await;
        let second = two.claim(2).await;
        join!(one.turn(done(&first), 0), two.turn(done(&second), 0));
    }
    for parent in [1, 2] {
        assert_eq!(steps(&scene, &one, parent).await, (40, 40));
    }
}

#[tokio::test]
async fn a_signal_to_a_task_that_ends_leaves_nothing() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let (one, two) = (scene.open().await, scene.open().await);
    for number in 0..40 {
        one.store(number).await.unwrap();
        let claim = one.claim(1).await;
        let ended = async { Ok(one.turn(done(&claim), 0).await) };
        let signalled = two.store.signal(id(number), signal(0), b"value".to_vec());
        try_join!(ended, signalled).unwrap();
    }
    for table in ["step", "workflow"] {
        let left = scene.number(&format!("SELECT count(*) FROM $S.{table}"));
        assert_eq!(left, 0, "{table}");
    }
}
