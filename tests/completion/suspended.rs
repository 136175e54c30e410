//! Small futures that wait stay in their cells, and tasks of the stream poll them again.

use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::task::{Poll, Waker};
use std::thread;

use futures::lock::Mutex;
use throng::CompletionStream;
use throng::completion::Submitter;
use tokio::runtime::Runtime;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::{block_in_place, coop, yield_now};

use super::support::{
    Drops, Gate, PanicsOnDrop, block_on, current_thread, eventually, message, multi_thread,
    receive, wait_until, within,
};
use super::unbounded;

/// Passes two wakers on at its first poll, and is ready at the second.
fn waits_once(
    wakers: Sender<[Waker; 2]>,
    polls: Arc<AtomicUsize>,
) -> impl Future<Output = ()> + Send {
    let mut waits = true;
    poll_fn(move |cx| {
        polls.fetch_add(1, Ordering::SeqCst);
        if std::mem::take(&mut waits) {
            wakers
                .send([cx.waker().clone(), cx.waker().clone()])
                .unwrap();
            return Poll::Pending;
        }
        Poll::Ready(())
    })
}

/// A job's waker wakes no other job, although the memory of jobs is used again.
#[test]
fn wakers_outlive_their_jobs_and_the_stream() {
    const JOBS: usize = 100;
    let runtime = multi_thread(2, "worker");
    let (jobs, mut done) = unbounded();
    let polls = Arc::new(AtomicUsize::new(0));
    let (sender, wakers) = channel();
    let submit = || {
        let _context = runtime.enter();
        for tag in 0..JOBS {
            let job = waits_once(sender.clone(), Arc::clone(&polls));
            block_on(jobs.submit(tag, job)).unwrap();
        }
        (0..JOBS).map(|_| receive(&wakers)).unzip_wakers()
    };
    let (first, old) = submit();
    let waking = thread::spawn(move || first.into_iter().for_each(Waker::wake));
    for _ in 0..JOBS {
        assert!(block_on(done.next()).unwrap().outcome.is_ok());
    }
    waking.join().unwrap();
    let (first, second) = submit();
    old.iter().for_each(Waker::wake_by_ref);
    assert_eq!(polls.load(Ordering::SeqCst), 3 * JOBS);
    first.into_iter().for_each(Waker::wake);
    for _ in 0..JOBS {
        assert!(block_on(done.next()).unwrap().outcome.is_ok());
    }
    assert_eq!(polls.load(Ordering::SeqCst), 4 * JOBS);
    drop((jobs, done));
    second.iter().for_each(Waker::wake_by_ref);
    drop(runtime);
    old.into_iter().chain(second).for_each(Waker::wake);
    assert_eq!(polls.load(Ordering::SeqCst), 4 * JOBS);
}

trait UnzipWakers {
    /// Separates the first wakers from the second ones.
    fn unzip_wakers(self) -> (Vec<Waker>, Vec<Waker>);
}

impl<I: Iterator<Item = [Waker; 2]>> UnzipWakers for I {
    fn unzip_wakers(self) -> (Vec<Waker>, Vec<Waker>) {
        self.map(<(Waker, Waker)>::from).unzip()
    }
}

#[tokio::test]
async fn a_panic_after_a_wait_is_the_item() {
    let (jobs, mut done) = unbounded::<()>();
    let drops = Drops::new();
    let value = drops.value();
    let job = async move {
        let _value = value;
        yield_now().await;
        panic!("on purpose");
    };
    jobs.submit(0, job).await.unwrap();
    let error = within(done.next()).await.unwrap().outcome.unwrap_err();
    assert_eq!(message(error.into_panic()), "on purpose");
    assert_eq!(drops.count(), 1);
}

/// As many jobs as there are workers block their threads after a wait, until another job has waited too.
#[test]
fn jobs_that_block_after_a_wait_do_not_hold_up_others() {
    for workers in [1, 2, 4] {
        let runtime = multi_thread(workers, "worker");
        let gate = Gate::new();
        let begin = Arc::new((Semaphore::new(0), AtomicUsize::new(0)));
        runtime.block_on(async {
            let (jobs, mut done) = unbounded();
            for tag in 0..=workers {
                let (gate, begin) = (gate.clone(), Arc::clone(&begin));
                let job = async move {
                    begin.1.fetch_add(1, Ordering::SeqCst);
                    begin.0.acquire().await.unwrap().forget();
                    match tag == workers {
                        true => gate.open(),
                        false => block_in_place(|| gate.pass()),
                    }
                };
                jobs.submit(tag, job).await.unwrap();
            }
            let all_wait = || begin.1.load(Ordering::SeqCst) > workers;
            eventually("all jobs wait", all_wait).await;
            begin.0.add_permits(workers + 1);
            for _ in 0..=workers {
                assert!(within(done.next()).await.unwrap().outcome.is_ok());
            }
        });
    }
}

