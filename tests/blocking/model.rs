//! The pool against a simple model, with any sequence of submissions, aborts, ends and a close.
//!
//! Each task runs until the test ends it, so the model knows which tasks run, which wait, and how many permits are
//! free. After each step the pool must reach the same state.

use std::sync::mpsc;

use futures::FutureExt;
use proptest::prelude::*;
use proptest::test_runner::Config;
use throng::{BlockingPool, JoinError, JoinHandle, Permit};

use crate::plain_model::{Ending, Fate, Model, Policy, Verdict};
use crate::pools::{run, when};
use crate::support::{TEST_TIMEOUT, join, ready, rounds};

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Returns the task if no permit is free.
    Submit,
    /// Applies the policy if no permit is free.
    Spawn,
    Batch(usize),
    /// Acquires a permit for a later submission.
    Reserve,
    SubmitReserved,
    GiveBack,
    /// Aborts a task that has a handle.
    Abort(prop::sample::Index),
    /// Ends a running task.
    End(prop::sample::Index, Ending),
    Shutdown,
}

/// The expected end of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Returned(usize),
    Panicked,
    Cancelled,
}

fn step() -> impl Strategy<Value = Step> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        18 => Just(Step::Submit),
        12 => Just(Step::Spawn),
        4 => (0..4_usize).prop_map(Step::Batch),
        6 => Just(Step::Reserve),
        6 => Just(Step::SubmitReserved),
        3 => Just(Step::GiveBack),
        9 => index().prop_map(Step::Abort),
        12 => index().prop_map(|index| Step::End(index, Ending::Return)),
        3 => index().prop_map(|index| Step::End(index, Ending::Panic)),
        1 => Just(Step::Shutdown),
    ]
}

fn policy() -> impl Strategy<Value = Policy> {
    use Policy::{DropNewest, DropOldest, Reject};
    prop_oneof![Just(Reject), Just(DropNewest), Just(DropOldest)]
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
    fn the_pool_agrees_with_the_model(
        max_threads in 1..4_usize,
        capacity in prop::option::of(0..4_usize),
        policy in policy(),
        steps in prop::collection::vec(step(), 1..50),
    ) {
        let mut builder = BlockingPool::builder();
        builder.max_threads(max_threads).overflow(policy.overflow());
        if let Some(capacity) = capacity {
            builder.queue_capacity(capacity);
        }
        let pool = builder.build().unwrap();
        let mut both = Both::new(&pool, Model::new(max_threads, capacity, policy));
        for step in steps {
            both.take(step);
            both.compare();
        }
        both.finish();
    }
}

