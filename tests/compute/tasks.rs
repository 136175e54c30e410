//! The ways in, from outside: each closure that is accepted runs once, on a thread of the pool.

use std::sync::mpsc;
use std::thread;

use throng::ComputePool;

use crate::pools::{Busy, Count, bounded, of, output, rest, run};
use crate::support::{join, receive, thread_name, wait_until};

#[test]
fn an_executed_closure_runs_on_a_thread_of_the_pool_which_is_called_after_it() {
    let pool = ComputePool::builder()
        .name("called-so")
        .threads(2)
        .build()
        .unwrap();
    let (ran, runs) = mpsc::channel();
    pool.execute(move || ran.send(thread_name()).unwrap());
    let name = receive(&runs);
    assert!(name == "called-so-0" || name == "called-so-1", "{name}");
}

#[test]
fn a_batch_is_executed_whatever_its_size() {
    let pool = of(2);
    // Around the number of tasks that are queued at once, too.
    for size in [0, 1, 2, 63, 64, 65, 1_023, 1_024, 1_025, 5_000] {
        let ran = Count::default();
        pool.execute_batch((0..size).map(|_| ran.adder()));
        wait_until("all have run", || ran.get() == size);
        rest(&pool);
        assert_eq!(ran.get(), size);
    }
}

#[test]
fn the_handles_of_a_batch_are_in_its_order() {
    let pool = of(2);
    for size in [0, 1, 64, 1_024, 3_000] {
        let handles = pool.spawn_batch((0..size).map(|n| move || n * 2));
        assert_eq!(handles.len(), size);
        let outputs = handles.into_iter().map(output);
        assert!(outputs.eq((0..size).map(|n| n * 2)));
    }
}

#[test]
fn a_handle_yields_the_output() {
    let pool = of(2);
    let text = pool.spawn(|| String::from("text"));
    let large = pool.spawn(|| [7_u64; 1_000]);
    let captured = [3_u64; 1_000];
    let sum = pool.spawn(move || captured.iter().sum::<u64>());
    pool.spawn(|| ()).blocking_join().unwrap();
    let keyed = pool.spawn_keyed("key", || [1_u8; 3]);
    run(async {
        assert_eq!(text.await.unwrap(), "text");
        assert_eq!(large.await.unwrap(), [7; 1_000]);
        assert_eq!(sum.await.unwrap(), 3_000);
        assert_eq!(keyed.await.unwrap(), [1; 3]);
    });
}

/// Closures of these sizes lie in memory of different kinds.
#[test]
fn captures_of_all_sizes_and_alignments_arrive_as_they_were() {
    #[repr(align(256))]
    #[derive(Clone, Copy)]
    struct Aligned(u64);

    fn check<const BYTES: usize>(pool: &ComputePool, ran: &Count) {
        let (bytes, aligned) = ([BYTES as u8; BYTES], Aligned(BYTES as u64));
        let check = move || bytes.iter().all(|byte| *byte == BYTES as u8);
        let check_aligned = move || {
            let aligned = aligned;
            let address = (&raw const aligned).addr();
            aligned.0 == BYTES as u64 && address.is_multiple_of(256)
        };
        let (count, count_aligned) = (ran.clone(), ran.clone());
        pool.execute(move || {
            assert!(check());
            count.add();
        });
        pool.execute(move || {
            assert!(check_aligned());
            count_aligned.add();
        });
        assert!(output(pool.spawn(check)) && output(pool.spawn(check_aligned)));
        assert!(output(pool.spawn_keyed(&BYTES, check)));
        assert_eq!(output(pool.spawn(move || bytes)), bytes);
    }

    let (pool, ran) = (of(2), Count::default());
    for _ in 0..50 {
        check::<0>(&pool, &ran);
        check::<1>(&pool, &ran);
        check::<24>(&pool, &ran);
        check::<40>(&pool, &ran);
        check::<64>(&pool, &ran);
        check::<100>(&pool, &ran);
        check::<128>(&pool, &ran);
        check::<5_000>(&pool, &ran);
    }
    wait_until("those that were executed have checked, too", || {
        ran.get() == 800
    });
}

#[test]
fn a_full_or_closed_pool_hands_the_closure_back() {
    let pool = bounded(1, 1);
    let ran = Count::default();
    pool.try_execute(ran.adder()).unwrap();
    wait_until("it has run", || ran.get() == 1);
    rest(&pool);

    let busy = Busy::keep(&pool, 1);
    let text = String::from("handed back");
    let (said, says) = mpsc::channel();
    let refused = pool.try_execute(move || said.send(text).unwrap());
    let refused = refused.unwrap_err();
    assert!(refused.is_full());
    refused.into_inner()();
    assert_eq!(receive(&says), "handed back");
    busy.release();

    pool.close();
    let refused = pool.try_execute(ran.adder()).unwrap_err();
    assert!(refused.is_closed());
    refused.into_inner()();
    assert_eq!(ran.get(), 2);
    assert_eq!(pool.metrics().rejected, 2);
}

#[test]
fn an_unbounded_pool_that_is_closed_hands_the_closure_back() {
    let pool = of(2);
    pool.close();
    let text = String::from("handed back");
    let refused = pool.try_execute(move || assert_eq!(text, "handed back"));
    let refused = refused.unwrap_err();
    assert!(refused.is_closed());
    refused.into_inner()();
}

#[test]
fn threads_that_are_not_async_can_wait() {
    let pool = of(1);
    let busy = Busy::keep(&pool, 1);
    let waiting: Vec<_> = (0..4)
        .map(|n| {
            let handle = pool.spawn(move || n);
            thread::spawn(move || handle.blocking_join())
        })
        .collect();
    busy.release();
    for (n, thread) in waiting.into_iter().enumerate() {
        wait_until("the thread has its outcome", || thread.is_finished());
        assert_eq!(thread.join().unwrap().unwrap(), n);
    }
}

#[test]
fn tasks_may_park_and_unpark_their_thread() {
    let pool = of(1);
    for n in 0..200 {
        // A token that the task leaves behind.
        let worker = output(pool.spawn(|| {
            thread::current().unpark();
            thread::park();
            thread::current().unpark();
            thread::current()
        }));
        // And some that come while it sleeps.
        for _ in 0..10 {
            worker.unpark();
            thread::yield_now();
        }
        assert_eq!(output(pool.spawn(move || n)), n);
    }
}

#[test]
fn metrics_add_up_at_rest() {
    let pool = bounded(2, 5);
    let busy = Busy::keep(&pool, 2);
    drop(pool.spawn(|| panic!("as it should")));
    pool.execute(|| ());
    pool.spawn(|| ()).abort();
    assert!(pool.try_execute(|| ()).unwrap_err().is_full());
    assert!(join(pool.spawn(|| ())).unwrap_err().is_rejected());
    assert_eq!(pool.metrics().queued, 3);
    busy.release();

    let metrics = rest(&pool);
    assert_eq!((metrics.completed, metrics.rejected), (3, 2));
    assert_eq!(metrics.panicked, 1);
    assert_eq!(metrics.cancelled, 1);
    assert_eq!((metrics.cancelled, metrics.queued), (1, 0));
    for lane in metrics.lanes {
        assert!(lane.is_parked, "{lane:?}");
        assert!(lane.running_for.is_zero());
    }
}
