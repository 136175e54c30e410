//! A request that has reached only some of the partitions, or whose answer is lost.

use std::collections::HashSet;

use super::super::proxy::Trick;
use super::super::*;
use super::{PARTITIONS, claim_all, ids_of, key, open_divided};

/// This also holds if the repeated turn would begin at a partition that has received tasks meanwhile.
#[tokio::test]
async fn a_claim_whose_answer_is_lost_is_repeated_at_once() {
    needs_redis!();
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let worker = Worker::new(open_divided(&proxy.url()).await).await;
    let other = Worker::new(open_divided(&server.url()).await).await;
    for number in 0..20 {
        other.enqueue([task(number)]).await;
        let request = worker.new_turn(Vec::new(), 1);
        proxy.play(Trick::Lose);
        let turned = match worker.store.turn(Arc::clone(&request)).await {
            Ok(turned) => turned,
            Err(failure) => {
                assert_eq!(failure.effect, Effect::Unknown, "{failure}");
                other
                    .enqueue((100..120).map(|more| task(20 * number + more)))
                    .await;
                settled(|| worker.store.turn(Arc::clone(&request)))
                    .await
                    .unwrap()
            }
        };
        let claim = turned.claim.expect("there is something to claim");
        let mut verdicts = done(&claim);
        for claim in claim_all(&worker).await {
            verdicts.extend(done(&claim));
        }
        worker.turn(verdicts, 0).await;
        let counts = worker.store.counts().await.unwrap();
        assert_eq!((counts.waiting, counts.running), (0, 0), "{counts:?}");
        assert_eq!(counts.done, counts.stored);
    }
}

/// One partition has answered with a claim, and another one, which only gets verdicts, does not answer.
#[tokio::test]
async fn a_claim_before_a_lost_answer_is_repeated() {
    needs_redis!();
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let worker = Worker::new(open_divided(&proxy.url()).await).await;
    let other = Worker::new(open_divided(&server.url()).await).await;
    other.enqueue((0..40).map(task)).await;
    let mut verdicts: Vec<_> = claim_all(&worker).await.iter().flat_map(done).collect();
    for round in 1..=8 {
        other
            .enqueue((0..40).map(|number| task(100 * round + number)))
            .await;
        let request = worker.new_turn(verdicts, MAX_BATCH_TASKS);
        // All four partitions get verdicts, and the first one has a task to claim.
        proxy.play_after(1 + round as usize % 3, Trick::Lose);
        let failure = worker.store.turn(Arc::clone(&request)).await;
        assert_eq!(failure.expect_err("it was lost").effect, Effect::Unknown);
        let turned = settled(|| worker.store.turn(Arc::clone(&request)))
            .await
            .unwrap();
        let mut claims: Vec<_> = turned.claim.into_iter().collect();
        claims.extend(claim_all(&worker).await);
        let counts = worker.store.counts().await.unwrap();
        assert_eq!(counts.running, 40, "all that is held is known");
        assert_eq!(ids_of(&claims).len(), 40);
        verdicts = claims.iter().flat_map(done).collect();
    }
    worker.turn(verdicts, 0).await;
    let counts = worker.store.counts().await.unwrap();
    assert_eq!((counts.stored, counts.done), (360, 360));
    assert_eq!((counts.lost, counts.crashed), (0, 0));
}

/// In one of the partitions, some verdicts are applied and others are not.
#[tokio::test]
async fn verdicts_applied_in_part_are_reported_and_counted_once() {
    needs_redis!();
    for nth in [0, 2] {
        let server = Server::start();
        let other = Worker::new(open_divided(&server.url()).await).await;
        let worker = Worker::new(open_divided(&server.url()).await).await;
        let mut events = other.store.events();
        until(&mut events, &Event::Ready).await;
        other.enqueue((0..40).map(task)).await;
        other.store.status((0..40).map(id).collect()).await.unwrap();
        // Each partition has one of four in a row.
        let is_done = |id: TaskId| id.to_bytes()[15] & 4 == 0;
        let verdict = |id| match is_done(id) {
            true => Verdict::Done(b"output".to_vec()),
            false => Verdict::Retry {
                after: Duration::from_secs(60),
                error: "again".into(),
                took: None,
            },
        };
        let claims = claim_all(&worker).await.into_iter().map(|claim| Verdicts {
            epoch: claim.epoch,
            tasks: claim
                .tasks
                .iter()
                .map(|it| (it.id, verdict(it.id)))
                .collect(),
        });
        let request = worker.new_turn(claims.collect(), 0);
        let broken = (request.number as usize + nth) % PARTITIONS;
        server.ask(&["SET", &key(broken, "errors"), "text"]);
        let failed = worker.store.turn(Arc::clone(&request)).await;
        assert_fails(failed, &Cause::Corrupt, Effect::Unknown);
        server.ask(&["DEL", &key(broken, "errors")]);
        let turned = worker.store.turn(request).await.unwrap();
        // These tasks are no longer held: the first request has applied their verdicts.
        let store = &worker.store.inner.partitions;
        let is_taken = |id: &TaskId| is_done(*id) && store.of_task(*id) == broken;
        let taken: HashSet<_> = (0..40).map(id).filter(is_taken).collect();
        assert_eq!(turned.refused.into_iter().collect::<HashSet<_>>(), taken);
        let counts = worker.store.counts().await.unwrap();
        assert_eq!(
            (counts.done, counts.retried, counts.delayed, counts.running),
            (20, 20, 20, 0)
        );

        other.enqueue([task(100)]).await;
        other.store.status(vec![id(100)]).await.unwrap();
        worker.turn(done(&worker.claim(1).await), 0).await;
        let mut reported = Vec::new();
        while !reported.contains(&id(100)) {
            match timeout(DEADLINE, events.recv()).await.unwrap() {
                Some(Event::Ended(seen)) => reported.extend(seen.into_iter().map(|it| it.0)),
                Some(Event::MaybeEnded(ids)) => reported.extend(ids),
                _ => {}
            }
        }
        reported.sort_unstable();
        let expected = (0..40).map(id).filter(|id| is_done(*id));
        assert_eq!(reported, expected.chain([id(100)]).collect::<Vec<_>>());
    }
}

/// The worker opens another session, and has not received the claim.
#[tokio::test]
async fn a_claim_of_a_session_that_has_ended_elsewhere_is_released() {
    needs_redis!();
    let server = Server::start();
    let worker = Worker::new(open_divided(&server.url()).await).await;
    let other = Worker::new(open_divided(&server.url()).await).await;
    other.enqueue((0..40).map(task)).await;
    let verdicts: Vec<_> = claim_all(&worker).await.iter().flat_map(done).collect();
    other.enqueue((100..140).map(task)).await;
    let request = worker.new_turn(verdicts.clone(), MAX_BATCH_TASKS);
    let ended = (request.number as usize + 2) % PARTITIONS;
    let session = worker.session.to_string();
    server.ask(&["HDEL", &key(ended, "sessions"), &session]);
    let failed = worker.store.turn(Arc::clone(&request)).await;
    assert_fails(failed, &Cause::NoSession, Effect::Unknown);
    let fresh = Worker::of(&worker.store).await;
    fresh.turn(verdicts, 0).await;
    let claims = claim_all(&fresh).await;
    assert_eq!(ids_of(&claims), (100..140).map(id).collect());
    let counts = worker.store.counts().await.unwrap();
    assert_eq!((counts.done, counts.running), (40, 40));
    assert_eq!((counts.lost, counts.crashed), (0, 0));
}
