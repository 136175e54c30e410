//! The census: it finds tasks that are in no list, and ends no other task.

use tokio_util::sync::CancellationToken;

use super::super::time::Time;
use super::invariants::INVARIANTS;
use super::*;
use crate::durable::clock::Clock;
use crate::durable::store::kind::Kind;
use crate::durable::{DeadReason, DurableError};

pub(super) const SECOND: Duration = Duration::from_secs(1);
pub(super) const HOUR: Duration = Duration::from_secs(3600);

/// A store with a manual clock, and a worker.
pub(super) struct Scene {
    pub(super) server: Arc<Server>,
    pub(super) namespace: String,
    pub(super) clock: Clock,
    evicts: bool,
    pub(super) worker: Worker,
}

impl Scene {
    pub(super) async fn new() -> Self {
        Self::with(false).await
    }

    async fn with(evicts: bool) -> Self {
        static NEXT: Number = Number::new(0);
        let server = Server::shared();
        let namespace = format!("census-{}", NEXT.add(1));
        let clock = Clock::manual();
        let store = open_at(&server, &namespace, &clock, evicts).await.unwrap();
        Self {
            worker: Worker::new(store).await,
            server,
            namespace,
            clock,
            evicts,
        }
    }

    /// Opens the store again, as another process does.
    async fn open(&self) -> RedisStore {
        self.try_open().await.expect("the store can be opened")
    }

    pub(super) async fn try_open(&self) -> Result<RedisStore, DurableError> {
        open_at(&self.server, &self.namespace, &self.clock, self.evicts).await
    }

