//! One item for each job, however it ends.

use std::collections::BTreeMap;
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::task::Waker;
use std::thread;
use std::time::Duration;

use futures::stream::StreamExt;
use throng::{BlockingPool, CompletionStream, ComputePool, Retry, SerialExecutor};
use tokio::runtime::Handle;
use tokio::task::{LocalSet, yield_now};

use super::support::{
    Drops, Gate, block_on, current_thread, eventually, message, multi_thread, poll, ready, receive,
    rounds, wait_until, within,
};
use super::{bounded, poll_next, slot, submit_on, take, unbounded};

#[tokio::test]
async fn a_job_yields_its_output_with_its_id_and_tag() {
    let (jobs, mut done) = unbounded();
    let pool = BlockingPool::builder().build().unwrap();
    let slot = jobs.slot(3).await.unwrap();
    let ids = BTreeMap::from([
        (0, jobs.submit(0, async { "future" }).await.unwrap()),
        (1, jobs.submit_blocking(&pool, 1, || "pool").await.unwrap()),
        (
            2,
            jobs.submit_blocking(&Handle::current(), 2, || "runtime")
                .await
                .unwrap(),
        ),
        (3, slot.id()),
    ]);
    assert_eq!(jobs.in_flight(), 4);
    slot.complete("slot");
    jobs.close();

    let mut outputs = BTreeMap::new();
    while let Some(completed) = within(done.next()).await {
        assert_eq!(completed.id, ids[&completed.tag]);
        outputs.insert(completed.tag, completed.outcome.unwrap());
    }
    assert!(
        outputs
            .into_values()
            .eq(["future", "pool", "runtime", "slot"])
    );
    assert_eq!(jobs.in_flight(), 0);
}

#[tokio::test]
async fn a_panic_is_an_item() {
    let (jobs, mut done) = unbounded::<()>();
    let pool = BlockingPool::builder().build().unwrap();
    let panics = || panic!("on purpose");
    let ids = [
        jobs.submit(0, async move { panics() }).await.unwrap(),
        jobs.submit_blocking(&pool, 1, panics).await.unwrap(),
        jobs.submit_blocking(&Handle::current(), 2, panics)
            .await
            .unwrap(),
    ];
    for _ in ids {
        let completed = within(done.next()).await.unwrap();
        let error = completed.outcome.unwrap_err();
        assert!(error.is_panic());
        assert_eq!(error.id(), ids[completed.tag]);
        assert_eq!(message(error.into_panic()), "on purpose");
    }
    assert!(poll(&mut pin!(done.next())).is_pending());
}

#[test]
fn a_dropped_slot_is_lost() {
    let (jobs, mut done) = unbounded::<()>();
    drop(slot(&jobs, 5));
    let completed = take(&mut done);
    assert_eq!(completed.tag, 5);
    assert!(completed.outcome.unwrap_err().is_lost());

    // Also if it is dropped while a thread unwinds.
    let slot = slot(&jobs, 6);
    let thread = thread::spawn(move || {
        let _slot = slot;
        panic!("on purpose");
    });
    thread.join().unwrap_err();
    assert!(take(&mut done).outcome.unwrap_err().is_lost());
}

#[test]
fn without_a_runtime_a_future_is_rejected() {
    let (jobs, mut done) = unbounded();
    let captured = Drops::new();
    let value = captured.value();
    let future = async move { drop(value) };
    let id = ready(pin!(jobs.submit(0, future))).unwrap();
    assert_eq!(captured.count(), 1);
    let error = take(&mut done).outcome.unwrap_err();
    assert!(error.is_rejected());
    assert_eq!(error.id(), id);
    assert!(error.to_string().contains("no Tokio runtime"), "{error}");
}

