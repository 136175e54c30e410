//! The inbox and its lists on one thread and on many; Miri runs them too.

use std::ptr::NonNull;
use std::sync::Arc;
use std::thread;

use super::{Batch, FifoList, Inbox, Link, Linked, Tags};

const CLOSED: Tags = Tags::bit(1);

struct Node(Box<Boxed>);

#[repr(C)]
struct Boxed {
    link: Link,
    value: usize,
    alive: Arc<()>,
}

// SAFETY: a node is owned by one thread at a time.
unsafe impl Send for Node {}

// SAFETY: the link is the first field of the box, which stays where it is.
unsafe impl Linked for Node {
    fn into_link(self) -> NonNull<Link> {
        NonNull::from(Box::leak(self.0)).cast()
    }

    unsafe fn from_link(link: NonNull<Link>) -> Self {
        // SAFETY: the inverse of `into_link`.
        Self(unsafe { Box::from_raw(link.as_ptr().cast()) })
    }
}

/// Makes nodes, and counts those that exist.
#[derive(Default)]
struct Nodes(Arc<()>);

impl Nodes {
    fn node(&self, value: usize) -> Node {
        Node(Box::new(Boxed {
            link: Link::new(),
            value,
            alive: Arc::clone(&self.0),
        }))
    }

    fn alive(&self) -> usize {
        Arc::strong_count(&self.0) - 1
    }

    fn batch(&self, values: impl IntoIterator<Item = usize>) -> Batch<Node> {
        let mut batch = Batch::new();
        for value in values {
            batch.push(self.node(value));
        }
        batch
    }
}

fn values(mut list: FifoList<Node>) -> Vec<usize> {
    std::iter::from_fn(|| list.pop_front().map(|node| node.0.value)).collect()
}

fn push(inbox: &Inbox<Node>, batch: Batch<Node>) {
    assert!(inbox.push(batch, |head| Some(head.tags)).is_ok());
}

#[test]
fn nodes_are_taken_in_the_order_of_pushes() {
    let (nodes, inbox) = (Nodes::default(), Inbox::new());
    for value in 0..5 {
        push(&inbox, nodes.batch([value]));
    }
    push(&inbox, nodes.batch(5..9));
    assert_eq!(values(inbox.take()), (0..9).collect::<Vec<_>>());
    assert!(inbox.take().is_empty());
    assert_eq!(nodes.alive(), 0);
}

#[test]
fn an_empty_batch_changes_nothing() {
    let inbox = Inbox::<Node>::new();
    let head = inbox.push(Batch::new(), |_| Some(CLOSED));
    assert!(head.is_ok_and(|head| head.empty));
    assert_eq!(inbox.peek().tags, Tags::NONE);
}

#[test]
fn a_push_returns_the_head_that_it_replaced() {
    let (nodes, inbox) = (Nodes::default(), Inbox::new());
    let first = inbox.push(nodes.batch([1]), |_| Some(CLOSED)).ok().unwrap();
    assert!(first.empty && first.tags == Tags::NONE);
    let second = inbox
        .push(nodes.batch([2]), |head| Some(head.tags))
        .ok()
        .unwrap();
    assert!(!second.empty && second.tags == CLOSED);
}

#[test]
fn a_refused_batch_comes_back_whole() {
    let (nodes, inbox) = (Nodes::default(), Inbox::new());
    push(&inbox, nodes.batch([0]));
    inbox.retag(CLOSED, Tags::NONE);
    let refused = inbox.push(nodes.batch(1..4), |head| {
        (!head.tags.has(CLOSED)).then_some(head.tags)
    });
    let Err(refused) = refused else {
        panic!("it is closed")
    };
    assert!(refused.head.tags.has(CLOSED));
    assert_eq!(values(refused.batch.into_fifo()), [1, 2, 3]);
    assert_eq!(values(inbox.take()), [0]);
}

#[test]
fn tags_survive_a_take_and_change_only_an_empty_inbox() {
    let (nodes, inbox) = (Nodes::default(), Inbox::new());
    inbox.retag(CLOSED, Tags::NONE);
    push(&inbox, nodes.batch([1]));
    let full = inbox.exchange_empty(CLOSED, Tags::NONE).unwrap_err();
    assert!(!full.empty && full.tags == CLOSED);
    assert_eq!(values(inbox.take()), [1]);
    assert_eq!(
        inbox.exchange_empty(Tags::NONE, CLOSED).unwrap_err().tags,
        CLOSED
    );
    assert!(inbox.exchange_empty(CLOSED, Tags::NONE).is_ok());
    assert_eq!(inbox.retag(CLOSED, Tags::NONE).tags, Tags::NONE);
    assert_eq!(inbox.retag(Tags::NONE, CLOSED).tags, CLOSED);
}

#[test]
fn lists_drop_their_nodes() {
    let (nodes, inbox) = (Nodes::default(), Inbox::new());
    push(&inbox, nodes.batch(0..3));
    let mut list = inbox.take();
    list.pop_front();
    list.push_back(nodes.node(7));
    push(&inbox, nodes.batch(0..3));
    let batch = nodes.batch(0..3);
    assert_eq!(nodes.alive(), 9);
    drop((list, inbox, batch));
    assert_eq!(nodes.alive(), 0);
}

#[test]
fn a_fifo_list_is_a_queue() {
    let nodes = Nodes::default();
    let mut list = FifoList::new();
    list.push_back(nodes.node(1));
    assert_eq!(list.pop_front().map(|node| node.0.value), Some(1));
    assert!(list.is_empty());
    list.push_back(nodes.node(2));
    list.push_back(nodes.node(3));
    assert_eq!(values(list), [2, 3]);
}

#[test]
fn many_pushers_lose_nothing_and_keep_their_order() {
    const PUSHERS: usize = 4;
    const PER_PUSHER: usize = if cfg!(miri) { 50 } else { 20_000 };
    let (nodes, inbox) = (Nodes::default(), Inbox::new());
    let mut seen = Vec::new();
    thread::scope(|scope| {
        for pusher in 0..PUSHERS {
            let (nodes, inbox) = (&nodes, &inbox);
            scope.spawn(move || {
                for value in 0..PER_PUSHER {
                    push(inbox, nodes.batch([pusher * PER_PUSHER + value]));
                }
            });
        }
        while seen.len() < PUSHERS * PER_PUSHER {
            seen.extend(values(inbox.take()));
            thread::yield_now();
        }
    });
    for pusher in 0..PUSHERS {
        let own = seen.iter().filter(|value| **value / PER_PUSHER == pusher);
        assert!(
            own.copied()
                .eq(pusher * PER_PUSHER..(pusher + 1) * PER_PUSHER)
        );
    }
    assert_eq!(nodes.alive(), 0);
}

/// A push reads a head node, which is then taken and freed, and another node gets its address: the push links to that
/// other node. Miri tells the two apart.
#[test]
fn a_push_links_to_the_node_that_is_the_head() {
    let (nodes, inbox) = (Nodes::default(), Inbox::new());
    push(&inbox, nodes.batch([1]));
    let mut tries = 0;
    let pushed = inbox.push(nodes.batch([3]), |head| {
        if tries == 0 {
            drop(inbox.take());
            push(&inbox, nodes.batch([2]));
        }
        tries += 1;
        Some(head.tags)
    });
    assert!(pushed.is_ok());
    assert_eq!(values(inbox.take()), [2, 3]);
}