    pub(super) async fn worker_of(&self, names: &[&'static str]) -> Worker {
        Worker::of_names(&Arc::new(self.open().await), names).await
    }

    pub(super) fn key(&self, name: &str) -> String {
        format!("throng:{{{}:0}}:{name}", self.namespace)
    }

    fn ask(&self, command: &[&str]) -> redis::Value {
        self.server.ask(command)
    }

    /// Runs a script that can use `call(command, key, ..)` and `id(number)`.
    pub(super) fn run(&self, script: &str) -> redis::Value {
        let before = "local function call(command, key, ...) return redis.call(command, ARGV[1] .. key, ...) end
            local function id(n) return string.rep('\\0', 8) .. struct.pack('>I4I4', 0, n) end ";
        self.ask(&["EVAL", &(before.to_owned() + script), "0", &self.key("")])
    }

    /// Creates orphans: tasks that are alive and in no list.
    pub(super) fn orphan(&self, numbers: std::ops::Range<u64>) {
        let kind = Kind::of("job").to_bytes();
        let kind: String = kind.iter().map(|byte| format!("\\{byte:03}")).collect();
        self.run(&format!(
            "for n = {}, {} do call('HSET', 'alive', id(n), 'A-client' .. string.rep('\\0', 6) .. '{kind}') end",
            numbers.start,
            numbers.end - 1
        ));
    }

    pub(super) async fn maintain(&self) {
        while self.worker.store.maintain(1_000).await.unwrap() {}
    }

    pub(super) async fn seen(&self, number: u64) -> TaskState {
        let seen = self.worker.store.status(vec![id(number)]).await;
        seen.unwrap().remove(0)
    }

    pub(super) async fn is_damaged(&self, number: u64) -> bool {
        matches!(self.seen(number).await, TaskState::Dead { reason, .. } if reason == DeadReason::Damaged)
    }

    #[track_caller]
    pub(super) fn check(&self) {
        let found = self.ask(&["EVAL", INVARIANTS, "0", &self.key("")]);
        assert_eq!(found, redis::Value::Array(Vec::new()));
    }

    /// Claims and completes all tasks. Returns their ids.
    pub(super) async fn run_all(&self, worker: &Worker) -> Vec<TaskId> {
        let mut all = Vec::new();
        loop {
            let turned = worker.turn(Vec::new(), MAX_BATCH_TASKS).await;
            match turned.claim {
                Some(claim) => {
                    all.extend(claim.tasks.iter().map(|task| task.id));
                    worker.turn(done(&claim), 0).await;
                }
                None if turned.more => {}
                None => return all,
            }
        }
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.run("for _, key in ipairs(redis.call('KEYS', ARGV[1] .. '*')) do redis.call('DEL', key) end");
    }
}

async fn open_at(
    server: &Server,
    namespace: &str,
    clock: &Clock,
    evicts: bool,
) -> Result<RedisStore, DurableError> {
    let mut builder = RedisStore::builder(&server.url());
    builder.namespace(namespace).allow_eviction(evicts);
    RedisStore::open_as(&builder, Time::manual(clock.clone())).await
}

pub(super) fn later(number: u64, delay: Duration) -> NewTask {
    NewTask {
        delay,
        ..task(number)
    }
}

#[tokio::test]
async fn an_orphan_ends_and_no_other_task_does() {
    needs_redis!();
    let scene = Scene::new().await;
    let worker = &scene.worker;
    worker.enqueue((0..5).map(task)).await;
    worker.enqueue([later(5, HOUR)]).await;
    let claim = worker.claim(2).await;
    worker.store.cancel(vec![id(3)]).await.unwrap();
    scene.orphan(10..13);
    scene.maintain().await;
    for number in 10..13 {
        assert!(scene.is_damaged(number).await, "{number}");
    }
    assert_eq!(
        worker
            .store
            .dead_letters(DeadFilter::all(), 9)
            .await
            .unwrap()
            .len(),
        3
    );
    scene.check();
    worker.turn(done(&claim), 0).await;
    assert_eq!(scene.run_all(worker).await, [id(2), id(4)]);
    assert_eq!(scene.seen(5).await, TaskState::Delayed);
    let left = scene.ask(&["EXISTS", &scene.key("suspects")]);
    assert_eq!(left, redis::Value::Int(0));
}

#[tokio::test]
async fn every_worker_reports_damage_for_an_hour() {
    needs_redis!();
    let scene = Scene::new().await;
    let other = scene.open().await;
    scene.maintain().await;
    assert_eq!(scene.worker.store.damage(), None);
    scene.orphan(1..4);
    scene.maintain().await;
    other.maintain(9).await.unwrap();
    for store in [&other, &*scene.worker.store] {
        let (found, last) = store.damage().expect("it was found");
        assert_eq!(found, 3);
        assert!(last.contains("its entry is missing"), "{last}");
    }
    scene.clock.advance(HOUR);
    other.maintain(9).await.unwrap();
    assert_eq!(other.damage(), None);
    scene.orphan(5..6);
    scene.maintain().await;
    assert_eq!(scene.worker.store.damage().map(|it| it.0), Some(1));
}

/// Health also reports the damage that turns and claims find.
#[tokio::test]
async fn an_unreadable_entry_is_kept_as_evidence() {
    needs_redis!();
    let scene = Scene::new().await;
    let worker = &scene.worker;
    worker.enqueue((0..150).map(task)).await;
    scene.run("for n = 0, 149 do call('LSET', 'ready', n, 'short ' .. n) end");
    while worker.turn(Vec::new(), 9).await.more {}
    scene.maintain().await;
    let evidence = scene.ask(&["LRANGE", &scene.key("damage"), "0", "-1"]);
    let redis::Value::Array(rows) = evidence else {
        panic!("{evidence:?}");
    };
    assert_eq!(rows.len(), 100);
    assert!(worker.store.damage().is_some_and(|(found, _)| found >= 150));
    for number in 0..150 {
        assert!(scene.is_damaged(number).await, "{number}");
    }
    worker.enqueue([task(200)]).await;
    let claim = worker.claim(1).await;
    let is_missing = dead(&claim, DeadReason::Damaged, "its payload is missing");
    worker.turn(is_missing, 0).await;
    scene.maintain().await;
    let last = worker.store.damage().map(|it| it.1);
    assert_eq!(last.as_deref(), Some("its payload is missing"));
}

/// The owner of the claim is lost.
#[tokio::test]
async fn tasks_of_a_lost_claim_are_requeued() {
    needs_redis!();
    for part in ["", "n", "o", "all", "lease", "cut"] {
        let scene = Scene::new().await;
        let dead = Worker::new(scene.open().await).await;
        dead.enqueue((0..4).map(task)).await;
        let claim = dead.claim(4).await;
        let epoch = super::super::reply::epoch_text(claim.epoch);
        scene.run(&match part {
            "all" => "redis.call('DEL', ARGV[1] .. 'claims')".to_owned(),
            "lease" => "redis.call('DEL', ARGV[1] .. 'lease')".to_owned(),
            "cut" => format!(
                "local row = call('HGET', 'claims', '{epoch}')
                call('HSET', 'claims', '{epoch}', string.sub(row, 1, 20)) return 1"
            ),
            part => format!("call('HDEL', 'claims', '{epoch}{part}')"),
        });
        scene.maintain().await;
        drop(dead);
        let mut back = Vec::new();
        for _ in 0..40 {
            scene.clock.advance(SECOND);
            back.extend(scene.run_all(&scene.worker).await);
        }
        back.sort_unstable();
        assert_eq!(back, [0, 1, 2, 3].map(id), "{part}");
        let counts = scene.worker.store.counts().await.unwrap();
        if ["o", "all"].contains(&part) {
            assert_eq!((counts.lost, counts.crashed), (4, 0), "{part}");
        }
        scene.check();
    }
}

/// The worker continues, and its verdicts are applied.
#[tokio::test]
async fn a_live_worker_keeps_a_claim_whose_row_is_lost() {
    needs_redis!();
    let scene = Scene::new().await;
    let worker = &scene.worker;
    worker.enqueue((0..4).map(task)).await;
    let claim = worker.claim(4).await;
    scene.run("redis.call('DEL', ARGV[1] .. 'claims')");
    scene.maintain().await;
    for _ in 0..20 {
        scene.clock.advance(2 * SECOND);
        let beaten = worker.store.renew(vec![claim.epoch]).await.unwrap();
        assert!(beaten.lost.is_empty());
        scene.maintain().await;
    }
    assert_eq!(worker.turn(done(&claim), 0).await.refused, []);
    let counts = worker.store.counts().await.unwrap();
    assert_eq!((counts.done, counts.lost, counts.crashed), (4, 0, 0));
    scene.check();
}

#[tokio::test]
async fn an_unreadable_row_ends_a_running_task() {
    needs_redis!();
    let scene = Scene::new().await;
    let worker = &scene.worker;
    worker.enqueue((0..3).map(task)).await;
    let claim = worker.claim(3).await;
    worker.store.cancel(vec![id(1)]).await.unwrap();
    scene.run("call('HSET', 'running', id(1), 'garbage') call('HSET', 'running', id(2), '')");
    scene.maintain().await;
    for number in [1, 2] {
        assert!(scene.is_damaged(number).await, "{number}");
    }
    assert_eq!(worker.turn(done(&claim), 0).await.refused, [id(1), id(2)]);
    scene.clock.advance(HOUR);
    worker.turn(Vec::new(), 0).await;
    worker.turn(Vec::new(), 0).await;
    scene.check();
}

/// Otherwise, a later task of this id would lose its entry.
#[tokio::test]
async fn the_tombstone_of_an_orphan_is_removed() {
    needs_redis!();
    let scene = Scene::new().await;
    let worker = &scene.worker;
    worker.enqueue([task(1), task(2)]).await;
    worker.store.cancel(vec![id(2)]).await.unwrap();
    scene.orphan(7..8);
    assert_eq!(worker.store.cancel(vec![id(7)]).await.unwrap(), 1);
    scene.maintain().await;
    scene.check();
    worker.enqueue([named(7, "job")]).await;
    assert_eq!(scene.run_all(worker).await, [id(1), id(7)]);
}

#[tokio::test]
async fn a_lost_due_time_is_restored() {
    needs_redis!();
    let scene = Scene::new().await;
    let worker = &scene.worker;
    worker.enqueue([later(1, HOUR), later(2, 2 * HOUR)]).await;
    scene.run("redis.call('DEL', ARGV[1] .. 'due')");
    scene.maintain().await;
    scene.check();
    assert_eq!(scene.seen(1).await, TaskState::Delayed);
    scene.clock.advance(HOUR + SECOND);
    assert_eq!(scene.run_all(worker).await, [id(1)]);
    scene.clock.advance(HOUR + SECOND);
    assert_eq!(scene.run_all(worker).await, [id(2)]);
}

#[tokio::test]
async fn lost_rows_of_live_tasks_are_restored() {
    needs_redis!();
    for what in [
        "redis.call('DEL', ARGV[1] .. 'alive')",
        "for n = 1, 4 do call('HSET', 'alive', id(n), 'x') end",
    ] {
        let scene = Scene::new().await;
        let worker = &scene.worker;
        worker
            .enqueue([task(1), task(2), task(3), later(4, SECOND)])
            .await;
        worker.claim(1).await;
        // An ended task stays ended.
        worker.store.cancel(vec![id(3)]).await.unwrap();
        scene.run(what);
        scene.run("call('HDEL', 'alive', id(3))");
        scene.orphan(9..10);
        scene.maintain().await;
        scene.check();
        assert_eq!(scene.seen(1).await, TaskState::Running);
        assert_eq!(scene.seen(2).await, TaskState::Waiting);
        assert_eq!(scene.seen(3).await, TaskState::Cancelled);
        assert_eq!(scene.seen(4).await, TaskState::Delayed);
        assert!(scene.is_damaged(9).await);
    }
}

/// Tasks of unknown types wait in lists that no route names.
#[tokio::test]
async fn tasks_of_unknown_types_are_not_lost() {
    needs_redis!();
    let scene = Scene::new().await;
    let worker = &scene.worker;
    for round in 0..3 {
        worker
            .enqueue([
                named(10 + round, "mail"),
                named(20 + round, "report"),
                task(round),
            ])
            .await;
        scene.maintain().await;
        assert_eq!(worker.store.damage(), None);
    }
    scene.orphan(40..41);
    scene.maintain().await;
    assert!(scene.is_damaged(40).await);
    scene.check();
    let survey = scene.run("return cmsgpack.unpack(call('HGET', 'meta', 'survey')).left");
    assert_eq!(
        survey,
        redis::Value::Int(0),
        "the lists are known from now on"
    );
    let mail = scene.worker_of(&["mail"]).await;
    assert_eq!(scene.run_all(&mail).await, [10, 11, 12].map(id));
}

/// No worker knows the task's type, so only its tombstone identifies the list of its entry.
#[tokio::test]
async fn a_cancelled_task_of_an_unknown_type_stays_cancelled() {
    needs_redis!();
    let scene = Scene::new().await;
    scene.worker.enqueue([named(7, "mail")]).await;
    assert_eq!(scene.worker.store.cancel(vec![id(7)]).await.unwrap(), 1);
    scene.maintain().await;
    let mail = scene.worker_of(&["mail"]).await;
    assert_eq!(scene.run_all(&mail).await, []);
    mail.enqueue([named(8, "mail")]).await;
    assert_eq!(scene.run_all(&mail).await, [id(8)]);
    scene.check();
}

/// An earlier census has counted the list, so no task is missing, but no worker reads the list.
#[tokio::test]
async fn a_counted_list_that_no_worker_reads() {
    needs_redis!();
    let scene = Scene::new().await;
    scene.worker.enqueue((0..5).map(task)).await;
    let kind = format!("{:016x}", u64::from_be_bytes(Kind::of("job").to_bytes()));
    scene.run(&format!(
        "redis.call('RENAME', ARGV[1] .. 'ready', ARGV[1] .. 'ready:{kind}')
        call('HSET', 'meta', 'survey', cmsgpack.pack({{ left = 0, lists = '{kind}' }}))"
    ));
    scene.maintain().await;
    assert_eq!(scene.run_all(&scene.worker).await.len(), 5);
    assert!(scene.worker.store.damage().is_none());
    scene.check();
}

/// The tasks wait in a shared list that no route names any more.
#[tokio::test]
async fn tasks_are_found_when_the_routes_are_lost() {
    needs_redis!();
    let scene = Scene::new().await;
    let mail = scene.worker_of(&["mail", "job"]).await;
    mail.enqueue((0..5).map(|number| named(number, "mail")))
        .await;
    mail.enqueue((5..9).map(|number| named(number, "job")))
        .await;
    mail.turn(Vec::new(), 0).await;
    scene.run("redis.call('DEL', ARGV[1] .. 'routes') call('HDEL', 'meta', 'routes')");
    scene.maintain().await;
    assert_eq!(mail.store.damage(), None);
    let mail = scene.worker_of(&["mail"]).await;
    let mut found = scene.run_all(&mail).await;
    let job = scene.worker_of(&["job"]).await;
    found.extend(scene.run_all(&job).await);
    found.sort_unstable();
    assert_eq!(found, (0..9).map(id).collect::<Vec<_>>());
    scene.check();
}

/// The census proceeds while tasks are claimed, released and completed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_orphan_among_many_is_found_while_workers_claim() {
    needs_redis!();
    let long = std::env::var_os("THRONG_LONG").is_some_and(|value| value == "1");
    let tasks: u64 = if long { 100_000 } else { 4_096 };
    let scene = Scene::new().await;
    for first in (0..tasks).step_by(MAX_BATCH_TASKS) {
        let last = tasks.min(first + MAX_BATCH_TASKS as u64);
        scene.worker.enqueue((first..last).map(task)).await;
    }
    scene.orphan(200_000..200_001);
    let found = CancellationToken::new();
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let (worker, found) = (scene.worker_of(&["job"]).await, found.clone());
        workers.spawn(async move {
            while let Some(claim) = worker.turn(Vec::new(), 64).await.claim {
                let mut verdicts = done(&claim);
                if !found.is_cancelled() {
                    // Most tasks are released, so that many are left until the end.
                    let tasks = verdicts[0].tasks.iter_mut().skip(1);
                    tasks.for_each(|(_, verdict)| *verdict = Verdict::Release);
                }
                assert_eq!(worker.turn(verdicts, 0).await.refused, []);
            }
        });
    }
    while !scene.is_damaged(200_000).await {
        scene.worker.store.maintain(1_000).await.unwrap();
    }
    let left = scene.worker.store.counts().await.unwrap().waiting;
    assert!(left > 0, "the workers were too fast for this test");
    found.cancel();
    while let Some(ended) = workers.join_next().await {
        ended.unwrap();
    }
    scene.maintain().await;
    assert_eq!(scene.worker.store.damage().map(|it| it.0), Some(1));
    let counts = scene.worker.store.counts().await.unwrap();
    assert_eq!((counts.done, counts.dead, counts.waiting), (tasks, 1, 0));
    scene.check();
}

