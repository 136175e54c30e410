//! The steps of a small store, and of its workers.

use std::collections::{BTreeSet, VecDeque};

use super::super::{ListId, SetId};
use super::state::{Bounds, Rule, State, Task, Worker};
use super::{Kind, TypeSet};

impl State {
    /// Returns the states after each possible step.
    pub(super) fn steps(&self, bounds: &Bounds, rule: Rule) -> Vec<Self> {
        let mut next = Vec::new();
        if self.pushes < bounds.pushes {
            for &kind in &bounds.kinds {
                next.extend(self.push(kind, bounds, rule));
            }
        }
        for worker in 0..self.workers.len() {
            match self.workers[worker] {
                Worker::Absent => next.push(self.open(worker, bounds)),
                Worker::Awake => next.extend(self.turn(worker, bounds, rule)),
                Worker::Busy(task) => {
                    next.extend(self.end(worker, task, bounds, rule));
                    next.extend(self.shut_down(worker, task, bounds, rule));
                }
                Worker::Idle | Worker::Gone => {}
            }
            if self.deaths < bounds.deaths {
                next.extend(self.die(worker, bounds, rule));
            }
        }
        if self.pauses < bounds.pauses {
            for &kind in &bounds.kinds {
                next.extend(self.pause_or_resume(kind, bounds, rule));
            }
        }
        if self.raises < bounds.raises {
            next.extend(self.raise(bounds, rule));
        }
        next.extend(self.maintain(bounds));
        next
    }

    fn push(&self, kind: Kind, bounds: &Bounds, rule: Rule) -> Vec<Self> {
        let mut state = self.clone();
        let number = state.pushes;
        state.pushes += 1;
        let task = Task { kind, number };
        let list = state.routes.entrance(kind);
        state.lists.entry(list).or_default().push_back(task);
        state.expected.entry(kind).or_default().push_back(task);
        state.wake([list], bounds, rule)
    }

    fn open(&self, worker: usize, bounds: &Bounds) -> Self {
        let mut state = self.clone();
        state.change_routes(bounds, |routes| routes.declare(&bounds.sets[worker]));
        state.workers[worker] = Worker::Awake;
        state
    }

    fn turn(&self, worker: usize, bounds: &Bounds, rule: Rule) -> Vec<Self> {
        let set = bounds.sets[worker].id();
        let mut state = self.clone();
        let moved = state.drain(set, bounds.drained);
        let draining = state.routes.draining(set);
        let mut claimed_from = state.routes.leaves(set);
        if rule == Rule::ClaimsWhileDraining {
            claimed_from.extend(&draining);
        }
        claimed_from.retain(|&list| !state.is_empty(list));
        let queue = bounds.sets[worker].queue();
        if !state.has_room(queue, bounds) && rule != Rule::IgnoresLimit {
            state.workers[worker] = Worker::Idle;
            return vec![state];
        }
        let mut left: BTreeSet<_> = state.routes.leaves(set);
        left.extend(&draining);
        if rule != Rule::DrainWakesNobody {
            left.extend(moved);
        }
        if claimed_from.is_empty() {
            let is_drained = draining.iter().all(|&list| state.is_empty(list));
            let mut states = state.wake(left, bounds, rule);
            if is_drained || rule == Rule::IdleWhileDraining {
                for state in &mut states {
                    state.workers[worker] = Worker::Idle;
                }
            }
            return states;
        }
        // The order of the lists is not explored, so any of them may be first.
        let claims = claimed_from.into_iter().flat_map(|list| {
            let state = state.claim(worker, list, bounds);
            let left = match rule {
                Rule::LeavingWakesNobody => BTreeSet::new(),
                _ => left.clone(),
            };
            state.wake(left, bounds, rule)
        });
        claims.collect()
    }

    /// Moves tasks out of the draining lists. Returns the lists that they were moved to.
    fn drain(&mut self, set: SetId, limit: usize) -> BTreeSet<ListId> {
        let mut moved = BTreeSet::new();
        for list in self.routes.draining(set) {
            for _ in 0..limit {
                let Some(task) = self.lists.get_mut(&list).and_then(VecDeque::pop_front) else {
                    break;
                };
                let next = self.routes.next(task.kind, list);
                let next = next.expect("a draining list has a next list for each kind");
                self.lists.entry(next).or_default().push_back(task);
                moved.insert(next);
            }
        }
        moved
    }

