//! Runs random sequences of requests on a store and on the model, and compares the answers.
//!
//! Each store issues its own sessions and epochs, so they are translated. `next` may be
//! earlier than the model's if other processes have sessions.

use std::fmt::Debug;
use std::thread;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestError, TestRunner};

use self::pair::Pair;
use super::memory::Memory;
use super::process::LISTED;
use super::{Harness, runtime};
use crate::durable::key::Conflict;
use crate::durable::queue::{Groups, Priority, QueueSettings};
use crate::durable::store::QueueChange;
use crate::durable::{Retention, Status};

mod pair;
mod requests;

/// A step. Numbers select among the existing sessions, tasks and claims, so every sequence is valid.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Enqueue {
        session: u8,
        tasks: Vec<New>,
        /// `true` if all tasks have keys, `false` if none has. (If only some had keys, the order in which they wait would depend on
        /// the store.)
        is_keyed: bool,
    },
    Turn(TurnStep),
    /// The last request of a session again, as if its answer was lost.
    Again {
        session: u8,
    },
    /// An older request again, as if it came late.
    Late {
        session: u8,
        back: u8,
    },
    Renew {
        claims: Vec<u8>,
    },
    Cancel {
        tasks: Vec<u8>,
    },
    /// Changes one task: the order of several in their lists would depend on the store.
    Change {
        task: u8,
        change: ChangeChoice,
    },
    Status {
        process: u8,
        tasks: Vec<u8>,
    },
    Find {
        process: u8,
        tasks: Vec<u8>,
    },
    Head {
        process: u8,
        is_queued: bool,
    },
    /// Reports the progress of tasks, which are chosen as those of verdicts.
    ReportProgress {
        tasks: Vec<u8>,
        /// The number of the report.
        number: u64,
    },
    /// Stores steps of tasks, which are chosen as those of verdicts.
    StoreSteps {
        tasks: Vec<u8>,
        name: u8,
        len: usize,
    },
    Signal {
        task: u8,
        name: u8,
    },
    /// Time passes, possibly without maintenance.
    Pass(Duration),
    /// Time passes, and the store is maintained regularly.
    Age(Duration),
    Connect,
    Kill {
        process: u8,
    },
    Open {
        process: u8,
        types: Types,
        is_queued: bool,
    },
    Close {
        session: u8,
    },
    Dead {
        choice: Choice,
        limit: usize,
    },
    Replay {
        choice: Choice,
    },
    Delete {
        choice: Choice,
    },
    Maintain {
        budget: usize,
    },
    SetRetention(Retention),
    Counts {
        process: u8,
    },
    List(ListStep),
    MoveWaiting(MoveStep),
    /// Pauses or resumes a type.
    Pause {
        other: bool,
        is_paused: bool,
    },
    /// Pauses, resumes or limits the named queue.
    ChangeQueue(QueueChange),
    ChangeSchedule(ScheduleStep),
    /// Asks for due schedules, as a build that computes some of them.
    HandOut(u8),
    /// Sends the last change of a schedule again, as if its answer had been lost.
    ChangeScheduleAgain,
    ListSchedules {
        after: Option<u8>,
        limit: usize,
    },
    /// Reports runs of a few types, possibly twice.
    RecordStats(RecordStatsStep),
    ReadStats(ReadStatsStep),
}

#[derive(Clone, Debug)]
pub(super) struct RecordStatsStep {
    reporter: u8,
    types: Vec<(u8, u64)>,
    is_repeated: bool,
}

#[derive(Clone, Debug)]
pub(super) struct ReadStatsStep {
    process: u8,
    is_by_hour: bool,
    last: Option<Duration>,
}

/// A list of tasks. Filters that do not apply to its status are left out.
#[derive(Clone, Debug)]
pub(super) struct ListStep {
    process: u8,
    status: Status,
    /// `true` selects the tasks of the named queue, `false` those of the default queue, and `None` all tasks.
    in_named_queue: Option<bool>,
    /// Selects the tasks with the other name, or those without.
    other_name: Option<bool>,
    /// Selects only tasks that have failed.
    has_failed: bool,
    /// Selects only tasks that this session runs.
    session: Option<u8>,
    limit: usize,
}

