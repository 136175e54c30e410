//! `try_submit`, submitting on another runtime, and `wrap`.

use std::cell::Cell;
use std::future::pending;
use std::pin::pin;
use std::rc::Rc;
use std::thread;

use throng::{CompletionStream, Wrapped};
use tokio::task::LocalSet;

use super::support::{
    Drops, PanicsOnDrop, block_on, current_thread, eventually, message, multi_thread, poll, ready,
    thread_name, within,
};
use super::{bounded, slot, submit_on, take, unbounded};

#[tokio::test]
async fn a_full_stream_returns_tag_and_job() {
    // Each of the two limits.
    for (max_running, max_outstanding) in [(1, 9), (1, 1)] {
        let (jobs, mut done) = bounded(max_running, max_outstanding);
        let promised = jobs.try_slot(0).unwrap();
        let error = jobs.try_submit(1, async { "one" }).unwrap_err();
        assert!(error.is_full());
        let (tag, future) = error.into_inner();
        assert_eq!((tag, future.await), (1, "one"));
        let error = jobs.try_slot(2).unwrap_err();
        assert!(error.is_full());
        assert_eq!(error.into_inner(), 2);
        assert_eq!(jobs.in_flight(), 1);

        promised.complete("zero");
        assert_eq!(take(&mut done).outcome.unwrap(), "zero");
        let id = jobs.try_submit(3, async { "three" }).unwrap();
        assert!(jobs.try_slot(4).is_err());
        let completed = within(done.next()).await.unwrap();
        assert_eq!(completed.id, id);
        assert_eq!(completed.outcome.unwrap(), "three");
    }
}

#[tokio::test]
async fn a_closed_stream_rejects_at_once() {
    let (jobs, _done) = unbounded();
    assert!(!jobs.is_closed());
    jobs.close();
    assert!(jobs.is_closed());
    let error = jobs.try_submit(1, async { 10 }).unwrap_err();
    assert!(error.is_closed());
    let (tag, future) = error.into_inner();
    assert_eq!((tag, future.await), (1, 10));
    let error = jobs.try_slot(2).unwrap_err();
    assert!(error.is_closed());
    assert_eq!(error.into_inner(), 2);

    let error = jobs.wrap(4, async { 40 }).await.unwrap_err();
    let (tag, future) = error.into_inner();
    assert_eq!((tag, future.await), (4, 40));
}

#[test]
fn a_rejected_submission_holds_no_permit() {
    let (jobs, mut done) = bounded(2, 2);
    let promised = [slot(&jobs, 0), slot(&jobs, 1)];
    for _ in 0..10 {
        assert!(jobs.try_slot(2).unwrap_err().is_full());
    }
    for slot in promised {
        slot.complete(());
        take(&mut done);
    }
    let _promised = [slot(&jobs, 3), slot(&jobs, 4)];
    assert!(poll(&mut pin!(jobs.slot(5))).is_pending());
}

#[test]
fn ready_counts_finished_jobs() {
    let (jobs, mut done) = unbounded();
    let promised: Vec<_> = (0..4).map(|tag| slot(&jobs, tag)).collect();
    assert_eq!((jobs.ready(), jobs.in_flight()), (0, 4));
    for (ready, slot) in promised.into_iter().enumerate() {
        assert_eq!(jobs.ready(), ready);
        slot.complete(());
    }
    assert_eq!((jobs.ready(), jobs.in_flight()), (4, 4));
    for left in (0..4).rev() {
        take(&mut done);
        assert_eq!((jobs.ready(), jobs.in_flight()), (left, left));
    }
}

#[test]
fn a_future_runs_on_the_given_runtime() {
    let other = multi_thread(1, "other");
    let (jobs, mut done) = unbounded();
    let submitted = submit_on(&jobs, other.handle(), 0, async { thread_name() });
    // This thread has no runtime.
    ready(pin!(submitted)).unwrap();
    let completed = block_on(done.next()).unwrap();
    assert_eq!(completed.outcome.unwrap(), "other");
}

