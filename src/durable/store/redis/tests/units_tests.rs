//! Every command of every script fails, before it runs and after it: what was answered is true, nothing is lost
//! or doubled, and everything comes to an end.

use super::super::time::{Fault, Time};
use super::routes_tests::assert_routes_are_whole;
use super::*;
use crate::durable::clock::Clock;
use crate::durable::store::Answer;
use crate::durable::{AttemptError, DeadReason};
use crate::sync::{Mutex, lock};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

/// A store with something of everything, whose clock is told, and of whose commands one may fail.
struct Scene {
    server: Arc<Server>,
    namespace: String,
    clock: Clock,
    fault: Arc<Mutex<Fault>>,
    worker: Worker,
    other: Worker,
    /// A claim of the worker, and one of which nobody has heard again.
    claim: Claim,
    late: Claim,
}

/// What the fault is, and what becomes of the answer.
#[derive(Clone, Copy, Debug)]
struct Trial {
    fault: Fault,
    is_answer_lost: bool,
}

/// Ids up to here are of tasks that are there before.
const NEW: u64 = 100;
/// This one is of a task that is nowhere.
const ORPHAN: u64 = 99;
/// Functions for scripts of these tests.
const ID: &str = r"
local function call(command, key, ...) return redis.call(command, ARGV[1] .. key, ...) end
local function id(n) return string.rep('\0', 15) .. string.char(n) end";

fn large(number: u64) -> NewTask {
    NewTask {
        payload: vec![7; 2000],
        ..task(number)
    }
}

fn delayed(number: u64, delay: Duration) -> NewTask {
    NewTask {
        delay,
        ..task(number)
    }
}

async fn connect(server: &Server, namespace: &str, time: Time) -> Worker {
    let mut builder = RedisStore::builder(&server.url());
    builder.namespace(namespace);
    Worker::new(RedisStore::open_as(&builder, time).await.unwrap()).await
}

impl Scene {
    async fn new() -> Self {
        static NEXT: Number = Number::new(0);
        let server = Server::shared();
        let namespace = format!("units-{}", NEXT.add(1));
        let (clock, fault) = (Clock::manual(), Arc::default());
        let mut workers = Vec::new();
        for _ in 0..2 {
            let time = Time::failing(clock.clone(), Arc::clone(&fault));
            workers.push(connect(&server, &namespace, time).await);
        }
        let other = workers.pop().unwrap();
        let worker = workers.pop().unwrap();
        let mortal = |number| NewTask {
            max_crashes: 2,
            ..task(number)
        };
        // Three have failed before, and one of them is delayed.
        worker.enqueue((17..=19).map(task)).await;
        let failed = worker.claim(3).await;
        worker.turn(again(&failed), 0).await;
        // Of the late ones, one is cancelled, one dies of it, and one is quarantined then.
        other.enqueue((1..=4).map(mortal).chain([large(5)])).await;
        let late = other.claim(5).await;
        other.store.renew(vec![late.epoch]).await.unwrap();
        other.store.cancel(vec![id(1)]).await.unwrap();
        clock.advance(LEASE);
        let short = NewTask {
            retention: Duration::ZERO,
            ..large(14)
        };
        let some = (10..=13).map(task).chain([short, large(15), task(16)]);
        other.enqueue(some).await;
        let claim = worker.claim(9).await;
        worker.store.cancel(vec![id(12)]).await.unwrap();
        let waiting = (20..=23).map(task).chain([large(24)]);
        other
            .enqueue(waiting.chain([delayed(30, SECOND), delayed(31, HOUR)]))
            .await;
        worker.store.cancel(vec![id(21)]).await.unwrap();
        Self {
            server,
            namespace,
            clock,
            fault,
            worker,
            other,
            claim,
            late,
        }
    }

    fn ask(&self, script: &str) -> redis::Value {
        let base = format!("throng:{{{}:0}}:", self.namespace);
        self.server.ask(&["EVAL", script, "0", &base])
    }

    /// Returns `true` if the fault has happened since the last look. It happens to no later request.
    fn has_failed(&self) -> bool {
        *lock(&self.fault) = Fault::default();
        let key = format!("failed:{}", self.namespace);
        self.server.ask(&["DEL", &key]) == redis::Value::Int(1)
    }

