//! The writing thread: groups of requests, and the order of notices and answers.

use std::sync::{Arc, mpsc};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use rusqlite::Connection;

use super::super::error::{Fault, corrupt};
use super::super::{SqliteStore, turn};
use super::{File, Worker, assert_fails, task};
use crate::durable::failure::{Cause, Effect};
use crate::durable::spawn_queue::{SpawnQueue, WriteBatch};
use crate::durable::store::{Answer, Backend, Enqueue, Enqueued, NewTask, TurnAnswer};

const STORED: &str = "SELECT stored FROM throng_meta";

/// A batch of one task, which calls `stored` on the thread that resolves the caller of `spawn`.
async fn batch(task: NewTask, stored: impl Fn() + Send + Sync + 'static) -> Arc<WriteBatch> {
    let queue = Arc::new(SpawnQueue::new());
    let reply = queue.push(vec![task]);
    let mut reply = Box::pin(reply);
    let waker = Waker::from(Arc::new(OnWake(stored)));
    assert!(
        reply
            .as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
    // The channel keeps the waker for as long as there is a receiver.
    std::mem::forget(reply);
    queue.next_batch().await.unwrap()
}

/// A waker that calls a function.
struct OnWake<F>(F);

impl<F: Fn() + Send + Sync + 'static> Wake for OnWake<F> {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

#[tokio::test]
async fn a_failed_request_does_not_fail_its_group() {
    let file = File::new();
    let worker = Worker::new(&file.open().await).await;
    let (release, busy) = block(&worker.store);
    let first = worker.store.enqueue(worker.request([task(1).0]));
    let bad = worker.store.writer.run(0, |tx| {
        tx.execute("INSERT INTO throng_task (id) VALUES (1)", [])?;
        Ok(())
    });
    let second = worker.store.enqueue(worker.request([task(2).0]));
    drop(release);

    busy.await.unwrap();
    first.await.unwrap();
    assert_fails(bad.await, &Cause::Unavailable);
    second.await.unwrap();
    assert_eq!(worker.claim(9).await.tasks.len(), 2);
}

#[tokio::test]
async fn an_enqueue_stores_what_is_spawned_until_it_is_written() {
    let file = File::new();
    let worker = Worker::new(&file.open().await).await;
    let (release, busy) = block(&worker.store);
    let queue = Arc::new(SpawnQueue::new());
    let _stored = queue.push(vec![task(1).0]);
    let late = worker.store.enqueue(Arc::new(Enqueue {
        session: worker.session,
        number: worker.next(),
        batch: queue.next_batch().await.unwrap(),
    }));
    let _stored_too = queue.push(vec![task(2).0]);
    drop(release);
    busy.await.unwrap();
    late.await.unwrap();
    assert_eq!(worker.claim(9).await.tasks.len(), 2);
}

#[tokio::test]
async fn a_spawn_is_confirmed_when_it_is_written_and_not_before() {
    let file = File::new();
    let worker = Worker::new(&file.open().await).await;
    let (tell, told) = mpsc::channel();
    let path = file.path.clone();
    let large = task(1).payload(vec![1; 100_000]).0;
    let stored = move || {
        let others = Connection::open(&path).unwrap();
        let stored = others.query_row(STORED, [], |row| row.get::<_, i64>(0));
        tell.send(stored.unwrap()).unwrap();
    };
    let request = Arc::new(Enqueue {
        session: worker.session,
        number: worker.next(),
        batch: batch(large, stored).await,
    });
    worker.pragma("max_page_count = 1").await;
    let refused = worker.store.enqueue(Arc::clone(&request)).await;
    assert_fails(refused, &Cause::Full);
    assert!(told.try_recv().is_err());
    worker.pragma("max_page_count = 1000000").await;
    worker.store.enqueue(request).await.unwrap();
    assert_eq!(told.try_recv(), Ok(1));
}

#[tokio::test]
async fn an_idle_worker_is_woken_before_the_answer() {
    let file = File::new();
    let producer = Worker::new(&file.open().await).await;
    let mut resting = Worker::new(&file.open().await).await;
    resting.go_idle().await;
    let (tell, told) = mpsc::channel();
    let markers = file.path.with_file_name("tasks.db-throng").join("idle");
    let idle = move || std::fs::read_dir(&markers).unwrap().count();
    assert_eq!(idle(), 1);
    let stored = move || tell.send(idle()).unwrap();
    let request = Enqueue {
        session: producer.session,
        number: producer.next(),
        batch: batch(task(1).0, stored).await,
    };
    producer.store.enqueue(Arc::new(request)).await.unwrap();
    // The process that has removed the marker has sent the wake-up, or has died before the answer.
    assert_eq!(told.try_recv(), Ok(0));
    resting.expect(|event| event.is_wake()).await;
}

#[tokio::test]
async fn requests_that_arrive_before_the_commit_join_the_group() {
    let file = File::new();
    let worker = Worker::new(&file.open().await).await;
    let (begin, begun) = tokio::sync::oneshot::channel();
    let (mut begin, (release, released)) = (Some(begin), mpsc::channel::<()>());
    let first = worker.store.writer.run(0, move |tx| {
        tx.meta.counts.stored += 1;
        begin.take().map(|begin| begin.send(()));
        released.recv().ok();
        Ok(())
    });
    begun.await.unwrap();
    let path = file.path.clone();
    let second = worker.store.writer.run(0, move |_| {
        let others = Connection::open(&path)?;
        Ok(others.query_row(STORED, [], |row| row.get::<_, i64>(0))?)
    });
    drop(release);
    first.await.unwrap();
    // When the second one ran, the first one was not written yet.
    assert_eq!(second.await.unwrap(), 0);
    assert_eq!(file.number(STORED), 1);
}

/// While one process writes, others cannot.
#[tokio::test]
async fn slow_requests_are_written_in_several_transactions() {
    let file = File::new();
    let worker = Worker::new(&file.open().await).await;
    let (release, busy) = block(&worker.store);
    let slow = (0..4).map(|_| {
        let path = file.path.clone();
        worker.store.writer.run(0, move |tx| {
            tx.meta.counts.stored += 1;
            std::thread::sleep(Duration::from_millis(15));
            let others = Connection::open(&path)?;
            Ok(others.query_row(STORED, [], |row| row.get::<_, i64>(0))?)
        })
    });
    let slow: Vec<_> = slow.collect();
    drop(release);
    busy.await.unwrap();
    let written = futures::future::join_all(slow).await;
    let written: Vec<_> = written.into_iter().map(Result::unwrap).collect();
    // When the last request runs, at least the first two are written.
    assert!(written[3] >= 2, "{written:?}");
    assert!(written.is_sorted(), "{written:?}");
}

#[tokio::test]
async fn an_empty_enqueue_writes_nothing() {
    let file = File::new();
    let worker = Worker::new(&file.open().await).await;
    let before = file.log();
    worker.enqueue([]).await;
    assert_eq!(file.log(), before);
}

#[tokio::test]
async fn a_panic_fails_its_request_and_no_other() {
    let file = File::new();
    let worker = Worker::new(&file.open().await).await;
    let panics = worker
        .store
        .writer
        .run(0, |_| -> Result<(), Fault> { panic!("as intended") });
    assert_eq!(panics.await.unwrap_err().effect, Effect::Unknown);
    worker.enqueue([task(1).0]).await;
    assert_eq!(worker.claim(9).await.tasks.len(), 1);
}

#[tokio::test]
async fn a_claim_consumes_no_wake_up_of_a_task_stored_with_it() {
    let file = File::new();
    let store = file.open().await;
    let (worker, producer) = (Worker::new(&store).await, Worker::new(&store).await);
    let mut resting = Worker::new(&file.open().await).await;
    resting.go_idle().await;
    worker.go_idle().await;
    // This wakes the worker of the same process.
    producer.enqueue([task(1).0]).await;
    while resting.events.try_recv().is_ok() {}

    let (release, released) = mpsc::channel::<()>();
    let turn = worker.request_turn(vec![], 1, false);
    let claimed = store.writer.run(0, move |tx| {
        released.recv().ok();
        turn::turn(tx, &turn)
    });
    let stored = store.enqueue(producer.request([task(2).0]));
    drop(release);
    assert!(claimed.await.unwrap().claim.is_some());
    stored.await.unwrap();
    resting.expect(|event| event.is_wake()).await;
}

/// A repeated request may read with a second connection, which does not see what is written meanwhile.
#[tokio::test]
async fn requests_that_arrive_while_one_is_repeated_are_written_separately() {
    let file = File::new();
    let worker = Worker::new(&file.open().await).await;
    let (begin, begun) = tokio::sync::oneshot::channel();
    let (mut begin, (release, released)) = (Some(begin), mpsc::channel::<()>());
    let repeated = worker.store.writer.run(0, move |_| match begin.take() {
        Some(begin) => {
            begin.send(()).ok();
            released.recv().ok();
            Err(corrupt())
        }
        None => Ok(()),
    });
    begun.await.unwrap();
    let together = store_and_claim(&worker);
    drop(release);
    repeated.await.unwrap();
    assert_claims_whole(together).await;
}

#[tokio::test]
async fn a_group_is_written_one_by_one_after_a_repair() {
    let file = File::new();
    let worker = Worker::new(&file.open().await).await;
    let (release, released) = mpsc::channel::<()>();
    let (begin, begun) = tokio::sync::oneshot::channel();
    let busy = worker.store.writer.run_then(
        0,
        |_| Ok(()),
        move |_| {
            begin.send(()).ok();
            released.recv().ok();
        },
    );
    begun.await.unwrap();
    let together = store_and_claim(&worker);
    file.sql("UPDATE throng_meta SET stored = 'nothing'");
    drop(release);
    busy.await.unwrap();
    assert_claims_whole(together).await;
}

/// Stores a task with a large payload, and claims it at the same time.
fn store_and_claim(worker: &Worker) -> (Answer<'_, Enqueued>, Answer<'static, TurnAnswer>) {
    let large = task(1).payload(vec![1; 700]).0;
    let stored = worker.store.enqueue(worker.request([large]));
    let turn = worker.request_turn(vec![], 1, false);
    let claimed = worker.store.writer.run(0, move |tx| turn::turn(tx, &turn));
    (stored, claimed)
}

async fn assert_claims_whole((stored, claimed): (Answer<'_, Enqueued>, Answer<'_, TurnAnswer>)) {
    stored.await.unwrap();
    let claim = claimed.await.unwrap().claim.expect("a task waits");
    let payload = claim.tasks[0].payload.as_ref();
    assert_eq!(payload.map(Vec::len), Ok(700));
}

/// Blocks the thread until the sender is dropped. The requests that arrive meanwhile form one group.
fn block(store: &SqliteStore) -> (mpsc::Sender<()>, Answer<'static, ()>) {
    let (release, released) = mpsc::channel();
    let busy = store.writer.run(0, move |_| {
        released.recv().ok();
        Ok(())
    });
    (release, busy)
}
