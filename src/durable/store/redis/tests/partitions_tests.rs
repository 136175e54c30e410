//! A store of several partitions behaves like one with a single partition, except for the order of tasks.

use std::collections::HashSet;

use super::proxy::Trick;
use super::*;

const PARTITIONS: usize = 4;

async fn open_divided(url: &str) -> RedisStore {
    let mut builder = RedisStore::builder(url);
    let opened = builder.partitions(PARTITIONS).open();
    opened.await.expect("the store can be opened")
}

fn key(partition: usize, name: &str) -> String {
    format!("throng:{{default:{partition}}}:{name}")
}

/// Claims until no task is left. Each claim has tasks of one partition.
async fn claim_all(worker: &Worker) -> Vec<Claim> {
    let mut claims = Vec::new();
    while let Some(claim) = worker.turn(Vec::new(), MAX_BATCH_TASKS).await.claim {
        claims.push(claim);
    }
    claims
}

fn ids_of(claims: &[Claim]) -> HashSet<TaskId> {
    let tasks = claims.iter().flat_map(|claim| &claim.tasks);
    tasks.map(|task| task.id).collect()
}

#[tokio::test]
async fn tasks_of_all_partitions_run_and_end() {
    needs_redis!();
    const TASKS: u64 = 100;
    let server = Server::start();
    let worker = Worker::new(open_divided(&server.url()).await).await;
    worker.enqueue((0..TASKS).map(task)).await;
    for partition in 0..PARTITIONS {
        let waiting = server.ask(&["LLEN", &key(partition, "ready")]);
        assert!(matches!(waiting, redis::Value::Int(1..)), "{partition}");
    }
    let claims = claim_all(&worker).await;
    assert_eq!(claims.len(), PARTITIONS);
    assert_eq!(ids_of(&claims), (0..TASKS).map(id).collect());
    let epochs: HashSet<_> = claims.iter().map(|claim| claim.epoch).collect();
    assert_eq!(epochs.len(), PARTITIONS, "an epoch is that of one claim");

    let beaten = worker.store.renew(epochs.into_iter().collect()).await;
    assert!(beaten.unwrap().lost.is_empty());
    let turned = worker.turn(claims.iter().flat_map(done).collect(), 1).await;
    assert_eq!((turned.refused, turned.claim), (Vec::new(), None));
    let seen = worker.store.status((0..=TASKS).map(id).collect()).await;
    let mut expected = vec![TaskState::Done(b"output".to_vec()); TASKS as usize];
    expected.push(TaskState::Absent);
    assert_eq!(seen.unwrap(), expected);
    let counts = worker.store.counts().await.unwrap();
    assert_eq!(
        (counts.stored, counts.claimed, counts.done),
        (TASKS, TASKS, TASKS)
    );
    assert_eq!((counts.waiting, counts.running), (0, 0));
}

#[tokio::test]
async fn a_claim_sends_verdicts_to_other_partitions() {
    needs_redis!();
    let server = Server::start();
    let worker = Worker::new(open_divided(&server.url()).await).await;
    worker.enqueue((0..20).map(task)).await;
    let (mut verdicts, mut claimed) = (Vec::new(), HashSet::new());
    for _ in 0..PARTITIONS {
        let turned = worker.turn(verdicts, MAX_BATCH_TASKS).await;
        assert!(turned.refused.is_empty());
        let claim = turned.claim.expect("there is a partition left");
        claimed.extend(claim.tasks.iter().map(|task| task.id));
        verdicts = done(&claim);
    }
    worker.turn(verdicts, 0).await;
    assert_eq!(claimed, (0..20).map(id).collect());
    assert_eq!(worker.store.counts().await.unwrap().done, 20);
}

#[tokio::test]
async fn an_idle_worker_is_woken_from_each_partition() {
    needs_redis!();
    let server = Server::start();
    let worker = Worker::new(open_divided(&server.url()).await).await;
    let other = Worker::new(open_divided(&server.url()).await).await;
    let mut events = worker.store.events();
    for number in 0..20 {
        assert_eq!(worker.turn(Vec::new(), 1).await.claim, None);
        other.enqueue([task(number)]).await;
        until(&mut events, &Event::Wake).await;
        let claim = worker.claim(1).await;
        assert_eq!(claim.tasks[0].id, id(number));
        // A busy session is idle in no partition.
        for partition in 0..PARTITIONS {
            let idle = server.ask(&["KEYS", &key(partition, "idle:*")]);
            assert_eq!(idle, redis::Value::Array(Vec::new()), "{partition}");
        }
        worker.turn(done(&claim), 0).await;
    }
}

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
        let mut told = Vec::new();
        while !told.contains(&id(100)) {
            match timeout(DEADLINE, events.recv()).await.unwrap() {
                Some(Event::Ended(seen)) => told.extend(seen.into_iter().map(|it| it.0)),
                Some(Event::MaybeEnded(ids)) => told.extend(ids),
                _ => {}
            }
        }
        told.sort_unstable();
        let expected = (0..40).map(id).filter(|id| is_done(*id));
        assert_eq!(told, expected.chain([id(100)]).collect::<Vec<_>>());
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