/// Moves all waiting tasks that match.
#[derive(Clone, Debug)]
pub(super) struct MoveStep {
    /// `true` selects the tasks of the named queue, `false` those of the default queue, and `None` all tasks.
    in_named_queue: Option<bool>,
    other_name: Option<bool>,
    /// Selects only tasks whose ids contain a time. No task of this test has one.
    has_time: bool,
    /// To the named queue.
    to_queued: bool,
    limit: usize,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum ChangeChoice {
    Cancel,
    RunNow,
    MoveTo {
        is_queued: bool,
    },
    Replay,
    ReplayFrom {
        /// The step has this number as its name.
        name: u8,
        nonce: u8,
    },
    Delete,
}

/// A change of one of a few schedules.
#[derive(Clone, Debug)]
pub(super) struct ScheduleStep {
    schedule: u8,
    /// `true` if the change names the version that the store has.
    is_current: bool,
    /// The new row, or `None` if the schedule is removed.
    row: Option<ScheduleRowChoice>,
    /// The tasks that the change stores.
    tasks: Vec<New>,
}

#[derive(Clone, Debug)]
pub(super) struct ScheduleRowChoice {
    needs: u8,
    /// The time after which it is handed out, or `None` if it is paused.
    after: Option<Duration>,
}

#[derive(Clone, Debug)]
pub(super) struct New {
    task: u8,
    other_name: bool,
    /// Version 2 of the other type.
    is_newer: bool,
    /// In the named queue.
    is_queued: bool,
    /// The group in the named queue. Tasks of groups have one type, and those of a group have one priority: a group that has waited in one
    /// list with several of them has one turn there, for example while the type is paused, and this depends on the store.
    group: Option<char>,
    priority: Priority,
    len: usize,
    delay: Duration,
    retention: Duration,
    max_crashes: u32,
    key: KeyChoice,
    /// Only tasks without keys have parents.
    parent: Option<u8>,
}

#[derive(Clone, Debug)]
pub(super) struct KeyChoice {
    text: u8,
    conflict: Conflict,
    is_until_started: bool,
    window: Duration,
    latest: Option<Duration>,
}

#[derive(Clone, Debug)]
pub(super) struct TurnStep {
    session: u8,
    /// The tasks are chosen among all that were ever claimed, the newest first. Many of these verdicts are stale.
    verdicts: Vec<(u8, VerdictChoice)>,
    /// Among all claims, the newest first.
    received: Option<u8>,
    /// The position of a claim among all claims, of which the newest is the first, and how far the floor is above its epoch.
    floor: Option<(u8, u64)>,
    want: usize,
    want_bytes: usize,
    lease: Duration,
    quarantined: bool,
    go_idle: bool,
    /// Use the number of the last request if that was a turn.
    same_number: bool,
}

#[derive(Clone, Debug)]
pub(super) enum VerdictChoice {
    Done,
    Retry(Duration),
    Snooze(Duration),
    /// The task waits for this number of steps.
    Suspend(Duration, Option<u32>),
    Dead,
    Release,
    /// The task is tried again, and its group is held.
    Hold(Duration, Duration),
}

/// The types that a session knows.
#[derive(Clone, Copy, Debug)]
pub(super) enum Types {
    All,
    Job,
    Other,
    /// All types, but only version 1 of the other one.
    Older,
}

/// A selection of dead letters.
#[derive(Clone, Debug)]
pub(super) enum Choice {
    All,
    Name { other: bool },
    Tasks(Vec<u8>),
}

fn seconds(choice: &'static [u64]) -> impl Strategy<Value = Duration> {
    prop::sample::select(choice).prop_map(Duration::from_secs)
}

/// Chooses among so few tasks that the same ones are often used again.
fn tasks(most: usize) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(0..12_u8, 1..=most)
}

fn new() -> impl Strategy<Value = New> {
    let times = (seconds(&[0, 0, 0, 5, 5, 60]), seconds(&[0, 10, 3600]));
    // Some payloads are too large for the row of their task.
    let len = prop_oneof![9 => 0..20_usize, 1 => Just(2_000)];
    let group = prop::sample::select(&[None, Some('a'), Some('b'), Some('c')][..]);
    let name = (any::<bool>(), any::<bool>());
    let place = (name, any::<bool>(), group, priority());
    let parent = prop::option::weighted(0.3, 0..12_u8);
    (0..12_u8, place, len, times, (0..3_u32, key(), parent)).prop_map(
        |(task, place, len, (delay, retention), (max_crashes, key, parent))| {
            let ((other_name, is_newer), is_queued, group, priority) = place;
            New {
                task,
                other_name,
                is_newer,
                is_queued,
                group,
                priority,
                len,
                delay,
                retention,
                max_crashes,
                key,
                parent,
            }
        },
    )
}

