//! Who is to be attended to, by time.

use std::cmp;
use std::collections::BinaryHeap;
use std::sync::Weak;
use std::time::Instant;

use super::Tick;

/// The fewest entries that there is room for, once there are any.
const MIN_ROOM: usize = 16;

/// Who is to be attended to, the earliest first.
pub(super) struct TimerHeap(BinaryHeap<Entry>);

struct Entry {
    at: Instant,
    tick: Weak<dyn Tick>,
}

/// What the timer does next.
pub(super) enum Next {
    /// Nobody wants it.
    Nothing,
    /// It waits until then.
    At(Instant),
    /// It attends to this one, which is taken off the heap.
    Due(Weak<dyn Tick>),
}

impl TimerHeap {
    pub(super) const fn new() -> Self {
        Self(BinaryHeap::new())
    }

    /// Adds one; `true`: it is earlier than all others.
    pub(super) fn add(&mut self, at: Instant, tick: Weak<dyn Tick>) -> bool {
        let first = self.0.peek().is_none_or(|first| at < first.at);
        self.make_room();
        self.0.push(Entry { at, tick });
        first
    }

    pub(super) fn next(&mut self, now: Instant) -> Next {
        match self.0.peek() {
            None => Next::Nothing,
            Some(first) if first.at > now => Next::At(first.at),
            Some(_) => match self.0.pop() {
                Some(first) => Next::Due(first.tick),
                None => Next::Nothing,
            },
        }
    }

    /// Forgets those that are gone, instead of growing for them: their time may be far away.
    fn make_room(&mut self) {
        if self.0.len() < self.0.capacity() {
            return;
        }
        self.0.retain(|entry| entry.tick.strong_count() > 0);
        // As many as there are may come before this is done again.
        self.0.reserve(self.0.len().max(MIN_ROOM));
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

// The greatest is what a heap gives first.
impl Ord for Entry {
    fn cmp(&self, other: &Self) -> cmp::Ordering {
        other.at.cmp(&self.at)
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl Eq for Entry {}