/// The model, the pool, and the tasks of both.
struct Both<'a> {
    model: Model,
    pool: &'a BlockingPool,
    permits: Vec<Permit<'a, BlockingPool>>,
    /// The accepted tasks, by their number.
    tasks: Vec<Submitted>,
    started: mpsc::Sender<usize>,
    starts: mpsc::Receiver<usize>,
    /// The number of tasks that have reported their start.
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
            Step::Spawn => self.spawn(),
            Step::Batch(tasks) => self.spawn_batch(tasks.min(self.model.most_at_once())),
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
                self.pool.close();
                self.model.close();
            }
        }
    }

    /// A task that runs until it receives an ending, and the sender for that.
    fn task(&self) -> (mpsc::Sender<Ending>, impl FnOnce() -> usize + Send + use<>) {
        let ((number, end), task) = self.task_behind();
        number.send(self.tasks.len()).expect("the task waits");
        (end, task)
    }

    /// The same for a task that does not know its number yet.
    fn task_behind(
        &self,
    ) -> (
        (mpsc::Sender<usize>, mpsc::Sender<Ending>),
        impl FnOnce() -> usize + Send + use<>,
    ) {
        let (number, numbers) = mpsc::channel();
        let (end, ends) = mpsc::channel();
        let started = self.started.clone();
        let task = move || {
            let number = numbers.recv().expect("the test says which it is");
            started.send(number).expect("the test waits");
            match ends.recv().expect("the test says how it ends") {
                Ending::Return => number,
                Ending::Panic => panic!("as it should"),
            }
        };
        ((number, end), task)
    }

    fn submit(&mut self) {
        let (end, task) = self.task();
        let (verdict, handle) = match self.pool.try_spawn_blocking(task) {
            Ok(handle) => (Verdict::Accepted, Some(handle)),
            Err(error) if error.is_full() => (Verdict::Full, None),
            Err(error) if error.is_closed() => (Verdict::Closed, None),
            Err(error) => panic!("{error}"),
        };
        assert_eq!(verdict, self.model.submit(self.tasks.len()));
        if let Some(handle) = handle {
            self.keep(handle, end);
        }
    }

    fn spawn(&mut self) {
        let (end, task) = self.task();
        let handle = self.pool.spawn_blocking(task);
        self.meet_fate(handle, end);
    }

    fn spawn_batch(&mut self, tasks: usize) {
        let (ends, tasks): (Vec<_>, Vec<_>) = (0..tasks).map(|_| self.task_behind()).unzip();
        let handles = self.pool.spawn_batch(tasks);
        assert_eq!(handles.len(), ends.len());
        for (handle, (number, end)) in handles.into_iter().zip(ends) {
            number.send(self.tasks.len()).ok();
            self.meet_fate(handle, end);
        }
    }

    /// Checks the fate of the next task.
    fn meet_fate(&mut self, handle: JoinHandle<usize>, end: mpsc::Sender<Ending>) {
        let fate = self.model.spawn(self.tasks.len());
        match fate {
            Fate::Accepted => {}
            Fate::InPlaceOf(oldest) => {
                let oldest = &mut self.tasks[oldest];
                assert!(oldest.handle.is_finished());
                oldest.ended = Some(Ended::Cancelled);
            }
            Fate::Dropped => return assert!(ready(handle).unwrap_err().is_cancelled()),
            Fate::Rejected => return assert!(ready(handle).unwrap_err().is_rejected()),
            Fate::Closed => return assert!(ready(handle).unwrap_err().is_closed()),
        }
        self.keep(handle, end);
    }

    fn reserve(&mut self) {
        let verdict = match self.pool.reserve().now_or_never() {
            Some(Ok(permit)) => {
                self.permits.push(permit);
                Verdict::Accepted
            }
            Some(Err(_)) => Verdict::Closed,
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

    /// Waits until the pool agrees with the model, or fails.
    fn compare(&mut self) {
        let model = &self.model;
        let ended = model.returned + model.panicked;
        while self.known < model.running.len() + ended as usize {
            let number = self
                .starts
                .recv_timeout(TEST_TIMEOUT)
                .expect("a task starts");
            // It runs, or has received its ending. It must not be queued in the model.
            assert!(model.queue.iter().all(|queued| *queued != number));
            self.known += 1;
        }
        let metrics = when(self.pool, |metrics| {
            metrics.completed + metrics.panicked + metrics.cancelled == ended + model.cancelled
                && metrics.busy == model.running.len() as u64
                // A thread between two tasks is neither busy nor idle, and no submitter relies on it.
                && metrics.busy + metrics.idle == metrics.threads
                && metrics.queued == model.queue.len() as u64
                && (!model.closed || metrics.threads == model.threads as u64)
        });
        let ended = (metrics.completed, metrics.panicked, metrics.cancelled);
        assert_eq!(ended, (model.returned, model.panicked, model.cancelled));
        let asked = (metrics.submitted, metrics.rejected);
        assert_eq!(asked, (model.accepted, model.rejected));
        assert_eq!(metrics.threads, model.threads as u64);
        assert!(
            self.starts.try_recv().is_err(),
            "a task started that should wait"
        );
    }

    /// Ends everything, and checks all outcomes.
    fn finish(mut self) {
        self.pool.close();
        self.model.close();
        self.permits.clear();
        while let Some(number) = self.model.running.first() {
            self.end(*number, Ending::Return);
            self.compare();
        }
        run(self.pool.closed());
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
