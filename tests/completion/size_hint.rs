//! The size hint of a stream.

use std::pin::pin;
use std::thread;

use futures::stream::Stream;

use super::support::{block_on, multi_thread, poll, ready, rounds};
use super::{bounded, slot, take, unbounded};

#[test]
fn size_hint_holds_while_others_submit() {
    let runtime = multi_thread(2, "worker");
    let (jobs, mut done) = bounded(8, 32);
    let each = rounds(2_000, 100_000);
    let mut hints = Vec::new();
    thread::scope(|scope| {
        for _ in 0..3 {
            let (jobs, runtime) = (jobs.clone(), &runtime);
            scope.spawn(move || {
                let _in = runtime.enter();
                for _ in 0..each {
                    block_on(jobs.submit(0, async {})).unwrap();
                }
            });
        }
        drop(jobs);
        loop {
            hints.push(done.size_hint());
            if block_on(done.next()).is_none() {
                break;
            }
        }
    });
    let items = hints.len() - 1;
    assert_eq!(items, 3 * each);
    for (read, (lower, upper)) in hints.into_iter().enumerate() {
        let left = items - read;
        assert!(lower <= left, "at least {lower} of {left}");
        assert!(
            upper.is_none_or(|upper| upper >= left),
            "{upper:?} of {left}"
        );
    }
}

#[test]
fn size_hint_is_exact_once_closed() {
    let (jobs, mut done) = unbounded();
    assert_eq!(done.size_hint(), (0, None));
    let promised: Vec<_> = (0..4).map(|tag| slot(&jobs, tag)).collect();
    assert_eq!(done.size_hint(), (4, None));
    jobs.close();
    assert_eq!(done.size_hint(), (4, Some(4)));
    for slot in promised {
        slot.complete(());
    }
    for left in (0..4).rev() {
        take(&mut done);
        assert_eq!(done.size_hint(), (left, Some(left)));
    }
    assert!(ready(pin!(done.next())).is_none());
    assert_eq!(done.size_hint(), (0, Some(0)));
}

#[test]
fn size_hint_does_not_count_who_waits_for_room() {
    let (jobs, done) = bounded::<()>(1, 2);
    let _promised = slot(&jobs, 0);
    let mut waits = Box::pin(jobs.slot(1));
    assert!(poll(&mut waits).is_pending());
    assert_eq!(done.size_hint(), (1, None));
    jobs.close();
    assert_eq!(done.size_hint(), (1, Some(1)));
}
