//! Executors in the list of workers.

use super::*;
use crate::durable::{ServedQueue, WorkerState};

#[tokio::test(start_paused = true)]
async fn an_executor_is_a_worker_of_each_queue_that_it_serves() {
    let client = client_of(&MemoryStore::new());
    let app = || App::new(|number, _| async move { Ok(number) });
    let executor = builder(&client)
        .max_running(9)
        .serve(ServedQueue::default_queue())
        .serve(ServedQueue::new("mail").max_running(2))
        .start(app())
        .await
        .unwrap();
    let first = client.admin().workers(None, 1).await.unwrap();
    let second = client
        .admin()
        .workers(first.next.as_ref(), 1)
        .await
        .unwrap();
    assert_eq!(second.next, None);
    let workers = [&first.workers[..], &second.workers[..]].concat();
    let seen: Vec<_> = workers
        .iter()
        .map(|it| (it.queue.as_deref(), it.permits, it.state))
        .collect();
    let live = WorkerState::Live;
    assert_eq!(seen, [(None, 9, live), (Some("mail"), 2, live)]);
    assert!(workers.iter().all(|it| it.types == ["number"]));
    executor.shutdown(Duration::ZERO).await;
    assert_eq!(client.admin().workers(None, 1).await.unwrap().workers, []);
}

#[tokio::test(start_paused = true)]
async fn a_page_of_workers_needs_a_valid_limit_and_cursor() {
    let client = client_of(&MemoryStore::new());
    for limit in [0, 201] {
        let error = client.admin().workers(None, limit).await.unwrap_err();
        assert!(
            error.is_invalid() && error.to_string().contains("1 to 200"),
            "{error}"
        );
    }
    for cursor in ["x00", "k00"] {
        let cursor = cursor.parse().unwrap();
        let error = client.admin().workers(Some(&cursor), 9).await.unwrap_err();
        assert!(
            error.is_invalid() && error.to_string().contains("first page"),
            "{error}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_observer_cannot_start_an_executor_or_spawn() {
    let store = MemoryStore::new();
    let (client, observer) = (client_of(&store), DurableClient::open(store.observe()));
    let app = || App::new(|number, _| async move { Ok(number) });
    let error = builder(&observer).start(app()).await.unwrap_err();
    assert!(error.is_read_only() && !error.is_unknown(), "{error}");
    let error = spawn(&observer, 1).await.unwrap_err();
    assert!(error.is_read_only() && !error.is_unknown(), "{error}");
    // A handle of an observer polls.
    let handle = observer.attach::<Number>(spawn(&client, 2).await.unwrap().id());
    let executor = builder(&client).start(app()).await.unwrap();
    assert_eq!(handle.await.unwrap(), 2);
    executor.shutdown(Duration::ZERO).await;
    observer.close().await.unwrap();
}