/// A job that is always ready uses up the budget of the task that polls it.
#[test]
fn a_job_that_is_always_ready_after_a_wait_lets_others_run() {
    let runtime = current_thread();
    runtime.block_on(within(async {
        let (jobs, mut done) = unbounded();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let busy = async move {
            yield_now().await;
            while !stopped.load(Ordering::SeqCst) {
                coop::consume_budget().await;
            }
        };
        jobs.submit(0, busy).await.unwrap();
        let stops = async move {
            yield_now().await;
            stop.store(true, Ordering::SeqCst);
        };
        jobs.submit(1, stops).await.unwrap();
        for _ in 0..2 {
            assert!(done.next().await.unwrap().outcome.is_ok());
        }
    }));
}

#[test]
fn waiting_jobs_end_when_they_are_aborted_or_their_stream_is_dropped() {
    let runtime = multi_thread(2, "worker");
    let (drops, polled) = (Drops::new(), Arc::new(AtomicUsize::new(0)));
    runtime.block_on(async {
        let (jobs, mut done) = unbounded::<()>();
        let mut ids = Vec::new();
        for tag in 0..10 {
            let (polled, value) = (Arc::clone(&polled), drops.value());
            let waits = async move {
                let _value = value;
                polled.fetch_add(1, Ordering::SeqCst);
                pending::<()>().await;
            };
            ids.push(jobs.submit(tag, waits).await.unwrap());
        }
        eventually("all jobs wait", || polled.load(Ordering::SeqCst) == 10).await;
        assert!(jobs.abort(ids[3]));
        let item = within(done.next()).await.unwrap();
        assert_eq!(item.id, ids[3]);
        assert!(item.outcome.unwrap_err().is_cancelled());
        assert_eq!(drops.count(), 1);
        drop(done);
        eventually("the others are dropped", || drops.count() == 10).await;
    });
}

/// Their wakers do nothing afterwards.
#[test]
fn waiting_jobs_are_cancelled_with_their_runtime() {
    for runtime in [current_thread(), multi_thread(2, "worker")] {
        let (jobs, mut done) = unbounded();
        let polls = Arc::new(AtomicUsize::new(0));
        let (sender, wakers) = channel();
        runtime.block_on(async {
            for tag in 0..10 {
                let job = waits_once(sender.clone(), Arc::clone(&polls));
                jobs.submit(tag, job).await.unwrap();
            }
            eventually("all jobs wait", || polls.load(Ordering::SeqCst) == 10).await;
        });
        drop(runtime);
        for _ in 0..10 {
            let item = block_on(done.next()).unwrap();
            assert!(item.outcome.unwrap_err().is_cancelled());
        }
        wakers.try_iter().flatten().for_each(Waker::wake);
        assert_eq!(polls.load(Ordering::SeqCst), 10);
    }
}

/// So many that their drops must not be nested: each wakes the next job.
const CHAIN: usize = 20_000;

fn submit_all<F>(
    runtime: &Runtime,
    jobs: &Submitter<(), usize>,
    count: usize,
    mut job: impl FnMut() -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let _context = runtime.enter();
    for tag in 0..count {
        block_on(jobs.submit(tag, job())).unwrap();
    }
}

/// Waits until all jobs of a chain have been polled, drops the runtime, and expects that all jobs are cancelled.
fn assert_cancelled(
    runtime: Runtime,
    mut done: CompletionStream<(), usize>,
    polled: &Arc<AtomicUsize>,
) {
    wait_until("all jobs wait", || polled.load(Ordering::SeqCst) == CHAIN);
    drop(runtime);
    for _ in 0..CHAIN {
        let item = block_on(done.next()).unwrap();
        assert!(item.outcome.unwrap_err().is_cancelled());
    }
}

