//! Panics of tasks: they are reported, and the thread survives. `tests/join` has those of drops and wakers.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any, resume_unwind};
use std::sync::mpsc::{self, Receiver};
use std::thread::{self, ThreadId};

use throng::ComputePool;
use throng::compute::Metrics;

use crate::pools::{Count, bounded, of, output, rest};
use crate::support::{join, message, receive, wait_until};

type Payload = Box<dyn Any + Send>;

/// A pool of one thread, which must be the same at the end, with what its handler was told.
struct OneThread {
    pool: ComputePool,
    thread: ThreadId,
    told: Receiver<Payload>,
}

impl OneThread {
    fn new() -> Self {
        let (tell, told) = mpsc::channel();
        Self::with_handler(told, move |payload| tell.send(payload).unwrap())
    }

    fn with_handler(
        told: Receiver<Payload>,
        handler: impl Fn(Payload) + Send + Sync + 'static,
    ) -> Self {
        let mut builder = ComputePool::builder();
        let pool = builder.threads(1).on_panic(handler).build().unwrap();
        let thread = output(pool.spawn(|| thread::current().id()));
        Self { pool, thread, told }
    }

    /// Checks that the thread is still there, and returns the metrics.
    #[track_caller]
    fn check(self) -> Metrics {
        let thread = output(self.pool.spawn(|| thread::current().id()));
        assert_eq!(thread, self.thread);
        assert!(self.told.try_recv().is_err(), "told of one too many");
        rest(&self.pool)
    }
}

#[test]
fn a_panic_of_an_executed_closure_reaches_the_handler_with_its_payload() {
    let one = OneThread::new();
    one.pool.execute(|| panic!("as it should"));
    assert_eq!(message(receive(&one.told)), "as it should");
    let number = 7;
    let task = move || panic!("number {number}");
    assert!(one.pool.try_execute(task).is_ok());
    assert_eq!(message(receive(&one.told)), "number 7");
    one.pool.execute(|| panic_any(7_u8));
    assert_eq!(*receive(&one.told).downcast::<u8>().unwrap(), 7);
    one.pool.execute(|| resume_unwind(Box::new(vec![1, 2])));
    assert_eq!(*receive(&one.told).downcast::<Vec<i32>>().unwrap(), [1, 2]);
    one.pool
        .execute_batch((0..100).map(|n| move || panic_any(n)));
    for n in 0..100 {
        assert_eq!(*receive(&one.told).downcast::<i32>().unwrap(), n);
    }
    let metrics = one.check();
    assert_eq!((metrics.completed, metrics.panicked), (2, 104));
}

#[test]
fn the_handler_is_called_on_the_thread_of_the_task() {
    let (tell, told) = mpsc::channel();
    let (_none, nothing) = mpsc::channel();
    let one = OneThread::with_handler(nothing, move |_| tell.send(thread::current().id()).unwrap());
    one.pool.execute(|| panic!("as it should"));
    assert_eq!(receive(&told), one.thread);
    one.check();
}

#[test]
fn the_handler_may_panic_itself() {
    let (tell, told) = mpsc::channel();
    let one = OneThread::with_handler(told, move |payload| {
        tell.send(payload).unwrap();
        panic!("the handler, too");
    });
    for _ in 0..10 {
        one.pool.execute(|| panic!("as it should"));
        receive(&one.told);
    }
    assert_eq!(one.check().panicked, 10);
}

#[test]
fn the_handler_may_use_the_pool() {
    let ran = Count::default();
    let again = ran.clone();
    let mut builder = ComputePool::builder();
    let (give, pool) = mpsc::channel::<ComputePool>();
    let pool = std::sync::Mutex::new(pool);
    builder.threads(1).on_panic(move |_| {
        let pool = receive(&pool.lock().unwrap());
        pool.execute(again.adder());
    });
    let one = builder.build().unwrap();
    one.execute(|| panic!("as it should"));
    give.send(one.clone()).unwrap();
    wait_until("what the handler submitted has run", || ran.get() == 1);
}

