//! The overview and the statistics: in several partitions, with damaged rows, and in stores of different sizes.

use std::collections::HashMap;

use super::idle_costs_tests::all_sent;
use super::scene::Scene;
use super::workers_tests::carded;
use super::*;
use crate::durable::RunTotals;
use crate::durable::store::{Answer, ReadStats, Resolution, RunType, StatReport, StatsStart};

const PARTITIONS: usize = 4;

async fn open_divided(url: &str) -> RedisStore {
    let mut builder = RedisStore::builder(url);
    let opened = builder.partitions(PARTITIONS).open();
    opened.await.expect("the store can be opened")
}

pub(super) fn report(reporter: u64, number: u64) -> Arc<StatReport> {
    let run_type = RunType::new(&"job".into(), &QueueName::DEFAULT);
    let runs = RunTotals::of([1; 5], Duration::from_micros(1));
    Arc::new(StatReport {
        reporter,
        number,
        runs: vec![(run_type, runs)],
    })
}

fn all(resolution: Resolution) -> ReadStats {
    ReadStats {
        resolution,
        start: StatsStart::First,
        until: None,
        name: None,
    }
}

/// Returns the number of finished runs in the statistics.
async fn recorded(store: &RedisStore, resolution: Resolution) -> u64 {
    let page = store.stats(all(resolution)).await.unwrap();
    page.rows.iter().map(|row| row.2.done).sum()
}

#[tokio::test]
async fn all_partitions_are_added_up() {
    needs_redis!();
    let server = Server::start();
    let worker = Worker::new(open_divided(&server.url()).await).await;
    let queues = ["a", "b", "c", "d", "e"];
    let sessions = queues.map(|queue| {
        let set = TypeSet::of_tests().map(|set| set.in_queue(queue_name(queue)));
        worker.store.open_session(set)
    });
    for session in sessions {
        session.await.unwrap();
    }
    worker.enqueue((0..100).map(task)).await;
    for (nth, queue) in (0..).zip(queues) {
        let is_possible =
            |&number: &u64| worker.store.can_have(id(number), &queue_name(queue), None);
        let numbers = (1000 * (nth as u64 + 1)..)
            .filter(is_possible)
            .take(3 + nth);
        worker
            .enqueue(numbers.map(|number| queued(number, queue)))
            .await;
    }
    let claimed = worker.claim(10).await.tasks.len() as u64;
    for reporter in 0..9 {
        worker
            .store
            .record_stats(report(reporter, 1))
            .await
            .unwrap();
        worker
            .store
            .record_stats(report(reporter, 1))
            .await
            .unwrap();
    }
    let overview = worker.store.overview().await.unwrap();
    assert_eq!(overview.counts, worker.store.counts().await.unwrap());
    assert!(overview.missing_partitions.is_empty());
    let rows = overview.queues.iter();
    let rows: Vec<_> = rows
        .map(|it| (it.info.waiting, it.info.running, it.sessions))
        .collect();
    let named = [(3, 0, 1), (4, 0, 1), (5, 0, 1), (6, 0, 1), (7, 0, 1)];
    let expected = [&[(100 - claimed, claimed, 1)][..], &named].concat();
    assert_eq!(rows, expected);
    let job = overview.types.iter().find(|it| it.queue.is_none());
    assert_eq!(
        job.map(|it| (it.last_hour.done, it.is_served)),
        Some((9, true))
    );
    for resolution in Resolution::ALL {
        assert_eq!(recorded(&worker.store, resolution).await, 9);
    }
}

/// Makes all scripts of a partition fail.
fn break_partition(server: &Server, partition: usize) {
    let key = format!("throng:{{default:{partition}}}:meta");
    server.ask(&["DEL", &key]);
    server.ask(&["SET", &key, "a text"]);
}

