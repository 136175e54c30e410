//! [`Tail`]: the last tasks that the server has acknowledged. If it loses them, this process stores them again.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::durable::store::{Enqueue, SessionId};
use crate::sync::{Mutex, lock};

/// The time for which a request is kept after it was acknowledged, for as long as later ones follow. A primary that is cut off from its
/// replicas refuses writes after ten seconds, which is the default of `min-replicas-max-lag`, if it is to have replicas.
const MAX_AGE: Duration = Duration::from_secs(15);
/// The maximum size in bytes of the payloads that are kept for a session, of all partitions together.
const MAX_BYTES: usize = 4 << 20;
/// The maximum number of earlier requests of a session whose numbers of tasks are remembered.
const MAX_COUNTED: usize = 4096;
/// The time after its last request for which a store cannot have ended a session because its process seemed to be gone.
pub(super) const MIN_SESSION_LIFE: Duration = Duration::from_secs(120);

/// The last requests of each session that have stored tasks, for each partition.
#[derive(Debug, Default)]
pub(super) struct Tail(Mutex<HashMap<(usize, SessionId), Acknowledged>>);

/// The requests of a session in a partition, in their order.
#[derive(Debug, Default)]
struct Acknowledged {
    kept: VecDeque<KeptRequest>,
    bytes: usize,
    /// The numbers of earlier requests, each with the number of its tasks.
    counted: VecDeque<(u64, usize)>,
}

/// A request that the server has acknowledged.
#[derive(Clone, Debug)]
pub(super) struct KeptRequest {
    pub(super) request: Arc<Enqueue>,
    /// The number and the size of its tasks in the partition.
    pub(super) tasks: usize,
    bytes: usize,
    at: Duration,
}

/// The last request of a session that a partition has acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LastRequest {
    pub(super) session: SessionId,
    pub(super) number: u64,
}

/// The requests of a session that a server has lost.
#[derive(Debug, Default)]
pub(super) struct LostRequests {
    /// Those that are kept, in their order.
    pub(super) kept: Vec<KeptRequest>,
    /// The number of tasks of the others.
    pub(super) others: usize,
}

impl Tail {
    /// Records that a partition has acknowledged a request with these tasks.
    pub(super) fn record(
        &self,
        partition: usize,
        request: &Arc<Enqueue>,
        (tasks, bytes): (usize, usize),
        at: Duration,
        partitions: usize,
    ) {
        let mut all = lock(&self.0);
        let session = all.entry((partition, request.session)).or_default();
        let last = session.kept.back().map(|it| it.request.number);
        // The request may have been sent again.
        if last.is_some_and(|last| last >= request.number) {
            return;
        }
        session.bytes += bytes;
        session.kept.push_back(KeptRequest {
            request: Arc::clone(request),
            tasks,
            bytes,
            at,
        });
        session.drop_old(at, MAX_BYTES / partitions);
    }

    /// Returns the sessions that have stored tasks in a partition, each with its last request there.
    pub(super) fn sessions(&self, partition: usize) -> Vec<LastRequest> {
        let all = lock(&self.0);
        let found = all.iter().filter(|((of, _), _)| *of == partition);
        let last = found.map(|((_, session), it)| LastRequest {
            session: *session,
            number: it.kept.back().map_or(0, |kept| kept.request.number),
        });
        last.collect()
    }

    /// Returns the requests of a session that are missing, given the last number that the server knows, or `None` if it does not know the
    /// session. Removes a session that the store may have ended.
    ///
    /// `asked` is the last request before the server was asked. Later ones are not missing: the answer may be older than they are.
    pub(super) fn lost(
        &self,
        partition: usize,
        asked: LastRequest,
        last: Option<u64>,
        now: Duration,
    ) -> LostRequests {
        let mut all = lock(&self.0);
        let key = (partition, asked.session);
        match all.get(&key) {
            Some(it) if last.is_some() || it.must_exist(now) => {
                it.between(last.unwrap_or(0), asked.number)
            }
            _ => {
                all.remove(&key);
                LostRequests::default()
            }
        }
    }

    /// Removes what was counted as lost: the requests that are not kept, and those that the server has refused.
    pub(super) fn settle(&self, partition: usize, session: SessionId, refused: &[u64]) {
        if let Some(it) = lock(&self.0).get_mut(&(partition, session)) {
            it.counted.clear();
            it.kept
                .retain(|kept| !refused.contains(&kept.request.number));
            it.bytes = it.kept.iter().map(|kept| kept.bytes).sum();
        }
    }

    /// Removes the requests of a partition, and returns the number of their tasks.
    pub(super) fn clear(&self, partition: usize) -> usize {
        let mut all = lock(&self.0);
        let removed = all.extract_if(|(of, _), _| *of == partition);
        removed
            .map(|(_, it)| it.between(0, u64::MAX))
            .map(|it| it.total())
            .sum()
    }

    /// Removes the requests of a session that has been closed.
    pub(super) fn close(&self, session: SessionId) {
        lock(&self.0).retain(|(_, of), _| *of != session);
    }
}

