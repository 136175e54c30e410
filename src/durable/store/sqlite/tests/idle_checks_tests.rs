//! The interval at which an idle worker checks whether other workers have died.

use std::sync::Arc;

use super::{Backend, Clock, Duration, File, SqliteStore, Worker, task};

const FIRST: Duration = Duration::from_millis(100);
const LAST: Duration = Duration::from_millis(2500);
const LONG: Duration = Duration::from_secs(60);

async fn worker(file: &File, clock: &Clock) -> Worker {
    let store = SqliteStore::open_with(&file.path, clock.clone()).await;
    Worker::new(&Arc::new(store.unwrap())).await
}

/// Returns the time until an idle worker checks again.
async fn next_look(idle: &Worker) -> Duration {
    let turned = idle.try_turn(vec![], 1, true).await.unwrap();
    assert_eq!((turned.claim, turned.more), (None, false));
    turned.next.expect("there is a next check")
}

#[tokio::test]
async fn an_idle_worker_checks_less_often_the_longer_other_tasks_run() {
    let (file, clock) = (File::new(), Clock::manual());
    let (busy, idle) = (worker(&file, &clock).await, worker(&file, &clock).await);
    busy.enqueue([task(1).0]).await;
    let mut claims = vec![busy.claim(1).await.epoch];
    let (mut checks, mut ran) = (0, Duration::ZERO);
    while ran < LONG {
        busy.store.renew(claims.clone()).await.unwrap();
        let next = next_look(&idle).await;
        // If the busy worker dies, its task waits no longer than it has run.
        assert!(next >= FIRST && next <= ran.clamp(FIRST, LAST), "{next:?}");
        clock.advance(next);
        ran += next;
        checks += 1;
    }
    assert!(checks <= 30, "{checks} checks in a minute");

    busy.enqueue([task(2).0]).await;
    claims.push(busy.claim(1).await.epoch);
    busy.store.renew(claims).await.unwrap();
    assert_eq!(next_look(&idle).await, FIRST);
}
