//! Spilled completions: more unread completions than stay in their cells.

use std::pin::pin;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use futures::Stream;
use futures::stream::StreamExt;
use throng::completion::Submitter;
use throng::{CompletionStream, Slot};

use super::support::{Drops, Numbers, PanicsOnDrop, block_on, poll, rounds, wait_until};
use super::{Ends, bounded, drain, take, unbounded};

/// Several times the threshold. Under Miri, which is slow, just more than the threshold.
const MANY: usize = if cfg!(miri) { 1_500 } else { 6_000 };

fn slots<T: Send + 'static>(jobs: &Submitter<T, usize>, count: usize) -> Vec<Slot<T, usize>> {
    let all = (0..count).map(|tag| jobs.try_slot(tag).expect("there is room"));
    all.collect()
}

/// A stream with a number of unread items, completed in this order.
fn filled(order: impl IntoIterator<Item = usize>, count: usize) -> Ends<usize> {
    let (jobs, done) = bounded(count, 2 * count);
    let mut open: Vec<_> = slots(&jobs, count).into_iter().map(Some).collect();
    for tag in order {
        open[tag].take().expect("each once").complete(tag);
    }
    (jobs, done)
}

fn shuffled(count: usize) -> Vec<usize> {
    let mut numbers = Numbers::new(5);
    let mut order: Vec<_> = (0..count).collect();
    for end in (1..count).rev() {
        order.swap(end, numbers.below(end as u64 + 1) as usize);
    }
    order
}

#[test]
fn spilled_completions_come_in_order() {
    let order = shuffled(MANY);
    let (jobs, mut done) = filled(order.iter().copied(), MANY);
    let still_open = jobs.try_slot(MANY).unwrap();
    assert_eq!((jobs.in_flight(), jobs.ready()), (MANY + 1, MANY));
    for (read, tag) in order.into_iter().enumerate() {
        let completed = take(&mut done);
        assert_eq!((completed.tag, completed.outcome.unwrap()), (tag, tag));
        assert!(!jobs.abort(completed.id));
        assert_eq!(jobs.in_flight(), MANY - read);
        assert_eq!(jobs.ready(), MANY - read - 1);
    }
    assert!(poll(&mut pin!(done.next())).is_pending());
    still_open.complete(7);
    assert_eq!(take(&mut done).outcome.unwrap(), 7);
    drop(jobs);
    assert!(block_on(done.next()).is_none());
}

#[test]
fn the_size_hint_counts_spilled_completions() {
    let (jobs, mut done) = filled(0..MANY, MANY);
    let errors = slots(&jobs, 3);
    drop(errors);
    jobs.close();
    for left in (0..MANY + 3).rev() {
        assert_eq!(done.size_hint(), (left + 1, Some(left + 1)));
        let completed = take(&mut done);
        assert_eq!(completed.outcome.is_err(), left < 3);
    }
    assert!(block_on(done.next()).is_none());
}

#[test]
fn spilled_completions_hold_their_permits_until_read() {
    let (jobs, mut done) = bounded(MANY, MANY);
    for slot in slots(&jobs, MANY) {
        slot.complete(());
    }
    for tag in 0..MANY {
        assert!(jobs.try_slot(0).unwrap_err().is_full());
        take(&mut done);
        jobs.try_slot(tag).unwrap().complete(());
    }
    assert_eq!(drain(&mut done).count(), MANY);
    assert!(done.try_next().is_none());
}

#[test]
fn spilled_completions_can_be_ordered() {
    for read_before in [0, 1, MANY / 2] {
        let (jobs, mut done) = filled(shuffled(MANY), MANY);
        let mut read: Vec<_> = (0..read_before).map(|_| take(&mut done).tag).collect();
        let mut done = done.ordered();
        // Also the later ones.
        let mut more = slots(&jobs, MANY / 2);
        while let Some(slot) = more.pop() {
            slot.complete(MANY);
        }
        drop(jobs);
        let rest: Vec<_> = block_on(done.by_ref().collect());
        read.sort_unstable();
        let expected = (0..MANY).filter(|tag| read.binary_search(tag).is_err());
        let expected: Vec<_> = expected.chain(0..MANY / 2).collect();
        let tags: Vec<_> = rest.into_iter().map(|completed| completed.tag).collect();
        assert!(tags == expected, "after {read_before}");
    }
}

/// A stream of items whose tags and outputs panic when they are dropped. The last are not spilled yet, and the first job
/// has not ended.
fn bombs(outputs: &Drops, tags: &Drops) -> (Slot<Bomb, Bomb>, CompletionStream<Bomb, Bomb>) {
    let (jobs, done) = CompletionStream::builder()
        .max_running(MANY + 1)
        .build()
        .unwrap();
    let slot = |_| jobs.try_slot(PanicsOnDrop(tags.value())).ok().unwrap();
    let mut open: Vec<_> = (0..=MANY).map(slot).collect();
    for slot in open.drain(1..) {
        slot.complete(PanicsOnDrop(outputs.value()));
    }
    (open.pop().expect("the first"), done)
}

type Bomb = PanicsOnDrop;

#[test]
fn spilled_completions_are_dropped_with_the_stream() {
    let (outputs, tags) = (Drops::new(), Drops::new());
    let (open, mut done) = bombs(&outputs, &tags);
    assert_eq!((outputs.count(), tags.count()), (0, 0));
    // The reader has taken some of them.
    std::mem::forget(done.try_next());
    drop(done);
    assert_eq!((outputs.count(), tags.count()), (MANY - 1, MANY - 1));
    drop(open);
    assert_eq!(tags.count(), MANY);
}