#[test]
fn without_a_handler_the_thread_goes_on_as_well() {
    let pool = ComputePool::builder().threads(1).build().unwrap();
    let thread = output(pool.spawn(|| thread::current().id()));
    pool.execute(|| panic!("as it should"));
    pool.execute_batch((0..10).map(|n| move || panic_any(n)));
    assert_eq!(output(pool.spawn(|| thread::current().id())), thread);
    assert_eq!(rest(&pool).panicked, 11);
}

#[test]
fn a_panic_of_a_task_reaches_its_handle_and_not_the_handler() {
    let one = OneThread::new();
    let error = join(one.pool.spawn(|| panic!("as it should"))).unwrap_err();
    assert!(error.is_panic() && !error.is_cancelled());
    assert_eq!(message(error.into_panic()), "as it should");

    let number = 7;
    let error = join(one.pool.spawn(move || panic!("number {number}"))).unwrap_err();
    let text = error.to_string();
    assert!(
        text.ends_with("panicked with message \"number 7\""),
        "{text}"
    );

    let keyed = one.pool.spawn_keyed("key", || resume_unwind(Box::new(7)));
    let payload = join(keyed).unwrap_err().try_into_panic().unwrap();
    assert_eq!(*payload.downcast::<i32>().unwrap(), 7);

    let batch = one.pool.spawn_batch((0..10).map(|n| move || panic_any(n)));
    for (n, handle) in batch.into_iter().enumerate() {
        let payload = join(handle).unwrap_err().into_panic();
        assert_eq!(*payload.downcast::<i32>().unwrap(), n as i32);
    }
    // The task of the key apart, of which there is a test of its own.
    assert!(one.check().panicked >= 12);
}

#[test]
fn panics_of_tasks_of_a_key_are_counted() {
    let one = OneThread::new();
    for _ in 0..10 {
        let keyed = one.pool.spawn_keyed("key", || panic!("as it should"));
        assert!(join(keyed).unwrap_err().is_panic());
    }
    assert_eq!(one.check().panicked, 10);
}

/// Gives so many closures, and panics then.
fn panics_after(
    closures: usize,
    ran: &Count,
) -> impl Iterator<Item = Box<dyn FnOnce() + Send>> + use<> {
    let ran = ran.clone();
    // Not without an end: the size is a promise, too.
    (0..=closures).map(move |n| {
        assert!(n < closures, "the iterator panics");
        Box::new(ran.adder()) as _
    })
}

#[test]
fn what_an_iterator_gave_before_it_panicked_runs() {
    // Before the first is queued, and after the first many were.
    for closures in [0, 1, 10, 1_023, 1_024, 1_025, 2_500] {
        let pool = bounded(2, 10_000);
        let executed = Count::default();
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            pool.execute_batch(panics_after(closures, &executed));
        }));
        assert_eq!(message(unwound.unwrap_err()), "the iterator panics");
        let spawned = Count::default();
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            drop(pool.spawn_batch(panics_after(closures, &spawned)));
        }));
        assert_eq!(message(unwound.unwrap_err()), "the iterator panics");
        wait_until("what it gave has run", || {
            executed.get() == closures && spawned.get() == closures
        });
        let metrics = rest(&pool);
        assert_eq!(metrics.completed, 2 * closures as u64);
        assert_eq!((metrics.panicked, metrics.rejected), (0, 0));
        assert_eq!(crate::pools::free_places(&pool), 10_000);
    }
}

#[test]
fn an_iterator_may_use_the_pool() {
    let (pool, ran) = (bounded(2, 100), Count::default());
    pool.execute_batch((0..10).map(|_| {
        output(pool.spawn(ran.adder()));
        pool.execute_batch((0..2).map(|_| ran.adder()));
        ran.adder()
    }));
    wait_until("all have run", || ran.get() == 40);
}

#[test]
fn who_knows_of_a_panic_finds_it_counted() {
    let pool = of(2);
    let late = (1..=2_000).filter(|&n| {
        let handle = match n % 2 {
            0 => pool.spawn(|| resume_unwind(Box::new(()))),
            _ => pool.spawn_keyed("key", || resume_unwind(Box::new(()))),
        };
        let ended: Result<(), _> = handle.blocking_join();
        assert!(ended.is_err_and(|error| error.is_panic()));
        let metrics = pool.metrics();
        (metrics.completed, metrics.panicked) != (0, n)
    });
    assert_eq!(late.count(), 0);
}
