//! Every command of every script fails in turn, before it runs and after it. Answers are correct nevertheless, no task is
//! lost or repeated, and all tasks end.
//!
//! A trial is left out if another one takes exactly the same course: a command that only reads fails after it has run, or
//! the answer to a request is lost that has failed and is sent again anyway. Answers are lost when each third command fails,
//! and when any command fails with `THRONG_LONG=1`: the scripts often send the same command several times.

use std::collections::HashSet;
use std::sync::OnceLock;

use super::super::time::{InjectedFault, Time};
use super::invariants::INVARIANTS;
use super::*;
use crate::durable::clock::Clock;
use crate::sync::{Mutex, lock};

mod changes_tests;
mod children_tests;
mod enqueue_tests;
mod groups_tests;
mod keys_tests;
mod maintenance_tests;
mod progress_tests;
mod queues_tests;
mod reads_tests;
mod retention_tests;
mod schedules_tests;
mod sessions_tests;
mod stats_tests;
mod steps_tests;
mod turns_tests;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

/// A store with tasks in every state and a manual clock. One of its commands may fail.
struct Scene {
    server: Arc<Server>,
    namespace: String,
    clock: Clock,
    fault: Arc<Mutex<InjectedFault>>,
    /// For the requests of the test itself.
    connection: Mutex<redis::Connection>,
    course: Mutex<Course>,
    worker: Worker,
    other: Worker,
    /// A claim of the worker, and one whose lease has ended.
    claim: Claim,
    late: Claim,
}

/// The command that fails, and whether the answer is lost.
#[derive(Clone, Copy, Debug)]
struct Trial {
    fault: InjectedFault,
    is_answer_lost: bool,
}

/// The course of a trial.
#[derive(Clone, Copy, Debug, Default)]
struct Course {
    has_failed: bool,
    /// A command has failed that may have written something.
    has_write_failed: bool,
    /// The request was sent again, whether its answer was lost or not.
    is_sent_again: bool,
}