    /// Sends a request in the course of which a command fails. If its answer is lost, it is sent again; and
    /// so it is by a worker. Returns the last answer, and whether there was a fault.
    async fn send<T, F>(
        &self,
        trial: Trial,
        again: bool,
        send: impl Fn() -> F,
    ) -> (Result<T, Failure>, bool)
    where
        F: Future<Output = Result<T, Failure>>,
    {
        *lock(&self.fault) = trial.fault;
        let answer = send().await;
        let has_failed = self.has_failed();
        if trial.is_answer_lost || answer.is_err() && again {
            return (send().await, has_failed);
        }
        (answer, has_failed)
    }

    #[track_caller]
    fn check(&self, trial: Trial) {
        let redis::Value::Array(mut found) = self.ask(INVARIANTS) else {
            panic!("no list: {trial:?}");
        };
        // Until a census has ended, its orphan is nowhere.
        let orphan = [b"is in one place, not 0 ", &id(ORPHAN).to_bytes()[..]].concat();
        found.retain(|it| *it != redis::Value::BulkString(orphan.clone()));
        assert_eq!(found, [], "{trial:?}");
    }

    /// Has maintenance begin a census, because of an orphan, and has it go on until all lists have been read. Tasks that
    /// run, or are stored later, are still suspects: they waited when the census came to them.
    async fn begin_census(&self) {
        self.ask(&format!(
            "{ID} return call('HSET', 'alive', id({ORPHAN}), call('HGET', 'alive', id(20)))"
        ));
        assert!(self.other.store.maintain(1).await.unwrap());
        self.ask(&format!(
            "{ID} local progress = cmsgpack.unpack(call('HGET', 'meta', 'progress'))
            progress.step = 9
            call('HSET', 'meta', 'progress', cmsgpack.pack(progress))
            for n = {NEW}, {NEW} + 4 do call('SADD', 'suspects', id(n)) end
            return call('SADD', 'suspects', id({ORPHAN}), unpack(call('HKEYS', 'running')))"
        ));
    }

    /// Ends the census: the orphan is lost, and nothing else.
    async fn end_census(&self, trial: Trial) {
        let store = &self.other.store;
        while store.maintain(100).await.unwrap() {}
        let seen = store.status(vec![id(ORPHAN)]).await.unwrap();
        let is_damaged =
            matches!(seen[0], TaskState::Dead { reason, .. } if reason == DeadReason::Damaged);
        assert!(is_damaged, "{trial:?}: {seen:?}");
        assert_eq!(store.damage().map(|it| it.0), Some(1), "{trial:?}");
    }

    /// Has everything run that is there: nothing stays behind.
    async fn finish(&self, trial: Trial) {
        let last = Worker::of(&self.other.store).await;
        for _ in 0..40 {
            while let Some(claim) = last.turn(Vec::new(), 9).await.claim {
                assert_eq!(last.turn(done(&claim), 0).await.refused, [], "{trial:?}");
            }
            let counts = self.other.store.counts().await.unwrap();
            if counts.waiting + counts.delayed + counts.running == 0 {
                let alive = format!("throng:{{{}:0}}:alive", self.namespace);
                let alive = self.server.ask(&["EXISTS", &alive]);
                assert_eq!(alive, redis::Value::Int(0), "{trial:?}");
                return;
            }
            self.clock.advance(HOUR / 4);
        }
        panic!("it does not come to an end: {trial:?}");
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.ask("for _, key in ipairs(redis.call('KEYS', ARGV[1] .. '*')) do redis.call('DEL', key) end");
    }
}

/// Runs a case for each command that can fail.
async fn for_each_command(case: impl AsyncFn(&Scene, Trial) -> bool) {
    for_each_trial(&[false, true], case).await;
}

/// The same while a census is under way. It takes nothing but an orphan for lost.
async fn for_each_command_in_a_census(case: impl AsyncFn(&Scene, Trial) -> bool) {
    for_each_trial(&[false], async |scene, trial| {
        scene.begin_census().await;
        let has_failed = case(scene, trial).await;
        scene.end_census(trial).await;
        has_failed
    })
    .await;
}

