//! [`Board`]: what has happened so far, and what a person sees of it.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use throng::durable::TaskId;

use super::worker::Began;

/// The events so far.
pub(crate) struct Board {
    bar: ProgressBar,
    tasks: u64,
    runs: HashMap<TaskId, Vec<Began>>,
    /// The number of runs that each worker has started.
    begun: BTreeMap<char, u64>,
    /// When workers were seen to end.
    ends: HashMap<char, Instant>,
    done: Vec<TaskId>,
    waited: Duration,
}

impl Board {
    /// A board for so many tasks, of which none has been run.
    pub(crate) fn new(tasks: u32) -> Self {
        let style = ProgressStyle::with_template("[{bar:30}] {pos}/{len} done; {msg}");
        // On standard error, if that is a terminal.
        let bar = ProgressBar::new(tasks.into());
        bar.set_style(style.expect("the template is right").progress_chars("=> "));
        Self {
            bar,
            tasks: tasks.into(),
            runs: HashMap::new(),
            begun: BTreeMap::new(),
            ends: HashMap::new(),
            done: Vec::new(),
            waited: Duration::ZERO,
        }
    }

    /// Writes a line above the bar.
    pub(crate) fn say(&self, line: impl fmt::Display) {
        // If nobody reads it any more, the tasks run all the same.
        self.bar.suspend(|| writeln!(io::stdout(), "{line}").ok());
    }

    /// A worker has begun a task.
    pub(crate) fn began(&mut self, run: Began) {
        *self.begun.entry(run.worker).or_default() += 1;
        let runs = self.runs.entry(run.task).or_default();
        let last = runs.last().copied();
        runs.push(run);
        let ended = last.and_then(|last| Some((last.worker, *self.ends.get(&last.worker)?)));
        if let Some((before, ended)) = ended {
            let (waited, worker, picture) = (ended.elapsed(), run.worker, run.picture);
            self.waited = self.waited.max(waited);
            let after = waited.as_secs_f64();
            self.say(format_args!(
                "  Worker {worker} begins picture {picture} again, {after:.1} s after {before} was gone."
            ));
        }
    }

    /// A worker has ended.
    pub(crate) fn ended(&mut self, worker: char) {
        self.ends.insert(worker, Instant::now());
    }

    /// A handle has resolved.
    pub(crate) fn done(&mut self, task: TaskId) {
        self.done.push(task);
        self.bar.set_message(self.begun());
        self.bar.inc(1);
    }

    /// Returns the number of handles that have resolved.
    pub(crate) fn count(&self) -> u64 {
        self.done.len() as u64
    }

    /// Says how far it is, where there is no bar.
    pub(crate) fn tick(&self) {
        if self.bar.is_hidden() {
            let (done, of, begun) = (self.count(), self.tasks, self.begun());
            self.say(format_args!("  {done} of {of} done; {begun}"));
        }
    }

    /// Takes the bar away, and tells what there was.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
        let again = self.done.iter().filter(|task| self.is_run_again(task));
        self.say(format_args!("stored     {:5}", self.tasks));
        self.say(format_args!("done       {:5}", self.count()));
        self.say(format_args!("run twice  {:5}", again.count()));
        let waited = self.waited.as_secs_f64();
        self.say(format_args!(
            "waited     {waited:5.1} s at most, for another worker"
        ));
    }

    fn begun(&self) -> String {
        let begun = self.begun.iter();
        let begun = begun.map(|(worker, runs)| format!("{worker} has begun {runs}"));
        begun.collect::<Vec<_>>().join(", ")
    }

    fn is_run_again(&self, task: &TaskId) -> bool {
        self.runs.get(task).is_some_and(|runs| runs.len() > 1)
    }
}