#[tokio::test]
async fn a_partition_that_does_not_answer_is_named() {
    needs_redis!();
    let server = Server::start();
    let worker = Worker::new(open_divided(&server.url()).await).await;
    worker.enqueue((0..100).map(task)).await;
    for reporter in 0..PARTITIONS as u64 {
        worker
            .store
            .record_stats(report(reporter, 1))
            .await
            .unwrap();
    }
    worker.store.open_session_with(carded("")).await.unwrap();
    let (mut waiting, mut missing) = (100, Vec::new());
    for partition in [2, 0] {
        break_partition(&server, partition);
        missing.insert(0, partition);
        let started = Instant::now();
        let overview = worker.store.overview().await.unwrap();
        let took = started.elapsed();
        assert!(took < Duration::from_secs(5), "{took:?}");
        assert_eq!(overview.missing_partitions, missing);
        assert!(overview.counts.waiting < waiting, "{overview:?}");
        waiting = overview.counts.waiting;
        assert_eq!(overview.queues[0].info.waiting, waiting);
        let workers = worker.store.workers(None, 9).await.unwrap().unwrap();
        assert_eq!(workers.missing_partitions, missing);
        // The card of the worker is in the first partition.
        assert_eq!(workers.workers.len(), usize::from(partition != 0));
        let diagnosed = worker.store.diagnose().await.unwrap();
        assert_eq!(diagnosed.missing_partitions, missing);
        assert_eq!(diagnosed.partitions.len(), PARTITIONS - missing.len());
        let page = worker.store.stats(all(Resolution::Minute)).await.unwrap();
        assert_eq!(page.missing_partitions, missing);
        let done: u64 = page.rows.iter().map(|row| row.2.done).sum();
        assert_eq!(done, (PARTITIONS - missing.len()) as u64);
    }
    for partition in [1, 3] {
        break_partition(&server, partition);
    }
    worker.store.overview().await.unwrap_err();
    worker.store.workers(None, 9).await.unwrap_err();
    worker
        .store
        .stats(all(Resolution::Minute))
        .await
        .unwrap_err();
}

/// Returns how often each command is sent, or run by a script, until the request is answered.
async fn commands<'a, T>(
    server: &Server,
    request: impl FnOnce() -> Answer<'a, T>,
) -> HashMap<String, u64> {
    server.ask(&["CONFIG", "RESETSTAT"]);
    assert!(request().await.is_ok());
    let mut sent = all_sent(server);
    for other in ["config|resetstat", "config", "info", "ping"] {
        sent.remove(other);
    }
    // A script is sent as a text the first time.
    let scripts = sent.remove("eval").unwrap_or(0) + sent.remove("evalsha").unwrap_or(0);
    sent.insert("scripts".into(), scripts);
    sent
}

/// Stores more tasks, of which some wait, run and are delayed in each of two queues, and some have ended.
async fn grow(worker: &Worker, of_queue: &Worker, numbers: std::ops::Range<u64>) {
    for some in numbers.collect::<Vec<_>>().chunks(200) {
        let tasks = some.iter().map(|&number| match number % 4 {
            0 => NewTask {
                delay: Duration::from_secs(3600),
                ..task(number)
            },
            1 => queued(number, "q"),
            _ => task(number),
        });
        worker.enqueue(tasks).await;
    }
    let ended = worker.claim(20).await;
    worker.turn(done(&ended), 10).await;
    of_queue.claim(10).await;
}

#[tokio::test]
async fn the_number_of_commands_does_not_grow_with_the_number_of_tasks() {
    needs_redis!();
    let server = Server::start();
    let worker = Worker::new(open(&server.url()).await).await;
    let of_queue = Worker::of_queue(&worker.store, "q").await;
    let mut before = None;
    for numbers in [0..1_000, 1_000..20_000] {
        grow(&worker, &of_queue, numbers).await;
        worker.store.record_stats(report(1, 1)).await.unwrap();
        let store = &worker.store;
        for round in 0..2 {
            let sent = [
                commands(&server, || store.overview()).await,
                commands(&server, || store.stats(all(Resolution::Minute))).await,
                commands(&server, || store.stats(all(Resolution::Hour))).await,
                commands(&server, || store.counts()).await,
                commands(&server, || store.queue(queue_name("q"))).await,
                commands(&server, || store.diagnose()).await,
            ];
            // The first requests also send the texts of their scripts.
            if round == 0 {
                continue;
            }
            assert_eq!(sent[0]["scripts"], 5, "{sent:?}");
            assert_eq!(sent[5]["scripts"], 1, "{sent:?}");
            match &before {
                Some(before) => assert_eq!(*before, sent),
                None => before = Some(sent),
            }
        }
    }
    let counts = worker.store.counts().await.unwrap();
    assert!(counts.waiting > 10_000, "{counts:?}");
}