async fn for_each_trial(are_answers_lost: &[bool], case: impl AsyncFn(&Scene, Trial) -> bool) {
    // Without this, each scene would start its own server.
    let _server = Server::shared();
    for is_after in [false, true] {
        for &is_answer_lost in are_answers_lost {
            let mut at = 0;
            loop {
                at += 1;
                let fault = Fault { at, is_after };
                let trial = Trial {
                    fault,
                    is_answer_lost,
                };
                let scene = Scene::new().await;
                let has_failed = case(&scene, trial).await;
                scene.check(trial);
                scene.finish(trial).await;
                scene.check(trial);
                if !has_failed {
                    break;
                }
            }
            // Fewer would mean that none has failed.
            assert!(at > 3, "{at}");
        }
    }
}

/// The client does not know that a task is there already, so the script finds the lists itself.
#[tokio::test]
async fn a_task_is_stored_if_and_only_if_it_was_said() {
    for_each_command(async |scene, trial| {
        let tasks = new_tasks().chain([task(20), named(NEW + 4, "mail")]);
        let has_failed = store_tasks(scene, trial, tasks.collect()).await;
        run_mail(scene).await;
        has_failed
    })
    .await;
}

/// The client says to which lists the tasks go.
#[tokio::test]
async fn a_task_is_stored_if_and_only_if_it_was_said_also_in_a_census() {
    for_each_command_in_a_census(async |scene, trial| {
        let tasks = new_tasks().chain([named(NEW + 4, "mail")]);
        let has_failed = store_tasks(scene, trial, tasks.collect()).await;
        run_mail(scene).await;
        has_failed
    })
    .await;
}

/// All of them go to one list, so the client names none.
#[tokio::test]
async fn a_task_is_stored_in_the_main_list_if_and_only_if_it_was_said() {
    for_each_command_in_a_census(async |scene, trial| {
        store_tasks(scene, trial, new_tasks().collect()).await
    })
    .await;
}

fn new_tasks() -> impl Iterator<Item = NewTask> {
    let later = NewTask {
        delay: SECOND,
        ..large(NEW + 3)
    };
    [task(NEW), large(NEW + 1), delayed(NEW + 2, SECOND), later].into_iter()
}

/// Runs the task whose type no other worker knows. It has waited in a list of its own.
async fn run_mail(scene: &Scene) {
    let worker = Worker::of_names(&scene.other.store, &["mail"]).await;
    loop {
        let turned = worker.turn(Vec::new(), 1).await;
        match turned.claim {
            Some(claim) => break drop(worker.turn(done(&claim), 0).await),
            None => assert!(turned.more, "it is nowhere"),
        }
    }
}

async fn store_tasks(scene: &Scene, trial: Trial, tasks: Vec<NewTask>) -> bool {
    let store = &scene.other.store;
    let request = scene.other.new_enqueue(tasks.clone());
    let (answer, has_failed) = scene
        .send(trial, false, || store.enqueue(Arc::clone(&request)))
        .await;
    let ids = tasks.iter().map(|task| task.id);
    let ids: Vec<_> = ids.filter(|new| *new >= id(NEW)).collect();
    let seen = store.status(ids.clone()).await.unwrap();
    match answer {
        Ok(()) => assert!(!seen.contains(&TaskState::Absent), "{trial:?}: {seen:?}"),
        Err(failure) => {
            assert_eq!(failure.effect, Effect::None, "{trial:?}: {failure}");
            assert!(failure.answered, "{trial:?}: {failure}");
            assert_eq!(seen, vec![TaskState::Absent; ids.len()], "{trial:?}");
        }
    }
    scene.check(trial);
    scene.other.enqueue(tasks).await;
    let seen = store.status(ids).await.unwrap();
    assert!(!seen.contains(&TaskState::Absent), "{trial:?}: {seen:?}");
    has_failed
}

/// All tasks of a claim have failed. The last is to run again later than the others.
fn again(claim: &Claim) -> Vec<Verdicts> {
    let again = |id| Verdict::Retry {
        after: if id == self::id(19) { HOUR } else { SECOND },
        error: "before".into(),
    };
    let tasks = claim.tasks.iter().map(|task| (task.id, again(task.id)));
    vec![Verdicts {
        epoch: claim.epoch,
        tasks: tasks.collect(),
    }]
}

