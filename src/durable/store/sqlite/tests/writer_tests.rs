//! The thread that writes: groups of requests, and who is told what when.

use std::sync::{Arc, mpsc};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use rusqlite::Connection;

use super::super::error::{Fault, corrupt};
use super::super::{SqliteStore, turn};
use super::{File, Worker, assert_fails, task};
use crate::durable::failure::{Cause, Effect};
use crate::durable::spawn_queue::{SpawnQueue, WriteBatch};
use crate::durable::store::{Answer, Backend, Enqueue, Event, NewTask, TurnAnswer};

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
async fn a_request_that_cannot_be_done_does_not_take_its_group_along() {
    let file = File::new();
    let worker = Worker::new(&file.open().await).await;
    let (hold, busy) = hold(&worker.store);
    let first = worker.store.enqueue(worker.request([task(1).0]));
    let bad = worker.store.writer.run(0, |tx| {
        tx.execute("INSERT INTO throng_task (id) VALUES (1)", [])?;
        Ok(())
    });
    let second = worker.store.enqueue(worker.request([task(2).0]));
    drop(hold);

    busy.await.unwrap();
    first.await.unwrap();
    assert_fails(bad.await, &Cause::Unavailable);
    second.await.unwrap();
    assert_eq!(worker.claim(9).await.tasks.len(), 2);
}

#[tokio::test]
async fn what_an_enqueue_stores_is_decided_when_it_is_written() {
    let file = File::new();
    let worker = Worker::new(&file.open().await).await;
    let (hold, busy) = hold(&worker.store);
    let queue = Arc::new(SpawnQueue::new());
    let _stored = queue.push(vec![task(1).0]);
    let late = worker.store.enqueue(Arc::new(Enqueue {
        session: worker.session,
        number: worker.next(),
        batch: queue.next_batch().await.unwrap(),
    }));
    let _stored_too = queue.push(vec![task(2).0]);
    drop(hold);
    busy.await.unwrap();
    late.await.unwrap();
    assert_eq!(worker.claim(9).await.tasks.len(), 2);
}

