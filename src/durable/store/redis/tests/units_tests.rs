//! Every command of every script fails, before it runs and after it: what was answered is true, nothing is lost
//! or doubled, and everything comes to an end.

use super::super::time::{Fault, Time};
use super::routes_tests::assert_routes_are_whole;
use super::*;
use crate::durable::clock::Clock;
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
        other.store.beat(vec![late.epoch]).await.unwrap();
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
        let found = self.ask(INVARIANTS);
        let none = redis::Value::Array(Vec::new());
        assert_eq!(found, none, "{trial:?}");
    }

    /// Has everything run that is there: nothing stays behind.
    async fn finish(&self, trial: Trial) {
        for _ in 0..40 {
            let last = Worker::of(&self.other.store).await;
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
    // Without this, each scene would start its own server.
    let _server = Server::shared();
    for is_after in [false, true] {
        for is_answer_lost in [false, true] {
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

#[tokio::test]
async fn a_task_is_stored_if_and_only_if_it_was_said() {
    for_each_command(async |scene, trial| {
        let tasks = [
            task(NEW),
            large(NEW + 1),
            task(20),
            delayed(NEW + 2, SECOND),
            NewTask {
                delay: SECOND,
                ..large(NEW + 3)
            },
        ];
        let request = scene.other.new_enqueue(tasks.clone());
        let store = &scene.other.store;
        let (answer, has_failed) = scene
            .send(trial, false, || store.enqueue(Arc::clone(&request)))
            .await;
        let ids: Vec<_> = (NEW..NEW + 4).map(id).collect();
        let seen = store.look(ids.clone()).await.unwrap();
        match answer {
            Ok(()) => assert!(!seen.contains(&Seen::Absent), "{trial:?}: {seen:?}"),
            Err(failure) => {
                assert_eq!(failure.effect, Effect::None, "{trial:?}: {failure}");
                assert!(failure.answered, "{trial:?}: {failure}");
                assert_eq!(seen, vec![Seen::Absent; 4], "{trial:?}");
            }
        }
        scene.check(trial);
        scene.other.enqueue(tasks).await;
        let seen = store.look(ids).await.unwrap();
        assert!(!seen.contains(&Seen::Absent), "{trial:?}: {seen:?}");
        has_failed
    })
    .await;
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
    for_each_command(async |scene, trial| {
        let store = &scene.worker.store;
        let request = scene.worker.new_turn(all_verdicts(&scene.claim), 4);
        let (answer, has_failed) = scene
            .send(trial, true, || store.turn(Arc::clone(&request)))
            .await;
        assert!(answer.is_ok(), "{trial:?}: {answer:?}");
        let ids: Vec<_> = [10, 14, 11, 12, 16].map(id).into();
        let seen = store.look(ids).await.unwrap();
        assert_eq!(seen[0], Seen::Done(b"ten".to_vec()), "{trial:?}");
        assert_eq!(seen[1], Seen::Absent, "{trial:?}");
        let errors = |errors: Vec<AttemptError>| errors.into_iter().map(|it| it.error);
        for (number, expected) in [(11, &["again"][..]), (17, &[]), (18, &["before", "again"])] {
            let found: Vec<_> = errors(store.errors(id(number)).await.unwrap()).collect();
            assert_eq!(found, expected, "{trial:?}: {number}");
        }
        assert_eq!(seen[2], Seen::Delayed, "{trial:?}");
        assert_eq!(seen[3], Seen::Cancelled, "{trial:?}");
        assert!(matches!(seen[4], Seen::Dead { .. }), "{trial:?}: {seen:?}");
        has_failed
    })
    .await;
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
            .beat(vec![scene.claim.epoch])
            .await
            .unwrap();
        scene.worker.turn(Vec::new(), 0).await;
        scene.clock.advance(LEASE / 2);
        scene
            .worker
            .store
            .beat(vec![scene.claim.epoch])
            .await
            .unwrap();
        let store = &scene.worker.store;
        let request = scene.worker.new_turn(Vec::new(), 3);
        let (answer, has_failed) = scene
            .send(trial, true, || store.turn(Arc::clone(&request)))
            .await;
        let turned = answer.unwrap_or_else(|failure| panic!("{trial:?}: {failure}"));
        let held = scene.worker.store.beat(vec![scene.late.epoch]).await;
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
        store.beat(vec![epoch]).await.unwrap();
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
        let seen = store.look(ids.clone()).await.unwrap();
        let errors = store.errors(id(19)).await.unwrap().len();
        assert_eq!(errors, usize::from(answer.is_err()), "{trial:?}");
        let cancelled = seen.iter().filter(|it| **it == Seen::Cancelled).count();
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
                true => scene.send(trial, false, || store.replay(all())).await,
                false => scene.send(trial, false, || store.bury(all())).await,
            };
            let seen = store.look(vec![id(16)]).await.unwrap();
            match (answer, is_replay) {
                (Ok(_), true) => assert_eq!(seen, [Seen::Waiting], "{trial:?}"),
                (Ok(_), false) => assert_eq!(seen, [Seen::Absent], "{trial:?}"),
                (Err(_), _) => assert!(matches!(seen[0], Seen::Dead { .. }), "{trial:?}: {seen:?}"),
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
        let (beaten, has_failed) = scene.send(trial, true, || store.beat(vec![epoch])).await;
        assert!(beaten.is_ok(), "{trial:?}: {beaten:?}");
        has_failed
    })
    .await;
    for_each_command(async |scene, trial| {
        let store = &scene.worker.store;
        let ids: Vec<_> = [2, 10, 20, 21, 30].map(id).into();
        let (seen, has_failed) = scene.send(trial, true, || store.look(ids.clone())).await;
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
        let seen = store.look([10, 90, 91].map(id).into()).await.unwrap();
        let is_damaged = |seen: &Seen| matches!(seen, Seen::Dead { reason, .. } if *reason == DeadReason::Damaged);
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