/// Once the tasks are stored, no later failure makes the request fail.
#[tokio::test]
async fn a_repeated_enqueue_is_answered_although_its_wake_fails() {
    for is_after in [false, true] {
        let mut at = 1;
        loop {
            at += 1;
            let fault = Fault { at, is_after };
            let trial = Trial {
                fault,
                is_answer_lost: false,
            };
            let scene = Scene::new().await;
            // A worker that knows the tasks is idle.
            while scene.worker.turn(Vec::new(), 9).await.claim.is_some() {}
            let tasks = [task(NEW), large(NEW + 1), delayed(NEW + 2, SECOND)];
            let request = scene.other.new_enqueue(tasks);
            let store = &scene.other.store;
            store.enqueue(Arc::clone(&request)).await.unwrap();
            while scene.worker.turn(Vec::new(), 9).await.claim.is_some() {}
            let send = || store.enqueue(Arc::clone(&request));
            let (answer, has_failed) = scene.send(trial, false, send).await;
            assert!(answer.is_ok(), "{trial:?}: {answer:?}");
            scene.check(trial);
            if !has_failed {
                break;
            }
        }
        // Besides these three, the script runs commands that read paths and wake a worker.
        assert!(at > 3, "{at}");
    }
}

/// One of each kind, of the worker's claim.
fn all_verdicts(claim: &Claim) -> Vec<Verdicts> {
    let dead = |error: &str| Verdict::Dead {
        reason: DeadReason::Fatal,
        error: error.into(),
    };
    let verdicts = vec![
        (id(10), Verdict::Done(b"ten".to_vec())),
        (id(14), Verdict::Done(b"fourteen".to_vec())),
        (id(15), Verdict::Done(vec![1; 6000])),
        (
            id(11),
            Verdict::Retry {
                after: SECOND,
                error: "again".into(),
            },
        ),
        (id(12), Verdict::Release),
        (id(13), Verdict::Release),
        (id(16), dead("error")),
        (id(17), Verdict::Done(b"seventeen".to_vec())),
        (
            id(18),
            Verdict::Retry {
                after: SECOND,
                error: "again".into(),
            },
        ),
    ];
    vec![Verdicts {
        epoch: claim.epoch,
        tasks: verdicts,
    }]
}

#[tokio::test]
async fn a_turn_takes_each_verdict_or_says_so() {
    for_each_command(take_verdicts).await;
}

#[tokio::test]
async fn a_turn_takes_each_verdict_or_says_so_also_in_a_census() {
    for_each_command_in_a_census(take_verdicts).await;
}

async fn take_verdicts(scene: &Scene, trial: Trial) -> bool {
    let store = &scene.worker.store;
    let request = scene.worker.new_turn(all_verdicts(&scene.claim), 4);
    let (answer, has_failed) = scene
        .send(trial, true, || store.turn(Arc::clone(&request)))
        .await;
    assert!(answer.is_ok(), "{trial:?}: {answer:?}");
    let ids: Vec<_> = [10, 14, 11, 12, 16].map(id).into();
    let seen = store.status(ids).await.unwrap();
    assert_eq!(seen[0], TaskState::Done(b"ten".to_vec()), "{trial:?}");
    assert_eq!(seen[1], TaskState::Absent, "{trial:?}");
    let errors = |errors: Vec<AttemptError>| errors.into_iter().map(|it| it.error);
    for (number, expected) in [(11, &["again"][..]), (17, &[]), (18, &["before", "again"])] {
        let found: Vec<_> = errors(store.errors(id(number)).await.unwrap()).collect();
        assert_eq!(found, expected, "{trial:?}: {number}");
    }
    assert_eq!(seen[2], TaskState::Delayed, "{trial:?}");
    assert_eq!(seen[3], TaskState::Cancelled, "{trial:?}");
    assert!(
        matches!(seen[4], TaskState::Dead { .. }),
        "{trial:?}: {seen:?}"
    );
    has_failed
}