impl Acknowledged {
    /// Removes requests that are old, or for which there is no room. The last one is always kept.
    fn drop_old(&mut self, now: Duration, max_bytes: usize) {
        while self.kept.len() > 1
            && let Some(first) = self.kept.front()
            && (self.bytes > max_bytes || now.saturating_sub(first.at) > MAX_AGE)
        {
            self.bytes -= first.bytes;
            self.counted.push_back((first.request.number, first.tasks));
            self.kept.pop_front();
        }
        let excess = self.counted.len().saturating_sub(MAX_COUNTED);
        self.counted.drain(..excess);
    }

    /// Returns `true` if a store that does not know the session has lost it.
    fn must_exist(&self, now: Duration) -> bool {
        let last = self.kept.back();
        last.is_some_and(|last| now.saturating_sub(last.at) < MIN_SESSION_LIFE)
    }

    /// Returns the requests after this number, until that one.
    fn between(&self, after: u64, until: u64) -> LostRequests {
        let is_between = |number: u64| number > after && number <= until;
        let kept = self.kept.iter();
        let kept = kept.filter(|it| is_between(it.request.number));
        let counted = self.counted.iter().filter(|(of, _)| is_between(*of));
        LostRequests {
            kept: kept.cloned().collect(),
            others: counted.map(|(_, tasks)| tasks).sum(),
        }
    }
}

impl LostRequests {
    /// Returns the number of all tasks.
    pub(super) fn total(&self) -> usize {
        self.others + self.kept.iter().map(|it| it.tasks).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::durable::store::suite::task;

    const SECOND: Duration = Duration::from_secs(1);

    fn request(session: SessionId, number: u64) -> Arc<Enqueue> {
        Arc::new(Enqueue {
            session,
            number,
            batch: Arc::new(vec![task(number)].into()),
        })
    }

    /// Records requests of session 7 with two tasks of these bytes, one a second.
    fn tail(numbers: std::ops::RangeInclusive<u64>, bytes: usize) -> Tail {
        let tail = Tail::default();
        for number in numbers {
            let at = SECOND * number as u32;
            tail.record(0, &request(7, number), (2, bytes), at, 1);
        }
        tail
    }

    /// The last request of session 7.
    fn last(number: u64) -> LastRequest {
        LastRequest { session: 7, number }
    }

    fn numbers(lost: &LostRequests) -> Vec<u64> {
        lost.kept.iter().map(|it| it.request.number).collect()
    }

    #[test]
    fn requests_after_the_last_known_one_are_lost() {
        let tail = tail(1..=4, 1);
        tail.record(0, &request(7, 4), (2, 1), SECOND, 1);
        let lost = |known| numbers(&tail.lost(0, last(4), known, 5 * SECOND));
        assert_eq!(lost(Some(2)), [3, 4]);
        assert!(lost(Some(4)).is_empty());
        assert_eq!(lost(None), [1, 2, 3, 4]);
        assert_eq!(
            (tail.sessions(0), tail.sessions(1)),
            (vec![last(4)], vec![])
        );
    }

    /// The store may have ended the session because its process seemed to be gone.
    #[test]
    fn a_session_that_is_gone_after_a_long_time_is_not_lost() {
        let tail = tail(1..=4, 1);
        let later = 4 * SECOND + MIN_SESSION_LIFE;
        assert_eq!(tail.lost(0, last(4), Some(3), later).total(), 2);
        assert_eq!(tail.lost(0, last(4), None, later).total(), 0);
        assert!(tail.sessions(0).is_empty());
    }

    #[test]
    fn old_and_large_requests_are_only_counted() {
        let old = tail(1..=20, 1).lost(0, last(20), Some(3), 20 * SECOND);
        assert_eq!((numbers(&old), old.others), ((5..=20).collect(), 2));
        let large = tail(1..=4, MAX_BYTES / 2).lost(0, last(4), Some(0), 4 * SECOND);
        assert_eq!((numbers(&large), large.others), (vec![3, 4], 4));
        let larger = tail(1..=2, 2 * MAX_BYTES).lost(0, last(2), Some(0), 2 * SECOND);
        assert_eq!((numbers(&larger), larger.total()), (vec![2], 4));
    }

    #[test]
    fn losses_are_counted_once() {
        let tail = tail(1..=20, 1);
        tail.settle(0, 7, &[19, 20]);
        let lost = tail.lost(0, last(20), Some(0), 20 * SECOND);
        assert_eq!((numbers(&lost), lost.others), ((5..=18).collect(), 0));
    }

    #[test]
    fn a_closed_session_and_a_cleared_partition_are_forgotten() {
        let tail = tail(1..=4, 1);
        tail.record(1, &request(8, 1), (1, 1), SECOND, 1);
        tail.close(8);
        assert!(tail.sessions(1).is_empty());
        assert_eq!(tail.clear(0), 8);
        assert!(tail.sessions(0).is_empty());
    }
}
