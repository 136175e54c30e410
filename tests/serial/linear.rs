//! Linearizability: the jobs of eight threads took effect one by one, in an order that agrees with what each thread
//! observed.
//!
//! Each job adds its name to a list and returns the length of the list. So the list is the order in which the jobs
//! took effect. It is compared with a clock that each thread reads before and after each operation.

#[path = "linear/history.rs"]
mod history;
#[path = "linear/stress.rs"]
mod stress;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use throng::serial::Level;
use throng::{JoinError, JoinHandle, SerialExecutor};
use tokio::runtime::Runtime;

use self::history::{Event, Name, check};
use crate::support::{block_on, multi_thread, rounds};

const THREADS: usize = 8;

/// What a thread does next.
#[derive(Clone, Copy, Debug)]
struct Step {
    way: Way,
    /// The job submits another one.
    nests: bool,
    then: Then,
}

/// The method that submits a job.
#[derive(Clone, Copy, Debug)]
enum Way {
    Submit,
    SubmitAt,
    Post,
    /// Submits the job if it cannot run now.
    TryRun,
    BlockingRun,
}

/// What a thread does when it has submitted a job.
#[derive(Clone, Copy, Debug)]
enum Then {
    GoOn,
    /// Waits for one of the jobs that it has not waited for.
    Await(prop::sample::Index),
    /// Aborts one of them.
    Abort(prop::sample::Index),
}

/// An executor, and what its threads do.
#[derive(Clone, Debug)]
struct Plan {
    capture_jobs: usize,
    /// `None`: there is no runtime to hand over to. Otherwise the option `inline`.
    inline: Option<bool>,
    /// The level of [`Way::SubmitAt`].
    level: Level,
    threads: Vec<Vec<Step>>,
}

fn step() -> impl Strategy<Value = Step> {
    let index = any::<prop::sample::Index>;
    let way = prop_oneof![
        4 => Just(Way::Submit),
        2 => Just(Way::SubmitAt),
        2 => Just(Way::Post),
        2 => Just(Way::TryRun),
        1 => Just(Way::BlockingRun),
    ];
    let then = prop_oneof![
        4 => Just(Then::GoOn),
        2 => index().prop_map(Then::Await),
        1 => index().prop_map(Then::Abort),
    ];
    let nests = prop::bool::weighted(0.2);
    (way, nests, then).prop_map(|(way, nests, then)| Step { way, nests, then })
}

fn plan() -> impl Strategy<Value = Plan> {
    let inline = prop_oneof![Just(None), Just(Some(true)), Just(Some(false))];
    let level = prop_oneof![Just(Level::LOW), Just(Level::NORMAL), Just(Level::HIGH)];
    let steps = prop::collection::vec(step(), 0..40);
    let threads = prop::collection::vec(steps, THREADS);
    (0..20_usize, inline, level, threads).prop_map(|(capture_jobs, inline, level, threads)| Plan {
        capture_jobs,
        inline,
        level,
        threads,
    })
}

#[test]
fn the_operations_of_eight_threads_have_one_order() {
    let runtime = multi_thread(2, "drain");
    let config = Config {
        cases: rounds(100, 20_000) as u32,
        failure_persistence: None,
        ..Config::default()
    };
    let outcome = TestRunner::new(config).run(&plan(), |plan| {
        let world = World::new(&plan);
        let runtime = plan.inline.map(|_| &runtime);
        let mut events = run(&world, &plan, runtime);
        let ran = block_on(world.executor.clone().into_inner()).unwrap();
        prop_assert_eq!(&*world.model.lock().unwrap(), &ran);
        check(&mut events, &ran).map_err(TestCaseError::fail)
    });
    outcome.unwrap();
}

/// What all threads share.
struct World {
    executor: SerialExecutor<Vec<Name>>,
    clock: AtomicU64,
    /// A copy of the state. The lock is never contended, because one job runs at a time.
    model: Mutex<Vec<Name>>,
    level: Level,
    has_runtime: bool,
}

/// The output of a job.
struct Output {
    length: usize,
    nested: Option<Box<Submitted>>,
}

impl World {
    fn new(plan: &Plan) -> Arc<Self> {
        let executor = SerialExecutor::builder()
            .capture_jobs(plan.capture_jobs)
            .inline(plan.inline.unwrap_or(true))
            .build(Vec::new())
            .unwrap();
        Arc::new(Self {
            executor,
            clock: AtomicU64::new(0),
            model: Mutex::new(Vec::new()),
            level: plan.level,
            has_runtime: plan.inline.is_some(),
        })
    }

    fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// Creates the job of this name.
    fn job(
        self: &Arc<Self>,
        name: Name,
        nests: bool,
    ) -> impl FnOnce(&mut Vec<Name>) -> Output + Send + use<> {
        let world = Arc::clone(self);
        move |names| {
            let mut model = world.model.try_lock().expect("one job at a time");
            model.push(name);
            names.push(name);
            assert_eq!(model.len(), names.len());
            // Lets other threads queue now and then.
            if name.number.is_multiple_of(4) {
                thread::yield_now();
            }
            let length = names.len();
            drop(model);
            let nested = nests.then(|| Box::new(Submitted::submit(&world, name.nested())));
            Output { length, nested }
        }
    }
}

/// Runs the plan, and returns the events of all threads.
fn run(world: &Arc<World>, plan: &Plan, runtime: Option<&Runtime>) -> Vec<Event> {
    let barrier = Barrier::new(THREADS);
    thread::scope(|scope| {
        let clients = plan.threads.iter().enumerate().map(|(thread, steps)| {
            let barrier = &barrier;
            let mut client = Client::new(world, thread);
            scope.spawn(move || {
                let _in = runtime.map(Runtime::enter);
                barrier.wait();
                steps.iter().for_each(|&step| client.take(step));
                client.finish()
            })
        });
        let clients: Vec<_> = clients.collect();
        let events = clients.into_iter().map(|client| client.join().unwrap());
        events.flatten().collect()
    })
}

/// One of the threads.
struct Client {
    world: Arc<World>,
    thread: usize,
    number: usize,
    /// The jobs that it has not waited for.
    open: Vec<Submitted>,
    events: Vec<Event>,
}

impl Client {
    fn new(world: &Arc<World>, thread: usize) -> Self {
        Self {
            world: Arc::clone(world),
            thread,
            number: 0,
            open: Vec::new(),
            events: Vec::new(),
        }
    }

    fn take(&mut self, step: Step) {
        self.submit(step);
        match step.then {
            Then::GoOn => {}
            Then::Await(index) if !self.open.is_empty() => {
                let submitted = self.open.swap_remove(index.index(self.open.len()));
                self.wait_for(submitted);
            }
            Then::Abort(index) if !self.open.is_empty() => {
                let index = index.index(self.open.len());
                self.open[index].abort();
            }
            Then::Await(_) | Then::Abort(_) => {}
        }
    }

    fn submit(&mut self, Step { way, nests, .. }: Step) {
        let name = Name::new(self.thread, self.number);
        self.number += 1;
        let world = &self.world;
        let (executor, job) = (&world.executor, world.job(name, nests));
        let mut event = Event::begin(name, Level::NORMAL, world.now());
        let handle = match way {
            Way::Submit => executor.submit(job),
            Way::SubmitAt => {
                event.level = world.level;
                executor.submit_at(world.level, job)
            }
            Way::Post => executor.post(job),
            Way::TryRun => match executor.try_run(job) {
                Ok(output) => return self.ended(event, Ok(output)),
                Err(busy) => executor.submit(busy.into_inner()),
            },
            Way::BlockingRun => {
                let output = executor.blocking_run(job).unwrap();
                return self.ended(event, Ok(output));
            }
        };
        event.submitted = world.now();
        self.open.push(Submitted::new(event, handle));
    }

    fn wait_for(&mut self, submitted: Submitted) {
        let outcome = block_on(submitted.handle);
        if let Err(error) = &outcome {
            let aborted = submitted.aborted && error.is_cancelled();
            let nowhere_to_post = !self.world.has_runtime && error.is_rejected();
            assert!(aborted || nowhere_to_post, "{error}");
        }
        self.ended(submitted.event, outcome);
    }

    /// Records the end of a job.
    fn ended(&mut self, mut event: Event, outcome: Result<Output, JoinError>) {
        event.ended = self.world.now();
        event.submitted = event.submitted.min(event.ended);
        if let Ok(Output { length, nested }) = outcome {
            event.length = Some(length);
            self.open.extend(nested.map(|nested| *nested));
        }
        self.events.push(event);
    }

    /// Waits for the remaining jobs.
    fn finish(mut self) -> Vec<Event> {
        while let Some(submitted) = self.open.pop() {
            self.wait_for(submitted);
        }
        self.events
    }
}

/// A job that has not been waited for.
struct Submitted {
    event: Event,
    handle: JoinHandle<Output>,
    aborted: bool,
}

impl Submitted {
    fn new(event: Event, handle: JoinHandle<Output>) -> Self {
        Self {
            event,
            handle,
            aborted: false,
        }
    }

    /// Submits a job that submits no other.
    fn submit(world: &Arc<World>, name: Name) -> Self {
        let mut event = Event::begin(name, Level::NORMAL, world.now());
        let handle = world.executor.submit(world.job(name, false));
        event.submitted = world.now();
        Self::new(event, handle)
    }

    fn abort(&mut self) {
        self.handle.abort();
        self.aborted = true;
    }
}
