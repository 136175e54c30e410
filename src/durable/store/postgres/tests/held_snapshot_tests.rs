//! A transaction of another program keeps the server from removing dead rows, while a queue is drained.

use std::time::{Duration, Instant};

use super::ServerConnection;
use super::needs_postgres;
use super::scene::*;
use super::server::Server;
use crate::durable::store::Backend;
use crate::durable::store::suite::task;

/// The number of tasks that a claim takes.
const CLAIMED: usize = 50;

fn number_of_tasks() -> u64 {
    match std::env::var_os("THRONG_LONG").is_some() {
        true => 1_000_000,
        false => 20_000,
    }
}

/// The speed of a drain.
#[derive(Debug)]
struct Drained {
    /// Tasks per second.
    rate: f64,
    /// The 99th percentile of the durations of turns.
    p99: Duration,
}

/// Drains a new store. If `is_held`, a transaction begins before, and ends afterwards.
async fn drain(is_held: bool) -> Drained {
    let scene = PostgresScene::new();
    let caller = scene.open().await;
    let numbers: Vec<_> = (1..=number_of_tasks()).collect();
    for numbers in numbers.chunks(1000) {
        let request = caller.new_enqueue(numbers.iter().map(|&number| task(number)));
        caller.store.enqueue(request).await.unwrap();
    }
    let other = ServerConnection::to(Server::shared().url());
    if is_held {
        other.ask("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT txid_current()");
    }
    let (mut verdicts, mut turns, start) = (Vec::new(), Vec::new(), Instant::now());
    loop {
        let began = Instant::now();
        let claim = caller.turn(verdicts, CLAIMED).await.claim;
        turns.push(began.elapsed());
        let Some(claim) = claim else { break };
        verdicts = done(&claim);
    }
    let rate = number_of_tasks() as f64 / start.elapsed().as_secs_f64();
    turns.sort_unstable();
    Drained {
        rate,
        p99: turns[turns.len() * 99 / 100],
    }
}

#[tokio::test]
async fn a_long_transaction_of_another_program_slows_claims_down_a_little() {
    needs_postgres!();
    let (free, held) = (drain(false).await, drain(true).await);
    println!(
        "{} tasks: {:.0} a second; while a transaction is open: {:.0}, and 99% of the turns took at most {:?} and {:?}",
        number_of_tasks(),
        free.rate,
        held.rate,
        free.p99,
        held.p99,
    );
    assert!(held.rate >= 0.7 * free.rate, "{free:?}, {held:?}");
}