/// A released task is already in one of the lists to which the others go.
#[tokio::test]
async fn a_list_is_drained_as_a_whole() {
    for_each_command(async |scene, trial| {
        let store = &scene.worker.store;
        let set = TypeSet::of_names(["job"]);
        store.open_session(set.ok()).await.unwrap();
        scene.other.enqueue([named(NEW, "other")]).await;
        let request = scene.worker.new_turn(all_verdicts(&scene.claim), 0);
        let (answer, has_failed) = scene
            .send(trial, true, || store.turn(Arc::clone(&request)))
            .await;
        assert!(answer.is_ok(), "{trial:?}: {answer:?}");
        has_failed
    })
    .await;
}

/// The late claim is taken back, what is due waits, and some are claimed.
#[tokio::test]
async fn a_turn_that_reaps_and_claims_loses_nothing() {
    for_each_command(async |scene, trial| {
        scene.clock.advance(LEASE);
        scene
            .worker
            .store
            .renew(vec![scene.claim.epoch])
            .await
            .unwrap();
        scene.worker.turn(Vec::new(), 0).await;
        scene.clock.advance(LEASE / 2);
        scene
            .worker
            .store
            .renew(vec![scene.claim.epoch])
            .await
            .unwrap();
        let store = &scene.worker.store;
        let request = scene.worker.new_turn(Vec::new(), 3);
        let (answer, has_failed) = scene
            .send(trial, true, || store.turn(Arc::clone(&request)))
            .await;
        let turned = answer.unwrap_or_else(|failure| panic!("{trial:?}: {failure}"));
        let held = scene.worker.store.renew(vec![scene.late.epoch]).await;
        let claim = turned.claim.map(|claim| claim.tasks.len());
        assert!(
            claim.is_some_and(|tasks| tasks <= 3),
            "{trial:?}: {claim:?}"
        );
        held.unwrap();
        has_failed
    })
    .await;
}

#[tokio::test]
async fn a_turn_that_passes_over_what_is_cancelled_and_quarantined_loses_nothing() {
    for_each_command(async |scene, trial| {
        // They come back as those that were crashed.
        let (store, epoch) = (&scene.other.store, scene.late.epoch);
        store.renew(vec![epoch]).await.unwrap();
        store.close_session(scene.other.session).await.unwrap();
        store.cancel(vec![id(3), id(20)]).await.unwrap();
        let request = scene.worker.new_turn(Vec::new(), 4);
        let store = &scene.worker.store;
        let (answer, has_failed) = scene
            .send(trial, true, || store.turn(Arc::clone(&request)))
            .await;
        let turned = answer.unwrap_or_else(|failure| panic!("{trial:?}: {failure}"));
        assert!(turned.claim.is_some(), "{trial:?}");
        has_failed
    })
    .await;
}

/// The script that recalls epochs has three commands, and a connection runs it before its first turn.
#[tokio::test]
async fn epochs_are_recalled_as_a_whole_before_a_claim() {
    const FORGET: &str = "
redis.call('HSET', ARGV[1] .. 'meta', 'history', 'of another server')
return struct.unpack('>I7', redis.call('HGET', ARGV[1] .. 'meta', 'epoch'), 8)";
    for_each_command(async |scene, trial| {
        let redis::Value::Int(ceiling) = scene.ask(FORGET) else {
            panic!("there is no ceiling");
        };
        let time = Time::failing(scene.clock.clone(), Arc::clone(&scene.fault));
        let worker = connect(&scene.server, &scene.namespace, time).await;
        let request = worker.new_turn(Vec::new(), 3);
        let (answer, has_failed) = scene
            .send(trial, true, || worker.store.turn(Arc::clone(&request)))
            .await;
        let turned = answer.unwrap_or_else(|failure| panic!("{trial:?}: {failure}"));
        let epoch = turned.claim.expect("there is something to claim").epoch;
        let own = super::super::partitions::own(epoch);
        assert!(own > ceiling as Epoch, "{trial:?}: {own} {ceiling}");
        has_failed && trial.fault.at < 4
    })
    .await;
}

