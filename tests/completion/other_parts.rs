//! Jobs of the other parts of the crate, which complete slots without a task in between.

use std::pin::pin;
use std::sync::mpsc::channel;
use std::thread;

use throng::{BlockingPool, ComputePool, SerialExecutor};
use tokio::runtime::Handle;

use super::support::{
    Drops, Gate, PanicsOnDrop, block_on, join, message, poll, ready, receive, rounds, within,
};
use super::{slot, take, unbounded};

#[tokio::test]
async fn all_parts_in_one_stream() {
    let (jobs, mut done) = unbounded();
    let blocking = BlockingPool::builder().max_threads(1).build().unwrap();
    let compute = ComputePool::builder().threads(1).build().unwrap();
    let total = SerialExecutor::new(30);
    jobs.submit(0, async { 0 }).await.unwrap();
    jobs.submit_blocking(&blocking, 1, || 10).await.unwrap();
    jobs.submit_blocking(&compute, 2, || 20).await.unwrap();
    total.submit(|total| *total).complete(slot(&jobs, 3));
    compute.spawn_keyed("key", || 40).complete(slot(&jobs, 4));
    blocking.spawn_blocking(|| 50).complete(slot(&jobs, 5));
    let thread = slot(&jobs, 6);
    thread::spawn(move || thread.run(|| 60));
    let pooled = slot(&jobs, 7);
    rayon::spawn(move || pooled.run(|| 70));
    jobs.submit_blocking(&Handle::current(), 8, || 80)
        .await
        .unwrap();
    drop(jobs);

    let mut sum = 0;
    while let Some(completed) = within(done.next()).await {
        let output = completed.outcome.unwrap();
        assert_eq!(output, 10 * completed.tag);
        sum += output;
    }
    assert_eq!(sum, 360);
}

#[test]
fn no_runtime_is_needed() {
    let (jobs, mut done) = unbounded();
    let compute = ComputePool::builder().threads(1).build().unwrap();
    ready(pin!(jobs.submit_blocking(&compute, 0, || 7))).unwrap();
    assert_eq!(block_on(done.next()).unwrap().outcome.unwrap(), 7);
    compute.spawn(|| 8).complete(slot(&jobs, 1));
    assert_eq!(block_on(done.next()).unwrap().outcome.unwrap(), 8);
}

#[test]
fn a_serial_job_completes_its_slot_inline_or_queued() {
    let (jobs, mut done) = unbounded();
    let executor = SerialExecutor::new(0);
    let add = |n: usize| {
        let added = executor.submit(move |sum| {
            *sum += n;
            *sum
        });
        let slot = slot(&jobs, n);
        let id = slot.id();
        added.complete(slot);
        id
    };
    let id = add(1);
    let completed = take(&mut done);
    assert_eq!(
        (completed.id, completed.tag, completed.outcome.unwrap()),
        (id, 1, 1)
    );

    thread::scope(|scope| {
        let (entered, has_entered) = channel();
        let gate = Gate::new();
        let (passed, busy) = (gate.clone(), executor.clone());
        scope.spawn(move || {
            join(busy.submit(move |_| {
                entered.send(()).unwrap();
                passed.pass();
            }))
        });
        receive(&has_entered);
        let id = add(2);
        assert!(poll(&mut pin!(done.next())).is_pending());
        gate.open();
        let completed = block_on(done.next()).unwrap();
        assert_eq!((completed.id, completed.outcome.unwrap()), (id, 3));
    });
}

#[test]
fn a_slot_ends_as_its_task_ends() {
    let (jobs, mut done) = unbounded::<()>();
    let pool = BlockingPool::builder().max_threads(1).build().unwrap();
    let executor = SerialExecutor::new(());
    let mut error = |tag, complete: &dyn Fn(throng::Slot<(), usize>)| {
        let slot = slot(&jobs, tag);
        let id = slot.id();
        complete(slot);
        let error = block_on(done.next()).unwrap().outcome.unwrap_err();
        assert_eq!(error.id(), id);
        error
    };
    // The executor reports the panic too.
    let panics = |slot| executor.submit(|()| panic!("on purpose")).complete(slot);
    assert_eq!(message(error(0, &panics).into_panic()), "on purpose");
    assert_eq!(executor.metrics().panicked, 1);
    let panics = |slot| pool.spawn_blocking(|| panic!("there, too")).complete(slot);
    assert_eq!(message(error(1, &panics).into_panic()), "there, too");

    executor.close();
    assert!(error(2, &|slot| executor.submit(|()| ()).complete(slot)).is_closed());

    // Aborted while it is queued, before and after it was bound to the slot.
    let gate = Gate::new();
    let passed = gate.clone();
    let busy = pool.spawn_blocking(move || passed.pass());
    for before in [true, false] {
        let aborts = |slot| {
            let queued = pool.spawn_blocking(|| ());
            let abort = queued.abort_handle();
            if before {
                abort.abort();
            }
            queued.complete(slot);
            abort.abort();
        };
        assert!(error(3, &aborts).is_cancelled());
    }
    gate.open();
    join(busy).unwrap();

    // The handle was polled to its end before, so the slot is lost.
    let taken = |slot| {
        let mut handle = pool.spawn_blocking(|| ());
        block_on(&mut handle).unwrap();
        handle.complete(slot);
    };
    assert!(error(5, &taken).is_lost());
}

#[test]
fn a_panic_of_a_closure_in_its_slot_does_not_propagate() {
    let (jobs, mut done) = unbounded::<()>();
    slot(&jobs, 0).run(|| panic!("on purpose"));
    let error = take(&mut done).outcome.unwrap_err();
    assert_eq!(message(error.into_panic()), "on purpose");
    slot(&jobs, 1).run(|| ());
    take(&mut done).outcome.unwrap();

    let captured = Drops::new();
    let promised = slot(&jobs, 2);
    assert!(jobs.abort(promised.id()));
    let bomb = PanicsOnDrop(captured.value());
    promised.run(move || drop(bomb));
    assert_eq!(captured.count(), 1);
    assert!(take(&mut done).outcome.unwrap_err().is_cancelled());
}

#[test]
fn tasks_end_while_their_handles_are_bound_to_slots() {
    let pool = ComputePool::builder().threads(1).build().unwrap();
    let executor = SerialExecutor::new(0_usize);
    let (jobs, mut done) = unbounded();
    let tasks = rounds(2_000, 200_000);
    for tag in 0..tasks {
        let slot = slot(&jobs, tag);
        if tag % 2 == 0 {
            pool.spawn(move || tag).complete(slot);
        } else {
            executor.submit(move |_| tag).complete(slot);
        }
    }
    drop(jobs);
    let mut read = 0;
    while let Some(completed) = block_on(done.next()) {
        assert_eq!(completed.outcome.unwrap(), completed.tag);
        read += 1;
    }
    assert_eq!(read, tasks);
}
