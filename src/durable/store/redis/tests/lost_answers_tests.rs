//! Answers that are lost, truncated, held back or late, and requests that arrive twice: each request takes effect once, and
//! claims belong to the worker that has requested them.

use futures::future::join_all;

use super::proxy::Trick;
use super::*;
use crate::durable::store::RenewAnswer;

/// The number of rounds, in each of which an answer of every kind is lost.
fn rounds() -> u64 {
    if std::env::var_os("THRONG_LONG").is_some() {
        1_000
    } else {
        200
    }
}

/// A worker whose requests go through a proxy, in a namespace of its own.
struct Tricked {
    proxy: Proxy,
    worker: Worker,
}

impl Tricked {
    async fn new(server: &Server, namespace: u64, answer: Duration) -> Self {
        let proxy = Proxy::to(server.port()).await;
        let mut builder = RedisStore::builder(&proxy.url());
        builder.namespace(namespace.to_string());
        let builder = builder.answer_timeout(answer).connect_timeout(DEADLINE);
        let worker = Worker::new(builder.open().await.unwrap()).await;
        let it = Self { proxy, worker };
        // From here on, the server has the scripts.
        it.round(0, None).await;
        it
    }

    /// Sends a request to which a trick is applied, and then again until it is answered.
    async fn send<T, F>(&self, trick: Option<Trick>, send: impl Fn() -> F) -> T
    where
        T: std::fmt::Debug,
        F: Future<Output = Result<T, Failure>>,
    {
        let Some(trick) = trick else {
            return settled(send).await.unwrap();
        };
        self.proxy.play(trick);
        match send().await {
            // This trick has no visible effect.
            Ok(answer) => answer,
            Err(failure) => {
                assert_eq!(failure.effect, Effect::Unknown, "{trick:?}: {failure}");
                settled(send).await.unwrap()
            }
        }
    }

    /// Runs a task. A trick is applied to each request.
    async fn round(&self, number: u64, trick: Option<Trick>) {
        let Worker { store, .. } = &self.worker;
        let request = self.worker.new_enqueue([task(number)]);
        self.send(trick, || store.enqueue(Arc::clone(&request)))
            .await;
        let request = self.worker.new_turn(Vec::new(), 2);
        let turned = self.send(trick, || store.turn(Arc::clone(&request))).await;
        let claim = turned.claim.expect("the same claim, at once");
        assert_eq!(claim.tasks.len(), 1);
        assert_eq!(claim.tasks[0].id, id(number));
        let beaten = self.send(trick, || store.renew(vec![claim.epoch])).await;
        assert_eq!(beaten, RenewAnswer::default());
        let request = self.worker.new_turn(done(&claim), 0);
        let turned = self.send(trick, || store.turn(Arc::clone(&request))).await;
        assert_eq!((turned.refused, turned.claim), (Vec::new(), None));
    }

    /// Checks that every task was stored, claimed and completed once.
    async fn check(&self, tasks: u64) {
        let counts = settled(|| self.worker.store.counts()).await.unwrap();
        assert_eq!(
            (counts.stored, counts.claimed, counts.done),
            (tasks, tasks, tasks)
        );
        assert_eq!((counts.lost, counts.crashed), (0, 0));
        assert_eq!((counts.waiting, counts.running), (0, 0));
    }
}

#[tokio::test]
async fn lost_answers_lose_and_repeat_no_task() {
    needs_redis!();
    const WORKERS: u64 = 20;
    let server = Server::start();
    let each = rounds() / WORKERS;
    let work = (0..WORKERS).map(async |namespace| {
        let it = Tricked::new(&server, namespace, DEADLINE).await;
        for number in 1..=each {
            it.round(number, Some(Trick::Lose)).await;
        }
        it.check(each + 1).await;
    });
    timeout(6 * DEADLINE, join_all(work)).await.unwrap();
}

/// The connection stays open without an answer, so only a timeout detects the loss.
#[tokio::test]
async fn a_request_without_an_answer_is_sent_again() {
    needs_redis!();
    let server = Server::start();
    let work = (0..3).map(async |namespace| {
        let it = Tricked::new(&server, namespace, SOON).await;
        it.round(1, Some(Trick::Stall)).await;
        it.check(2).await;
    });
    // Three rounds have twelve requests.
    let began = Instant::now();
    timeout(3 * DEADLINE, join_all(work)).await.unwrap();
    assert!(began.elapsed() < LEASE, "a lease was waited for");
}

#[tokio::test]
async fn a_truncated_answer_is_not_used() {
    needs_redis!();
    let server = Server::start();
    let it = Tricked::new(&server, 0, DEADLINE).await;
    let cuts = [0, 1, 2, 3, 4, 5, 8, 13, 21, 34, 55];
    for (number, &len) in (1..).zip(&cuts) {
        it.round(number, Some(Trick::CutAfter(len))).await;
    }
    it.check(1 + cuts.len() as u64).await;
}

/// The connection was closed before, so the late answer is discarded, and does not answer the next request.
#[tokio::test]
async fn a_late_answer_does_not_answer_another_request() {
    needs_redis!();
    let server = Server::start();
    let it = Tricked::new(&server, 0, SOON).await;
    it.round(1, Some(Trick::Delay(SOON + SOON / 3))).await;
    it.round(2, Some(Trick::Delay(SOON / 30))).await;
    it.check(3).await;
}

#[tokio::test]
async fn a_request_that_arrives_twice_takes_effect_once() {
    needs_redis!();
    let server = Server::start();
    let it = Tricked::new(&server, 0, DEADLINE).await;
    for number in 1..=20 {
        it.round(number, Some(Trick::Double)).await;
    }
    it.check(21).await;
}
