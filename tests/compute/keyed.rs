//! Tasks of one key: in order, one at a time, whatever the others do.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use throng::{ComputePool, JoinHandle};

use crate::pools::{Busy, Count, of, output, rest};
use crate::support::{Gate, Numbers, join, receive, rounds, thread_name, wait_until};

/// The state of a key: whether one of its tasks runs, and the last task of each submitter that ran.
struct Key {
    name: String,
    runs: AtomicBool,
    last: [AtomicUsize; SUBMITTERS],
}

const SUBMITTERS: usize = 4;

impl Key {
    fn new(number: usize) -> Arc<Self> {
        Arc::new(Self {
            name: format!("key {number}"),
            runs: AtomicBool::new(false),
            last: Default::default(),
        })
    }

    /// The task number `n` of a submitter, from 1 on.
    fn visit(&self, submitter: usize, n: usize) {
        assert!(!self.runs.swap(true, Ordering::SeqCst), "two at once");
        let last = self.last[submitter].swap(n, Ordering::SeqCst);
        if n.is_multiple_of(16) {
            thread::yield_now();
        }
        self.runs.store(false, Ordering::SeqCst);
        assert!(last < n, "{n} after {last} of {}", self.name);
    }
}

#[test]
fn a_key_has_its_order_and_one_task_at_a_time_among_many_keys_and_panics() {
    let tasks = rounds(20_000, 400_000);
    let pool = of(4);
    let keys: Vec<_> = (0..300).map(Key::new).collect();
    thread::scope(|scope| {
        for submitter in 0..SUBMITTERS {
            let (pool, keys) = (&pool, &keys);
            scope.spawn(move || {
                let mut numbers = Numbers::new(submitter as u64 + 1);
                let spawn = |n: usize, key: &Arc<Key>| {
                    let (name, key) = (key.name.clone(), Arc::clone(key));
                    let task = pool.spawn_keyed(&name, move || {
                        key.visit(submitter, n);
                        assert!(!n.is_multiple_of(50), "as it should");
                    });
                    (n, task)
                };
                let some_keys = |_| numbers.below(keys.len() as u64).min(numbers.below(300));
                let chosen: Vec<_> = (0..tasks).map(some_keys).collect();
                let handles: Vec<_> = (1..)
                    .zip(chosen)
                    .map(|(n, key)| spawn(n, &keys[key as usize]))
                    .collect();
                for (n, handle) in handles {
                    match join(handle) {
                        Ok(()) => assert!(!n.is_multiple_of(50)),
                        Err(error) => {
                            assert!(error.is_panic() && n.is_multiple_of(50), "{error}");
                        }
                    }
                }
            });
        }
    });
    rest(&pool);
}

#[test]
fn a_task_of_a_key_may_be_submitted_by_tasks_of_the_pool() {
    let pool = of(2);
    let key = Key::new(0);
    let parents = [0, 1].map(|submitter| {
        let (own, key) = (pool.clone(), Arc::clone(&key));
        pool.spawn(move || {
            (1..=2_000)
                .map(|n| {
                    let key = Arc::clone(&key);
                    own.spawn_keyed("key", move || key.visit(submitter, n))
                })
                .collect::<Vec<_>>()
        })
    });
    for handles in parents {
        output(handles).into_iter().for_each(output);
    }
    let last = |submitter: usize| key.last[submitter].load(Ordering::SeqCst);
    assert_eq!((last(0), last(1)), (2_000, 2_000));
}

#[test]
fn an_aborted_task_of_a_key_is_left_out() {
    let pool = of(2);
    let key = Key::new(0);
    let busy = Busy::keep_key(&pool, "key");
    let handles: Vec<_> = (1..=1_000)
        .map(|n| {
            let key = Arc::clone(&key);
            pool.spawn_keyed("key", move || key.visit(0, n))
        })
        .collect();
    handles.iter().step_by(3).for_each(JoinHandle::abort);
    busy.release();
    for (n, handle) in handles.into_iter().enumerate() {
        match join(handle) {
            Ok(()) => assert!(n % 3 != 0),
            Err(error) => assert!(error.is_cancelled() && n % 3 == 0),
        }
    }
}

/// Keys that are equal are the same key, whatever they are borrowed from.
#[test]
fn equal_keys_are_one_key() {
    let pool = of(2);
    let busy = Busy::keep_key(&pool, "key");
    let (ran, runs) = mpsc::channel();
    let first = ran.clone();
    let owned = pool.spawn_keyed(&String::from("key"), move || first.send(1).unwrap());
    let literal = pool.spawn_keyed("key", move || ran.send(2).unwrap());
    assert!(runs.try_recv().is_err());
    busy.release();
    output(owned);
    output(literal);
    assert_eq!([receive(&runs), receive(&runs)], [1, 2]);
}

