//! The orders of the example `workflow`, whose worker is killed at each point: around each step, while the order waits, at its answer,
//! between its parcels, and while steps are undone.
//!
//! With `THRONG_LONG=1`, it is killed 200 times at each point, in orders that end in all ways. Each round has a store and workers of its
//! own.
#![cfg(all(feature = "redis", feature = "sqlite", feature = "test-util"))]

mod support;

#[allow(dead_code, reason = "the workers of the example run the orders")]
#[path = "../examples/workflow/order.rs"]
mod order;
#[macro_use]
#[path = "support/redis_server.rs"]
#[allow(dead_code, reason = "other tests need all of it")]
mod redis_server;

#[path = "workflow/case.rs"]
mod case;
#[path = "workflow/round.rs"]
mod round;

use futures::StreamExt;
use futures::stream::iter;

use self::case::Case;
use self::round::{Kill, Kind, run};
use self::support::{Numbers, rounds};

const STEPS: [&str; 3] = ["step.before-run", "step.after-run", "step.after-store"];
const WAITS: [&str; 1] = ["wait.before-suspend"];
const CHILDREN: [&str; 2] = ["children.after-spawn", "children.before-join"];
const COMMITS: [&str; 3] = [
    "sqlite.before-commit",
    "sqlite.in-commit",
    "sqlite.after-commit",
];
const REQUESTS: [&str; 2] = ["redis.before-turn", "redis.after-turn"];

/// The number of rounds, or of sequences of rounds, that run at the same time.
const CONCURRENT: usize = 8;

#[tokio::test(flavor = "multi_thread")]
async fn the_worker_dies_around_each_step() {
    die_at_each(Kind::File, &STEPS, &Case::ALL).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_worker_dies_before_each_wait() {
    let points = [&WAITS[..], &CHILDREN].concat();
    die_at_each(Kind::File, &points, &Case::ALL).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_worker_dies_at_each_commit() {
    die_at_each(Kind::File, &COMMITS, &few_cases()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_worker_dies_while_the_order_waits() {
    all(Kind::File, while_it_waits()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_workers_die_at_any_points() {
    let mut random = Numbers::new(7);
    let points = [&STEPS[..], &WAITS, &CHILDREN, &COMMITS].concat();
    let mut kill = || {
        let point = points[random.below(points.len() as u64) as usize];
        Kill::At(point, 1 + random.below(5) as u32)
    };
    let pairs = (0..rounds(12, 1200)).map(|n| (Case::ALL[n % Case::ALL.len()], [kill(), kill()]));
    let pairs: Vec<_> = pairs.map(|(case, kills)| (case, kills.to_vec())).collect();
    all(Kind::File, pairs).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_worker_dies_at_each_point_with_redis() {
    needs_redis!();
    let points = [&STEPS[..], &WAITS, &REQUESTS, &CHILDREN].concat();
    die_at_each(Kind::Server, &points, &few_cases()).await;
    all(Kind::Server, while_it_waits()).await;
}

/// Returns all cases; in a short test only the one with most steps.
fn few_cases() -> Vec<Case> {
    let mut cases = Case::ALL.to_vec();
    cases.sort_by_key(|case| case.effects().len());
    cases.split_off(cases.len() - rounds(1, cases.len()))
}

fn while_it_waits() -> Vec<(Case, Vec<Kill>)> {
    let waiting = Case::ALL.into_iter().filter(|case| case.waits());
    let kills = [Kill::Waiting, Kill::Answered].iter().cycle();
    let kills = kills.take(2 * rounds(1, 200 / Case::ALL.len() + 1));
    waiting
        .flat_map(|case| kills.clone().map(move |kill| (case, vec![*kill])))
        .collect()
}

/// Runs these rounds.
async fn all(kind: Kind, rounds: Vec<(Case, Vec<Kill>)>) {
    let rounds = rounds.into_iter().map(|(case, kills)| async move {
        run(kind, case, &kills).await;
    });
    iter(rounds).for_each_concurrent(CONCURRENT, |it| it).await;
}

/// Kills the worker the first time that it passes a point, in further rounds the second time, and so on: each point in each case.
async fn die_at_each(kind: Kind, points: &[&'static str], cases: &[Case]) {
    let pairs = points
        .iter()
        .flat_map(|&point| cases.iter().map(move |&case| (point, case)));
    let passed = pairs.map(|(point, case)| async move {
        let mut nth = 1;
        while dies_at(kind, case, Kill::At(point, nth)).await {
            nth += 1;
        }
        (point, nth - 1)
    });
    // In a long test, many rounds of a sequence run at the same time.
    let passed: Vec<_> = iter(passed).buffered(rounds(CONCURRENT, 1)).collect().await;
    println!("{kind:?}, {cases:?}: passed {passed:?}");
    for point in points {
        let is_passed = passed.iter().any(|(at, times)| at == point && *times > 0);
        assert!(is_passed, "nobody passes {point}");
    }
}

/// Returns `false` if the worker does not pass the point as often as that.
async fn dies_at(kind: Kind, case: Case, kill: Kill) -> bool {
    let kills = [kill];
    let again = (0..rounds(1, 200 / Case::ALL.len() + 1)).map(|_| run(kind, case, &kills));
    let killed: Vec<_> = iter(again).buffered(CONCURRENT).collect().await;
    killed.contains(&1)
}