/// The first job has the only permit. Its drop gives the permit to the next job, and so on.
#[test]
fn a_chain_of_waiting_jobs_on_a_semaphore_is_cancelled_with_its_runtime() {
    let runtime = multi_thread(2, "worker");
    let (jobs, done) = unbounded();
    let (permits, polled) = (Arc::new(Semaphore::new(1)), Arc::default());
    submit_all(&runtime, &jobs, CHAIN, || {
        holds_permit(Arc::clone(&permits), Arc::clone(&polled))
    });
    assert_cancelled(runtime, done, &polled);
    assert_eq!(permits.available_permits(), 1);
}

async fn holds_permit(permits: Arc<Semaphore>, polled: Arc<AtomicUsize>) {
    polled.fetch_add(1, Ordering::SeqCst);
    let _permit = permits.acquire().await.unwrap();
    pending::<()>().await;
}

/// One of the jobs has been woken, and is queued when the runtime is dropped.
#[test]
fn a_chain_of_waiting_jobs_with_a_queued_one_is_cancelled_with_its_runtime() {
    let runtime = current_thread();
    let (jobs, done) = unbounded();
    let (permits, polled) = (Arc::new(Semaphore::new(0)), Arc::default());
    submit_all(&runtime, &jobs, CHAIN, || {
        holds_permit(Arc::clone(&permits), Arc::clone(&polled))
    });
    let all_wait = || polled.load(Ordering::SeqCst) == CHAIN;
    runtime.block_on(eventually("all jobs wait", all_wait));
    // Nothing runs on the thread of this runtime now.
    permits.add_permits(1);
    assert_cancelled(runtime, done, &polled);
    assert_eq!(permits.available_permits(), 1);
}

/// Each job has the sender that the next one waits for.
#[test]
fn a_chain_of_waiting_jobs_on_channels_is_cancelled_with_its_runtime() {
    let runtime = multi_thread(2, "worker");
    let (jobs, done) = unbounded();
    let polled = Arc::<AtomicUsize>::default();
    let (_first, mut previous) = oneshot::channel::<()>();
    submit_all(&runtime, &jobs, CHAIN, || {
        let (sender, receiver) = oneshot::channel();
        let receives = std::mem::replace(&mut previous, receiver);
        let polled = Arc::clone(&polled);
        async move {
            let _sender = sender;
            polled.fetch_add(1, Ordering::SeqCst);
            let _ = receives.await;
        }
    });
    assert_cancelled(runtime, done, &polled);
}

/// The lock's guard wakes the next job while it holds the lock of the waiters, which the drop of that job acquires too.
#[test]
fn waiting_jobs_that_wake_each_other_under_a_lock_are_cancelled_with_their_runtime() {
    const JOBS: usize = 10;
    let runtime = multi_thread(2, "worker");
    let (jobs, mut done) = unbounded::<()>();
    let (lock, polled) = (Arc::new(Mutex::new(())), Arc::<AtomicUsize>::default());
    submit_all(&runtime, &jobs, JOBS, || {
        let (lock, polled) = (Arc::clone(&lock), Arc::clone(&polled));
        async move {
            polled.fetch_add(1, Ordering::SeqCst);
            let _guard = lock.lock().await;
            pending::<()>().await;
        }
    });
    wait_until("all jobs wait", || polled.load(Ordering::SeqCst) == JOBS);
    let (dropped, is_dropped) = channel();
    thread::spawn(move || {
        drop(runtime);
        dropped.send(()).unwrap();
    });
    // This fails after some time.
    receive(&is_dropped);
    for _ in 0..JOBS {
        let item = block_on(done.next()).unwrap();
        assert!(item.outcome.unwrap_err().is_cancelled());
    }
    assert!(lock.try_lock().is_some());
}

/// Other threads wake jobs while their runtime is dropped. Each of them holds a lock that the job's drop acquires.
#[test]
fn jobs_that_are_woken_under_a_lock_while_their_runtime_is_dropped_end() {
    const JOBS: usize = 100;
    for _ in 0..20 {
        let runtime = multi_thread(2, "worker");
        let (jobs, mut done) = unbounded::<()>();
        let (sender, wakers) = channel();
        let lock = Arc::new(std::sync::Mutex::new(()));
        submit_all(&runtime, &jobs, JOBS, || {
            let locks = LocksOnDrop(Arc::clone(&lock));
            let waits = waits_once(sender.clone(), Arc::default());
            async move {
                let _locks = locks;
                waits.await;
                pending::<()>().await;
            }
        });
        let wakers: Vec<_> = (0..JOBS).map(|_| receive(&wakers)).collect();
        let (ended, is_ended) = channel();
        let waking = ended.clone();
        thread::spawn(move || {
            for waker in wakers.iter().flatten() {
                let _locked = lock.lock().unwrap();
                waker.wake_by_ref();
            }
            waking.send(()).unwrap();
        });
        thread::spawn(move || {
            drop(runtime);
            ended.send(()).unwrap();
        });
        // This fails after some time.
        receive(&is_ended);
        receive(&is_ended);
        for _ in 0..JOBS {
            let item = block_on(done.next()).unwrap();
            assert!(item.outcome.unwrap_err().is_cancelled());
        }
    }
}

