//! The pool against a plain model: any sequence of submissions, aborts, ends and a shutdown.
//!
//! The tasks run until they are told how to end, so the model knows at each moment which run, which
//! wait, and what there is room for; after each step the pool has to come to the same.

use std::collections::VecDeque;
use std::sync::mpsc;

use futures::FutureExt;
use proptest::prelude::*;
use proptest::test_runner::Config;
use throng::blocking::Permit;
use throng::{BlockingPool, JoinError, JoinHandle, TrySpawnError};

use crate::pools::{run, settle};
use crate::support::{PATIENCE, join, rounds};

#[derive(Clone, Copy, Debug)]
enum Step {
    Submit,
    /// Takes a place, for a later submission.
    Reserve,
    SubmitReserved,
    GiveBack,
    /// Aborts one of the tasks that have a handle.
    Abort(prop::sample::Index),
    /// Ends one of those that run.
    End(prop::sample::Index, Ending),
    Shutdown,
}

/// How a task is told to end.
#[derive(Clone, Copy, Debug)]
enum Ending {
    Return,
    Panic,
}

/// How a task should have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Returned(usize),
    Panicked,
    Cancelled,
}

fn step() -> impl Strategy<Value = Step> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        24 => Just(Step::Submit),
        6 => Just(Step::Reserve),
        6 => Just(Step::SubmitReserved),
        3 => Just(Step::GiveBack),
        9 => index().prop_map(Step::Abort),
        12 => index().prop_map(|index| Step::End(index, Ending::Return)),
        3 => index().prop_map(|index| Step::End(index, Ending::Panic)),
        1 => Just(Step::Shutdown),
    ]
}

fn cases() -> Config {
    Config {
        cases: rounds(200, 2_000) as u32,
        failure_persistence: None,
        ..Config::default()
    }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn it_does_what_the_model_does(
        max_threads in 1..4_usize,
        capacity in prop::option::of(0..4_usize),
        steps in prop::collection::vec(step(), 1..50),
    ) {
        let mut builder = BlockingPool::builder();
        builder.max_threads(max_threads);
        if let Some(capacity) = capacity {
            builder.queue_capacity(capacity);
        }
        let pool = builder.build().unwrap();
        let mut both = Both::new(&pool, Model::new(max_threads, capacity));
        for step in steps {
            both.take(step);
            both.compare();
        }
        both.finish();
    }
}

/// What the pool should do.
#[derive(Debug)]
struct Model {
    max_threads: usize,
    /// Places for tasks that are accepted and have not left.
    places: usize,
    reserved: usize,
    /// Numbers of tasks; what was aborted stays until a thread comes across it.
    queue: VecDeque<(usize, Aborted)>,
    running: Vec<usize>,
    threads: usize,
    closed: bool,
    returned: u64,
    panicked: u64,
    cancelled: u64,
    accepted: u64,
    rejected: u64,
}

type Aborted = bool;

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Accepted,
    Full,
    Closed,
}

impl Model {
    fn new(max_threads: usize, capacity: Option<usize>) -> Self {
        Self {
            max_threads,
            places: capacity.map_or(usize::MAX, |capacity| max_threads + capacity),
            reserved: 0,
            queue: VecDeque::new(),
            running: Vec::new(),
            threads: 0,
            closed: false,
            returned: 0,
            panicked: 0,
            cancelled: 0,
            accepted: 0,
            rejected: 0,
        }
    }

    /// What becomes of one who wants a place.
    fn enter(&self) -> Verdict {
        if self.closed {
            Verdict::Closed
        } else if self.reserved + self.queue.len() + self.running.len() < self.places {
            Verdict::Accepted
        } else {
            Verdict::Full
        }
    }

    fn submit(&mut self, number: usize) -> Verdict {
        let verdict = self.enter();
        match verdict {
            Verdict::Accepted => self.accept(number),
            _ => self.rejected += 1,
        }
        verdict
    }

    fn submit_reserved(&mut self, number: usize) -> Verdict {
        self.reserved -= 1;
        if self.closed {
            self.rejected += 1;
            return Verdict::Closed;
        }
        self.accept(number);
        Verdict::Accepted
    }

    fn accept(&mut self, number: usize) {
        self.accepted += 1;
        self.queue.push_back((number, false));
        self.run_queued();
    }

    fn run_queued(&mut self) {
        while self.running.len() < self.max_threads {
            match self.queue.pop_front() {
                Some((_, true)) => self.cancelled += 1,
                Some((number, false)) => self.running.push(number),
                None => break,
            }
        }
        self.threads = self.threads.max(self.running.len());
        if self.closed {
            self.threads = self.running.len();
        }
    }

    /// Whether the abort came in time.
    fn abort(&mut self, number: usize) -> bool {
        let queued = self.queue.iter_mut().find(|(queued, _)| *queued == number);
        queued.map(|(_, aborted)| *aborted = true).is_some()
    }

    fn end(&mut self, number: usize, ending: Ending) {
        self.running.retain(|running| *running != number);
        match ending {
            Ending::Return => self.returned += 1,
            Ending::Panic => self.panicked += 1,
        }
        self.run_queued();
    }

    fn shutdown(&mut self) {
        self.closed = true;
        self.run_queued();
    }
}

/// The model, the pool, and what connects them.
struct Both<'a> {
    model: Model,
    pool: &'a BlockingPool,
    permits: Vec<Permit<'a>>,
    /// The tasks that were accepted, by their number.
    tasks: Vec<Submitted>,
    started: mpsc::Sender<usize>,
    starts: mpsc::Receiver<usize>,
    /// How many have told that they started.
    known: usize,
}

