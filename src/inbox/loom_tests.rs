//! Models of the inbox: each pair of operations that can meet, on every interleaving.

use std::ptr::NonNull;

use loom::sync::Arc;
use loom::thread;

use super::{Batch, Inbox, Link, Linked, LocalQueue, Tags};
use crate::sync::Plain;

const OWNED: Tags = Tags::bit(0);
const SEALED: Tags = Tags::bit(1);
const PARKED: Tags = Tags::bit(2);

/// A boxed number. The number lies in a cell, so that loom sees whether it was published.
struct Node(NonNull<Boxed>);

#[repr(C)]
struct Boxed {
    link: Link,
    value: Plain,
    /// Loom reports it if it is never dropped.
    _leak: Arc<()>,
}

// SAFETY: a node is owned by one thread at a time.
unsafe impl Send for Node {}

impl Node {
    fn new(value: u32) -> Self {
        Self(NonNull::from(Box::leak(Box::new(Boxed {
            link: Link::new(),
            value: Plain::new(value),
            _leak: Arc::new(()),
        }))))
    }

    fn value(&self) -> u32 {
        // SAFETY: the node is ours.
        unsafe { self.0.as_ref() }.value.get()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // SAFETY: the node is ours, and came from a box.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

// SAFETY: the link is the node's first field.
unsafe impl Linked for Node {
    fn into_link(self) -> NonNull<Link> {
        std::mem::ManuallyDrop::new(self).0.cast()
    }

    unsafe fn from_link(link: NonNull<Link>) -> Self {
        Self(link.cast())
    }
}

fn push(inbox: &Inbox<Node>, value: u32) {
    let accepted = inbox.push(Batch::of(Node::new(value)), |head| Some(head.tags));
    assert!(accepted.is_ok());
}

fn take(inbox: &Inbox<Node>) -> Vec<u32> {
    let mut list = inbox.take();
    std::iter::from_fn(|| list.pop_front().map(|node| node.value())).collect()
}

#[test]
fn loom_nothing_is_lost_and_each_pusher_is_in_order() {
    loom::model(|| {
        let inbox = Arc::new(Inbox::new());
        let pusher = {
            let inbox = inbox.clone();
            thread::spawn(move || {
                push(&inbox, 1);
                push(&inbox, 2);
            })
        };
        push(&inbox, 10);
        let mut seen = take(&inbox);
        push(&inbox, 11);
        pusher.join().unwrap();
        seen.extend(take(&inbox));

        let of = |range: std::ops::Range<u32>| -> Vec<u32> {
            seen.iter()
                .copied()
                .filter(|value| range.contains(value))
                .collect()
        };
        assert_eq!(of(0..10), [1, 2]);
        assert_eq!(of(10..20), [10, 11]);
    });
}

#[test]
fn loom_two_takers_share_without_loss() {
    loom::model(|| {
        let inbox = Arc::new(Inbox::new());
        push(&inbox, 1);
        let taker = {
            let inbox = inbox.clone();
            thread::spawn(move || take(&inbox))
        };
        push(&inbox, 2);
        let mut seen = take(&inbox);
        seen.extend(taker.join().unwrap());
        seen.extend(take(&inbox));
        seen.sort_unstable();
        assert_eq!(seen, [1, 2]);
    });
}

#[test]
fn loom_a_batch_stays_together() {
    loom::model(|| {
        let inbox = Arc::new(Inbox::new());
        let pusher = {
            let inbox = inbox.clone();
            thread::spawn(move || {
                let mut batch = Batch::of(Node::new(1));
                batch.push(Node::new(2));
                assert!(inbox.push(batch, |head| Some(head.tags)).is_ok());
            })
        };
        push(&inbox, 10);
        pusher.join().unwrap();
        let seen = take(&inbox);
        assert!(seen == [1, 2, 10] || seen == [10, 1, 2], "{seen:?}");
    });
}

/// Ownership is exclusive, and each owner sees what the one before did.
#[test]
fn loom_ownership_is_exclusive() {
    loom::model(|| {
        struct Shared(Inbox<Node>, Plain);

        /// Adds one to the number: at once if the inbox is idle, else by a push.
        fn submit(shared: &Shared) {
            if shared.0.exchange_empty(Tags::NONE, OWNED).is_ok() {
                add(shared);
                return release(shared);
            }
            let pushed = shared
                .0
                .push(Batch::of(Node::new(0)), |head| Some(head.tags.with(OWNED)));
            let Ok(head) = pushed else {
                unreachable!("nobody refuses")
            };
            if !head.tags.has(OWNED) {
                release(shared);
            }
        }

        fn add(shared: &Shared) {
            shared.1.add(1);
        }

        fn release(shared: &Shared) {
            while shared.0.exchange_empty(OWNED, Tags::NONE).is_err() {
                for _ in take(&shared.0) {
                    add(shared);
                }
            }
        }

        let shared = Arc::new(Shared(Inbox::new(), Plain::new(0)));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let shared = shared.clone();
                thread::spawn(move || submit(&shared))
            })
            .collect();
        submit(&shared);
        for thread in threads {
            thread.join().unwrap();
        }
        assert!(shared.0.exchange_empty(Tags::NONE, OWNED).is_ok());
        assert_eq!(shared.1.get(), 3);
    });
}

