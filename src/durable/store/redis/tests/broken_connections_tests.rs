//! Connections that break, answers that are lost, and servers that stop or restart.

use rustix::process::Signal;

use super::super::time::Time;
use super::*;

const AOF: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

#[tokio::test]
async fn a_request_whose_answer_is_lost_takes_effect_once() {
    needs_redis!();
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let witness = open(&server.url()).await;
    let worker = Worker::new(open_hurried(&proxy.url()).await).await;
    for round in 1..=20 {
        // The server stores the task, and its answer is lost.
        let request = worker.new_enqueue([task(2 * round), task(2 * round + 1)]);
        lose(&proxy, || worker.store.enqueue(Arc::clone(&request))).await;
        settled(|| worker.store.enqueue(Arc::clone(&request)))
            .await
            .unwrap();
        assert_eq!(witness.counts().await.unwrap().stored, 2 * round);

        let request = worker.new_turn(Vec::new(), 2);
        lose(&proxy, || worker.store.turn(Arc::clone(&request))).await;
        let turned = settled(|| worker.store.turn(Arc::clone(&request)))
            .await
            .unwrap();
        let claim = turned.claim.expect("the same claim again");
        let ids: Vec<_> = claim.tasks.iter().map(|task| task.id).collect();
        assert_eq!(ids, [id(2 * round), id(2 * round + 1)]);

        let request = worker.new_turn(done(&claim), 0);
        lose(&proxy, || worker.store.turn(Arc::clone(&request))).await;
        let turned = settled(|| worker.store.turn(Arc::clone(&request)))
            .await
            .unwrap();
        assert_eq!(turned.refused, []);
    }
    let counts = witness.counts().await.unwrap();
    assert_eq!((counts.claimed, counts.done, counts.kept), (40, 40, 40));
    assert_eq!((counts.lost, counts.crashed), (0, 0));
}

/// Sends a request, discards its answer, and closes the connection.
async fn lose<T: std::fmt::Debug, F: Future<Output = Result<T, Failure>>>(
    proxy: &Proxy,
    send: impl Fn() -> F,
) {
    // An answer shows that there is a connection.
    let sent = settled(async || {
        proxy.mute();
        let answer = timeout(Duration::from_millis(30), send()).await;
        proxy.cut();
        match answer {
            // The connection was already closed, and the request was sent on a new one.
            Ok(Ok(_)) => Err(Failure::new(Effect::None, Cause::Full)),
            Ok(Err(failure)) => Err(failure),
            Err(_) => Ok(()),
        }
    });
    match sent.await {
        Ok(()) => {}
        Err(failure) => assert_eq!(failure.cause, Cause::Full, "{failure}"),
    }
}

#[tokio::test]
async fn a_connection_without_answers_is_closed() {
    needs_redis!();
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let worker = Worker::new(open_hurried(&proxy.url()).await).await;
    worker.enqueue([task(1)]).await;
    proxy.mute();
    let request = worker.new_enqueue([task(2)]);
    let began = Instant::now();
    let answer = worker.store.enqueue(Arc::clone(&request)).await;
    assert_fails(answer, &Cause::Unavailable, Effect::Unknown);
    assert!(began.elapsed() < 5 * SOON, "{:?}", began.elapsed());
    // The old connection gets no more answers; the new one does.
    worker.store.enqueue(request).await.unwrap();
    assert_eq!(worker.store.counts().await.unwrap().stored, 2);
}

#[tokio::test]
async fn a_new_subscription_announces_that_messages_may_be_missing() {
    needs_redis!();
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let spawner = Worker::new(open(&server.url()).await).await;
    let worker = Worker::new(open_hurried(&proxy.url()).await).await;
    let mut events = worker.store.events();
    until(&mut events, &Event::Ready).await;
    for round in 0..5 {
        proxy.cut();
        until(&mut events, &Event::Ready).await;
        assert_eq!(worker.turn(Vec::new(), 1).await.claim, None);
        spawner.enqueue([task(round)]).await;
        until(&mut events, &Event::Wake(None)).await;
        worker.turn(done(&worker.claim(1).await), 0).await;
        spawner.turn(Vec::new(), 0).await;
    }
}