/// A census with small pages is always in progress while tasks change their states.
#[tokio::test]
async fn the_census_ends_only_lost_tasks() {
    needs_redis!();
    let long = std::env::var_os("THRONG_LONG").is_some_and(|value| value == "1");
    let programs = if long { 10_000 } else { 60 };
    for seed in 0..programs {
        run_program(seed).await;
    }
}

async fn run_program(seed: u64) {
    const TASKS: u64 = 24;
    let mut random = fastrand::Rng::with_seed(seed);
    let scene = Scene::with(true).await;
    let names = ["job", "mail", "report"];
    let some = scene.worker_of(&names[..random.usize(1..=2)]).await;
    let all = scene.worker_of(&names).await;
    let workers = [&some, &all, &scene.worker];
    let mut claims = Vec::new();
    for _ in 0..150 {
        let worker = workers[random.usize(..3)];
        match random.u8(..10) {
            0..=1 => worker.enqueue(new_tasks(&mut random, TASKS)).await,
            2..=3 => claims.extend(worker.turn(Vec::new(), random.usize(1..4)).await.claim),
            4..=6 if !claims.is_empty() => {
                let claim = claims.swap_remove(random.usize(..claims.len()));
                worker.turn(random_verdicts(&mut random, &claim), 0).await;
            }
            7 => drop(worker.store.cancel(vec![id(random.u64(..TASKS))]).await),
            8 => scene.clock.advance(random.u32(1..4) * SECOND),
            _ => drop(worker.store.replay_dead_letters(DeadFilter::all()).await),
        }
        let page = random.usize(1..4);
        worker.store.maintain(page).await.unwrap();
    }
    assert_eq!(scene.worker.store.damage(), None, "{seed}");
    scene.orphan(100..101);
    scene.maintain().await;
    scene.maintain().await;
    assert!(scene.is_damaged(100).await, "{seed}");
    let damage = scene.worker.store.damage().map(|it| it.0);
    assert_eq!(damage, Some(1), "{seed}");
    scene.check();
}

fn new_tasks(random: &mut fastrand::Rng, ids: u64) -> Vec<NewTask> {
    let new = |random: &mut fastrand::Rng| NewTask {
        delay: random.u32(..3) * SECOND,
        retention: random.u32(..2) * HOUR,
        max_crashes: random.u32(1..4),
        ..named(
            random.u64(..ids),
            ["job", "mail", "report"][random.usize(..3)],
        )
    };
    (0..4).map(|_| new(random)).collect()
}

fn random_verdicts(random: &mut fastrand::Rng, claim: &Claim) -> Vec<Verdicts> {
    let mut verdict = || match random.u8(..5) {
        0 => Verdict::Done(Vec::new()),
        1 => Verdict::Retry {
            after: random.u32(..2) * SECOND,
            error: "again".into(),
        },
        2 => Verdict::Dead {
            reason: DeadReason::Fatal,
            error: "error".into(),
        },
        _ => Verdict::Release,
    };
    let tasks = claim.tasks.iter().map(|task| (task.id, verdict()));
    vec![Verdicts {
        epoch: claim.epoch,
        tasks: tasks.collect(),
    }]
}
