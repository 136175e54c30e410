//! A request that is too large for one run of a script is answered in parts.

use super::*;

#[tokio::test]
async fn large_states_are_answered_in_parts() {
    needs_redis!();
    let server = Server::start();
    let worker = Worker::new(open(&server.url()).await).await;
    let output = vec![7; 300 << 10];
    for number in 0..10 {
        worker.enqueue([task(number)]).await;
        let claim = worker.claim(1).await;
        let verdicts = vec![Verdicts {
            epoch: claim.epoch,
            tasks: vec![(id(number), Verdict::Done(output.clone()))],
        }];
        worker.turn(verdicts, 0).await;
    }
    let seen = worker
        .store
        .status((0..11).map(id).collect())
        .await
        .unwrap();
    let expected: Vec<_> = [TaskState::Absent].into_iter().cycle().take(1).collect();
    assert!(
        seen[..10]
            .iter()
            .all(|seen| *seen == TaskState::Done(output.clone()))
    );
    assert_eq!(seen[10..], expected);
}

/// There are more tasks than one turn handles. Each turn handles a part, and reports that there are more.
#[tokio::test]
async fn late_claims_and_due_tasks_are_handled_in_parts() {
    needs_redis!();
    const BATCHES: u64 = 40;
    let server = Server::start();
    let open = async || {
        let builder = RedisStore::builder(&server.url());
        builder.open().await.expect("the store can be opened")
    };
    let worker = Worker::new(open().await).await;
    let other = Worker::new(open().await).await;
    let batch = MAX_BATCH_TASKS as u64;
    let new = |number| NewTask {
        max_crashes: 1_000,
        ..task(number)
    };
    let later = |number| NewTask {
        delay: Duration::from_millis(1),
        ..new(1_000_000 + number)
    };
    for first in (0..BATCHES).map(|number| number * batch) {
        worker.enqueue((first..first + batch).map(new)).await;
        worker.enqueue((first..first + batch).map(later)).await;
        let turn = Arc::unwrap_or_clone(worker.new_turn(Vec::new(), MAX_BATCH_TASKS));
        let lease = Duration::from_millis(3);
        worker
            .store
            .turn(Arc::new(Turn { lease, ..turn }))
            .await
            .unwrap();
    }
    let mut claimed = 0;
    while claimed < 2 * BATCHES * batch {
        let turn = Arc::unwrap_or_clone(other.new_turn(Vec::new(), MAX_BATCH_TASKS));
        let lease = 10 * LEASE;
        let turned = other
            .store
            .turn(Arc::new(Turn { lease, ..turn }))
            .await
            .unwrap();
        let tasks = turned.claim.map_or(0, |claim| claim.tasks.len());
        claimed += tasks as u64;
        assert!(
            tasks > 0 || turned.next.is_some_and(|next| next < 2 * LEASE),
            "{claimed}"
        );
        if tasks == 0 {
            sleep(turned.next.unwrap_or_default()).await;
        }
    }
    assert_eq!(
        other.store.counts().await.unwrap().running,
        2 * BATCHES * batch
    );
}