fn key() -> impl Strategy<Value = KeyChoice> {
    let conflict = prop_oneof![
        3 => Just(Conflict::Join),
        1 => Just(Conflict::Reject),
        4 => Just(Conflict::Replace),
    ];
    let latest = prop::option::of(seconds(&[5, 9, 60]));
    let times = (seconds(&[0, 0, 5, 60]), latest);
    (0..3_u8, conflict, any::<bool>(), times).prop_map(
        |(text, conflict, is_until_started, (window, latest))| KeyChoice {
            text,
            conflict,
            is_until_started,
            window,
            latest,
        },
    )
}

fn priority() -> impl Strategy<Value = Priority> {
    prop::sample::select(
        &[
            Priority::High,
            Priority::Normal,
            Priority::Normal,
            Priority::Low,
        ][..],
    )
}

fn verdict() -> impl Strategy<Value = VerdictChoice> {
    prop_oneof![
        3 => Just(VerdictChoice::Done),
        3 => seconds(&[0, 5, 60]).prop_map(VerdictChoice::Retry),
        2 => seconds(&[0, 5, 60]).prop_map(VerdictChoice::Snooze),
        3 => (seconds(&[0, 5, 60]), prop::option::of(0..4_u32))
            .prop_map(|(after, until)| VerdictChoice::Suspend(after, until)),
        2 => Just(VerdictChoice::Dead),
        3 => Just(VerdictChoice::Release),
        2 => (seconds(&[0, 5]), seconds(&[0, 3, 9])).prop_map(|(after, hold)| VerdictChoice::Hold(after, hold)),
    ]
}

fn turn() -> impl Strategy<Value = TurnStep> {
    let verdicts = prop::collection::vec((0..12_u8, verdict()), 0..6);
    let wants = (0..5_usize, prop::sample::select(&[0_usize, 15, 10_000][..]));
    // An hour, in microseconds.
    let above = prop::sample::select(&[0, 0, 3_600_000_000][..]);
    let floor = prop::option::weighted(0.2, (0..4_u8, above));
    let report = (verdicts, prop::option::of(0..4_u8), floor);
    let flags = (any::<bool>(), any::<bool>(), prop::bool::weighted(0.1));
    (any::<u8>(), report, wants, seconds(&[9, 9, 30]), flags).prop_map(
        |(
            session,
            (verdicts, received, floor),
            (want, want_bytes),
            lease,
            (quarantined, go_idle, same_number),
        )| {
            TurnStep {
                session,
                verdicts,
                received,
                floor,
                want,
                want_bytes,
                lease,
                quarantined,
                go_idle,
                same_number,
            }
        },
    )
}

fn choice() -> impl Strategy<Value = Choice> {
    prop_oneof![
        2 => Just(Choice::All),
        1 => any::<bool>().prop_map(|other| Choice::Name { other }),
        1 => tasks(4).prop_map(Choice::Tasks),
    ]
}

fn types() -> impl Strategy<Value = Types> {
    prop::sample::select(&[Types::All, Types::Job, Types::Other, Types::Older][..])
}

fn change() -> impl Strategy<Value = ChangeChoice> {
    prop_oneof![
        1 => Just(ChangeChoice::Cancel),
        4 => Just(ChangeChoice::RunNow),
        6 => any::<bool>().prop_map(|is_queued| ChangeChoice::MoveTo { is_queued }),
        1 => Just(ChangeChoice::Replay),
        4 => (0..3_u8, 0..6_u8).prop_map(|(name, nonce)| ChangeChoice::ReplayFrom { name, nonce }),
        1 => Just(ChangeChoice::Delete),
    ]
}

/// Times in milliseconds reveal what happens one millisecond early.
fn time() -> impl Strategy<Value = Duration> {
    prop_oneof![
        1 => Just(Duration::from_millis(1)),
        1 => Just(Duration::from_millis(2_999)),
        12 => seconds(&[1, 3, 3, 5, 5, 9, 9, 30, 60]),
    ]
}

fn open() -> impl Strategy<Value = Step> {
    let choices = (any::<u8>(), types(), any::<bool>());
    choices.prop_map(|(process, types, is_queued)| Step::Open {
        process,
        types,
        is_queued,
    })
}

fn pause() -> impl Strategy<Value = Step> {
    let choices = (any::<bool>(), any::<bool>());
    choices.prop_map(|(other, is_paused)| Step::Pause { other, is_paused })
}

fn queue_change() -> impl Strategy<Value = QueueChange> {
    let limit = prop::sample::select(&[None, Some(1), Some(1), Some(2)][..]);
    let groups = (limit.clone(), 1..3_u32).prop_map(|(max_running, quantum)| Groups {
        max_running,
        quantum,
    });
    let settings =
        (limit, groups, 0..3_u32).prop_map(|(max_running, groups, revision)| QueueSettings {
            max_running,
            groups,
            revision: revision / 2,
            ..QueueSettings::new()
        });
    prop_oneof![
        3 => settings.prop_map(QueueChange::Settings),
        1 => any::<bool>().prop_map(QueueChange::Paused),
    ]
}

