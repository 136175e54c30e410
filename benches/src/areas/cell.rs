//! One promise of one value: a slot against the channels that are used for it, a handle that is ready at birth
//! against a lock that is free, and the memory of one task of a pool, which is used again, against an allocator.

use std::sync::mpsc;

use throng::completion::Submitter;
use throng::{CompletionStream, ComputePool, SerialExecutor, Slot};
use tokio::runtime::{Builder, Runtime};

use super::{Area, Peer, Unit, Workload, YieldEvery};
use crate::measure::{Rules, Sample};

const WINDOW: u64 = 1_000;

pub(super) const AREA: Area = Area {
    name: "cell",
    about: "a slot, a ready handle, a recycled task against oneshot channels, a free lock, malloc",
    config: "CompletionStream::builder() with its default bounds; SerialExecutor::new(state); \
             ComputePool::builder().threads(1)",
    workloads,
    prepare: None,
};

fn workloads() -> Vec<Workload> {
    vec![
        Workload::new("slot", Unit::NS_PER_TASK, promises(Local)),
        Workload::new("slot-remote", Unit::NS_PER_TASK, promises(Remote)),
        Workload::new(
            "ready",
            Unit::NS_PER_TASK,
            vec![
                Peer::new("throng", ready_throng),
                Peer::new("tokio-mutex", ready_tokio_mutex),
            ],
        ),
        Workload::new(
            "recycle",
            Unit::NS_PER_TASK,
            vec![
                Peer::new("throng", recycle_throng),
                Peer::new("malloc-here-free-there", recycle_there),
                Peer::new("malloc-here-free-here", recycle_here),
            ],
        ),
    ]
}

/// Everyone who can promise a value.
fn promises<W: Work>(work: W) -> Vec<Peer> {
    vec![
        Peer::new("throng", move |rules| work.run::<Throng>(rules)),
        Peer::new("tokio-oneshot", move |rules| {
            work.run::<TokioOneshot>(rules)
        }),
        Peer::new("futures-oneshot", move |rules| {
            work.run::<FuturesOneshot>(rules)
        }),
    ]
}

/// A workload of promises.
trait Work: Copy + 'static {
    fn run<P: Promises>(self, rules: &Rules) -> Sample;
}

/// Open, complete and read, one after the other in one thread.
#[derive(Clone, Copy)]
struct Local;

/// Windows of promises that another thread completes.
#[derive(Clone, Copy)]
struct Remote;

impl Work for Local {
    fn run<P: Promises>(self, rules: &Rules) -> Sample {
        let runtime = one_thread();
        let mut promises = P::default();
        rules.measure(rules.scaled(200_000), |tasks| {
            runtime.block_on(local(&mut promises, tasks))
        })
    }
}

async fn local(promises: &mut impl Promises, tasks: u64) {
    let mut yields = YieldEvery::default();
    for task in 0..tasks {
        let writer = promises.open().await;
        writer.complete(task);
        assert_eq!(promises.read().await, task);
        yields.step().await;
    }
}

impl Work for Remote {
    fn run<P: Promises>(self, rules: &Rules) -> Sample {
        let runtime = one_thread();
        let mut promises = P::default();
        // The thread ends when the sending end is dropped with this call.
        let (windows, inbox) = mpsc::channel::<Vec<P::Writer>>();
        std::thread::spawn(move || {
            inbox
                .into_iter()
                .flatten()
                .for_each(|writer| writer.complete(1))
        });
        rules.measure(rules.scaled(200_000), |tasks| {
            runtime.block_on(remote(&mut promises, &windows, tasks))
        })
    }
}

async fn remote<P: Promises>(promises: &mut P, windows: &mpsc::Sender<Vec<P::Writer>>, tasks: u64) {
    for begin in (0..tasks).step_by(WINDOW as usize) {
        let size = WINDOW.min(tasks - begin);
        let mut window = Vec::with_capacity(size as usize);
        for _ in 0..size {
            window.push(promises.open().await);
        }
        windows
            .send(window)
            .expect("the completing thread lives as long as this sender");
        for _ in 0..size {
            assert_eq!(promises.read().await, 1);
        }
        tokio::task::yield_now().await;
    }
}

/// A source of promises, read in any order that suits it.
trait Promises: Default {
    type Writer: Writer;

    fn open(&mut self) -> impl Future<Output = Self::Writer>;

    fn read(&mut self) -> impl Future<Output = u64>;
}

/// The writing end of a promise.
trait Writer: Send + 'static {
    fn complete(self, value: u64);
}

struct Throng {
    jobs: Submitter<u64>,
    done: CompletionStream<u64>,
}

impl Default for Throng {
    fn default() -> Self {
        let (jobs, done) = CompletionStream::builder()
            .build()
            .expect("the limits are valid");
        Self { jobs, done }
    }
}

impl Promises for Throng {
    type Writer = Slot<u64>;

    async fn open(&mut self) -> Slot<u64> {
        self.jobs.slot(()).await.expect("the stream is open")
    }