/// The first id of new tasks. The others exist before.
const NEW: u64 = 100;
/// The id of a task that is in no list.
const ORPHAN: u64 = 99;
/// Functions for the scripts of these tests.
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
        let namespace = format!("failing-{}", NEXT.add(1));
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
        // Three tasks have failed before, and one of them is delayed.
        worker.enqueue((17..=19).map(task)).await;
        let failed = worker.claim(3).await;
        worker.turn(again(&failed), 0).await;
        // When the late claim is reaped, one task is cancelled, one becomes a dead letter, and one is quarantined.
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
        report(&other, &late).await;
        report(&worker, &claim).await;
        let client = redis::Client::open(server.url()).unwrap();
        Self {
            connection: Mutex::new(client.get_connection().unwrap()),
            course: Mutex::default(),
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

    fn ask<T: redis::FromRedisValue>(&self, command: &[&str]) -> T {
        let mut asked = redis::Cmd::new();
        command.iter().for_each(|part| _ = asked.arg(part));
        asked.query(&mut *lock(&self.connection)).unwrap()
    }

    fn run(&self, script: &str) -> redis::Value {
        self.ask(&["EVAL", script, "0", &self.key("")])
    }

    fn key(&self, name: &str) -> String {
        format!("throng:{{{}:0}}:{name}", self.namespace)
    }

    /// Returns `true` if a command has failed since the last call. No command of later requests fails.
    fn has_failed(&self) -> bool {
        *lock(&self.fault) = InjectedFault::default();
        let key = format!("failed:{}", self.namespace);
        let failed: Vec<String> = self.ask(&["SMEMBERS", &key]);
        if failed.is_empty() {
            return false;
        }
        self.ask::<()>(&["DEL", &key]);
        lock(&self.course).has_failed = true;
        let only_reads = |command: &String| self.reads().contains(&command.to_ascii_lowercase());
        lock(&self.course).has_write_failed |= !failed.iter().all(only_reads);
        true
    }

    /// Returns the names of all commands that only read, by what the server says.
    fn reads(&self) -> &'static HashSet<String> {
        static READS: OnceLock<HashSet<String>> = OnceLock::new();
        READS.get_or_init(|| self.ask(&["ACL", "CAT", "read"]))
    }

    /// Sends a request, one of whose commands fails. Sends it again if its answer is lost, or if it fails and
    /// `again` is set. Returns the last answer, and `true` if a command has failed.
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
        lock(&self.course).is_sent_again |= answer.is_err() && again;
        if trial.is_answer_lost || answer.is_err() && again {
            return (send().await, has_failed);
        }
        (answer, has_failed)
    }

    #[track_caller]
    fn check(&self, trial: Trial) {
        let redis::Value::Array(mut found) = self.run(INVARIANTS) else {
            panic!("no list: {trial:?}");
        };
        // Until the census has ended, the orphan is in no list.
        let orphan = [b"is in one place, not 0 ", &id(ORPHAN).to_bytes()[..]].concat();
        found.retain(|it| *it != redis::Value::BulkString(orphan.clone()));
        // The script may have failed before it has removed progress.
        if lock(&self.course).has_failed {
            found.retain(|it| !format!("{it:?}").contains("has progress and is alive"));
            found.retain(|it| !format!("{it:?}").contains("steps"));
        }
        assert_eq!(found, [], "{trial:?}");
    }

    /// Creates an orphan, so that maintenance begins a census, and runs the census until all lists have been read. Tasks
    /// that are running, or are stored later, are still unlisted: they were waiting when the census read them.
    async fn begin_census(&self) {
        self.run(&format!(
            "{ID} return call('HSET', 'alive', id({ORPHAN}), call('HGET', 'alive', id(20)))"
        ));
        assert!(self.other.store.maintain(1).await.unwrap());
        self.run(&format!(
            "{ID} local progress = cmsgpack.unpack(call('HGET', 'meta', 'progress'))
            progress.step = 9
            call('HSET', 'meta', 'progress', cmsgpack.pack(progress))
            for n = {NEW}, {NEW} + 4 do call('SADD', 'unlisted', id(n)) end
            return call('SADD', 'unlisted', id({ORPHAN}), unpack(call('HKEYS', 'running')))"
        ));
    }

    /// Ends the census. It ends the orphan, and no other task.
    async fn end_census(&self, trial: Trial) {
        let store = &self.other.store;
        while store.maintain(100).await.unwrap() {}
        let seen = store.status(vec![id(ORPHAN)]).await.unwrap();
        let is_damaged =
            matches!(seen[0], TaskState::Dead { reason, .. } if reason == DeadReason::Damaged);
        assert!(is_damaged, "{trial:?}: {seen:?}");
        assert_eq!(store.damage().map(|it| it.0), Some(1), "{trial:?}");
    }

    /// Runs all tasks, and checks that no rows are left.
    async fn finish(&self, trial: Trial) {
        let last = Worker::of(&self.other.store).await;
        for _ in 0..10 {
            while let Some(claim) = last.turn(Vec::new(), 9).await.claim {
                assert_eq!(last.turn(done(&claim), 0).await.refused, [], "{trial:?}");
            }
            let counts = self.other.store.counts().await.unwrap();
            if counts.waiting + counts.delayed + counts.running == 0 {
                assert!(
                    !self.ask::<bool>(&["EXISTS", &self.key("alive")]),
                    "{trial:?}"
                );
                return self.assert_no_progress_is_left(trial).await;
            }
            self.clock.advance(HOUR);
        }
        panic!("it does not come to an end: {trial:?}");
    }

    /// Maintenance removes what a failed command has left.
    async fn assert_no_progress_is_left(&self, trial: Trial) {
        // Tasks that are dead letters keep their steps.
        let filter = DeadFilter::all();
        self.other.store.delete_dead_letters(filter).await.unwrap();
        let is_left = || {
            let left = ["progress", "steps", "notes"]
                .map(|key| self.ask::<bool>(&["EXISTS", &self.key(key)]));
            left.contains(&true)
        };
        if is_left() {
            assert!(lock(&self.course).has_failed, "{trial:?}");
            // Notes are relayed after a pass.
            let end = Instant::now() + DEADLINE;
            while is_left() {
                assert!(Instant::now() < end, "{trial:?}");
                while self.other.store.maintain(100).await.unwrap() {}
            }
        }
    }
}