#[test]
fn a_runtime_that_shuts_down_cancels_its_jobs() {
    let (jobs, mut done) = unbounded::<()>();
    let runtime = current_thread();
    let captured = Drops::new();
    runtime.block_on(async {
        for tag in 0..2 {
            let value = captured.value();
            let future = async move {
                let _value = value;
                pending().await
            };
            jobs.submit(tag, future).await.unwrap();
            // The first is polled once, the second is not polled.
            if tag == 0 {
                yield_now().await;
            }
        }
    });
    assert!(poll_next(Waker::noop(), &mut done).is_pending());

    let dead = runtime.handle().clone();
    drop(runtime);
    assert_eq!(captured.count(), 2);
    for _ in 0..2 {
        assert!(take(&mut done).outcome.unwrap_err().is_cancelled());
    }

    // Later jobs are cancelled too.
    let _in = dead.enter();
    let value = captured.value();
    let future = async move { drop(value) };
    ready(pin!(jobs.submit(2, future))).unwrap();
    assert!(take(&mut done).outcome.unwrap_err().is_cancelled());
    let value = captured.value();
    let closure = move || drop(value);
    ready(pin!(jobs.submit_blocking(&dead, 3, closure))).unwrap();
    assert!(take(&mut done).outcome.unwrap_err().is_cancelled());
    assert_eq!(captured.count(), 4);
}

#[test]
fn a_pool_that_is_full_or_closed_rejects_the_job() {
    let (jobs, mut done) = unbounded();
    let pool = BlockingPool::builder()
        .max_threads(1)
        .queue_capacity(0)
        .build()
        .unwrap();
    let gate = Gate::new();
    let passed = gate.clone();
    ready(pin!(jobs.submit_blocking(&pool, 0, move || passed.pass()))).unwrap();

    let captured = Drops::new();
    let value = captured.value();
    let closure = move || drop(value);
    ready(pin!(jobs.submit_blocking(&pool, 1, closure))).unwrap();
    let completed = take(&mut done);
    assert_eq!(completed.tag, 1);
    assert!(completed.outcome.unwrap_err().is_rejected());
    assert_eq!(captured.count(), 1);

    gate.open();
    block_on(done.next()).unwrap().outcome.unwrap();
    pool.close();
    ready(pin!(jobs.submit_blocking(&pool, 2, || ()))).unwrap();
    assert!(take(&mut done).outcome.unwrap_err().is_rejected());
}

#[tokio::test]
async fn tags_need_not_differ_and_need_not_be_copied() {
    #[derive(Debug, PartialEq)]
    struct Tag(Box<str>);

    let (jobs, mut done) = CompletionStream::builder().build().unwrap();
    for n in 0..2 {
        let tag = Tag("same".into());
        jobs.submit(tag, async move { n }).await.unwrap();
    }
    jobs.close();
    let mut sum = 0;
    while let Some(completed) = within(done.next()).await {
        assert_eq!(completed.tag, Tag("same".into()));
        sum += completed.outcome.unwrap();
    }
    assert_eq!(sum, 1);
}

#[tokio::test]
async fn a_future_is_dropped_before_its_completion_is_read() {
    let (jobs, mut done) = unbounded();
    let (captured, outputs) = (Drops::new(), Drops::new());
    let (value, output) = (captured.value(), outputs.value());
    let future = async move {
        yield_now().await;
        drop(value);
        output
    };
    jobs.submit(0, future).await.unwrap();
    eventually("the future is dropped", || captured.count() == 1).await;
    let completed = within(done.next()).await.unwrap();
    assert_eq!(outputs.count(), 0);
    drop(completed);
    assert_eq!(outputs.count(), 1);
}

/// Names the way in which a job ended.
fn how<T>(outcome: Result<T, throng::JoinError>) -> &'static str {
    match outcome {
        Ok(_) => "returned",
        Err(error) if error.is_panic() => "panicked",
        Err(error) if error.is_cancelled() => "cancelled",
        Err(error) if error.is_rejected() => "rejected",
        Err(error) if error.is_closed() => "closed",
        Err(error) if error.is_lost() => "lost",
        Err(error) => panic!("nothing of this: {error}"),
    }
}