fn schedule_step() -> impl Strategy<Value = ScheduleStep> {
    let after = prop::option::weighted(0.8, seconds(&[0, 1, 5, 9, 60]));
    let row = (1..=2_u8, after).prop_map(|(needs, after)| ScheduleRowChoice { needs, after });
    let choices = (0..3_u8, prop::bool::weighted(0.8));
    let tasks = prop::collection::vec(new(), 0..3);
    (choices, prop::option::weighted(0.8, row), tasks).prop_map(
        |((schedule, is_current), row, tasks)| ScheduleStep {
            schedule,
            is_current,
            row,
            tasks,
        },
    )
}

fn enqueue() -> impl Strategy<Value = Step> {
    let tasks = prop::collection::vec(new(), 0..5);
    let choices = (any::<u8>(), tasks, any::<bool>());
    choices.prop_map(|(session, tasks, is_keyed)| Step::Enqueue {
        session,
        tasks,
        is_keyed,
    })
}

fn list() -> impl Strategy<Value = Step> {
    let status = prop::sample::select(&LISTED[..]);
    let other_name = prop::option::weighted(0.3, any::<bool>());
    let in_named_queue = prop::option::weighted(0.7, any::<bool>());
    let filters = (in_named_queue, other_name, any::<bool>());
    let session = prop::option::of(any::<u8>());
    let choices = (any::<u8>(), status, filters, session, 1..4_usize);
    choices.prop_map(|(process, status, filters, session, limit)| {
        let (in_named_queue, other_name, has_failed) = filters;
        Step::List(ListStep {
            process,
            status,
            in_named_queue,
            other_name,
            has_failed,
            session,
            limit,
        })
    })
}

fn move_waiting() -> impl Strategy<Value = Step> {
    let other_name = prop::option::weighted(0.3, any::<bool>());
    let has_time = prop::bool::weighted(0.1);
    let in_named_queue = prop::option::weighted(0.7, any::<bool>());
    let filters = (in_named_queue, other_name, has_time);
    (filters, any::<bool>(), 1..4_usize).prop_map(
        |((in_named_queue, other_name, has_time), to_queued, limit)| {
            Step::MoveWaiting(MoveStep {
                in_named_queue,
                other_name,
                has_time,
                to_queued,
                limit,
            })
        },
    )
}

fn retention() -> impl Strategy<Value = Retention> {
    let dead_for = seconds(&[1, 9, 60, 30 * 24 * 3600]);
    let dead_most = prop::sample::select(&[0_u64, 1, 2, 10_000][..]);
    let kept_most = prop::option::of(0..4_u64);
    (dead_for, dead_most, kept_most).prop_map(|(dead_for, dead_most, kept_most)| Retention {
        dead_for,
        dead_most,
        kept_most,
    })
}

fn record_stats() -> impl Strategy<Value = Step> {
    let types = prop::collection::vec((0..4_u8, 0..9_u64), 0..4);
    (0..3_u8, types, any::<bool>()).prop_map(|(reporter, types, is_repeated)| {
        Step::RecordStats(RecordStatsStep {
            reporter,
            types,
            is_repeated,
        })
    })
}

fn read_stats() -> impl Strategy<Value = Step> {
    let last = prop::option::of(seconds(&[1, 60, 3600, 90_000]));
    (any::<u8>(), any::<bool>(), last).prop_map(|(process, is_by_hour, last)| {
        Step::ReadStats(ReadStatsStep {
            process,
            is_by_hour,
            last,
        })
    })
}

fn store_steps() -> impl Strategy<Value = Step> {
    let tasks = prop::collection::vec(0..8_u8, 1..4);
    let len = prop::sample::select(&[0_usize, 9, 2_000][..]);
    (tasks, 0..3_u8, len).prop_map(|(tasks, name, len)| Step::StoreSteps { tasks, name, len })
}