#[tokio::test]
async fn what_was_cancelled_is_cancelled_as_a_whole() {
    for_each_command(async |scene, trial| {
        let store = &scene.worker.store;
        let ids: Vec<_> = [10, 19, 20, 22, 24, 30, 77].map(id).into();
        let (answer, has_failed) = scene.send(trial, false, || store.cancel(ids.clone())).await;
        let seen = store.status(ids.clone()).await.unwrap();
        let errors = store.errors(id(19)).await.unwrap().len();
        assert_eq!(errors, usize::from(answer.is_err()), "{trial:?}");
        let cancelled = seen
            .iter()
            .filter(|it| **it == TaskState::Cancelled)
            .count();
        match answer {
            Ok(_) => assert_eq!(cancelled, 5, "{trial:?}: {seen:?}"),
            Err(failure) => {
                assert_eq!(failure.effect, Effect::None, "{trial:?}: {failure}");
                assert_eq!(cancelled, 0, "{trial:?}: {seen:?}");
            }
        }
        has_failed
    })
    .await;
}

#[tokio::test]
async fn letters_are_replayed_and_removed_as_a_whole() {
    for is_replay in [true, false] {
        for_each_command(async |scene, trial| {
            let store = &scene.worker.store;
            scene.worker.turn(all_verdicts(&scene.claim), 0).await;
            let all = || DeadFilter::ids([id(16)]);
            let (answer, has_failed) = match is_replay {
                true => {
                    scene
                        .send(trial, false, || store.replay_dead_letters(all()))
                        .await
                }
                false => {
                    scene
                        .send(trial, false, || store.delete_dead_letters(all()))
                        .await
                }
            };
            let seen = store.status(vec![id(16)]).await.unwrap();
            match (answer, is_replay) {
                (Ok(_), true) => assert_eq!(seen, [TaskState::Waiting], "{trial:?}"),
                (Ok(_), false) => assert_eq!(seen, [TaskState::Absent], "{trial:?}"),
                (Err(_), _) => assert!(
                    matches!(seen[0], TaskState::Dead { .. }),
                    "{trial:?}: {seen:?}"
                ),
            }
            has_failed
        })
        .await;
    }
}

#[tokio::test]
async fn a_session_ends_and_begins_as_a_whole() {
    for_each_command(async |scene, trial| {
        let store = &scene.worker.store;
        let session = scene.worker.session;
        let (_, has_failed) = scene
            .send(trial, true, || store.close_session(session))
            .await;
        scene.check(trial);
        has_failed
    })
    .await;
    for_each_command(async |scene, trial| {
        let store = &scene.worker.store;
        let (_, has_failed) = scene
            .send(trial, true, || store.open_session(TypeSet::of_tests()))
            .await;
        has_failed
    })
    .await;
}

/// Routes that were written in part are written again.
#[tokio::test]
async fn a_set_is_declared_as_a_whole() {
    for_each_command(async |scene, trial| {
        let store = &scene.worker.store;
        let set = || TypeSet::of_names(["job", "mail"]);
        let (opened, has_failed) = scene
            .send(trial, true, || store.open_session(set().ok()))
            .await;
        assert!(opened.is_ok(), "{trial:?}: {opened:?}");
        while store.maintain(100).await.unwrap() {}
        let key = format!("throng:{{{}:0}}:routes", scene.namespace);
        assert_routes_are_whole(store, &scene.server, &key).await;
        has_failed
    })
    .await;
}

#[tokio::test]
async fn renewals_status_requests_and_maintenance_break_nothing() {
    for_each_command(async |scene, trial| {
        let store = &scene.worker.store;
        let epoch = scene.claim.epoch;
        let (beaten, has_failed) = scene.send(trial, true, || store.renew(vec![epoch])).await;
        assert!(beaten.is_ok(), "{trial:?}: {beaten:?}");
        has_failed
    })
    .await;
    for_each_command(async |scene, trial| {
        let store = &scene.worker.store;
        let ids: Vec<_> = [2, 10, 20, 21, 30].map(id).into();
        let (seen, has_failed) = scene.send(trial, true, || store.status(ids.clone())).await;
        assert!(seen.is_ok(), "{trial:?}: {seen:?}");
        has_failed
    })
    .await;
    for_each_command(async |scene, trial| {
        scene.worker.turn(all_verdicts(&scene.claim), 0).await;
        age(
            &scene.server,
            &scene.namespace,
            &scene.clock,
            40 * 24 * HOUR,
        );
        let store = &scene.worker.store;
        let (more, has_failed) = scene.send(trial, true, || store.maintain(100)).await;
        assert!(more.is_ok(), "{trial:?}: {more:?}");
        has_failed
    })
    .await;
}

