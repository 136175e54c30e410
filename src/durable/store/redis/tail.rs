//! [`Tail`]: the last tasks that the server has acknowledged. If it loses them, this process stores them again.

use std::collections::{HashMap, VecDeque};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use crate::durable::TaskId;
use crate::durable::key::Conflict;
use crate::durable::store::{Enqueue, SessionId};
use crate::sync::{Mutex, lock};

/// The time for which a request is kept after it was acknowledged, for as long as later ones follow. A primary that is cut off from its
/// replicas refuses writes after ten seconds, which is the default of `min-replicas-max-lag`, if `min-replicas-to-write` is set.
const MAX_AGE: Duration = Duration::from_secs(15);
/// The maximum size in bytes of the payloads that are kept for a session, of all partitions together.
const MAX_BYTES: usize = 4 << 20;
/// The maximum number of earlier requests of a session whose numbers of tasks are remembered.
const MAX_COUNTED: usize = 4096;
/// The time for which a store certainly keeps a session after its last request, even if its process seems to be gone.
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
    pub(super) tasks: KeptTasks,
    at: Duration,
}

/// The tasks of a request in a partition.
#[derive(Clone, Debug, Default)]
pub(super) struct KeptTasks {
    /// The number of those that were stored.
    pub(super) count: usize,
    /// The size of their payloads.
    pub(super) bytes: usize,
    /// The others, whose keys other tasks had.
    pub(super) conflicts: HashMap<TaskId, Conflict>,
}

impl KeptTasks {
    /// Returns `true` if a task was stored.
    pub(super) fn had_stored(&self, id: TaskId) -> bool {
        !self.conflicts.contains_key(&id)
    }

    /// Returns `true` if a task was stored, or has replaced the payload of another one.
    pub(super) fn had_effect(&self, id: TaskId) -> bool {
        self.conflicts
            .get(&id)
            .is_none_or(|it| *it == Conflict::Replace)
    }
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
        tasks: KeptTasks,
        at: Duration,
        partitions: usize,
    ) {
        let mut all = lock(&self.0);
        let session = all.entry((partition, request.session)).or_default();
        // The request may have been sent again.
        if session.last().is_some_and(|last| last >= request.number) {
            return;
        }
        session.bytes += tasks.bytes;
        session.kept.push_back(KeptRequest {
            request: Arc::clone(request),
            tasks,
            at,
        });
        session.drop_old(at, MAX_BYTES / partitions);
    }

    /// Returns the sessions that have stored tasks in a partition, each with the number of its last request that was acknowledged.
    pub(super) fn sessions(&self, partition: usize) -> Vec<(SessionId, u64)> {
        let all = lock(&self.0);
        let found = all.iter().filter(|((of, _), _)| *of == partition);
        let found = found.filter_map(|((_, session), it)| Some((*session, it.last()?)));
        found.collect()
    }

    /// Returns the requests of a session up to the number `acknowledged` that are missing, given the last number that the server knows, or
    /// `None` if it does not know the session. Those that are not kept are returned once. Removes a session that the store may have ended.
    pub(super) fn take_lost(
        &self,
        partition: usize,
        session: SessionId,
        last: Option<u64>,
        acknowledged: u64,
        now: Duration,
    ) -> LostRequests {
        let mut all = lock(&self.0);
        let key = (partition, session);
        match all.get_mut(&key) {
            Some(it) if last.is_some() || it.must_exist(now) => {
                it.take_lost(last.unwrap_or(0) + 1..=acknowledged)
            }
            _ => {
                all.remove(&key);
                LostRequests::default()
            }
        }
    }

    /// Removes a request that the server has refused when it was sent again.
    pub(super) fn remove(&self, partition: usize, session: SessionId, number: u64) {
        if let Some(it) = lock(&self.0).get_mut(&(partition, session)) {
            it.kept.retain(|kept| kept.request.number != number);
            it.bytes = it.kept.iter().map(|kept| kept.tasks.bytes).sum();
        }
    }

    /// Removes the requests of a partition, and returns the number of their tasks.
    pub(super) fn clear(&self, partition: usize) -> usize {
        let mut all = lock(&self.0);
        let removed = all.extract_if(|(of, _), _| *of == partition);
        removed.map(|(_, it)| it.total()).sum()
    }

    /// Removes the requests of a session that is about to be closed.
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
            self.bytes -= first.tasks.bytes;
            let counted = (first.request.number, first.tasks.count);
            self.counted.push_back(counted);
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

    /// Returns the number of the last request.
    fn last(&self) -> Option<u64> {
        self.kept.back().map(|last| last.request.number)
    }

    /// Returns the requests with these numbers, and removes those that are not kept.
    fn take_lost(&mut self, numbers: RangeInclusive<u64>) -> LostRequests {
        let kept = self.kept.iter();
        let kept = kept.filter(|it| numbers.contains(&it.request.number));
        let kept = kept.cloned().collect();
        let mut others = 0;
        self.counted.retain(|(number, tasks)| {
            let is_lost = numbers.contains(number);
            others += if is_lost { *tasks } else { 0 };
            !is_lost
        });
        LostRequests { kept, others }
    }

    /// Returns the number of all tasks.
    fn total(&self) -> usize {
        let kept = self.kept.iter().map(|it| it.tasks.count);
        kept.chain(self.counted.iter().map(|it| it.1)).sum()
    }
}

