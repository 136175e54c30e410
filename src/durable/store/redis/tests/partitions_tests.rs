//! A store of several partitions behaves like one with a single partition, except for the order of tasks.

use std::collections::HashSet;

use super::*;

mod failures_tests;
mod idle_tests;
mod keys_tests;
mod outcomes_tests;

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

    let renewed = worker.store.renew(epochs.into_iter().collect()).await;
    assert!(renewed.unwrap().lost.is_empty());
    let turned = worker.turn(claims.iter().flat_map(done).collect(), 1).await;
    assert_eq!((turned.refused, turned.claim), (Vec::new(), None));
    let states = worker.store.status((0..=TASKS).map(id).collect()).await;
    let mut expected = vec![TaskState::Done(b"output".to_vec()); TASKS as usize];
    expected.push(TaskState::Absent);
    assert_eq!(states.unwrap(), expected);
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
        until(&mut events, &Event::Wake(None)).await;
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
    let dead_letters = worker
        .store
        .dead_letters(DeadFilter::all(), 100)
        .await
        .unwrap();
    let found: HashSet<_> = dead_letters.iter().map(|it| it.id).collect();
    assert_eq!(found, (4..12).map(id).collect());
    assert!(
        dead_letters.is_sorted_by_key(|it| it.age),
        "{dead_letters:?}"
    );
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
                    let reported = worker.store.turn(worker.new_turn(done(&claim), 0)).await;
                    if reported.is_err() {
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
            took: None,
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