#[test]
fn spilled_completions_are_dropped_with_an_ordered_stream() {
    let (outputs, tags) = (Drops::new(), Drops::new());
    let (open, done) = bombs(&outputs, &tags);
    let mut done = done.ordered();
    assert!(poll(&mut pin!(done.next())).is_pending());
    assert_eq!((outputs.count(), tags.count()), (0, 0));
    drop(done);
    assert_eq!((outputs.count(), tags.count()), (MANY, MANY));
    drop(open);
}

#[test]
fn spilled_completions_are_dropped_by_detach() {
    let (outputs, tags) = (Drops::new(), Drops::new());
    let (open, done) = bombs(&outputs, &tags);
    done.detach();
    assert_eq!((outputs.count(), tags.count()), (MANY, MANY));
    assert!(!open.is_aborted());
}

#[test]
fn shutdown_returns_spilled_completions() {
    let (jobs, done) = filled(0..MANY, MANY);
    let open = slots(&jobs, 3);
    let shutdown = thread::spawn(move || block_on(done.shutdown(Duration::ZERO)));
    for mut slot in open {
        block_on(slot.aborted());
    }
    let all = shutdown.join().unwrap();
    assert_eq!(all.len(), MANY + 3);
    let ended = all.iter().filter(|completed| completed.outcome.is_ok());
    assert!(ended.map(|completed| completed.tag).eq(0..MANY));
}

#[test]
fn next_until_idle_yields_spilled_completions() {
    let (jobs, mut done) = filled(0..MANY, MANY);
    for tag in 0..MANY {
        assert_eq!(block_on(done.next_until_idle()).unwrap().tag, tag);
    }
    assert!(block_on(done.next_until_idle()).is_none());
    drop(jobs);
}

#[test]
fn a_drop_of_a_spilled_completion_may_use_the_stream() {
    struct Meddles(Submitter<Self, usize>, Drops);
    impl Drop for Meddles {
        fn drop(&mut self) {
            self.0.abort_all();
            assert!(self.0.try_slot(0).unwrap_err().is_closed());
            drop(self.1.value());
        }
    }
    let (jobs, mut done) = unbounded();
    let dropped = Drops::new();
    for slot in slots(&jobs, MANY) {
        slot.complete(Meddles(jobs.clone(), dropped.clone()));
    }
    std::mem::forget(done.try_next());
    drop(done);
    assert_eq!(dropped.count(), MANY - 1);
}

/// Jobs that were read are released in batches, which must not show in the counts.
#[test]
fn in_flight_never_misses_a_job() {
    const UNREAD: usize = 64;
    let (jobs, mut done) = unbounded();
    let complete = |tag| jobs.try_slot(tag).expect("there is room").complete(());
    (0..UNREAD).for_each(complete);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let counts = scope.spawn(|| {
            let mut least = UNREAD;
            while !over.load(Ordering::SeqCst) {
                least = least.min(jobs.in_flight());
            }
            least
        });
        for tag in 0..rounds(100_000, 10_000_000) {
            complete(tag + UNREAD);
            assert_eq!(take(&mut done).tag, tag);
        }
        over.store(true, Ordering::SeqCst);
        assert_eq!(counts.join().unwrap(), UNREAD);
    });
}

#[test]
fn nothing_is_lost_or_overtaken_under_load() {
    const THREADS: usize = 3;
    for round in 0..rounds(4, 200) {
        let (jobs, mut done) = unbounded();
        let mut open = slots(&jobs, THREADS * MANY);
        let start = Barrier::new(THREADS + 1);
        thread::scope(|scope| {
            for _ in 0..THREADS {
                let mine = open.split_off(open.len() - MANY);
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    mine.into_iter().for_each(|slot| slot.complete(()));
                });
            }
            start.wait();
            let mut next = [0; THREADS];
            for read in 0..THREADS * MANY {
                // Now and then the reader falls behind.
                if read % 5_000 == 1_000 * (round % 5) {
                    wait_until("many are unread", || {
                        jobs.ready() >= MANY.min(THREADS * MANY - read)
                    });
                }
                let tag = block_on(done.next()).expect("not all are read").tag;
                let (thread, nth) = (tag / MANY, tag % MANY);
                assert_eq!(nth, next[thread], "in order of completion");
                next[thread] += 1;
            }
        });
        assert_eq!(jobs.in_flight(), 0);
        assert!(done.try_next().is_none());
    }
}

#[test]
fn the_stream_is_dropped_during_a_spill() {
    for _ in 0..rounds(20, 2_000) {
        let outputs = Drops::new();
        let (jobs, mut done) = unbounded();
        let mut open = slots(&jobs, 2 * MANY);
        thread::scope(|scope| {
            for _ in 0..2 {
                let mine = open.split_off(open.len() - MANY);
                let outputs = &outputs;
                scope.spawn(move || {
                    mine.into_iter()
                        .for_each(|slot| slot.complete(outputs.value()));
                });
            }
            wait_until("some are unread", || jobs.ready() > MANY / 2);
            drop(done.try_next());
            drop(done);
        });
        assert_eq!((outputs.made(), outputs.count()), (2 * MANY, 2 * MANY));
    }
}
