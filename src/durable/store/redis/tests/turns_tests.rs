//! Turns: the size of claims, cancelled tasks in lists, wake-ups and leases.

use super::idle_costs_tests::{all_sent, sent};
use super::*;

/// The times of the first failures are read by one command, and only if a task of the claim has failed.
#[tokio::test]
async fn a_claim_reads_errors_only_of_tasks_that_have_failed() {
    needs_redis!();
    let server = Server::start();
    let worker = Worker::new(open(&server.url()).await).await;
    let claim = async || {
        // Due tasks become ready before.
        worker.turn(Vec::new(), 0).await;
        server.ask(&["CONFIG", "RESETSTAT"]);
        let claim = worker.claim(9).await;
        (claim, sent(&server, &["hget", "hmget"]))
    };
    worker.enqueue((1..=5).map(task)).await;
    let (fresh, plain) = claim().await;
    worker.turn(retry(&fresh), 0).await;
    let (failed, with_errors) = claim().await;
    let is_failing = failed.tasks.iter().map(|it| it.failing_for.is_some());
    assert!(is_failing.eq([true; 5]));
    assert_eq!(with_errors, plain + 1);
}

/// The errors of a task are lost. The turn that reports it together with others is undone; the next one reports each claim apart.
#[tokio::test]
async fn damage_of_one_claim_holds_up_no_other() {
    needs_redis!();
    for partitions in [1, 4] {
        let server = Server::start();
        let mut builder = RedisStore::builder(&server.url());
        let store = open_within(builder.partitions(partitions), DEADLINE).await;
        let in_first = |id: &TaskId| store.inner.partitions.of_task(*id) == 0;
        let ids: Vec<_> = (1..).map(id).filter(in_first).take(3).collect();
        let new = |nth: usize| NewTask {
            id: ids[nth],
            ..task(1)
        };
        let worker = Worker::new(store).await;
        worker.enqueue([new(1)]).await;
        worker.turn(retry(&worker.claim(1).await), 0).await;
        worker.enqueue([new(0), new(2)]).await;
        let mut all = Vec::new();
        for _ in 0..3 {
            let claim = worker.claim(1).await;
            all.extend(verdicts(&claim, || Verdict::Done(Vec::new())));
        }
        server.ask(&["SET", "throng:{default:0}:errors", "x"]);
        let request = worker.new_turn(all, 0);
        for ended in [0, 2] {
            worker.store.turn(Arc::clone(&request)).await.unwrap_err();
            let states = worker.store.status(ids.clone()).await.unwrap();
            let done = states.iter().filter(|it| matches!(it, TaskState::Done(_)));
            assert_eq!(done.count(), ended, "{states:?}");
        }
    }
}

/// The row of a session names a pushed claim by something that is no number.
#[tokio::test]
async fn a_garbled_pushed_claim_ends_no_session() {
    needs_redis!();
    const GARBLE: &str = "local key = 'throng:{default:0}:sessions'
        local row = cmsgpack.unpack(redis.call('HGET', key, ARGV[1]))
        row[3] = 'pabc '
        redis.call('HSET', key, ARGV[1], cmsgpack.pack(row))";
    let server = Server::start();
    let worker = Worker::new(open(&server.url()).await).await;
    worker.enqueue([task(1)]).await;
    server.ask(&["EVAL", GARBLE, "0", &worker.session.to_string()]);
    assert_eq!(worker.claim(1).await.tasks.len(), 1);
}

/// Returns the number of commands that the script of a request runs.
pub(super) async fn commands_of<T>(server: &Server, request: impl Future<Output = T>) -> (T, u64) {
    server.ask(&["CONFIG", "RESETSTAT"]);
    let answer = request.await;
    let mut all = all_sent(server);
    all.retain(|name, _| {
        !["eval", "evalsha", "config", "info"].contains(&name.split('|').next().unwrap())
    });
    (answer, all.values().sum())
}

/// The number of commands determines how long a task waits to start, and how many tasks a worker with one permit runs per second. Other
/// tests explain each command.
#[tokio::test]
async fn requests_for_a_plain_task_run_few_commands() {
    needs_redis!();
    let server = Server::start();
    let worker = Worker::new(open(&server.url()).await).await;
    let producer = Worker::new(open(&server.url()).await).await;
    let mut events = worker.store.events();
    until(&mut events, &Event::Ready).await;
    // The first requests also write what all later ones read.
    for number in 1..=3 {
        producer.enqueue([task(number)]).await;
    }
    let first = worker.claim(1).await;
    let (second, most) = commands_of(&server, worker.turn(done(&first), 1)).await;
    assert_eq!(most, 26, "a verdict, and a claim that leaves a task");
    let third = worker.turn(done(&second.claim.unwrap()), 1).await;
    let (_, idle) = commands_of(&server, worker.turn(done(&third.claim.unwrap()), 1)).await;
    assert_eq!(idle, 21, "a verdict after which nothing waits");
    let (_, stored) = commands_of(&server, producer.enqueue([task(4)])).await;
    assert_eq!(stored, 12, "a task for which a worker is woken");
    let (_, claimed) = commands_of(&server, worker.claim(1)).await;
    assert_eq!(claimed, 14, "a claim of the only task");
}