/// A row that cannot be read counts as missing, and the next report replaces it.
#[tokio::test]
async fn unreadable_statistics_are_replaced() {
    needs_redis!();
    let (scene, mut number) = (Scene::new().await, 0);
    let store = &scene.worker.store;
    for garbage in [
        "''",
        "'x'",
        "string.rep('x', 100)",
        "'\\0\\1'",
        "row .. 'x'",
        "string.sub(row, 1, -2)",
    ] {
        for form in ["m", "h", "r"] {
            number += 1;
            store.record_stats(report(7, number)).await.unwrap();
            scene.run(&format!(
                "for _, field in ipairs(call('HKEYS', 'stats')) do
                  local row = call('HGET', 'stats', field)
                  if string.sub(field, 1, 1) == '{form}' then call('HSET', 'stats', field, {garbage}) end
                end"
            ));
            for resolution in Resolution::ALL {
                store.stats(all(resolution)).await.unwrap();
            }
            store.overview().await.unwrap();
            number += 1;
            store.record_stats(report(7, number)).await.unwrap();
            for resolution in Resolution::ALL {
                assert!(recorded(store, resolution).await > 0, "{garbage}");
            }
            store.record_stats(report(7, number)).await.unwrap();
        }
    }
    scene.run("call('HSET', 'stats', 'x', 'y', 'mx', 'y', 'r', '', '', '')");
    for _ in 0..9 {
        scene.maintain().await;
    }
    let left = scene.run("return call('HLEN', 'stats')");
    assert_eq!(left, redis::Value::Int(3));
    // A key of another type is removed.
    scene.run("call('DEL', 'stats') call('SET', 'stats', 'x')");
    store.record_stats(report(7, number + 1)).await.unwrap_err();
    scene.maintain().await;
    store.record_stats(report(7, number + 1)).await.unwrap();
    assert_eq!(recorded(store, Resolution::Minute).await, 1);
}

/// If rows of queues and types cannot be read, only their contents are missing.
#[tokio::test]
async fn an_overview_of_unreadable_rows_is_answered() {
    needs_redis!();
    let scene = Scene::new().await;
    let store = &scene.worker.store;
    let of_queue = Worker::of_queue(store, "q").await;
    scene.worker.enqueue((0..3).map(task)).await;
    of_queue
        .enqueue((10..13).map(|number| queued(number, "q")))
        .await;
    for damage in [
        "call('HSET', 'queues', 'sq', 'x')",
        "call('HSET', 'types', 'kind', 'x', 'other', '')",
        "call('HSET', 'queues', 's', 'x', 'sother', '')",
        "for _, field in ipairs(call('HKEYS', 'routes')) do if string.sub(field, 1, 1) == 'n' then call('HSET', 'routes', field, 'x') end end",
        "call('LPUSH', 'ready', 'x')",
        "call('HSET', 'routes', 'text', 'x')",
    ] {
        scene.run(damage);
        let overview = store.overview().await.unwrap();
        store.diagnose().await.unwrap();
        assert_eq!(overview.queues[0].name, None, "{damage}");
        assert!(overview.missing_partitions.is_empty(), "{damage}");
    }
    let unreadable = store.overview().await.unwrap();
    let queue = unreadable
        .queues
        .iter()
        .find(|it| it.name.as_deref() == Some("q"));
    // Until maintenance repairs its limits, a queue is paused.
    assert!(queue.is_some_and(|it| it.info.is_paused), "{unreadable:?}");
}