#[tokio::test]
async fn dead_letters_of_all_partitions_are_one_list() {
    needs_redis!();
    let server = Server::start();
    let worker = Worker::new(open_divided(&server.url()).await).await;
    worker.enqueue((0..12).map(task)).await;
    assert_eq!(
        worker.store.cancel((0..4).map(id).collect()).await.unwrap(),
        4
    );
    for claim in claim_all(&worker).await {
        worker.turn(dead(&claim, DeadReason::Fatal, ""), 0).await;
    }
    let letters = worker
        .store
        .dead_letters(DeadFilter::all(), 100)
        .await
        .unwrap();
    let found: HashSet<_> = letters.iter().map(|letter| letter.id).collect();
    assert_eq!(found, (4..12).map(id).collect());
    assert!(letters.is_sorted_by_key(|letter| letter.age), "{letters:?}");
    let newest = worker
        .store
        .dead_letters(DeadFilter::all(), 3)
        .await
        .unwrap();
    assert_eq!(newest.len(), 3);
    let some = DeadFilter::ids([id(5), id(6)]);
    assert_eq!(worker.store.replay_dead_letters(some).await.unwrap(), 2);
    assert_eq!(
        worker
            .store
            .delete_dead_letters(DeadFilter::all())
            .await
            .unwrap(),
        6
    );
    assert_eq!(ids_of(&claim_all(&worker).await), [id(5), id(6)].into());
}

/// Opens a session for the types with these names.
async fn worker_of(server: &Server, names: &[&'static str]) -> Worker {
    Worker::of_names(&Arc::new(open_divided(&server.url()).await), names).await
}

/// One partition has lost its routes, and one has lists that others do not have.
#[tokio::test]
async fn partitions_with_different_routes_run_all_tasks() {
    needs_redis!();
    let server = Server::start();
    let mail = worker_of(&server, &["mail"]).await;
    let both = worker_of(&server, &["mail", "job"]).await;
    both.enqueue((0..60).map(|number| named(number, ["mail", "job"][number as usize % 2])))
        .await;
    server.ask(&["DEL", &key(1, "routes")]);
    server.ask(&["HDEL", &key(1, "meta"), "routes"]);
    server.ask(&["HSET", &key(2, "routes"), "text", "x"]);
    let mut ran = HashSet::new();
    let mut workers = [(mail, &["mail"][..]), (both, &["mail", "job"][..])];
    for _ in 0..20 {
        for (worker, names) in &mut workers {
            match worker
                .store
                .turn(worker.new_turn(Vec::new(), MAX_BATCH_TASKS))
                .await
            {
                Ok(turned) => {
                    let Some(claim) = turned.claim else { continue };
                    assert!(claim.tasks.iter().all(|task| names.contains(&&*task.name)));
                    ran.extend(claim.tasks.iter().map(|task| task.id));
                    let told = worker.store.turn(worker.new_turn(done(&claim), 0)).await;
                    if told.is_err() {
                        *worker = worker_of(&server, names).await;
                        worker.turn(done(&claim), 0).await;
                    }
                }
                Err(failure) => {
                    assert_eq!(failure.cause, Cause::NoSession, "{failure}");
                    *worker = worker_of(&server, names).await;
                }
            }
        }
        while workers[0].0.store.maintain(1_000).await.unwrap() {}
    }
    assert_eq!(ran, (0..60).map(id).collect());
    assert_eq!(workers[0].0.store.damage(), None, "no task was lost");
}

#[tokio::test]
async fn errors_and_unserved_tasks_of_all_partitions_are_found() {
    needs_redis!();
    let server = Server::start();
    let worker = Worker::new(open_divided(&server.url()).await).await;
    worker.enqueue((0..20).map(task)).await;
    for claim in claim_all(&worker).await {
        let again = |id: TaskId| Verdict::Retry {
            after: Duration::from_secs(60),
            error: format!("error of {id}"),
        };
        let tasks = claim.tasks.iter().map(|task| (task.id, again(task.id)));
        let (epoch, tasks) = (claim.epoch, tasks.collect());
        worker.turn(vec![Verdicts { epoch, tasks }], 0).await;
    }
    for number in 0..20 {
        let errors = worker.store.errors(id(number)).await.unwrap();
        let errors: Vec<_> = errors.into_iter().map(|it| it.error).collect();
        assert_eq!(errors, [format!("error of {}", id(number))]);
    }
    worker
        .enqueue((100..140).map(|number| named(number, ["job", "mail"][number as usize % 2])))
        .await;
    let counts = worker.store.counts().await.unwrap();
    assert_eq!(
        (counts.waiting, counts.unserved, counts.delayed),
        (40, 20, 20)
    );
}

#[tokio::test]
async fn a_store_opens_only_with_its_number_of_partitions() {
    needs_redis!();
    let server = Server::start();
    drop(open_divided(&server.url()).await);
    let error = RedisStore::open(&server.url()).await;
    let error = error.expect_err("there are four partitions");
    assert!(
        error.is_unfit() && error.to_string().contains('4'),
        "{error}"
    );
    drop(open_divided(&server.url()).await);
}

/// Every version of the crate must find the tasks that another one has stored.
#[test]
fn the_partition_of_a_task_never_changes() {
    let partitions = super::super::partitions::Partitions::new(64);
    let places = [0, 1, 2, u64::MAX].map(|number| partitions.of_task(id(number)));
    assert_eq!(places, [5, 50, 31, 61]);
}