#[tokio::test]
async fn who_waits_for_a_task_is_told_when_it_is_written_and_only_then() {
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
async fn who_rests_is_woken_before_the_answer() {
    let file = File::new();
    let producer = Worker::new(&file.open().await).await;
    let mut resting = Worker::new(&file.open().await).await;
    resting.park().await;
    let (tell, told) = mpsc::channel();
    let markers = file.path.with_file_name("tasks.db-throng").join("idle");
    let parked = move || std::fs::read_dir(&markers).unwrap().count();
    assert_eq!(parked(), 1);
    let stored = move || tell.send(parked()).unwrap();
    let request = Enqueue {
        session: producer.session,
        number: producer.next(),
        batch: batch(task(1).0, stored).await,
    };
    producer.store.enqueue(Arc::new(request)).await.unwrap();
    // Whoever has removed the marker has sent the wake-up, or has died before the answer.
    assert_eq!(told.try_recv(), Ok(0));
    resting.expect(|event| event == Event::Wake).await;
}

#[tokio::test]
async fn what_is_asked_before_the_disk_is_waited_for_is_written_along() {
    let file = File::new();
    let worker = Worker::new(&file.open().await).await;
    let (begin, begun) = tokio::sync::oneshot::channel();
    let (mut begin, (hold, held)) = (Some(begin), mpsc::channel::<()>());
    let first = worker.store.writer.run(0, move |tx| {
        tx.meta.counts.stored += 1;
        begin.take().map(|begin| begin.send(()));
        held.recv().ok();
        Ok(())
    });
    begun.await.unwrap();
    let path = file.path.clone();
    let second = worker.store.writer.run(0, move |_| {
        let others = Connection::open(&path)?;
        Ok(others.query_row(STORED, [], |row| row.get::<_, i64>(0))?)
    });
    drop(hold);
    first.await.unwrap();
    // When it ran, the first one was not written yet.
    assert_eq!(second.await.unwrap(), 0);
    assert_eq!(file.number(STORED), 1);
}

/// The others cannot write meanwhile.
#[tokio::test]
async fn what_takes_long_is_written_in_several_transactions() {
    let file = File::new();
    let worker = Worker::new(&file.open().await).await;
    let (hold, busy) = hold(&worker.store);
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
    drop(hold);
    busy.await.unwrap();
    let written = futures::future::join_all(slow).await;
    let written: Vec<_> = written.into_iter().map(Result::unwrap).collect();
    // When the last one runs, at least the first two are written.
    assert!(written[3] >= 2, "{written:?}");
    assert!(written.is_sorted(), "{written:?}");
}

#[tokio::test]
async fn an_enqueue_of_nothing_writes_nothing() {
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
async fn a_claim_takes_no_wake_up_from_what_is_stored_with_it() {
    let file = File::new();
    let store = file.open().await;
    let (worker, producer) = (Worker::new(&store).await, Worker::new(&store).await);
    let mut resting = Worker::new(&file.open().await).await;
    resting.park().await;
    worker.park().await;
    // It wakes the worker of its own process.
    producer.enqueue([task(1).0]).await;
    while resting.events.try_recv().is_ok() {}

    let (hold, held) = mpsc::channel::<()>();
    let turn = worker.request_turn(vec![], 1, false);
    let claimed = store.writer.run(0, move |tx| {
        held.recv().ok();
        turn::turn(tx, &turn)
    });
    let stored = store.enqueue(producer.request([task(2).0]));
    drop(hold);
    assert!(claimed.await.unwrap().claim.is_some());
    stored.await.unwrap();
    resting.expect(|event| event == Event::Wake).await;
}

/// A request that is repeated may read with a second connection. That one does not see what is written meanwhile.
#[tokio::test]
async fn what_is_asked_while_a_request_is_repeated_is_written_for_itself() {
    let file = File::new();
    let worker = Worker::new(&file.open().await).await;
    let (begin, begun) = tokio::sync::oneshot::channel();
    let (mut begin, (hold, held)) = (Some(begin), mpsc::channel::<()>());
    let repeated = worker.store.writer.run(0, move |_| match begin.take() {
        Some(begin) => {
            begin.send(()).ok();
            held.recv().ok();
            Err(corrupt())
        }
        None => Ok(()),
    });
    begun.await.unwrap();
    let together = store_and_claim(&worker);
    drop(hold);
    repeated.await.unwrap();
    assert_claims_whole(together).await;
}

#[tokio::test]
async fn what_is_asked_together_is_written_one_by_one_if_the_store_is_repaired() {
    let file = File::new();
    let worker = Worker::new(&file.open().await).await;
    let (hold, held) = mpsc::channel::<()>();
    let (begin, begun) = tokio::sync::oneshot::channel();
    let busy = worker.store.writer.run_then(
        0,
        |_| Ok(()),
        move |_| {
            begin.send(()).ok();
            held.recv().ok();
        },
    );
    begun.await.unwrap();
    let together = store_and_claim(&worker);
    file.sql("UPDATE throng_meta SET stored = 'nothing'");
    drop(hold);
    busy.await.unwrap();
    assert_claims_whole(together).await;
}

/// Asks for a task to be stored whose payload is not in its row, and at the same time for that task.
fn store_and_claim(worker: &Worker) -> (Answer<'_, ()>, Answer<'static, TurnAnswer>) {
    let large = task(1).payload(vec![1; 700]).0;
    let stored = worker.store.enqueue(worker.request([large]));
    let turn = worker.request_turn(vec![], 1, false);
    let claimed = worker.store.writer.run(0, move |tx| turn::turn(tx, &turn));
    (stored, claimed)
}

async fn assert_claims_whole((stored, claimed): (Answer<'_, ()>, Answer<'_, TurnAnswer>)) {
    stored.await.unwrap();
    let claim = claimed.await.unwrap().claim.expect("a task waits");
    let payload = claim.tasks[0].payload.as_ref();
    assert_eq!(payload.map(Vec::len), Ok(700));
}

/// Keeps the thread busy until the sender is dropped: what is asked meanwhile is one group.
fn hold(store: &SqliteStore) -> (mpsc::Sender<()>, Answer<'static, ()>) {
    let (hold, held) = mpsc::channel();
    let busy = store.writer.run(0, move |_| {
        held.recv().ok();
        Ok(())
    });
    (hold, busy)
}