/// Returns all keys of a store, with their values.
const ALL: &str = "
local keys = redis.call('KEYS', ARGV[1] .. '*')
table.sort(keys)
local all = {}
for i, key in ipairs(keys) do all[i] = { key, redis.call('DUMP', key) } end
return all";

/// They change nothing, so one scene is enough.
#[tokio::test]
async fn what_only_reads_is_right_or_fails() {
    let scene = Scene::new().await;
    let store = &scene.worker.store;
    scene.worker.turn(all_verdicts(&scene.claim), 0).await;
    // Some wait in a list that is drained, and one whose type no worker knows.
    let set = TypeSet::of_names(["job"]);
    store.open_session(set.ok()).await.unwrap();
    scene.other.enqueue([named(NEW, "unknown")]).await;

    let counts = is_right_or_fails(&scene, || store.counts()).await;
    assert_eq!((counts.unserved, counts.dead), (1, 1), "{counts:?}");
    let errors = is_right_or_fails(&scene, || store.errors(id(18))).await;
    assert_eq!(errors.len(), 2);
    let by_id = || store.dead_letters(DeadFilter::ids([id(16), id(20)]), 9);
    let letters = is_right_or_fails(&scene, by_id).await;
    assert_eq!(letters.len(), 1);
    let all = is_right_or_fails(&scene, || store.dead_letters(DeadFilter::all(), 9)).await;
    assert_eq!(all, letters);
}

/// Has each command of a request fail that only reads. Returns the right answer.
async fn is_right_or_fails<'a, T: PartialEq + std::fmt::Debug>(
    scene: &Scene,
    read: impl Fn() -> Answer<'a, T>,
) -> T {
    let (right, before) = (read().await.unwrap(), scene.ask(ALL));
    for is_after in [false, true] {
        let mut at = 0;
        loop {
            at += 1;
            *lock(&scene.fault) = Fault { at, is_after };
            let answer = read().await;
            let has_failed = scene.has_failed();
            match answer {
                Ok(answer) => assert_eq!(answer, right, "{at}"),
                Err(failure) => assert!(has_failed, "{at}: {failure}"),
            }
            assert!(scene.ask(ALL) == before, "{at}: something has changed");
            if !has_failed {
                break;
            }
        }
        assert!(at > 3, "{at}");
    }
    right
}

/// Orphans, with a tombstone and without one, waiting tasks without a row, one of which has a large payload, a due time that
/// is lost, a claim, and a row that cannot be read. Maintenance would remove the payload before the census finds its task.
const DAMAGE: &str = r"
local function id(n) return string.rep('\0', 15) .. string.char(n) end
local row = redis.call('HGET', ARGV[1] .. 'alive', id(20))
redis.call('HSET', ARGV[1] .. 'alive', id(90), row, id(91), 'x')
redis.call('HDEL', ARGV[1] .. 'alive', id(22), id(24))
redis.call('HSET', ARGV[1] .. 'tombstones', id(92) .. string.sub(row, 15, 22), 1)
redis.call('HINCRBY', ARGV[1] .. 'meta', 'tombstones', 1)
redis.call('ZREM', ARGV[1] .. 'due', id(31))
redis.call('DEL', ARGV[1] .. 'claims')
redis.call('HSET', ARGV[1] .. 'running', id(10), 'garbage')
return 0";

#[tokio::test]
async fn a_census_that_fails_is_taken_again() {
    for_each_command(async |scene, trial| {
        scene.ask(DAMAGE);
        let store = &scene.worker.store;
        let (answer, has_failed) = scene.send(trial, true, || store.maintain(100)).await;
        assert!(answer.is_ok(), "{trial:?}: {answer:?}");
        for _ in 0..2 {
            while store.maintain(100).await.unwrap() {}
        }
        let seen = store.status([10, 90, 91].map(id).into()).await.unwrap();
        let is_damaged = |seen: &TaskState| matches!(seen, TaskState::Dead { reason, .. } if *reason == DeadReason::Damaged);
        assert!(seen.iter().all(is_damaged), "{trial:?}: {seen:?}");
        assert!(store.damage().is_some(), "{trial:?}");
        has_failed
    })
    .await;
}