struct Submitted {
    handle: JoinHandle<usize>,
    end: mpsc::Sender<Ending>,
    ended: Option<Ended>,
}

impl<'a> Both<'a> {
    fn new(pool: &'a BlockingPool, model: Model) -> Self {
        let (started, starts) = mpsc::channel();
        Self {
            model,
            pool,
            permits: Vec::new(),
            tasks: Vec::new(),
            started,
            starts,
            known: 0,
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Submit => self.submit(),
            Step::Reserve => self.reserve(),
            Step::SubmitReserved => self.submit_reserved(),
            Step::GiveBack => {
                if let Some(permit) = self.permits.pop() {
                    drop(permit);
                    self.model.reserved -= 1;
                }
            }
            Step::Abort(index) => {
                if !self.tasks.is_empty() {
                    self.abort(index.index(self.tasks.len()));
                }
            }
            Step::End(index, ending) => {
                if !self.model.running.is_empty() {
                    self.end(*index.get(&self.model.running), ending);
                }
            }
            Step::Shutdown => {
                self.pool.shutdown();
                self.model.shutdown();
            }
        }
    }

    /// A task that runs until it is told how to end.
    fn task(
        &self,
    ) -> (
        mpsc::Sender<Ending>,
        impl FnOnce() -> usize + Send + 'static,
    ) {
        let (end, ends) = mpsc::channel();
        let number = self.tasks.len();
        let started = self.started.clone();
        let task = move || {
            started.send(number).expect("the test waits");
            match ends.recv().expect("the test says how it ends") {
                Ending::Return => number,
                Ending::Panic => panic!("as it should"),
            }
        };
        (end, task)
    }

    fn submit(&mut self) {
        let (end, task) = self.task();
        let (verdict, handle) = match self.pool.try_spawn_blocking(task) {
            Ok(handle) => (Verdict::Accepted, Some(handle)),
            Err(TrySpawnError::Full(_)) => (Verdict::Full, None),
            Err(TrySpawnError::Closed(_)) => (Verdict::Closed, None),
            Err(error) => panic!("{error}"),
        };
        assert_eq!(verdict, self.model.submit(self.tasks.len()));
        if let Some(handle) = handle {
            self.keep(handle, end);
        }
    }

    fn reserve(&mut self) {
        let verdict = match self.pool.reserve().now_or_never() {
            Some(Ok(permit)) => {
                self.permits.push(permit);
                Verdict::Accepted
            }
            Some(Err(error)) => {
                assert!(error.is_closed());
                Verdict::Closed
            }
            None => Verdict::Full,
        };
        assert_eq!(verdict, self.model.enter());
        self.model.reserved += usize::from(verdict == Verdict::Accepted);
    }

    fn submit_reserved(&mut self) {
        let Some(permit) = self.permits.pop() else {
            return;
        };
        let (end, task) = self.task();
        let handle = permit.spawn_blocking(task);
        match self.model.submit_reserved(self.tasks.len()) {
            Verdict::Accepted => self.keep(handle, end),
            _ => assert!(join(handle).unwrap_err().is_closed()),
        }
    }

    fn keep(&mut self, handle: JoinHandle<usize>, end: mpsc::Sender<Ending>) {
        self.tasks.push(Submitted {
            handle,
            end,
            ended: None,
        });
    }

    fn abort(&mut self, number: usize) {
        let task = &mut self.tasks[number];
        task.handle.abort();
        if self.model.abort(number) {
            task.ended = Some(Ended::Cancelled);
        }
        assert_eq!(task.handle.is_finished(), task.ended.is_some());
    }

    fn end(&mut self, number: usize, ending: Ending) {
        let task = &mut self.tasks[number];
        task.end.send(ending).expect("the task runs");
        task.ended = Some(match ending {
            Ending::Return => Ended::Returned(number),
            Ending::Panic => Ended::Panicked,
        });
        self.model.end(number, ending);
    }

    /// Waits until the pool is as the model is, or fails.
    fn compare(&mut self) {
        let model = &self.model;
        let ended = model.returned + model.panicked;
        while self.known < model.running.len() + ended as usize {
            let number = self.starts.recv_timeout(PATIENCE).expect("a task starts");
            // It may run already, or have been told to end; it may not wait.
            assert!(model.queue.iter().all(|(queued, _)| *queued != number));
            self.known += 1;
        }
        let metrics = settle(self.pool, |metrics| {
            metrics.completed + metrics.panicked + metrics.cancelled == ended + model.cancelled
                && metrics.busy == model.running.len()
                && metrics.queued == model.queue.len()
                && (!model.closed || metrics.threads == model.threads)
        });
        let ended = (metrics.completed, metrics.panicked, metrics.cancelled);
        assert_eq!(ended, (model.returned, model.panicked, model.cancelled));
        let asked = (metrics.submitted, metrics.rejected);
        assert_eq!(asked, (model.accepted, model.rejected));
        assert_eq!(metrics.threads, model.threads);
        assert!(
            self.starts.try_recv().is_err(),
            "a task started that should wait"
        );
    }

    /// Ends everything, and looks at how it ended.
    fn finish(mut self) {
        self.pool.shutdown();
        self.model.shutdown();
        self.permits.clear();
        while let Some(number) = self.model.running.first() {
            self.end(*number, Ending::Return);
            self.compare();
        }
        run(self.pool.terminated());
        for task in self.tasks {
            let ended = match join(task.handle) {
                Ok(number) => Ended::Returned(number),
                Err(error) if error.is_panic() => Ended::Panicked,
                Err(error) => {
                    assert!(JoinError::is_cancelled(&error));
                    Ended::Cancelled
                }
            };
            assert_eq!(Some(ended), task.ended);
        }
    }
}
