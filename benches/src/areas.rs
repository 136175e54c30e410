//! The areas: lists of workloads, each of which is a list of peers.

mod blocking;
mod cell;
mod completion;
mod compute;
mod durable;
mod indexer;
mod program;
mod serial;

use std::rc::Rc;

use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

pub(crate) use self::durable::work;
use crate::measure::{Rules, Sample};
use crate::watched;

/// Every area, in the order in which `all` runs them.
pub(crate) const ALL: &[Area] = &[
    cell::AREA,
    blocking::AREA,
    compute::AREA,
    serial::AREA,
    completion::AREA,
    indexer::AREA,
    durable::AREA,
];

/// A part of the crate, as far as it is measured.
pub(crate) struct Area {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// The one configuration with which ours runs every row.
    pub(crate) config: &'static str,
    workloads: fn() -> Vec<Workload>,
    /// Files that the workloads need; they live as long as the directory. It is told which rows are to run.
    pub(crate) prepare: Option<Prepare>,
}

/// Something to do, and who does it.
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    pub(crate) unit: Unit,
    /// Fresh processes in one repetition: more than one where a process can do the work only once.
    pub(crate) processes: usize,
    /// If set, a run of its own counts the allocations.
    pub(crate) counted: bool,
    pub(crate) peers: Vec<Peer>,
}

/// An implementation to measure: ours is called `throng`.
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    /// A remark that readers of the row need.
    pub(crate) note: Option<&'static str>,
    pub(crate) run: Run,
}

type Prepare = fn(&Rules, &[String]) -> std::io::Result<TempDir>;

type Run = Rc<dyn Fn(&Rules) -> Sample>;

/// The unit of a value, and whether higher or lower is better.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unit {
    pub(crate) name: &'static str,
    pub(crate) better: &'static str,
}

impl Unit {
    pub(crate) const NS_PER_TASK: Self = Self::less("ns/task");
    pub(crate) const US_PER_TASK: Self = Self::less("us/task");
    pub(crate) const US: Self = Self::less("us");
    pub(crate) const MS: Self = Self::less("ms");
    pub(crate) const PERCENT: Self = Self::more("%");
    pub(crate) const TASKS_PER_S: Self = Self::more("tasks/s");
    pub(crate) const MB_PER_S: Self = Self::more("MB/s");
    pub(crate) const THREADS: Self = Self::less("threads");
    /// Threads that there should be: so many at least.
    pub(crate) const THREADS_WANTED: Self = Self::more("threads");
    pub(crate) const CPU_US_PER_S: Self = Self::less("us/s");
    /// The time relative to the ideal.
    pub(crate) const X_IDEAL: Self = Self::less("x ideal");
    pub(crate) const BYTES: Self = Self::less("bytes");
    pub(crate) const ALLOCATIONS: Self = Self::less("allocations");
    pub(crate) const KB: Self = Self::less("kB");
    pub(crate) const SWITCHES_PER_S: Self = Self::less("switches/s");

    const fn less(name: &'static str) -> Self {
        Self {
            name,
            better: "less",
        }
    }

    const fn more(name: &'static str) -> Self {
        Self {
            name,
            better: "more",
        }
    }
}

impl Area {
    /// The workloads. If `watched`, with ours only: as it is, and watched.
    pub(crate) fn workloads(&self, watched: bool) -> Vec<Workload> {
        let mut workloads = (self.workloads)();
        if watched {
            workloads.iter_mut().for_each(Workload::keep_ours);
        }
        workloads
    }
}

impl Workload {
    fn keep_ours(&mut self) {
        self.peers.truncate(1);
        let ours = Rc::clone(&self.peers[0].run);
        self.peers.push(Peer::new(watched::NAME, move |rules| {
            watched::run(&*ours, rules)
        }));
    }

    fn new(name: &'static str, unit: Unit, peers: Vec<Peer>) -> Self {
        Self {
            name,
            unit,
            processes: 1,
            counted: true,
            peers,
        }
    }

    /// A row whose bar is an absolute limit: nobody to compare with.
    fn absolute(name: &'static str, unit: Unit, run: impl Fn(&Rules) -> Sample + 'static) -> Self {
        Self::new(name, unit, vec![Peer::new("throng", run)]).uncounted()
    }

    /// A row of which allocations say nothing.
    fn uncounted(self) -> Self {
        Self {
            counted: false,
            ..self
        }
    }

    fn processes(self, processes: usize) -> Self {
        Self { processes, ..self }
    }
}

impl Peer {
    fn new(name: &'static str, run: impl Fn(&Rules) -> Sample + 'static) -> Self {
        Self {
            name,
            note: None,
            run: Rc::new(run),
        }
    }

    fn note(self, note: Option<&'static str>) -> Self {
        Self { note, ..self }
    }
}

/// Every peer is measured in a runtime like this one.
fn two_workers() -> Builder {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(2).enable_time();
    builder
}

/// Runs `work` on a worker of the runtime, where applications run, and waits for it on this thread.
fn on_worker<F>(runtime: &Runtime, work: F) -> F::Output
where
    F: Future<Output: Send> + Send + 'static,
{
    runtime
        .block_on(runtime.spawn(work))
        .expect("a measured task panicked")
}

/// Gives a handle to a pool that has none: the job to execute, and what awaits its result.
fn with_handle<R: Send + 'static>(
    f: impl FnOnce() -> R + Send + 'static,
) -> (
    impl FnOnce() + Send + 'static,
    impl Future<Output = R> + Send,
) {
    let (sender, receiver) = oneshot::channel();
    let job = move || {
        // A handle that was dropped does not want the result.
        let _ = sender.send(f());
    };
    (job, async move {
        receiver.await.expect("a measured closure panicked")
    })
}

/// Yields to Tokio after 128 operations: peers that never wait would otherwise starve the other tasks.
#[derive(Default)]
struct YieldEvery {
    operations: u32,
}

impl YieldEvery {
    async fn step(&mut self) {
        self.operations += 1;
        if self.operations.is_multiple_of(128) {
            tokio::task::yield_now().await;
        }
    }
}