#[tokio::test]
async fn every_way_to_end_yields_one_item() {
    let (jobs, mut done) = unbounded::<()>();
    let mut expected = BTreeMap::new();
    let mut expect = |id, end| assert!(expected.insert(id, end).is_none());
    let panics = || panic!("on purpose");

    // Slots:
    let promised = slot(&jobs, 0);
    expect(promised.id(), "returned");
    promised.complete(());
    let promised = slot(&jobs, 0);
    expect(promised.id(), "lost");
    drop(promised);
    let promised = slot(&jobs, 0);
    expect(promised.id(), "panicked");
    promised.run(panics);
    let promised = slot(&jobs, 0);
    expect(promised.id(), "cancelled");
    assert!(jobs.abort(promised.id()));
    promised.run(|| ());
    let promised = slot(&jobs, 0);
    expect(promised.id(), "closed");
    let closed = SerialExecutor::new(());
    closed.close();
    closed.submit(|()| ()).complete(promised);

    // futures:
    expect(jobs.submit(0, yield_now()).await.unwrap(), "returned");
    let future = async move { panics() };
    expect(jobs.submit(0, future).await.unwrap(), "panicked");
    for polled in [false, true] {
        let id = jobs.submit(0, pending()).await.unwrap();
        if polled {
            yield_now().await;
        }
        assert!(jobs.abort(id));
        expect(id, "cancelled");
    }
    let job = Retry::exponential()
        .attempts(1)
        .run_if(move |_| async move { panics() }, |_| true);
    expect(jobs.submit(0, job).await.ok().unwrap(), "panicked");

    // futures that are dropped by their runtime:
    let runtime = current_thread();
    let dead = runtime.handle().clone();
    let id = submit_on(&jobs, &dead, 0, pending()).await.unwrap();
    expect(id, "cancelled");
    runtime.shutdown_background();
    let id = submit_on(&jobs, &dead, 0, pending()).await.unwrap();
    expect(id, "cancelled");
    let local = LocalSet::new();
    let (id, wrapped) = jobs.wrap(0, pending()).await.unwrap();
    expect(id, "cancelled");
    local.spawn_local(wrapped);
    drop(local);

    // closures that run, are dropped, or are not accepted:
    let pool = BlockingPool::builder().max_threads(1).build().unwrap();
    let id = jobs.submit_blocking(&pool, 0, || ()).await.unwrap();
    expect(id, "returned");
    let id = jobs.submit_blocking(&pool, 0, panics).await.unwrap();
    expect(id, "panicked");
    let gate = Gate::new();
    let (entered, has_entered) = channel();
    let passed = gate.clone();
    let held = move || {
        entered.send(()).unwrap();
        passed.pass();
    };
    let id = jobs.submit_blocking(&pool, 0, held).await.unwrap();
    expect(id, "returned");
    receive(&has_entered);
    let queued = jobs.submit_blocking(&pool, 0, || ()).await.unwrap();
    expect(queued, "cancelled");
    assert!(jobs.abort(queued));
    let id = jobs.submit_blocking(&pool, 0, || ()).await.unwrap();
    expect(id, "cancelled");
    assert!(pool.shutdown_now() > 0);
    let id = jobs.submit_blocking(&pool, 0, || ()).await.unwrap();
    expect(id, "rejected");
    let id = jobs.submit_blocking(&dead, 0, || ()).await.unwrap();
    expect(id, "cancelled");
    gate.open();

    jobs.close();
    let mut ended = BTreeMap::new();
    while let Some(completed) = within(done.next()).await {
        let before = ended.insert(completed.id, how(completed.outcome));
        assert!(before.is_none(), "{:?} came twice", completed.id);
    }
    assert_eq!(ended, expected);
    assert_eq!(jobs.in_flight(), 0);
}

#[test]
fn an_abort_against_a_future_that_ends_leaves_one_item() {
    let runtime = multi_thread(2, "worker");
    let (jobs, mut done) = unbounded();
    for round in 0..rounds(2_000, 200_000) {
        let captured = Drops::new();
        let value = captured.value();
        let future = async move {
            for _ in 0..round % 3 {
                yield_now().await;
            }
            drop(value);
            7
        };
        let id = block_on(submit_on(&jobs, runtime.handle(), round, future)).unwrap();
        for _ in 0..round % 50 {
            std::hint::spin_loop();
        }
        let aborted = jobs.abort(id);
        let completed = block_on(done.next()).unwrap();
        assert_eq!((completed.id, completed.tag), (id, round));
        match completed.outcome {
            Ok(output) => assert_eq!(output, 7),
            Err(error) => assert!(aborted && error.is_cancelled(), "{error}"),
        }
        assert_eq!((captured.count(), jobs.in_flight()), (1, 0));
        assert!(!jobs.abort(id));
    }
    assert!(done.try_next().is_none());
}