/// The worker receives no messages, so it polls.
#[tokio::test]
async fn a_worker_without_a_subscription_does_not_go_idle() {
    needs_redis!();
    let server = Server::start();
    server.ask(&["ACL", "SETUSER", "default", "resetchannels"]);
    let worker = Worker::new(open(&server.url()).await).await;
    let turned = worker.turn(Vec::new(), 1).await;
    assert!(
        turned
            .next
            .is_some_and(|next| next < Duration::from_secs(1)),
        "{turned:?}"
    );
    // A verdict is applied even if no client can be notified.
    worker.enqueue([task(1), task(2)]).await;
    let claim = worker.claim(2).await;
    assert_eq!(worker.turn(done(&claim), 0).await.refused, []);
    let seen = worker.store.status(vec![id(1), id(2)]).await.unwrap();
    assert_eq!(seen, [(); 2].map(|()| TaskState::Done(b"output".to_vec())));
}

#[tokio::test]
async fn a_restarted_server_has_all_tasks() {
    needs_redis!();
    let mut server = Server::with(&AOF);
    let url = format!("redis://127.0.0.1:{}/", server.port());
    let worker = Worker::new(open_hurried(&url).await).await;
    assert_eq!(worker.store.probe().await.unwrap(), Durability::Synced);
    let mut events = worker.store.events();
    until(&mut events, &Event::Ready).await;
    worker.enqueue((0..100).map(task)).await;
    let claim = worker.claim(50).await;
    server.kill();
    let request = worker.new_turn(done(&claim), 0);
    let began = Instant::now();
    let answer = worker.store.turn(Arc::clone(&request)).await;
    assert!(answer.is_err_and(|failure| failure.cause == Cause::Unavailable));
    assert!(
        began.elapsed() < Duration::from_secs(2),
        "{:?}",
        began.elapsed()
    );
    server.run();
    let began = Instant::now();
    assert_eq!(
        settled(|| worker.store.turn(Arc::clone(&request)))
            .await
            .unwrap()
            .refused,
        []
    );
    until(&mut events, &Event::Ready).await;
    assert!(
        began.elapsed() < Duration::from_secs(2),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(worker.claim(100).await.tasks.len(), 50);
    let counts = worker.store.counts().await.unwrap();
    assert_eq!((counts.stored, counts.done, counts.running), (100, 50, 50));
}

#[tokio::test]
async fn a_server_stopped_for_longer_than_a_lease_reaps_no_claim() {
    needs_redis!();
    let server = Server::start();
    let worker = Worker::new(open_hurried(&server.url()).await).await;
    let idle = Worker::new(open_hurried(&server.url()).await).await;
    worker.enqueue([task(1)]).await;
    let lease = Duration::from_millis(600);
    let turn = Arc::unwrap_or_clone(worker.new_turn(Vec::new(), 1));
    let turned = worker
        .store
        .turn(Arc::new(Turn { lease, ..turn }))
        .await
        .unwrap();
    let epoch = turned.claim.unwrap().epoch;
    server.signal(Signal::STOP);
    let answer = worker.store.renew(vec![epoch]).await;
    assert!(answer.is_err(), "{answer:?}");
    sleep(lease).await;
    server.signal(Signal::CONT);
    // Other workers send turns first; the owner of the claim renews it in time.
    assert_eq!(idle.turn(Vec::new(), 1).await.claim, None);
    let renewed = settled(|| worker.store.renew(vec![epoch])).await.unwrap();
    assert_eq!((renewed.lost, renewed.cancelled), (vec![], vec![]));
    // Without the renewal, the extension of the lease would be over by now.
    sleep(lease / 2).await;
    assert_eq!(idle.turn(Vec::new(), 1).await.claim, None);
}

#[tokio::test]
async fn a_connection_to_a_server_that_becomes_a_replica_is_closed() {
    needs_redis!();
    let server = Server::start();
    // The request is sent again until this timeout.
    let limit = Duration::from_secs(2);
    let store = open_within(&mut RedisStore::builder(&server.url()), limit).await;
    let worker = Worker::new(store).await;
    server.ask(&["REPLICAOF", "127.0.0.1", "1"]);
    let request = worker.new_enqueue([task(1)]);
    let answer = worker.store.enqueue(Arc::clone(&request)).await;
    assert_fails(answer, &Cause::ReadOnly, Effect::None);
    server.ask(&["REPLICAOF", "NO", "ONE"]);
    settled(|| worker.store.enqueue(Arc::clone(&request)))
        .await
        .unwrap();
    assert_eq!(worker.store.counts().await.unwrap().stored, 1);
}

#[tokio::test]
async fn scripts_that_the_server_has_lost_are_sent_again() {
    needs_redis!();
    let server = Server::start();
    let worker = Worker::new(open(&server.url()).await).await;
    for number in 0..3 {
        server.ask(&["SCRIPT", "FLUSH"]);
        worker.enqueue([task(number)]).await;
        server.ask(&["SCRIPT", "FLUSH"]);
        assert_eq!(worker.claim(1).await.tasks[0].id, id(number));
    }
}

#[tokio::test]
async fn a_full_server_refuses_only_new_tasks() {
    needs_redis!();
    let server = Server::start();
    let worker = Worker::new(open(&server.url()).await).await;
    let other = Worker::new(open(&server.url()).await).await;
    worker.enqueue((0..8).map(task)).await;
    let claim = worker.claim(2).await;
    server.ask(&["CONFIG", "SET", "maxmemory", "1"]);
    let spawner = Worker::of(&worker.store).await;
    let request = spawner.new_enqueue([task(9)]);
    let answer = worker.store.enqueue(Arc::clone(&request)).await;
    assert_fails(answer, &Cause::Full, Effect::None);

    assert!(
        worker
            .store
            .renew(vec![claim.epoch])
            .await
            .unwrap()
            .lost
            .is_empty()
    );
    assert_eq!(
        other.store.status(vec![id(0), id(9)]).await.unwrap(),
        [TaskState::Running, TaskState::Absent]
    );
    assert_eq!(worker.store.cancel(vec![id(1), id(7)]).await.unwrap(), 2);
    let verdicts = vec![Verdicts {
        epoch: claim.epoch,
        tasks: vec![
            (
                id(0),
                Verdict::Dead {
                    reason: DeadReason::Fatal,
                    error: "error".into(),
                    took: None,
                },
            ),
            (id(1), Verdict::Release),
        ],
    }];
    let turned = worker.turn(verdicts, 4).await;
    assert_eq!(
        (turned.refused, turned.claim.map(|it| it.tasks.len())),
        (vec![], Some(4))
    );
    assert_eq!(
        other.turn(Vec::new(), 9).await.claim.unwrap().tasks.len(),
        1
    );
    assert_eq!(
        other
            .store
            .replay_dead_letters(DeadFilter::all())
            .await
            .unwrap(),
        1
    );
    assert_eq!(
        other
            .store
            .delete_dead_letters(DeadFilter::all())
            .await
            .unwrap(),
        0
    );
    assert!(!other.store.maintain(10).await.unwrap());
    other.store.close_session(other.session).await.unwrap();
    let late = Worker::of(&other.store).await;
    assert_eq!(late.claim(9).await.tasks.len(), 2);

    server.ask(&["CONFIG", "SET", "maxmemory", "0"]);
    // The number was not used.
    worker.store.enqueue(request).await.unwrap();
    assert_eq!(worker.store.counts().await.unwrap().stored, 9);
}

/// The earlier tasks have left a result, and a dead letter with a separate payload, which nothing has removed yet.
#[tokio::test]
async fn a_full_server_refuses_tasks_with_the_ids_of_expired_ones() {
    needs_redis!();
    let (server, clock) = (Server::start(), Clock::manual());
    let mut builder = RedisStore::builder(&server.url());
    builder.namespace("full");
    let store = RedisStore::open_as(&builder, Time::manual(clock.clone())).await;
    let worker = Worker::new(store.unwrap()).await;
    let large = |number| NewTask {
        payload: vec![7; 2000],
        ..task(number)
    };
    worker.enqueue([task(1), large(2)]).await;
    let claim = worker.claim(2).await;
    let dead = Verdict::Dead {
        reason: DeadReason::Fatal,
        error: "error".into(),
        took: None,
    };
    let verdicts = Verdicts {
        epoch: claim.epoch,
        tasks: vec![(id(1), Verdict::Done(b"1".to_vec())), (id(2), dead)],
    };
    worker.turn(vec![verdicts], 0).await;
    age(&server, "full", &clock, Duration::from_secs(40 * 24 * 3600));
    // After such a long time, the client records the type of the tasks again. A full server would refuse that, too.
    worker.enqueue([task(3)]).await;
    assert_eq!(worker.claim(1).await.tasks[0].id, id(3));
    server.ask(&["CONFIG", "SET", "maxmemory", "1"]);
    for number in [1, 2] {
        let request = worker.new_enqueue([large(number)]);
        let answer = worker.store.enqueue(request).await;
        assert_fails(answer, &Cause::Full, Effect::None);
    }
    server.ask(&["CONFIG", "SET", "maxmemory", "0"]);
    worker.enqueue([large(1), large(2)]).await;
    assert!(!worker.store.maintain(100).await.unwrap());
    let claimed = worker.claim(2).await.tasks;
    let payloads = claimed.into_iter().map(|task| task.payload);
    let payloads: Vec<_> = payloads.collect();
    assert_eq!(payloads, [Ok(vec![7; 2000]), Ok(vec![7; 2000])]);
}

#[tokio::test]
async fn a_wake_without_a_receiver_goes_to_the_next_worker() {
    needs_redis!();
    let server = Server::start();
    let spawner = Worker::new(open(&server.url()).await).await;
    let living = Worker::new(open(&server.url()).await).await;
    let mut events = living.store.events();
    assert_eq!(living.turn(Vec::new(), 1).await.claim, None);
    // These workers are idle, too, and are gone.
    for _ in 0..6 {
        let dying = Worker::new(open(&server.url()).await).await;
        assert_eq!(dying.turn(Vec::new(), 1).await.claim, None);
    }
    // The server may not have closed their connections yet.
    let gone = async {
        while server.ask(&["PUBSUB", "CHANNELS"]) != server.ask(&["EVAL", TWO, "0"]) {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(DEADLINE, gone).await.unwrap();
    spawner.enqueue([task(1)]).await;
    until(&mut events, &Event::Wake(None)).await;
}

/// The channels, if there are two.
const TWO: &str = "
local channels = redis.call('PUBSUB', 'CHANNELS')
return #channels == 2 and channels or 0";

#[tokio::test]
async fn connections_that_break_repeatedly_lose_nothing() {
    needs_redis!();
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let worker = Worker::new(open_hurried(&proxy.url()).await).await;
    let work = async {
        for round in 0..60 {
            worker
                .enqueue((10 * round..10 * round + 10).map(task))
                .await;
            let claim = worker.claim(10).await;
            worker.turn(done(&claim), 0).await;
        }
    };
    let cuts = async {
        loop {
            sleep(Duration::from_millis(20 + fastrand::u64(0..60))).await;
            if fastrand::bool() {
                proxy.mute();
                sleep(Duration::from_millis(10)).await;
            }
            proxy.cut();
        }
    };
    let all = timeout(3 * DEADLINE, async {
        tokio::select! {
            () = work => {}
            () = cuts => {}
        }
    });
    all.await.expect("it comes to an end");
    let counts = open(&server.url()).await.counts().await.unwrap();
    assert_eq!(
        (counts.stored, counts.claimed, counts.done),
        (600, 600, 600)
    );
}
