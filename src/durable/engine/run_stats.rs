//! [`RunStats`]: counts the runs of a process, and reports them to the store.

use std::mem;
use std::sync::Arc as StdArc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::durable::RunTotals;
use crate::durable::queue::name::QueueName;
use crate::durable::store::{Backend, MAX_STAT_TYPES, RunType, StatReport};
use crate::sync::{Mutex, lock};

/// The time between the first run after a report and the next report. Runs that start or end meanwhile are part of that report.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// The maximum time for which the last report delays closing a client.
const MAX_LAST_REPORT: Duration = Duration::from_secs(1);

/// Counts the runs of a process until they are reported. A process without runs reports nothing.
pub(crate) struct RunStats {
    unreported: Mutex<Unreported>,
    /// Notified when there is something to report.
    added: Notify,
}

struct Unreported {
    reporter: u64,
    /// The number of the last report.
    number: u64,
    /// The last report, until the store answers it.
    sent: Option<StdArc<StatReport>>,
    /// The types in the order of their first runs. There are few types, and most runs have the same type as the previous run.
    runs: Vec<(RunType, RunTotals)>,
    /// The index of the type of the previous run.
    last: usize,
}

impl RunStats {
    pub(super) fn new() -> Self {
        Self {
            unreported: Mutex::new(Unreported {
                reporter: fastrand::u64(..),
                number: 0,
                sent: None,
                runs: Vec::new(),
                last: 0,
            }),
            added: Notify::new(),
        }
    }

    /// Counts runs of the type with this name in a queue.
    pub(crate) fn add(&self, name: &StdArc<str>, queue: &QueueName, runs: RunTotals) {
        let mut unreported = lock(&self.unreported);
        let is_first = unreported.runs.is_empty();
        unreported.counts_of(name, queue).add(runs);
        drop(unreported);
        if is_first {
            self.added.notify_one();
        }
    }

    /// Reports runs to the store for as long as this is polled.
    pub(super) async fn run(self: StdArc<Self>, store: StdArc<dyn Backend>) {
        loop {
            self.added.notified().await;
            sleep(REPORT_INTERVAL).await;
            // A report that has failed is kept, and sent again.
            while !self.send(&*store).await {
                sleep(REPORT_INTERVAL).await;
            }
        }
    }

    /// Reports the remaining runs.
    pub(super) async fn flush(&self, store: &dyn Backend, timers: &Handle) {
        let timeout = || {
            let _entered = timers.enter();
            sleep(MAX_LAST_REPORT)
        };
        let send = async {
            // There may be two reports: one that the store has not answered, and one with later runs.
            while self.has_runs() && self.send(store).await {}
        };
        if self.has_runs() {
            tokio::select! {
                () = send => {}
                () = timeout() => {}
            }
        }
    }

    fn has_runs(&self) -> bool {
        let unreported = lock(&self.unreported);
        unreported.sent.is_some() || !unreported.runs.is_empty()
    }

    /// Sends a report. Returns `false` if it may not have arrived.
    async fn send(&self, store: &dyn Backend) -> bool {
        let report = lock(&self.unreported).next_report();
        if store.record_stats(StdArc::clone(&report)).await.is_err() {
            return false;
        }
        let mut unreported = lock(&self.unreported);
        unreported.sent = None;
        // If an earlier report was sent again, runs may have been added meanwhile.
        let has_runs = !unreported.runs.is_empty();
        drop(unreported);
        if has_runs {
            self.added.notify_one();
        }
        true
    }
}

impl Unreported {
    fn counts_of(&mut self, name: &StdArc<str>, queue: &QueueName) -> &mut RunTotals {
        let is_last = self
            .runs
            .get(self.last)
            .is_some_and(|last| last.0.is(name, queue));
        if !is_last {
            self.last = self.position_of(name, queue);
        }
        &mut self.runs[self.last].1
    }

    fn position_of(&mut self, name: &StdArc<str>, queue: &QueueName) -> usize {
        if let Some(found) = self.find(|it| it.is(name, queue)) {
            return found;
        }
        let run_type = match self.runs.len() < MAX_STAT_TYPES {
            true => RunType::new(name, queue),
            false => RunType::others(),
        };
        self.find(|it| *it == run_type).unwrap_or_else(|| {
            self.runs.push((run_type, RunTotals::default()));
            self.runs.len() - 1
        })
    }

    fn find(&self, is_it: impl Fn(&RunType) -> bool) -> Option<usize> {
        self.runs.iter().position(|(run_type, _)| is_it(run_type))
    }

    /// Returns the report that the store has not answered, or else a new one.
    fn next_report(&mut self) -> StdArc<StatReport> {
        let report = self.sent.take().unwrap_or_else(|| self.new_report());
        self.sent = Some(StdArc::clone(&report));
        report
    }

    fn new_report(&mut self) -> StdArc<StatReport> {
        self.number += 1;
        self.runs.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        StdArc::new(StatReport {
            reporter: self.reporter,
            number: self.number,
            runs: mem::take(&mut self.runs),
        })
    }
}