fn step() -> impl Strategy<Value = Step> {
    let any = any::<u8>;
    let claims = prop::collection::vec(0..8_u8, 1..4);
    prop_oneof![
        14 => enqueue(),
        26 => turn().prop_map(Step::Turn),
        4 => any().prop_map(|session| Step::Again { session }),
        2 => (any(), 1..5_u8).prop_map(|(session, back)| Step::Late { session, back }),
        5 => claims.prop_map(|claims| Step::Renew { claims }),
        5 => tasks(3).prop_map(|tasks| Step::Cancel { tasks }),
        9 => (0..12_u8, change()).prop_map(|(task, change)| Step::Change { task, change }),
        4 => (any(), tasks(6)).prop_map(|(process, tasks)| Step::Status { process, tasks }),
        4 => (any(), tasks(6)).prop_map(|(process, tasks)| Step::Find { process, tasks }),
        2 => (any(), prop::bool::ANY).prop_map(|(process, is_queued)| Step::Head { process, is_queued }),
        6 => (prop::collection::vec(0..8_u8, 1..4), 1..4_u64)
            .prop_map(|(tasks, number)| Step::ReportProgress { tasks, number }),
        6 => store_steps(),
        6 => (0..12_u8, 0..3_u8).prop_map(|(task, name)| Step::Signal { task, name }),
        11 => time().prop_map(Step::Pass),
        // Everything expires.
        1 => seconds(&[3600, 30 * 24 * 3600]).prop_map(Step::Age),
        1 => Just(Step::Connect),
        2 => any().prop_map(|process| Step::Kill { process }),
        3 => open(),
        2 => any().prop_map(|session| Step::Close { session }),
        2 => (choice(), 0..4_usize).prop_map(|(choice, limit)| Step::Dead { choice, limit }),
        3 => choice().prop_map(|choice| Step::Replay { choice }),
        1 => choice().prop_map(|choice| Step::Delete { choice }),
        2 => (1..4_usize).prop_map(|budget| Step::Maintain { budget }),
        2 => retention().prop_map(Step::SetRetention),
        3 => any().prop_map(|process| Step::Counts { process }),
        5 => list(),
        4 => move_waiting(),
        3 => pause(),
        4 => queue_change().prop_map(Step::ChangeQueue),
        6 => schedule_step().prop_map(Step::ChangeSchedule),
        6 => (0..4_u8).prop_map(Step::HandOut),
        1 => Just(Step::ChangeScheduleAgain),
        1 => (prop::option::of(0..3_u8), 0..4_usize)
            .prop_map(|(after, limit)| Step::ListSchedules { after, limit }),
        3 => record_stats(),
        3 => read_stats(),
    ]
}

/// The number of threads on which sequences run at the same time.
const THREADS: u32 = 2;

/// Compares a store with the model in this many sequences, or ten times as many with `THRONG_LONG=1`.
pub fn compare_sequences<H: Harness>(sequences: u32) {
    if !H::is_available() {
        return;
    }
    let long = std::env::var_os("THRONG_LONG").is_some_and(|value| value == "1");
    let sequences = if long { 10 * sequences } else { sequences };
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| compare_on_this_thread::<H>(sequences.div_ceil(THREADS)));
        }
    });
}

fn compare_on_this_thread<H: Harness>(sequences: u32) {
    let config = Config {
        cases: sequences,
        failure_persistence: None,
        max_shrink_iters: 2_000,
        // In milliseconds.
        max_shrink_time: 30_000,
        ..Config::default()
    };
    let steps = prop::collection::vec(step(), 1..120);
    let runtime = runtime();
    // Some stores have no task in a named queue or with another priority.
    let stores = (1..=2_u8, prop::bool::weighted(0.7));
    let tried = TestRunner::new(config).run(&(stores, steps), |(stores, steps)| {
        let tried = runtime.block_on(compare::<H>(stores, &steps));
        tried.map_err(TestCaseError::fail)
    });
    match tried {
        Ok(()) => {}
        Err(TestError::Fail(why, ((processes, has_queues), steps))) => {
            panic!(
                "{why}\nof {processes} processes, with queues: {has_queues}, after:\n{}",
                listed(&steps)
            )
        }
        Err(error) => panic!("{error}"),
    }
}

async fn compare<H: Harness>(
    (processes, has_queues): (u8, bool),
    steps: &[Step],
) -> Result<(), String> {
    let mut pair = Pair::new(Memory::new(), H::new(), processes, has_queues).await;
    for (number, step) in steps.iter().enumerate() {
        let taken = pair.take(step).await;
        let checked = taken.and_then(|()| pair.check());
        checked.map_err(|why| format!("step {number}: {why}"))?;
    }
    let finished = pair.finish().await;
    finished.map_err(|why| format!("at the end: {why}"))
}

fn listed(steps: &[impl Debug]) -> String {
    let lines = steps.iter().enumerate();
    let lines: Vec<_> = lines
        .map(|(number, step)| format!("{number:4}: {step:?}"))
        .collect();
    lines.join("\n")
}