/// The new owner uses what the last one wrote before it takes anything from the inbox.
#[test]
fn loom_a_push_that_takes_ownership_sees_what_the_last_owner_did() {
    loom::model(|| {
        let shared = Arc::new((Inbox::<Node>::new(), Plain::new(0)));
        assert!(shared.0.exchange_empty(Tags::NONE, OWNED).is_ok());
        let owner = {
            let shared = shared.clone();
            thread::spawn(move || {
                shared.1.add(1);
                shared.0.exchange_empty(OWNED, Tags::NONE).is_ok()
            })
        };
        let pushed = shared
            .0
            .push(Batch::of(Node::new(0)), |head| Some(head.tags.with(OWNED)));
        if pushed.is_ok_and(|head| !head.tags.has(OWNED)) {
            assert_eq!(shared.1.get(), 1);
        }
        owner.join().unwrap();
        take(&shared.0);
    });
}

/// A node is refused after the seal, or taken by the thread that sealed: never left behind.
#[test]
fn loom_push_against_seal() {
    loom::model(|| {
        let inbox = Arc::new(Inbox::new());
        let pusher = {
            let inbox = inbox.clone();
            thread::spawn(move || {
                inbox
                    .push(Batch::of(Node::new(1)), |head| {
                        (!head.tags.has(SEALED)).then_some(head.tags)
                    })
                    .is_ok()
            })
        };
        inbox.retag(SEALED, Tags::NONE);
        let taken = take(&inbox).len();
        let accepted = pusher.join().unwrap();
        assert_eq!(taken, usize::from(accepted));
        assert!(inbox.peek().empty);
    });
}

/// A consumer parks only on an empty inbox, and exactly one of several pushes learns that it was parked.
#[test]
fn loom_push_against_park() {
    loom::model(|| {
        let inbox = Arc::new(Inbox::new());
        let pushers: Vec<_> = (0..2)
            .map(|value| {
                let inbox = inbox.clone();
                thread::spawn(move || {
                    let pushed = inbox.push(Batch::of(Node::new(value)), |head| {
                        Some(head.tags.without(PARKED))
                    });
                    pushed.is_ok_and(|head| head.tags.has(PARKED))
                })
            })
            .collect();
        let parked = inbox.exchange_empty(Tags::NONE, PARKED).is_ok();
        let wakes = pushers
            .into_iter()
            .map(|pusher| pusher.join().unwrap())
            .filter(|woke| *woke)
            .count();
        assert_eq!(wakes, usize::from(parked));
        assert_eq!(take(&inbox).len(), 2);
    });
}

/// The owner pops while two others steal: each node comes out once, and published.
#[test]
fn loom_pop_against_steal() {
    loom::model(|| {
        let queue = Arc::new(LocalQueue::<Node>::new());
        let thieves: Vec<_> = (0..2)
            .map(|_| {
                let queue = queue.clone();
                thread::spawn(move || {
                    let (mut list, count) = queue.steal_all();
                    let stolen: Vec<u32> =
                        std::iter::from_fn(|| list.pop_front().map(|node| node.value())).collect();
                    assert_eq!(stolen.len(), count);
                    assert!(stolen.is_sorted());
                    stolen
                })
            })
            .collect();
        let inbox = Inbox::new();
        (1..=3).for_each(|value| push(&inbox, value));
        queue.fill(inbox.take());
        let mut all = Vec::new();
        while let Some(node) = queue.pop() {
            all.push(node.value());
        }
        for thief in thieves {
            all.extend(thief.join().unwrap());
        }
        all.sort_unstable();
        assert_eq!(all, [1, 2, 3]);
    });
}