/// The engine never wants more than a batch, which would be too many arguments for a script.
#[tokio::test]
async fn a_claim_has_at_most_a_batch() {
    needs_redis!();
    let server = Server::start();
    let worker = Worker::new(open(&server.url()).await).await;
    let batch = MAX_BATCH_TASKS as u64;
    for first in 0..20 {
        worker
            .enqueue((first * batch..(first + 1) * batch).map(task))
            .await;
    }
    let turned = worker.turn(Vec::new(), 4_500).await;
    assert_eq!(turned.claim.unwrap().tasks.len(), MAX_BATCH_TASKS);
    assert!(turned.more);
    let counts = worker.store.counts().await.unwrap();
    assert_eq!((counts.waiting, counts.running), (19 * batch, batch));
    // A batch that is too large is not stored, not even in part.
    let request = worker.new_enqueue((0..=batch).map(|number| task(1_000_000 + number)));
    let failure = worker.store.enqueue(request).await.unwrap_err();
    assert_eq!(failure.effect, Effect::None, "{failure}");
    assert_eq!(worker.store.counts().await.unwrap().stored, 20 * batch);
}

/// Entries of cancelled tasks stay in their lists. No claim reads all of them.
#[tokio::test]
async fn a_task_behind_many_cancelled_ones_is_claimed_without_idling() {
    needs_redis!();
    const CANCELLED: u64 = 10_240;
    let server = Server::start();
    let worker = Worker::new(open(&server.url()).await).await;
    let batch = MAX_BATCH_TASKS as u64;
    for first in (0..CANCELLED).step_by(MAX_BATCH_TASKS) {
        worker.enqueue((first..first + batch).map(task)).await;
        let ids = (first..first + batch).map(id).collect();
        assert_eq!(worker.store.cancel(ids).await.unwrap(), batch);
    }
    worker.enqueue([task(CANCELLED)]).await;
    let mut turns = 0;
    let claim = loop {
        turns += 1;
        let turned = worker.turn(Vec::new(), 4).await;
        match turned.claim {
            Some(claim) => break claim,
            // The next turn follows at once.
            None => assert!(turned.more, "after {turns} turns"),
        }
    };
    assert_eq!(claim.tasks[0].id, id(CANCELLED));
    assert!(turns <= CANCELLED / batch, "{turns}");
    let counts = worker.store.counts().await.unwrap();
    assert_eq!((counts.waiting, counts.running), (0, 1));
}

/// A busy worker finds tasks with its next turn.
#[tokio::test]
async fn a_busy_worker_is_not_woken() {
    needs_redis!();
    let server = Server::start();
    let spawner = Worker::new(open(&server.url()).await).await;
    let idle = Worker::new(open(&server.url()).await).await;
    let busy = Worker::new(open(&server.url()).await).await;
    let (mut idle_events, mut busy_events) = (idle.store.events(), busy.store.events());
    until(&mut idle_events, &Event::Ready).await;
    until(&mut busy_events, &Event::Ready).await;
    assert_eq!(idle.turn(Vec::new(), 1).await.claim, None);
    // This worker went idle last, so it would be woken first. But it has found a task by itself.
    assert_eq!(busy.turn(Vec::new(), 1).await.claim, None);
    assert_eq!(busy.turn(Vec::new(), 0).await.claim, None);
    spawner.enqueue([task(1)]).await;
    until(&mut idle_events, &Event::Wake(None)).await;
    assert_eq!(busy_events.try_recv().ok(), None);
    assert_eq!(idle.claim(1).await.tasks[0].id, id(1));
}

/// The clock of the server was set back, so earlier leases would last too long.
#[tokio::test]
async fn a_lease_is_not_longer_than_requested() {
    needs_redis!();
    let server = Server::start();
    let worker = Worker::new(open(&server.url()).await).await;
    worker.enqueue([task(1)]).await;
    let claim = worker.claim(1).await;
    let (key, epoch) = (
        "throng:{default:0}:lease",
        super::super::reply::epoch_text(claim.epoch),
    );
    let score = || match server.ask(&["EVAL", SCORE, "1", key, &epoch]) {
        redis::Value::Int(millis) => millis,
        other => panic!("{other:?}"),
    };
    let before = score();
    server.ask(&["ZINCRBY", key, "3600000", &epoch]);
    worker.store.maintain(10).await.unwrap();
    let after = score();
    assert!(
        before <= after && after < before + 600_000,
        "{before} {after}"
    );
}

const SCORE: &str = "return tonumber(redis.call('ZSCORE', KEYS[1], ARGV[1]))";