impl LostRequests {
    pub(super) fn is_empty(&self) -> bool {
        self.kept.is_empty() && self.others == 0
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

    fn tasks(count: usize, bytes: usize) -> KeptTasks {
        let conflicts = HashMap::new();
        KeptTasks {
            count,
            bytes,
            conflicts,
        }
    }

    /// Records requests of session 7 with two tasks of these bytes, one a second.
    fn tail(numbers: RangeInclusive<u64>, bytes: usize) -> Tail {
        let tail = Tail::default();
        for number in numbers {
            let at = SECOND * number as u32;
            tail.record(0, &request(7, number), tasks(2, bytes), at, 1);
        }
        tail
    }

    /// Returns the numbers of the requests of session 7 that are lost, and the number of the tasks of the others.
    fn lost(tail: &Tail, last: Option<u64>, now: Duration) -> (Vec<u64>, usize) {
        let lost = tail.take_lost(0, 7, last, u64::MAX, now);
        let kept = lost.kept.iter().map(|it| it.request.number);
        (kept.collect(), lost.others)
    }

    #[test]
    fn requests_after_the_last_known_one_are_lost() {
        let tail = tail(1..=4, 1);
        tail.record(0, &request(7, 4), tasks(2, 1), SECOND, 1);
        let lost = |last| lost(&tail, last, 5 * SECOND).0;
        assert_eq!(lost(Some(2)), [3, 4]);
        assert!(lost(Some(4)).is_empty());
        assert_eq!(lost(None), [1, 2, 3, 4]);
        assert_eq!((tail.sessions(0), tail.sessions(1)), (vec![(7, 4)], vec![]));
    }

    /// The server has answered another connection since it was asked for the last number.
    #[test]
    fn a_request_that_was_acknowledged_since_is_not_lost() {
        let tail = tail(1..=2, 1);
        let (session, acknowledged) = tail.sessions(0)[0];
        tail.record(0, &request(7, 3), tasks(1, 1), 3 * SECOND, 1);
        let lost = |last| tail.take_lost(0, session, last, acknowledged, 3 * SECOND);
        assert!(lost(Some(2)).is_empty());
        assert_eq!(lost(Some(1)).kept.len(), 1);
        assert_eq!(lost(None).kept.len(), 2);
    }

    /// The store may have ended the session because its process seemed to be gone.
    #[test]
    fn a_session_that_is_gone_after_a_long_time_is_not_lost() {
        let tail = tail(1..=4, 1);
        let later = 4 * SECOND + MIN_SESSION_LIFE;
        assert_eq!(lost(&tail, Some(3), later), (vec![4], 0));
        assert_eq!(lost(&tail, None, later), (vec![], 0));
        assert!(tail.sessions(0).is_empty());
    }

    #[test]
    fn old_and_large_requests_are_only_counted() {
        let old = lost(&tail(1..=20, 1), Some(3), 20 * SECOND);
        assert_eq!(old, ((5..=20).collect(), 2));
        let large = lost(&tail(1..=4, MAX_BYTES / 2), Some(0), 4 * SECOND);
        assert_eq!(large, (vec![3, 4], 4));
        let larger = lost(&tail(1..=2, 2 * MAX_BYTES), Some(0), 2 * SECOND);
        assert_eq!(larger, (vec![2], 2));
    }

    /// The connection breaks while the others are sent again.
    #[test]
    fn losses_are_counted_once() {
        let tail = tail(1..=20, 1);
        assert_eq!(lost(&tail, Some(3), 20 * SECOND).1, 2);
        for refused in [19, 20] {
            tail.remove(0, 7, refused);
        }
        let rest = lost(&tail, Some(3), 20 * SECOND);
        assert_eq!(rest, ((5..=18).collect(), 0));
    }

    #[test]
    fn a_task_that_was_not_stored_is_not_sent_again() {
        let conflicts = [Conflict::Join, Conflict::Reject, Conflict::Replace];
        let ids = conflicts.map(|_| TaskId::new());
        let tasks = KeptTasks {
            conflicts: ids.into_iter().zip(conflicts).collect(),
            ..KeptTasks::default()
        };
        assert_eq!(ids.map(|id| tasks.had_effect(id)), [false, false, true]);
        assert_eq!(ids.map(|id| tasks.had_stored(id)), [false; 3]);
        let other = TaskId::new();
        assert!(tasks.had_effect(other) && tasks.had_stored(other));
    }

    #[test]
    fn a_closed_session_and_a_cleared_partition_are_forgotten() {
        let tail = tail(1..=4, 1);
        tail.record(1, &request(8, 1), tasks(1, 1), SECOND, 1);
        tail.close(8);
        assert!(tail.sessions(1).is_empty());
        assert_eq!(tail.clear(0), 8);
        assert!(tail.sessions(0).is_empty());
    }
}
