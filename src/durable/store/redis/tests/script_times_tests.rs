//! No script takes long: it processes a part, and reports that there is more.

use super::meter::{LIMIT, Meter};
use super::*;
use crate::durable::DeadReason;
use crate::durable::clock::Clock;
use crate::durable::store::redis::Time;

mod changes_tests;
mod ends_tests;
mod lists_tests;
mod retention_tests;
mod sessions_tests;
mod turns_tests;

const BATCH: u64 = MAX_BATCH_TASKS as u64;
const LARGE: usize = 64 << 10;

/// A server with a manual clock, and two workers.
struct Scene {
    meter: Meter,
    clock: Clock,
    worker: Worker,
    other: Worker,
    server: Server,
}

/// Plays a scene with new servers until none of its scripts was too long.
async fn in_short_scripts(play: impl AsyncFn(&mut Scene)) {
    in_scripts_of(LIMIT, play).await;
}

/// The same with another limit.
async fn in_scripts_of(limit: Duration, play: impl AsyncFn(&mut Scene)) {
    let play = async || {
        let mut scene = Scene::new().await;
        play(&mut scene).await;
        scene.meter.taken
    };
    meter::in_scripts_of(limit, play).await;
}

impl Scene {
    async fn new() -> Self {
        let server = Server::start();
        let clock = Clock::manual();
        let open = async || {
            let builder = RedisStore::builder(&server.url());
            RedisStore::open_as(&builder, Time::manual(clock.clone())).await
        };
        Self {
            worker: Worker::new(open().await.unwrap()).await,
            other: Worker::new(open().await.unwrap()).await,
            meter: Meter::new(&server),
            clock,
            server,
        }
    }

    /// Stores tasks, in batches.
    async fn store(&mut self, tasks: u64, new: impl Fn(u64) -> NewTask) {
        for first in (0..tasks).step_by(MAX_BATCH_TASKS) {
            let last = tasks.min(first + BATCH);
            let stored = self.worker.enqueue((first..last).map(&new));
            self.meter.measure(stored).await;
        }
    }

    /// Claims all tasks for the first worker, in claims of this size.
    async fn claim_all(&mut self, each: usize) -> Vec<Claim> {
        let mut claims = Vec::new();
        loop {
            let turn = self.worker.turn(Vec::new(), each);
            let Some(claim) = self.meter.measure(turn).await.claim else {
                return claims;
            };
            claims.push(claim);
        }
    }

    async fn turn(&mut self, verdicts: Vec<Verdicts>, want: usize) -> TurnAnswer {
        let turn = self.other.turn(verdicts, want);
        self.meter.measure(turn).await
    }

    async fn counts(&self) -> crate::durable::Counts {
        self.other.store.counts().await.unwrap()
    }
}

fn dead(error: usize) -> impl Fn() -> Verdict {
    move || Verdict::Dead {
        reason: DeadReason::Fatal,
        error: "e".repeat(error),
        took: None,
    }
}

/// Sends turns that claim nothing until no task is running.
async fn take_all_back(scene: &mut Scene, claims: u64) {
    let mut turns = 0;
    while scene.counts().await.running > 0 {
        let turned = scene.turn(Vec::new(), 0).await;
        let next = turned.next.unwrap_or_default();
        scene.clock.advance(next);
        turns += 1;
        assert!(turns <= 2 * claims + 10, "it gets nowhere");
    }
}
