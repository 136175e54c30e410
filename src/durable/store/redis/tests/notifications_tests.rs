//! The messages that clients receive.

use super::*;

/// Opens a store that does not repeat requests on a slow machine.
async fn open_patient(server: &Server) -> Worker {
    let store = RedisStore::builder(&server.url()).open().await;
    Worker::new(store.unwrap()).await
}

/// Returns the number of idle workers of the only set.
fn idle(server: &Server) -> i64 {
    let count = "local key = redis.call('KEYS', '*:idle:*')[1]
        return key and redis.call('ZCARD', key) or 0";
    match server.ask(&["EVAL", count, "0"]) {
        redis::Value::Int(count) => count,
        other => panic!("{other:?}"),
    }
}

/// The producer has not received the first answer, and the woken worker may have crashed since.
#[tokio::test]
async fn a_repeated_enqueue_wakes_another_worker() {
    needs_redis!();
    let server = Server::start();
    let producer = open_patient(&server).await;
    let workers = [open_patient(&server).await, open_patient(&server).await];
    let mut events = workers.each_ref().map(|worker| worker.store.events());
    for (worker, events) in workers.iter().zip(&mut events) {
        until(events, &Event::Ready).await;
        assert_eq!(worker.turn(Vec::new(), 1).await.claim, None);
    }
    let request = producer.new_enqueue([task(1)]);
    for still_idle in [1, 0] {
        let stored = producer.store.enqueue(Arc::clone(&request)).await;
        stored.unwrap();
        assert_eq!(idle(&server), still_idle);
    }
    for events in &mut events {
        until(events, &Event::Wake(None)).await;
    }
    assert_eq!(producer.store.counts().await.unwrap().waiting, 1);
}

/// When the message arrives, a new task may have the id, and the client would take the output for that of the new task. So
/// the message only announces that the task may have ended.
#[tokio::test]
async fn an_output_kept_for_less_than_a_minute_is_not_in_the_message() {
    needs_redis!();
    let server = Server::start();
    let (producer, worker) = (open_patient(&server).await, open_patient(&server).await);
    let mut events = producer.store.events();
    until(&mut events, &Event::Ready).await;
    let minute = Duration::from_secs(60);
    let reported = Event::Ended(vec![(id(1), TaskState::Done(b"output".to_vec()))]);
    let asks = Event::MaybeEnded(vec![id(2)]);
    let brief = minute - Duration::from_millis(1);
    for (number, retention, event) in [(1, minute, reported), (2, brief, asks)] {
        let task = NewTask {
            retention,
            ..task(number)
        };
        producer.enqueue([task]).await;
        producer.store.status(vec![id(number)]).await.unwrap();
        worker.turn(done(&worker.claim(1).await), 0).await;
        until(&mut events, &event).await;
    }
}

/// The script fails after it has read the rows of the tasks and before it writes any.
#[tokio::test]
async fn no_message_reports_an_end_that_is_not_stored() {
    needs_redis!();
    let server = Server::start();
    let (producer, worker) = (open_patient(&server).await, open_patient(&server).await);
    let mut events = producer.store.events();
    until(&mut events, &Event::Ready).await;
    producer.enqueue([task(1)]).await;
    producer.store.status(vec![id(1)]).await.unwrap();
    let claim = worker.claim(1).await;
    server.ask(&["SET", "throng:{default:0}:cancel", "text"]);
    let failed = worker.store.turn(worker.new_turn(done(&claim), 0)).await;
    assert_fails(failed, &Cause::Corrupt, Effect::None);
    producer.enqueue([task(2)]).await;
    server.ask(&["DEL", "throng:{default:0}:cancel"]);
    worker.turn(done(&worker.claim(1).await), 0).await;
    loop {
        let event = timeout(DEADLINE, events.recv()).await.unwrap();
        if let Some(Event::Ended(seen)) = event {
            assert_eq!(seen, [(id(2), TaskState::Done(b"output".to_vec()))]);
            break;
        }
    }
    assert_eq!(
        producer.store.status(vec![id(1)]).await.unwrap(),
        [TaskState::Running]
    );
}
