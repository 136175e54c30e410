//! All schedules of a task that waits for two signals: no wake-up is lost.
//!
//! The *run* looks for the signals. If one is missing, it suspends the task until there is one step more than it has seen or, to wait for
//! all, as many more as are missing. Meanwhile the signals arrive, and the store may take the task back, so that the old run still suspends
//! it later. The test executes every order of these events, each with a task of its own.

use std::fmt;
use std::time::Duration;

use super::Harness;
use super::process::*;
use crate::durable::store::{Epoch, NewTask, SignalAnswer, TaskState, Verdict};

/// A time that is over in no schedule: only a signal wakes the task.
const NEVER: Duration = Duration::from_secs(1 << 32);

const SIGNALS: [&str; 2] = ["a", "b"];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Event {
    /// A worker claims the task.
    Claim,
    /// The run reads the steps.
    Look,
    /// The run stores a step of its own.
    Store,
    /// The run suspends or ends the task.
    End,
    /// A signal arrives.
    Signal(&'static str),
    /// The store takes the task back from the run.
    Reap,
    /// The run from which the task was taken suspends it.
    EndOfFormer,
}

/// The signals for which the run waits: the first one, or all.
#[derive(Clone, Copy, Debug, PartialEq)]
enum WaitFor {
    Any,
    All,
}

/// The run that holds the task.
enum Run {
    None,
    Claimed(Epoch),
    /// It has seen this number of steps, and this number of signals was missing.
    Looked(Epoch, u32, u32),
}

/// The choices of a schedule: at each point, the number of events that were possible, and the one that was chosen.
#[derive(Default)]
struct Schedule {
    choices: Vec<(usize, usize)>,
    at: usize,
    events: Vec<Event>,
}

impl Schedule {
    /// Chooses one of the events that are possible.
    fn choose(&mut self, possible: &[Event]) -> Event {
        if self.at == self.choices.len() {
            self.choices.push((possible.len(), 0));
        }
        let (expected, chosen) = self.choices[self.at];
        assert_eq!(expected, possible.len(), "{self}");
        self.at += 1;
        self.events.push(possible[chosen]);
        possible[chosen]
    }

    /// Goes on to the next schedule. Returns `false` if there is none.
    fn advance(&mut self) -> bool {
        (self.at, self.events) = (0, Vec::new());
        while let Some((possible, chosen)) = self.choices.pop() {
            if chosen + 1 < possible {
                self.choices.push((possible, chosen + 1));
                return true;
            }
        }
        false
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "after {:?}", self.events)
    }
}

pub async fn no_order_of_events_loses_a_wake_up(it: &dyn Harness) {
    let process = Process::of(it);
    let (mut worker, mut reaper) = (process.session().await, process.session().await);
    let mut number = 0;
    for wait_for in [WaitFor::Any, WaitFor::All] {
        for rare in [Event::Store, Event::Reap] {
            let mut schedule = Schedule::default();
            loop {
                number += 1;
                let unkept = NewTask {
                    retention: Duration::ZERO,
                    ..task(number)
                };
                worker.enqueue([unkept]).await;
                let scene = Scene {
                    it,
                    process: &process,
                    number,
                    wait_for,
                    rare: Some(rare),
                    run: Run::None,
                    former: None,
                    signals: SIGNALS.to_vec(),
                };
                scene.play((&mut worker, &mut reaper), &mut schedule).await;
                if !schedule.advance() {
                    break;
                }
            }
        }
    }
    // There are many orders.
    assert_eq!(number, 1530);
}

/// A task, and what may still happen to it.
struct Scene<'a> {
    it: &'a dyn Harness,
    process: &'a Process,
    number: u64,
    wait_for: WaitFor,
    /// An event that happens once at most.
    rare: Option<Event>,
    run: Run,
    /// The verdict of the run from which the task was taken.
    former: Option<(Epoch, Verdict)>,
    /// The signals that have not arrived.
    signals: Vec<&'static str>,
}