#[test]
fn a_future_that_cannot_be_sent_runs_where_it_was_made() {
    let (jobs, mut done) = unbounded();
    let runtime = current_thread();
    let local = LocalSet::new();
    let shared = Rc::new(Cell::new(0));
    runtime.block_on(local.run_until(async {
        for tag in 0..10 {
            let shared = Rc::clone(&shared);
            let future = async move {
                tokio::task::yield_now().await;
                shared.set(shared.get() + 1);
                (shared.get(), thread::current().id())
            };
            let (id, job) = jobs.wrap(tag, future).await.unwrap();
            tokio::task::spawn_local(job);
            let completed = within(done.next()).await.unwrap();
            assert_eq!((completed.id, completed.tag), (id, tag));
            let (count, thread) = completed.outcome.unwrap();
            assert_eq!((count, thread), (tag + 1, thread::current().id()));
        }
    }));
    assert_eq!(Rc::strong_count(&shared), 1);
}

#[tokio::test]
async fn a_wrapped_job_yields_one_item_however_it_ends() {
    let (jobs, mut done) = unbounded();
    let captured = Drops::new();
    // By a panic:
    let panics = || -> usize { panic!("on purpose") };
    let (_, job) = jobs.wrap(0, async move { panics() }).await.unwrap();
    job.await;
    let error = take(&mut done).outcome.unwrap_err();
    assert_eq!(message(error.into_panic()), "on purpose");

    // by a drop, polled or not:
    for polled in [false, true] {
        let value = captured.value();
        let future = async move {
            let _value = value;
            pending().await
        };
        let mut job = Box::pin(jobs.wrap(1, future).await.unwrap().1);
        if polled {
            assert!(poll(&mut job).is_pending());
        }
        assert_eq!(captured.count(), usize::from(polled));
        drop(job);
        assert_eq!(captured.count(), 1 + usize::from(polled));
        assert!(take(&mut done).outcome.unwrap_err().is_cancelled());
    }

    // by an abort, which touches no value of another thread:
    let value = captured.value();
    let future = async move {
        let _value = value;
        pending().await
    };
    let (id, job) = jobs.wrap(2, future).await.unwrap();
    let mut job = Box::pin(job);
    let abort = jobs.clone();
    assert!(thread::spawn(move || abort.abort(id)).join().unwrap());
    assert_eq!(captured.count(), 2);
    assert!(poll(&mut pin!(done.next())).is_pending());
    ready(&mut job);
    assert_eq!(captured.count(), 3);
    assert!(take(&mut done).outcome.unwrap_err().is_cancelled());

    // A panic in a drop is contained.
    let bomb = PanicsOnDrop(captured.value());
    let job = jobs.wrap(3, async move {
        let _bomb = bomb;
        pending().await
    });
    drop(job.await.unwrap());
    assert_eq!(captured.count(), 4);
    assert!(take(&mut done).outcome.unwrap_err().is_cancelled());
}

#[tokio::test]
async fn an_abort_wakes_a_wrapped_job() {
    let (jobs, mut done) = unbounded::<()>();
    let local = LocalSet::new();
    let shared = Rc::new(());
    let held = Rc::clone(&shared);
    let future = async move {
        let _held = held;
        pending().await
    };
    let (id, job) = jobs.wrap(0, future).await.unwrap();
    let ended = local.spawn_local(job);
    let aborted = async {
        tokio::task::yield_now().await;
        assert!(thread::spawn(move || jobs.abort(id)).join().unwrap());
        eventually("it has ended", || ended.is_finished()).await;
        within(done.next()).await.unwrap()
    };
    let completed = local.run_until(aborted).await;
    assert!(completed.outcome.unwrap_err().is_cancelled());
    assert_eq!(Rc::strong_count(&shared), 1);
}

/// Tells if a type is `Send`: the inherent constant has priority over that of the trait, if it applies.
struct IsSend<T>(std::marker::PhantomData<T>);
trait Otherwise {
    const SEND: bool = false;
}
impl<T> Otherwise for IsSend<T> {}
impl<T: Send> IsSend<T> {
    const SEND: bool = true;
}

#[test]
fn a_wrapped_job_is_sent_if_its_future_can_be() {
    const { assert!(IsSend::<Wrapped<std::future::Ready<()>>>::SEND) };
    const { assert!(!IsSend::<Wrapped<std::future::Ready<Rc<()>>>>::SEND) };

    let (jobs, mut done) = CompletionStream::builder().build().unwrap();
    let (_, job) = ready(pin!(jobs.wrap((), async { 7 }))).unwrap();
    thread::spawn(move || block_on(job)).join().unwrap();
    let completed = ready(pin!(done.next())).unwrap();
    assert_eq!(completed.outcome.unwrap(), 7);
}