    fn claim(&self, worker: usize, list: ListId, bounds: &Bounds) -> Self {
        let mut state = self.clone();
        let task = state.lists.get_mut(&list).and_then(VecDeque::pop_front);
        let task = task.expect("the list is not empty");
        assert!(
            bounds.sets[worker].knows(task.kind),
            "a worker has claimed a task that it does not know"
        );
        assert!(
            !state.routes.is_paused(task.kind),
            "a worker has claimed a paused task"
        );
        let expected = state.expected.get_mut(&task.kind);
        let first = expected.and_then(VecDeque::pop_front);
        assert_eq!(
            first,
            Some(task),
            "a task has overtaken another of its kind"
        );
        state.workers[worker] = Worker::Busy(task);
        state
    }

    /// A run ends: the task is done, or released.
    fn end(&self, worker: usize, task: Task, bounds: &Bounds, rule: Rule) -> Vec<Self> {
        let queue = bounds.sets[worker].queue();
        let mut done = self.clone();
        done.workers[worker] = Worker::Awake;
        let mut next = done.clone().free(queue, task, bounds, rule);
        if self.releases < bounds.releases {
            done.releases += 1;
            for state in done.push_front(task, bounds, rule) {
                next.extend(state.free(queue, task, bounds, rule));
            }
        }
        next
    }

    /// A run ends, and its worker claims no more.
    fn shut_down(&self, worker: usize, task: Task, bounds: &Bounds, rule: Rule) -> Vec<Self> {
        if self.shutdowns == bounds.shutdowns {
            return Vec::new();
        }
        let mut state = self.clone();
        state.shutdowns += 1;
        state.workers[worker] = Worker::Gone;
        state.free(bounds.sets[worker].queue(), task, bounds, rule)
    }

    /// The limit of each named queue is raised.
    fn raise(&self, bounds: &Bounds, rule: Rule) -> Vec<Self> {
        let mut state = self.clone();
        state.raises += 1;
        let queues = bounds.sets.iter().map(TypeSet::queue);
        let named = queues.filter(|queue| !queue.is_default());
        let lists = named.flat_map(|queue| state.routes.lists_of_queue(queue));
        let lists: BTreeSet<_> = lists.collect();
        match rule {
            Rule::RaiseWakesNobody => vec![state],
            _ => state.wake(lists, bounds, rule),
        }
    }

    fn push_front(&self, task: Task, bounds: &Bounds, rule: Rule) -> Vec<Self> {
        let mut state = self.clone();
        let list = state.routes.leaf(task.kind);
        state.lists.entry(list).or_default().push_front(task);
        let expected = state.expected.entry(task.kind).or_default();
        expected.push_front(task);
        state.wake([list], bounds, rule)
    }

    /// A worker dies, and its task is taken back. The worker that detects this wakes others for the lists that it read.
    fn die(&self, worker: usize, bounds: &Bounds, rule: Rule) -> Vec<Self> {
        let mut state = self.clone();
        state.deaths += 1;
        let was = std::mem::replace(&mut state.workers[worker], Worker::Gone);
        let set = bounds.sets[worker].id();
        let mut read = state.routes.leaves(set);
        read.extend(state.routes.draining(set));
        match was {
            Worker::Absent | Worker::Gone => Vec::new(),
            Worker::Idle | Worker::Awake => state.wake(read, bounds, rule),
            Worker::Busy(task) => {
                let queue = bounds.sets[worker].queue();
                let states = state.push_front(task, bounds, rule).into_iter();
                let freed = states.flat_map(|state| state.free(queue, task, bounds, rule));
                freed.collect()
            }
        }
    }

    fn pause_or_resume(&self, kind: Kind, bounds: &Bounds, rule: Rule) -> Vec<Self> {
        let mut state = self.clone();
        state.pauses += 1;
        let name = format!("{kind:?}");
        let is_paused = self.routes.is_paused(kind);
        state.change_routes(bounds, |routes| match is_paused {
            true => routes.resume(&name),
            false => routes.pause(&name, [kind]),
        });
        let path = match rule {
            Rule::ResumeWakesNobody if is_paused => Vec::new(),
            Rule::PauseWakesNobody if !is_paused => Vec::new(),
            _ => state.routes.path(kind).to_vec(),
        };
        state.wake(path, bounds, rule)
    }

    /// Maintenance removes sets without sessions, and empty lists.
    fn maintain(&self, bounds: &Bounds) -> Vec<Self> {
        let mut next = Vec::new();
        for set in self.routes.sets() {
            let has_session = bounds.sets.iter().zip(&self.workers).any(|(it, worker)| {
                it.id() == set && !matches!(worker, Worker::Absent | Worker::Gone)
            });
            if !has_session {
                let mut state = self.clone();
                state.change_routes(bounds, |routes| routes.remove(set));
                next.push(state);
            }
        }
        let mut state = self.clone();
        state.change_routes(bounds, |routes| routes.collapse(|list| self.is_empty(list)));
        if state.routes != self.routes {
            next.push(state);
        }
        next
    }
}