impl Scene<'_> {
    /// Executes a schedule until nothing can happen any more. The task must have succeeded.
    async fn play(
        mut self,
        (worker, reaper): (&mut Session<'_>, &mut Session<'_>),
        schedule: &mut Schedule,
    ) {
        loop {
            // This also makes the task wait if it is due.
            let is_waiting = reaper.turn(wanting(0)).await.more;
            let possible = self.possible(is_waiting);
            if possible.is_empty() {
                break;
            }
            let event = schedule.choose(&possible);
            self.take(event, worker, reaper).await;
        }
        let end = self.process.status_of(self.number).await;
        assert_eq!(end, TaskState::Absent, "{:?} {schedule}", self.wait_for);
    }

    /// Returns the events that may happen next.
    fn possible(&self, is_waiting: bool) -> Vec<Event> {
        let signals = self.signals.iter().map(|&name| Event::Signal(name));
        let mut possible: Vec<_> = signals.collect();
        let (next, rare) = match self.run {
            Run::None => (is_waiting.then_some(Event::Claim), None),
            Run::Claimed(_) => (Some(Event::Look), Some(Event::Reap)),
            Run::Looked(..) => (Some(Event::End), self.rare),
        };
        possible.extend(next);
        possible.extend(rare.filter(|_| rare == self.rare));
        possible.extend(self.former.is_some().then_some(Event::EndOfFormer));
        possible
    }

    async fn take(&mut self, event: Event, worker: &mut Session<'_>, reaper: &mut Session<'_>) {
        let number = self.number;
        match (event, &self.run) {
            (Event::Claim, _) => {
                let claim = worker.claim(1).await;
                assert_eq!(ids(&claim), [id(number)]);
                self.run = Run::Claimed(claim.epoch);
            }
            (Event::Look, &Run::Claimed(epoch)) => {
                let steps = self.process.steps(number).await;
                let is_missing = |name: &&&str| !steps.iter().any(|step| step == *name);
                let missing = SIGNALS.iter().filter(is_missing).count() as u32;
                self.run = Run::Looked(epoch, steps.len() as u32, missing);
            }
            (Event::Store, &Run::Looked(epoch, seen, missing)) => {
                self.rare = None;
                self.process.store_step(epoch, number, "own").await;
                self.run = Run::Looked(epoch, seen + 1, missing);
            }
            (Event::End, &Run::Looked(epoch, seen, missing)) => {
                let verdict = verdict(self.wait_for, seen, missing);
                worker.report(epoch, number, verdict).await;
                self.run = Run::None;
            }
            (Event::Signal(name), _) => {
                self.signals.retain(|it| *it != name);
                // The task cannot end before it has both signals.
                let answer = self.process.signal(number, name).await;
                assert_eq!(answer, SignalAnswer::Stored);
            }
            (Event::Reap, run) => {
                self.rare = None;
                if let &Run::Looked(epoch, seen, missing) = run {
                    self.former = Some((epoch, verdict(self.wait_for, seen, missing)));
                }
                self.run = Run::None;
                for _ in 0..2 {
                    self.it.clock().advance(LEASE);
                    reaper.turn(wanting(0)).await;
                }
            }
            (Event::EndOfFormer, _) => {
                let (epoch, verdict) = self.former.take().expect("there is a former run");
                let turn = wanting(0).verdict(epoch, number, verdict);
                assert_eq!(worker.turn(turn).await.refused, [id(number)]);
            }
            (event, _) => unreachable!("{event:?} is not possible"),
        }
    }
}

/// Returns the verdict of a run that has seen this number of steps, while signals were missing.
fn verdict(wait_for: WaitFor, seen: u32, missing: u32) -> Verdict {
    let until = match (missing, wait_for) {
        (0, _) => return done(),
        (_, WaitFor::Any) => seen + 1,
        (missing, WaitFor::All) => seen + missing,
    };
    Verdict::Suspend {
        after: NEVER,
        until: Some(until),
        waits_for: String::new(),
    }
}