    async fn read(&mut self) -> u64 {
        self.done
            .next()
            .await
            .expect("the stream is open")
            .outcome
            .expect("every slot is completed")
    }
}

impl Writer for Slot<u64> {
    fn complete(self, value: u64) {
        Self::complete(self, value);
    }
}

#[derive(Default)]
struct TokioOneshot {
    open: std::collections::VecDeque<tokio::sync::oneshot::Receiver<u64>>,
}

impl Promises for TokioOneshot {
    type Writer = tokio::sync::oneshot::Sender<u64>;

    async fn open(&mut self) -> Self::Writer {
        let (writer, reader) = tokio::sync::oneshot::channel();
        self.open.push_back(reader);
        writer
    }

    async fn read(&mut self) -> u64 {
        let reader = self.open.pop_front().expect("one read for each promise");
        reader.await.expect("every promise is completed")
    }
}

impl Writer for tokio::sync::oneshot::Sender<u64> {
    fn complete(self, value: u64) {
        self.send(value).expect("the reader waits");
    }
}

#[derive(Default)]
struct FuturesOneshot {
    open: std::collections::VecDeque<futures::channel::oneshot::Receiver<u64>>,
}

impl Promises for FuturesOneshot {
    type Writer = futures::channel::oneshot::Sender<u64>;

    async fn open(&mut self) -> Self::Writer {
        let (writer, reader) = futures::channel::oneshot::channel();
        self.open.push_back(reader);
        writer
    }

    async fn read(&mut self) -> u64 {
        let reader = self.open.pop_front().expect("one read for each promise");
        reader.await.expect("every promise is completed")
    }
}

impl Writer for futures::channel::oneshot::Sender<u64> {
    fn complete(self, value: u64) {
        self.send(value).expect("the reader waits");
    }
}

/// Submits to an idle executor, whose handle is ready at birth, and awaits it.
fn ready_throng(rules: &Rules) -> Sample {
    let runtime = one_thread();
    let executor = SerialExecutor::new(0_u64);
    rules.measure(rules.scaled(1_000_000), |tasks| {
        runtime.block_on(async {
            let mut yields = YieldEvery::default();
            for _ in 0..tasks {
                let handle = executor.submit(increment);
                std::hint::black_box(handle.await.expect("an increment does not panic"));
                yields.step().await;
            }
        });
    })
}

/// Locks a free lock, and awaits a future that is ready.
fn ready_tokio_mutex(rules: &Rules) -> Sample {
    let runtime = one_thread();
    let state = tokio::sync::Mutex::new(0_u64);
    rules.measure(rules.scaled(1_000_000), |tasks| {
        runtime.block_on(async {
            let mut yields = YieldEvery::default();
            for _ in 0..tasks {
                let value = increment(&mut *state.lock().await);
                std::hint::black_box(std::future::ready(value).await);
                yields.step().await;
            }
        });
    })
}

fn increment(state: &mut u64) -> u64 {
    *state += 1;
    *state
}

/// Each task submits its successor to the one thread that runs it: a push, a take, a run, and its memory again.
fn recycle_throng(rules: &Rules) -> Sample {
    let pool = ComputePool::builder().threads(1).build();
    let pool: &'static ComputePool = Box::leak(Box::new(pool.expect("a pool can be built")));
    let (last, ended) = mpsc::channel();
    rules.measure(rules.scaled(1_000_000), |tasks| {
        submit_successors(pool, tasks, last.clone());
        ended.recv().expect("the last task tells that it runs");
    })
}

fn submit_successors(pool: &'static ComputePool, tasks: u64, last: mpsc::Sender<()>) {
    pool.execute(move || match tasks {
        1 => last.send(()).expect("this round waits for its last task"),
        _ => submit_successors(pool, tasks - 1, last),
    });
}

/// As large as a task with its closure.
type Block = Box<[u64; 8]>;

/// Makes boxes in windows, which another thread drops.
fn recycle_there(rules: &Rules) -> Sample {
    // Few windows are under way, so that memory is used again, and neither thread waits for the other all the time.
    // The thread ends when the sending end is dropped with this call.
    let (windows, inbox) = mpsc::sync_channel(16);
    std::thread::spawn(move || inbox.into_iter().for_each(drop::<Vec<Block>>));
    recycle_windows(rules, |window| {
        windows
            .send(window)
            .expect("the dropping thread lives as long as this sender");
    })
}

/// Makes boxes in windows, and drops them.
fn recycle_here(rules: &Rules) -> Sample {
    recycle_windows(rules, drop)
}

fn recycle_windows(rules: &Rules, free: impl Fn(Vec<Block>)) -> Sample {
    rules.measure(rules.scaled(1_000_000), |tasks| {
        for begin in (0..tasks).step_by(WINDOW as usize) {
            let window = begin..tasks.min(begin + WINDOW);
            free(window.map(|task| Block::new([task; 8])).collect());
        }
    })
}

fn one_thread() -> Runtime {
    Builder::new_current_thread()
        .build()
        .expect("a runtime can be built")
}