/// Reports the progress of the tasks of a claim.
async fn report(worker: &Worker, claim: &Claim) {
    let ids = claim.tasks.iter().map(|task| task.id);
    let refused = worker
        .store
        .report_progress(reports(claim.epoch, ids))
        .await;
    assert_eq!(refused.unwrap(), []);
}

fn reports(epoch: Epoch, ids: impl IntoIterator<Item = TaskId>) -> Vec<ProgressReport> {
    let ids = ids.into_iter();
    let reports = ids.map(|id| ProgressReport {
        id,
        progress: Progress {
            epoch,
            number: 1,
            bytes: b"1".to_vec(),
        },
    });
    reports.collect()
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.run("for _, key in ipairs(redis.call('KEYS', ARGV[1] .. '*')) do redis.call('DEL', key) end");
    }
}

/// Runs a case for each command that can fail.
async fn for_each_command(case: impl AsyncFn(&Scene, Trial) -> bool) {
    for_each_command_of(1.., case).await;
}

/// Runs a case for each of these commands that can fail.
async fn for_each_command_of(
    commands: impl Iterator<Item = usize>,
    case: impl AsyncFn(&Scene, Trial) -> bool,
) {
    for_each_trial(commands, &[false, true], async |scene, trial| {
        let has_failed = case(scene, trial).await;
        scene.check(trial);
        scene.finish(trial).await;
        has_failed
    })
    .await;
}

/// Runs a case for each command that can fail, during a census. The census ends only an orphan.
async fn for_each_command_in_a_census(case: impl AsyncFn(&Scene, Trial) -> bool) {
    for_each_trial(1.., &[false], async |scene, trial| {
        scene.begin_census().await;
        let has_failed = case(scene, trial).await;
        scene.end_census(trial).await;
        scene.check(trial);
        scene.finish(trial).await;
        has_failed
    })
    .await;
}

fn is_long() -> bool {
    std::env::var_os("THRONG_LONG").is_some_and(|value| value == "1")
}

/// Runs a case for each of these commands, in their order, until the case finds that none has failed.
async fn for_each_trial(
    commands: impl Iterator<Item = usize>,
    are_answers_lost: &[bool],
    case: impl AsyncFn(&Scene, Trial) -> bool,
) {
    // Without this, each scene would start a server of its own.
    let _server = Server::shared();
    for at in commands {
        let mut has_failed = false;
        let mut course = Course::default();
        for is_after in [false, true] {
            if is_after && !course.has_write_failed {
                continue;
            }
            for &is_answer_lost in are_answers_lost {
                if is_answer_lost && (course.is_sent_again || at % 3 != 0 && !is_long()) {
                    continue;
                }
                let trial = Trial {
                    fault: InjectedFault { at, is_after },
                    is_answer_lost,
                };
                let scene = Scene::new().await;
                has_failed |= case(&scene, trial).await;
                scene.check(trial);
                course = *lock(&scene.course);
            }
        }
        if !has_failed {
            // With fewer trials, no command would have failed.
            assert!(at > 3, "{at}");
            return;
        }
    }
}

/// Returns verdicts by which all tasks of a claim have failed. The last one is retried later than the others.
fn again(claim: &Claim) -> Vec<Verdicts> {
    let again = |id| Verdict::Retry {
        after: if id == self::id(19) { HOUR } else { SECOND },
        error: "before".into(),
        took: None,
    };
    let tasks = claim.tasks.iter().map(|task| (task.id, again(task.id)));
    vec![Verdicts {
        epoch: claim.epoch,
        tasks: tasks.collect(),
    }]
}

/// Returns verdicts of each kind for the worker's claim.
fn all_verdicts(claim: &Claim) -> Vec<Verdicts> {
    let dead = |error: &str| Verdict::Dead {
        reason: DeadReason::Fatal,
        error: error.into(),
        took: None,
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
                took: None,
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
                took: None,
            },
        ),
    ];
    vec![Verdicts {
        epoch: claim.epoch,
        tasks: verdicts,
    }]
}