/// Finds broken invariants among the keys of a store.
pub(super) const INVARIANTS: &str = r"
local base, wrong = ARGV[1], {}
local function call(command, key, ...) return redis.call(command, base .. key, ...) end
local function hash(key)
  local rows, all = call('HGETALL', key), {}
  for i = 1, #rows, 2 do all[rows[i]] = rows[i + 1] end
  return all
end
local function scores(key)
  local rows, all = call('ZRANGE', key, 0, -1, 'WITHSCORES'), {}
  for i = 1, #rows, 2 do all[rows[i]] = rows[i + 1] end
  return all
end
local function expect(what, is, id) if not is then wrong[#wrong + 1] = what .. ' ' .. id end end
local alive, running, delayed, due = hash('alive'), hash('running'), hash('delayed'), scores('due')
local tombstones, results, dead, died = hash('tombstones'), hash('results'), hash('dead'), scores('died')
local claims, lease, payloads, cancel = hash('claims'), scores('lease'), hash('payloads'), hash('cancel')
local left, waiting, stones = {}, {}, 0
for id, n in pairs(tombstones) do left[id], stones = tonumber(n), stones + tonumber(n) end
expect('tombstones are counted', stones == tonumber(call('HGET', 'meta', 'tombstones') or '0'), stones)
local quarantined = {}
local function look_at(entry)
  local id = string.sub(entry, 1, 16)
  local stone = id .. string.sub(entry, 47, 54)
  if (left[stone] or 0) > 0 then left[stone] = left[stone] - 1 else
    expect('waits once', not waiting[id], id)
    expect('waits and is alive', alive[id], id)
    local crashes = struct.unpack('>I2', entry, 37)
    if crashes > 0 and crashes + 1 >= struct.unpack('>I2', entry, 31) then quarantined[id] = true end
    waiting[id] = entry
  end
end
for _, key in ipairs(redis.call('KEYS', base .. 'ready*')) do
  for _, entry in ipairs(redis.call('LRANGE', key, 0, -1)) do look_at(entry) end
end
for id, n in pairs(left) do expect('has no tombstone too many', n == 0, id) end
for id in pairs(quarantined) do expect('is in quarantine', call('SISMEMBER', 'quarantined', id) == 1, id) end
for _, id in ipairs(call('SMEMBERS', 'quarantined')) do expect('is quarantined', quarantined[id], id) end
for id in pairs(alive) do
  local places = (waiting[id] and 1 or 0) + (due[id] and 1 or 0) + (running[id] and 1 or 0)
  expect('is in one place, not ' .. places, places == 1, id)
  local entry = waiting[id] or delayed[id] or string.sub(running[id] or '', 17)
  if #entry > 55 and string.byte(entry, 55) % 2 == 0 then expect('has a payload', payloads[id], id) end
end
for id in pairs(due) do expect('is due and alive', alive[id] and delayed[id], id) end
for id in pairs(delayed) do expect('is delayed and due', due[id], id) end
for id, row in pairs(running) do
  local epoch = string.sub(row, 1, 16)
  expect('runs and is alive', alive[id], id)
  expect('runs and is claimed', claims[epoch] and claims[epoch .. 'o'] and lease[epoch], id)
end
for id in pairs(hash('errors')) do expect('has failed and is there', alive[id] or dead[id], id) end
for id, entry in pairs(waiting) do
  local flags = string.byte(entry, 55)
  if flags % 8 >= 4 then expect('has errors', call('HEXISTS', 'errors', id) == 1, id) end
end
for id in pairs(cancel) do expect('is to be cancelled and runs', running[id], id) end
for id in pairs(died) do expect('has a letter', dead[id] and not alive[id], id) end
for id in pairs(dead) do expect('has died', died[id], id) end
local binned, expiry = {}, scores('expiry')
for bin, ids in pairs(hash('expiry_bins')) do
  expect('bin expires', expiry[bin] == string.match(bin, '^%d+'), bin)
  for at = 1, #ids, 16 do binned[string.sub(ids, at, at + 15)] = true end
end
for id in pairs(results) do expect('is in a bin', binned[id], id) end
return wrong";