/// Of enough keys, most do not fall together with one of which a task is held.
#[test]
fn other_keys_do_not_wait_for_a_held_one() {
    let pool = of(2);
    let busy = Busy::keep_key(&pool, "held");
    let ran = Count::default();
    let handles: Vec<_> = (0..1_000_u32)
        .map(|key| pool.spawn_keyed(&key, ran.adder()))
        .collect();
    wait_until("most keys have run", || ran.get() > 900);
    busy.release();
    handles.into_iter().for_each(output);
    assert_eq!(ran.get(), 1_000);
}

/// A key whose task submits itself again, until it is told to stop.
struct Endless {
    stop: Arc<AtomicBool>,
    turns: Count,
    ended: mpsc::Receiver<()>,
}

impl Endless {
    fn start(pool: &ComputePool) -> Self {
        fn again(pool: ComputePool, stop: Arc<AtomicBool>, turns: Count, end: mpsc::Sender<()>) {
            turns.add();
            if stop.load(Ordering::SeqCst) {
                return end.send(()).unwrap();
            }
            let own = pool.clone();
            drop(own.spawn_keyed("endless", move || again(pool, stop, turns, end)));
        }
        let (stop, turns) = (Arc::new(AtomicBool::new(false)), Count::default());
        let (end, ended) = mpsc::channel();
        let first = (pool.clone(), Arc::clone(&stop), turns.clone());
        drop(pool.spawn_keyed("endless", move || again(first.0, first.1, first.2, end)));
        Self { stop, turns, ended }
    }

    #[track_caller]
    fn stop(self) {
        self.stop.store(true, Ordering::SeqCst);
        receive(&self.ended);
    }
}

#[test]
fn a_key_that_always_has_a_task_does_not_keep_others_from_running() {
    for threads in [1, 2] {
        let pool = of(threads);
        let endless = [(); 2].map(|()| Endless::start(&pool));
        wait_until("the keys go round", || {
            endless.iter().all(|endless| endless.turns.get() > 1_000)
        });
        for n in 0..200_u32 {
            assert_eq!(output(pool.spawn(move || n)), n);
            assert_eq!(output(pool.spawn_keyed(&n, move || n)), n);
        }
        let own = pool.clone();
        let children = output(pool.spawn(move || own.spawn_batch((0..100).map(|n| move || n))));
        assert!(children.into_iter().map(output).eq(0..100));
        endless.into_iter().for_each(Endless::stop);
        rest(&pool);
    }
}

/// A key goes from thread to thread; what its tasks do to what they share is seen by the next.
#[test]
fn a_task_of_a_key_sees_what_the_one_before_did() {
    struct Shared(std::cell::UnsafeCell<[usize; 3]>);
    // SAFETY: it is used by the tasks of one key only, one at a time.
    unsafe impl Sync for Shared {}
    impl Shared {
        /// # Safety
        ///
        /// Nobody else is in here.
        unsafe fn step(&self) {
            // SAFETY: as the caller says.
            let numbers = unsafe { &mut *self.0.get() };
            let sum: usize = numbers.iter().sum();
            assert_eq!(sum % 3, 0);
            numbers.iter_mut().for_each(|number| *number += 1);
        }
    }
    let tasks = rounds(20_000, 1_000_000);
    let pool = of(4);
    let shared = Arc::new(Shared(std::cell::UnsafeCell::new([0; 3])));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for n in 0..tasks {
                    let task = Arc::clone(&shared);
                    // SAFETY: all tasks have the same key.
                    drop(pool.spawn_keyed("key", move || unsafe { task.step() }));
                    if n % 1_000 == 0 {
                        // Makes the thread of the key give up its turn.
                        output(pool.spawn_keyed("key", thread_name));
                    }
                }
            });
        }
    });
    let last = Arc::clone(&shared);
    output(pool.spawn_keyed("key", || ()));
    rest(&pool);
    // SAFETY: all tasks have ended.
    assert_eq!(unsafe { *last.0.get() }, [2 * tasks; 3]);
}

/// The other thread takes over what waits behind a held task, keys included.
#[test]
fn a_key_is_taken_over_from_a_held_thread() {
    let pool = of(2);
    let own = pool.clone();
    let (gate, held) = (Gate::new(), Gate::new());
    let (opens, holds) = (gate.clone(), held.clone());
    let parent = pool.spawn(move || {
        let child = own.spawn_keyed("key", move || opens.open());
        gate.pass();
        holds.pass();
        child
    });
    held.open();
    output(output(parent));
}
