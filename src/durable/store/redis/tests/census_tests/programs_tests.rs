//! The census proceeds while tasks change their states.

use tokio_util::sync::CancellationToken;

use super::super::scene::{HOUR, SECOND, Scene};
use super::super::*;
use crate::durable::store::Change;

/// The census proceeds while tasks are claimed, released and completed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_orphan_among_many_is_found_while_workers_claim() {
    needs_redis!();
    let long = std::env::var_os("THRONG_LONG").is_some_and(|value| value == "1");
    let tasks: u64 = if long { 100_000 } else { 4_096 };
    let scene = Scene::new().await;
    for first in (0..tasks).step_by(MAX_BATCH_TASKS) {
        let last = tasks.min(first + MAX_BATCH_TASKS as u64);
        scene.worker.enqueue((first..last).map(task)).await;
    }
    scene.orphan(200_000..200_001);
    let found = CancellationToken::new();
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let (worker, found) = (scene.worker_of(&["job"]).await, found.clone());
        workers.spawn(async move {
            while let Some(claim) = worker.turn(Vec::new(), 64).await.claim {
                let mut verdicts = done(&claim);
                if !found.is_cancelled() {
                    // Most tasks are released, so that many are left until the end.
                    let tasks = verdicts[0].tasks.iter_mut().skip(1);
                    tasks.for_each(|(_, verdict)| *verdict = Verdict::Release);
                }
                assert_eq!(worker.turn(verdicts, 0).await.refused, []);
            }
        });
    }
    while !scene.is_damaged(200_000).await {
        scene.worker.store.maintain(1_000).await.unwrap();
    }
    let left = scene.worker.store.counts().await.unwrap().waiting;
    assert!(left > 0, "the workers were too fast for this test");
    found.cancel();
    while let Some(ended) = workers.join_next().await {
        ended.unwrap();
    }
    scene.maintain().await;
    assert_eq!(scene.worker.store.damage().map(|it| it.0), Some(1));
    let counts = scene.worker.store.counts().await.unwrap();
    assert_eq!((counts.done, counts.dead, counts.waiting), (tasks, 1, 0));
    scene.check();
}

/// A census with small pages is always in progress while tasks change their states.
#[tokio::test]
async fn the_census_ends_only_lost_tasks() {
    needs_redis!();
    let long = std::env::var_os("THRONG_LONG").is_some_and(|value| value == "1");
    let programs = if long { 10_000 } else { 60 };
    for seed in 0..programs {
        run_program(seed).await;
    }
}

async fn run_program(seed: u64) {
    const TASKS: u64 = 24;
    let mut random = fastrand::Rng::with_seed(seed);
    let scene = Scene::with(true).await;
    let names = ["job", "mail", "report"];
    let some = scene.worker_of(&names[..random.usize(1..=2)]).await;
    let all = scene.worker_of(&names).await;
    let of_queues = [
        Worker::of_queue(&scene.worker.store, "q").await,
        Worker::of_queue(&scene.worker.store, "r").await,
    ];
    let workers = [&some, &all, &scene.worker, &of_queues[0], &of_queues[1]];
    let mut claims = Vec::new();
    for _ in 0..150 {
        let worker = workers[random.usize(..5)];
        match random.u8(..13) {
            0..=1 => worker.enqueue(new_tasks(&mut random, TASKS)).await,
            2..=3 => claims.extend(worker.turn(Vec::new(), random.usize(1..4)).await.claim),
            4..=6 if !claims.is_empty() => {
                let claim = claims.swap_remove(random.usize(..claims.len()));
                worker.turn(random_verdicts(&mut random, &claim), 0).await;
            }
            7 => drop(worker.store.cancel(vec![id(random.u64(..TASKS))]).await),
            8 => scene.clock.advance(random.u32(1..4) * SECOND),
            9 => drop(worker.store.replay_dead_letters(DeadFilter::all()).await),
            _ => {
                let ids = (0..3).map(|_| id(random.u64(..TASKS))).collect();
                let change = random_change(&mut random);
                worker.store.change(ids, change).await.unwrap();
            }
        }
        let page = random.usize(1..4);
        worker.store.maintain(page).await.unwrap();
    }
    assert_eq!(scene.worker.store.damage(), None, "{seed}");
    scene.orphan(100..101);
    scene.maintain().await;
    scene.maintain().await;
    assert!(scene.is_damaged(100).await, "{seed}");
    let damage = scene.worker.store.damage().map(|it| it.0);
    assert_eq!(damage, Some(1), "{seed}");
    scene.check();
}

fn new_tasks(random: &mut fastrand::Rng, ids: u64) -> Vec<NewTask> {
    let new = |random: &mut fastrand::Rng| NewTask {
        delay: random.u32(..3) * SECOND,
        retention: random.u32(..2) * HOUR,
        max_crashes: random.u32(1..4),
        name: ["job", "mail", "report"][random.usize(..3)].into(),
        ..match (random.u64(..ids), random.u8(..6)) {
            (number, 0) => queued(number, "q"),
            (number, 1) => grouped(number, "q", "a"),
            (number, 2) => grouped(number, "r", "b"),
            (number, _) => task(number),
        }
    };
    (0..4).map(|_| new(random)).collect()
}

fn random_change(random: &mut fastrand::Rng) -> Change {
    match random.u8(..4) {
        0 => Change::RunNow,
        1 => Change::MoveTo(QueueName::DEFAULT),
        2 => Change::MoveTo(queue_name("q")),
        _ => Change::MoveTo(queue_name("r")),
    }
}

fn random_verdicts(random: &mut fastrand::Rng, claim: &Claim) -> Vec<Verdicts> {
    let mut verdict = || match random.u8(..5) {
        0 => Verdict::Done(Vec::new()),
        1 => Verdict::Retry {
            after: random.u32(..2) * SECOND,
            error: "again".into(),
            took: None,
        },
        2 => Verdict::Dead {
            reason: DeadReason::Fatal,
            error: "error".into(),
            took: None,
        },
        _ => Verdict::Release,
    };
    let tasks = claim.tasks.iter().map(|task| (task.id, verdict()));
    vec![Verdicts {
        epoch: claim.epoch,
        tasks: tasks.collect(),
    }]
}