#[test]
fn a_closure_runs_or_is_cancelled_and_never_both() {
    let (jobs, mut done) = unbounded();
    let pool = ComputePool::builder().threads(2).build().unwrap();
    for round in 0..rounds(2_000, 200_000) {
        let ran = Arc::new(AtomicBool::new(false));
        let runs = Arc::clone(&ran);
        let closure = move || runs.store(true, Ordering::SeqCst);
        let id = block_on(jobs.submit_blocking(&pool, round, closure)).unwrap();
        for _ in 0..round % 50 {
            std::hint::spin_loop();
        }
        jobs.abort(id);
        let outcome = block_on(done.next()).unwrap().outcome;
        assert_eq!(outcome.is_ok(), ran.load(Ordering::SeqCst), "{outcome:?}");
        assert_eq!(Arc::strong_count(&ran), 1);
    }
}

#[test]
fn a_late_abort_ends_no_other_job() {
    let runtime = multi_thread(2, "worker");
    let (jobs, mut done) = bounded(4, 4);
    let (late, ids) = channel();
    let count = rounds(5_000, 500_000);
    thread::scope(|scope| {
        let aborter = jobs.clone();
        scope.spawn(move || {
            for id in ids {
                aborter.abort(id);
            }
        });
        let (submitter, runtime) = (jobs.clone(), &runtime);
        scope.spawn(move || {
            for tag in 0..count {
                let future = async move { tag };
                let id = block_on(submit_on(&submitter, runtime.handle(), tag, future)).unwrap();
                // The job may have been read, and another job may have its key.
                if tag % 2 == 0 {
                    late.send(id).unwrap();
                }
            }
        });
        drop(jobs);
        let mut read = 0;
        while let Some(completed) = block_on(done.next()) {
            match completed.outcome {
                Ok(output) => assert_eq!(output, completed.tag),
                Err(error) => assert!(error.is_cancelled() && completed.tag % 2 == 0, "{error}"),
            }
            read += 1;
        }
        assert_eq!(read, count);
    });
}

#[test]
fn a_runtime_that_shuts_down_during_submissions_loses_no_job() {
    for _ in 0..rounds(50, 2_000) {
        let runtime = multi_thread(1, "worker");
        let handle = runtime.handle().clone();
        let (jobs, done) = unbounded();
        let (captured, submitted) = (Drops::new(), AtomicUsize::new(0));
        thread::scope(|scope| {
            scope.spawn(|| {
                for tag in 0..200 {
                    let value = captured.value();
                    let future = async move {
                        yield_now().await;
                        drop(value);
                    };
                    block_on(submit_on(&jobs, &handle, tag, future)).unwrap();
                    submitted.store(tag + 1, Ordering::SeqCst);
                }
            });
            wait_until("some were submitted", || {
                submitted.load(Ordering::SeqCst) > 20
            });
            drop(runtime);
        });
        drop(jobs);
        let mut seen = [false; 200];
        let items = done.map(|completed| {
            assert!(matches!(how(completed.outcome), "returned" | "cancelled"));
            assert!(!std::mem::replace(&mut seen[completed.tag], true));
        });
        assert_eq!(block_on(items.count()), 200);
        assert_eq!((captured.made(), captured.count()), (200, 200));
    }
}

#[test]
fn the_last_of_several_submitters_ends_the_stream() {
    const SUBMITTERS: usize = 3;
    const JOBS: usize = 4;
    for _ in 0..rounds(500, 50_000) {
        let (jobs, mut done) = unbounded();
        let mut read = 0;
        thread::scope(|scope| {
            for _ in 0..SUBMITTERS {
                let jobs = jobs.clone();
                scope.spawn(move || {
                    for tag in 0..JOBS {
                        let last = jobs.clone();
                        block_on(last.slot(tag)).unwrap().complete(());
                    }
                });
            }
            drop(jobs);
            while let Some(completed) = block_on(done.next()) {
                completed.outcome.unwrap();
                read += 1;
            }
        });
        assert_eq!(read, SUBMITTERS * JOBS);
    }
}