struct LocksOnDrop(Arc<std::sync::Mutex<()>>);

impl Drop for LocksOnDrop {
    fn drop(&mut self) {
        drop(self.0.lock().unwrap());
    }
}

#[test]
fn waiting_jobs_whose_drops_panic_are_cancelled_with_their_runtime() {
    const JOBS: usize = 10;
    let runtime = multi_thread(2, "worker");
    let (jobs, mut done) = unbounded();
    let (drops, polled) = (Drops::new(), Arc::<AtomicUsize>::default());
    submit_all(&runtime, &jobs, JOBS, || {
        let (panics, polled) = (PanicsOnDrop(drops.value()), Arc::clone(&polled));
        async move {
            let _panics = panics;
            polled.fetch_add(1, Ordering::SeqCst);
            pending::<()>().await;
        }
    });
    wait_until("all jobs wait", || polled.load(Ordering::SeqCst) == JOBS);
    drop(runtime);
    for _ in 0..JOBS {
        let item = block_on(done.next()).unwrap();
        assert!(item.outcome.unwrap_err().is_cancelled());
    }
    assert_eq!(drops.count(), JOBS);
}

/// Each job has its own waker, which keeps the memory of the job.
#[test]
fn waiting_jobs_that_have_their_own_wakers_are_dropped() {
    const JOBS: usize = 10;
    for runtime_first in [false, true] {
        let runtime = multi_thread(2, "worker");
        let (jobs, done) = unbounded();
        let (drops, polled) = (Drops::new(), Arc::<AtomicUsize>::default());
        submit_all(&runtime, &jobs, JOBS, || {
            let (value, polled) = (drops.value(), Arc::clone(&polled));
            let mut wakers = Vec::new();
            poll_fn(move |cx| {
                let _value = &value;
                wakers.push(cx.waker().clone());
                polled.fetch_add(1, Ordering::SeqCst);
                Poll::<()>::Pending
            })
        });
        wait_until("all jobs wait", || polled.load(Ordering::SeqCst) == JOBS);
        match runtime_first {
            true => drop(runtime),
            false => drop(done),
        }
        wait_until("all jobs are dropped", || drops.count() == JOBS);
    }
}

/// Each job has the stream of the next one.
#[test]
fn waiting_jobs_of_nested_streams_are_dropped() {
    const STREAMS: usize = 1_000;
    for runtime_first in [false, true] {
        let runtime = multi_thread(2, "worker");
        let (drops, polled) = (Drops::new(), Arc::<AtomicUsize>::default());
        let mut outermost = None;
        for _ in 0..STREAMS {
            let (jobs, done) = unbounded();
            let (value, inner) = (drops.value(), outermost.map(Box::new));
            let polled = Arc::clone(&polled);
            let waits = async move {
                let _held = (value, inner);
                polled.fetch_add(1, Ordering::SeqCst);
                pending::<()>().await;
            };
            let _context = runtime.enter();
            block_on(jobs.submit(0, waits)).unwrap();
            outermost = Some((jobs, done));
        }
        let all_wait = || polled.load(Ordering::SeqCst) == STREAMS;
        wait_until("all jobs wait", all_wait);
        match runtime_first {
            true => drop(runtime),
            false => drop(outermost),
        }
        wait_until("all jobs are dropped", || drops.count() == STREAMS);
    }
}

/// A task of the stream stays on the runtime once a job has waited.
#[test]
fn no_task_outlives_the_stream() {
    let runtime = multi_thread(2, "worker");
    let (jobs, mut done) = unbounded();
    runtime.block_on(async {
        for tag in 0..10 {
            jobs.submit(tag, yield_now()).await.unwrap();
        }
        for _ in 0..10 {
            assert!(within(done.next()).await.unwrap().outcome.is_ok());
        }
    });
    wait_until("one task is left", || {
        runtime.metrics().num_alive_tasks() == 1
    });
    drop((jobs, done));
    wait_until("no task is left", || {
        runtime.metrics().num_alive_tasks() == 0
    });
}
