//! Claims that a store pushes to an idle worker.

use tokio::sync::Semaphore;

use super::*;
use crate::durable::clock::since_boot;
use crate::durable::store::{Claim, Event, PushedClaim};
use crate::sync::Number as Count;

const GRACE: Duration = Duration::from_secs(60);

/// Decides whether the answers to turns arrive.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turns {
    AreAnswered,
    AreLost,
    /// The next one is answered, and later ones are lost.
    NextIsAnswered,
}

/// A store whose tasks are claimed outside of the worker, which then gets the claims in messages.
struct Scene {
    /// Another process, which has claimed the tasks.
    other: Store,
    client: DurableClient,
    turns: StdArc<Mutex<Turns>>,
    /// The numbers of turns and of renewals that were sent.
    sent: [StdArc<Count>; 2],
}

impl Scene {
    fn new() -> Self {
        let turns = StdArc::new(Mutex::new(Turns::AreAnswered));
        let sent: [StdArc<Count>; 2] = Default::default();
        let (fate, counts, store) = (StdArc::clone(&turns), sent.clone(), MemoryStore::new());
        let client = client_with(&store, move |request| {
            let mut is_lost = false;
            match request {
                "turn" => {
                    counts[0].add(1);
                    is_lost = *lock(&fate) == Turns::AreLost;
                    if *lock(&fate) == Turns::NextIsAnswered {
                        *lock(&fate) = Turns::AreLost;
                    }
                }
                "renew" => _ = counts[1].add(1),
                _ => {}
            }
            Box::pin(async move {
                match is_lost {
                    true => Err(Failure::new(Effect::Unknown, Cause::Unavailable)),
                    false => Ok(()),
                }
            })
        });
        Self {
            other: Store::from(store),
            client,
            turns,
            sent,
        }
    }

    fn set(&self, turns: Turns) {
        *lock(&self.turns) = turns;
    }

    /// Stores these tasks and claims them.
    async fn claim(&self, numbers: impl IntoIterator<Item = u64>) -> Claim {
        for number in numbers {
            _ = spawn(&self.client, number).await.unwrap();
        }
        let backend = &self.other.0;
        let session = backend.open_session(Some(set())).await.unwrap();
        let turned = backend.turn(StdArc::new(claim_all(session))).await;
        turned.unwrap().claim.unwrap()
    }

    /// Waits until a worker that has found no task waits for messages.
    async fn until_idle(&self) {
        until("it has asked", || self.sent[0].get() > 0).await;
        sleep(Duration::from_millis(1)).await;
    }

    /// Pushes a claim to the only worker.
    async fn push(&self, claim: Claim) {
        let page = self.client.admin().workers(None, 9).await.unwrap();
        let pushed = PushedClaim {
            session: page.workers[0].session,
            claim,
            claimed_at: since_boot(),
            is_idle: true,
        };
        let pushed = Event::Pushed(StdArc::new(pushed));
        self.client.engine().on(pushed);
    }

    async fn until_released(&self, expected: u64) {
        for _ in 0..10_000 {
            if self.client.counts().await.unwrap().released == expected {
                return;
            }
            sleep(Duration::from_millis(1)).await;
        }
        panic!("{:?}", self.client.counts().await);
    }

    async fn until_ended(&self, numbers: impl IntoIterator<Item = u64>) {
        for number in numbers {
            let handle = self.client.attach::<Number>(id(number));
            assert_eq!(handle.await.unwrap(), number);
        }
    }
}

/// An app whose runs end when they get a permit.
fn app_of(permits: &StdArc<Semaphore>) -> App {
    let permits = StdArc::clone(permits);
    App::new(move |number, _| {
        let permits = StdArc::clone(&permits);
        async move {
            permits.acquire().await.unwrap().forget();
            Ok(number)
        }
    })
}

/// The turn is sent again after the push, and claims a task for the permit that the pushed task has. A store that knows that the pushed
/// claim has arrived does not count it.
#[tokio::test(start_paused = true)]
async fn a_repeated_turn_starts_no_more_than_there_are_permits_for() {
    let (scene, permits) = (Scene::new(), StdArc::new(Semaphore::new(0)));
    let claim = scene.claim([1]).await;
    let executor = builder(&scene.client)
        .max_running(1)
        .start(app_of(&permits))
        .await
        .unwrap();
    scene.until_idle().await;
    scene.set(Turns::AreLost);
    let sent = scene.sent[0].get();
    _ = spawn(&scene.client, 2).await.unwrap();
    until("a turn is lost", || scene.sent[0].get() > sent).await;
    scene.push(claim).await;
    until("it runs", || executor.metrics().running == 1).await;
    scene.set(Turns::AreAnswered);
    // Another worker could run it now.
    scene.until_released(1).await;
    permits.add_permits(2);
    scene.until_ended([1, 2]).await;
}

/// A worker that ends its runs is still idle for the store.
#[tokio::test(start_paused = true)]
async fn a_pushed_task_is_given_back_during_a_shutdown() {
    let (scene, permits) = (Scene::new(), StdArc::new(Semaphore::new(0)));
    let claim = scene.claim([1]).await;
    let executor = builder(&scene.client)
        .max_running(2)
        .start(app_of(&permits))
        .await
        .unwrap();
    _ = spawn(&scene.client, 0).await.unwrap();
    until("one runs", || executor.metrics().running == 1).await;
    let pushed = async {
        sleep(Duration::from_millis(1)).await;
        scene.push(claim).await;
        scene.until_released(1).await;
        permits.add_permits(1);
    };
    tokio::join!(executor.shutdown(GRACE), pushed);
    let counts = scene.client.counts().await.unwrap();
    assert_eq!((counts.waiting, counts.running), (1, 0));
}

/// One task has a permit. The other one is given back, and while the store does not know the end of the first, its lease is renewed.
#[tokio::test]
async fn the_lease_is_renewed_until_all_verdicts_are_stored() {
    let (scene, permits) = (Scene::new(), StdArc::new(Semaphore::new(0)));
    let claim = scene.claim([1, 2]).await;
    let executor = builder(&scene.client)
        .max_running(1)
        .lease(Duration::from_millis(1500))
        .start(app_of(&permits))
        .await
        .unwrap();
    scene.until_idle().await;
    scene.set(Turns::AreLost);
    let sent = scene.sent[0].get();
    scene.push(claim).await;
    let renewed = async {
        until("the release is lost", || scene.sent[0].get() > sent).await;
        permits.add_permits(1);
        until("the run has ended", || executor.metrics().running == 0).await;
        scene.set(Turns::NextIsAnswered);
        until("it is released", || *lock(&scene.turns) == Turns::AreLost).await;
        // One may have been sent just before.
        let renewals = scene.sent[1].get();
        until("it is renewed", || scene.sent[1].get() > renewals + 1).await;
    };
    timeout(Duration::from_secs(20), renewed).await.unwrap();
    scene.set(Turns::AreAnswered);
    permits.add_permits(1);
    scene.until_ended([1, 2]).await;
}