#[test]
fn submitters_on_threads_of_all_kinds_share_a_stream() {
    const JOBS_EACH: usize = 50;
    let (jobs, mut done) = bounded(4, 8);
    let runtime = multi_thread(1, "worker");
    let submit = move |first: usize| {
        let jobs = jobs.clone();
        async move {
            for tag in first..first + JOBS_EACH {
                jobs.slot(tag).await.unwrap().complete(tag);
            }
        }
    };
    let (on_thread, on_rayon, blocking) = (submit(0), submit(JOBS_EACH), submit(2 * JOBS_EACH));
    let (spawned, local) = (submit(3 * JOBS_EACH), submit(4 * JOBS_EACH));
    drop(submit);
    let thread = thread::spawn(move || block_on(on_thread));
    // A pool of its own, because the job blocks its thread.
    let rayon = rayon::ThreadPoolBuilder::new()
        .num_threads(1)
        .build()
        .unwrap();
    rayon.spawn(move || block_on(on_rayon));
    drop(runtime.spawn_blocking(move || block_on(blocking)));
    drop(runtime.spawn(spawned));
    let mut seen = [false; 5 * JOBS_EACH];
    current_thread().block_on(async {
        let set = LocalSet::new();
        set.spawn_local(local);
        let read = async {
            while let Some(completed) = within(done.next()).await {
                assert_eq!(completed.outcome.unwrap(), completed.tag);
                assert!(!std::mem::replace(&mut seen[completed.tag], true));
            }
        };
        set.run_until(read).await;
    });
    assert_eq!(seen, [true; 5 * JOBS_EACH]);
    thread.join().unwrap();
}

#[tokio::test]
async fn dropping_the_stream_drops_futures_wherever_they_are() {
    const JOBS_EACH: usize = 100;
    let runtime = multi_thread(2, "worker");
    let (jobs, done) = CompletionStream::<Result<(), ()>>::builder()
        .build()
        .unwrap();
    let (captured, polled) = (Drops::new(), Arc::new(AtomicUsize::new(0)));
    let asleep = || {
        let (value, polled) = (captured.value(), Arc::clone(&polled));
        async move {
            let _value = value;
            polled.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_secs(3600)).await;
            Ok(())
        }
    };
    for _ in 0..JOBS_EACH {
        // Futures that sleep on another runtime, that were not polled, and that wait between two attempts.
        submit_on(&jobs, runtime.handle(), (), asleep())
            .await
            .unwrap();
        let (value, tries) = (captured.value(), Arc::clone(&polled));
        let fails = move |_| {
            let _held = &value;
            tries.fetch_add(1, Ordering::SeqCst);
            async { Err(()) }
        };
        let hours = Retry::exponential().base(Duration::from_secs(3600));
        jobs.submit((), hours.run(fails)).await.ok().unwrap();
    }
    eventually("all were polled", || {
        polled.load(Ordering::SeqCst) == 2 * JOBS_EACH
    })
    .await;
    for _ in 0..JOBS_EACH {
        jobs.submit((), asleep()).await.unwrap();
    }
    assert_eq!(captured.count(), 0);
    drop(done);
    // The futures that were not polled are not polled any more.
    eventually("all are dropped", || captured.count() == 3 * JOBS_EACH).await;
    assert_eq!(polled.load(Ordering::SeqCst), 2 * JOBS_EACH);
    runtime.shutdown_background();
}

#[test]
fn as_many_items_as_jobs() {
    const SUBMITTERS: usize = 4;
    let runtime = multi_thread(2, "worker");
    let pool = BlockingPool::builder().max_threads(2).build().unwrap();
    let (jobs, mut done) = bounded(64, 256);
    let each = rounds(100_000, 1_000_000) / SUBMITTERS;
    runtime.block_on(async {
        for submitter in 0..SUBMITTERS {
            let (jobs, pool) = (jobs.clone(), pool.clone());
            tokio::spawn(async move {
                for n in submitter * each..(submitter + 1) * each {
                    match n % 3 {
                        0 => drop(jobs.submit(n, async move { n }).await.unwrap()),
                        1 => drop(jobs.submit_blocking(&pool, n, move || n).await.unwrap()),
                        _ => jobs.slot(n).await.unwrap().complete(n),
                    }
                }
            });
        }
        drop(jobs);
        let (mut items, mut sum) = (0, 0);
        while let Some(completed) = within(done.next()).await {
            let n = completed.outcome.unwrap();
            assert_eq!(completed.tag, n);
            items += 1;
            sum += n;
        }
        let expected = SUBMITTERS * each;
        assert_eq!((items, sum), (expected, expected * (expected - 1) / 2));
    });
}
