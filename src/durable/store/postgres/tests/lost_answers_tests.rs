//! COMMITs that are lost, or whose answers are: each request takes effect once.

use std::sync::Arc;

use super::needs_postgres;
use super::proxy::{CommitFate, CommitProxy};
use super::scene::*;
use super::server::Server;
use crate::durable::failure::{Cause, Effect, Failure};
use crate::durable::store::suite::{id, task};
use crate::durable::store::{Backend, RenewAnswer, Turn};

/// The number of rounds, in each of which a COMMIT of every kind is lost.
fn rounds() -> u64 {
    match std::env::var_os("THRONG_LONG").is_some() {
        true => 500,
        false => 25,
    }
}

/// A caller whose requests go through a proxy.
struct CutCaller {
    proxy: CommitProxy,
    caller: Caller,
}

impl CutCaller {
    async fn new(scene: &PostgresScene) -> Self {
        let server = Server::shared();
        let proxy = CommitProxy::to(server.socket());
        proxy.spare_set_up();
        let url = format!("host={} user=throng dbname=postgres", proxy.host());
        let store = scene.builder_at(&url).open().await.unwrap();
        let caller = Caller::of(store).await;
        Self { proxy, caller }
    }

    /// Sends a request whose COMMIT has a fate, and then again until it is answered.
    async fn send<T: std::fmt::Debug, F>(&self, fate: CommitFate, send: impl Fn() -> F) -> T
    where
        F: Future<Output = Result<T, Failure>>,
    {
        self.proxy.decide(fate);
        let failure = send().await.unwrap_err();
        assert_eq!(failure.effect, Effect::Unknown, "{fate:?}: {failure}");
        settled(send).await.unwrap()
    }

    /// Runs a task. Each COMMIT has the same fate when it is sent for the first time.
    async fn round(&self, number: u64, fate: CommitFate) {
        let Caller { store, .. } = &self.caller;
        let request = self.caller.new_enqueue([task(number)]);
        self.send(fate, || store.enqueue(Arc::clone(&request)))
            .await;
        let request = self.caller.new_turn(Vec::new(), 2);
        let turned = self.send(fate, || store.turn(Arc::clone(&request))).await;
        let claim = turned.claim.expect("the same claim, at once");
        assert_eq!(claim.tasks.len(), 1);
        assert_eq!(claim.tasks[0].id, id(number));
        let renewed = self.send(fate, || store.renew(vec![claim.epoch])).await;
        assert_eq!(renewed, RenewAnswer::default());
        assert_eq!(self.caller.renew(&claim).await, RenewAnswer::default());
        let request = self.caller.new_turn(done(&claim), 0);
        let turned = self.send(fate, || store.turn(Arc::clone(&request))).await;
        assert_eq!((turned.refused, turned.claim), (Vec::new(), None));
    }
}

async fn check(fate: CommitFate) {
    let scene = PostgresScene::new();
    let it = CutCaller::new(&scene).await;
    for number in 1..=rounds() {
        it.round(number, fate).await;
    }
    let counts = it.caller.store.counts().await.unwrap();
    let all = rounds();
    assert_eq!(
        (counts.stored, counts.claimed, counts.done),
        (all, all, all)
    );
    assert_eq!((counts.lost, counts.crashed), (0, 0));
    assert_eq!((counts.waiting, counts.running), (0, 0));
}

#[tokio::test]
async fn lost_answers_of_commits_lose_and_repeat_no_task() {
    needs_postgres!();
    check(CommitFate::Unanswered).await;
}

#[tokio::test]
async fn lost_commits_lose_and_repeat_no_task() {
    needs_postgres!();
    check(CommitFate::Dropped).await;
}

/// A part of a turn is executed before its number is checked.
#[tokio::test]
async fn a_late_copy_of_an_older_turn_does_not_confirm_a_claim() {
    needs_postgres!();
    let scene = PostgresScene::new();
    let caller = scene.open().await;
    caller.store(1).await.unwrap();
    let mut late = Turn::clone(&caller.new_turn(Vec::new(), 1));
    let claim = caller.claim(1).await;
    late.received = Some(claim.epoch);
    let failure = caller.store.turn(Arc::new(late)).await.unwrap_err();
    assert_eq!(failure.cause, Cause::NoSession);
    let delivered = "SELECT count(*) FROM $S.claim WHERE delivered";
    assert_eq!(scene.number(delivered), 0);
    caller.turn(Vec::new(), 0).await;
    assert_eq!(scene.number(delivered), 1);
}
