//! [`State`]: the state of a small store, and what is expected of it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::rc::Rc;

use super::super::{ListId, Routes};
use super::{Kind, QueueName, TypeSet};

/// The state of a small store, and what is expected of it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub(super) routes: Interned,
    pub(super) lists: BTreeMap<ListId, VecDeque<Task>>,
    /// The waiting tasks of each kind, in the order in which they must be claimed.
    pub(super) expected: BTreeMap<Kind, VecDeque<Task>>,
    pub(super) workers: Vec<Worker>,
    pub(super) pushes: usize,
    pub(super) releases: usize,
    pub(super) deaths: usize,
    pub(super) pauses: usize,
    pub(super) shutdowns: usize,
    /// The number of times that the limit was raised.
    pub(super) raises: usize,
}

/// Routes that are compared by their address. Most steps do not change the routes, and there are few different ones, so
/// equal routes exist only once.
#[derive(Clone)]
pub(super) struct Interned(Rc<Routes>);

impl Deref for Interned {
    type Target = Routes;

    fn deref(&self) -> &Routes {
        &self.0
    }
}

impl PartialEq for Interned {
    fn eq(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Interned {}

impl Hash for Interned {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        Rc::as_ptr(&self.0).hash(hasher);
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Task {
    pub(super) kind: Kind,
    pub(super) number: usize,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Worker {
    /// Not started.
    Absent,
    /// It makes a turn next, since it was woken or has a free permit.
    Awake,
    Idle,
    Busy(Task),
    Gone,
}

/// The bounds of an exploration: the workers, and the number of steps of each sort.
pub(super) struct Bounds {
    pub(super) kinds: Vec<Kind>,
    pub(super) sets: Vec<TypeSet>,
    pub(super) pushes: usize,
    pub(super) releases: usize,
    pub(super) deaths: usize,
    /// The number of times that a type is paused or resumed.
    pub(super) pauses: usize,
    /// The number of workers that stop claiming while they run a task.
    pub(super) shutdowns: usize,
    /// The maximum number of running tasks of each named queue.
    pub(super) limit: usize,
    /// The number of times that the limit is raised, by two.
    pub(super) raises: usize,
    /// The number of tasks that a turn moves out of a draining list.
    pub(super) drained: usize,
    /// All routes so far.
    pub(super) routes: RefCell<HashSet<Rc<Routes>>>,
}

impl Bounds {
    fn intern(&self, routes: Routes) -> Interned {
        let mut known = self.routes.borrow_mut();
        if let Some(routes) = known.get(&routes) {
            return Interned(Rc::clone(routes));
        }
        let routes = Rc::new(routes);
        known.insert(Rc::clone(&routes));
        Interned(routes)
    }
}

/// The rule that the store follows: the right one, or a wrong one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    Right,
    /// A task that is moved to another list wakes nobody.
    DrainWakesNobody,
    /// A task that is left wakes nobody.
    LeavingWakesNobody,
    /// Some idle session is woken, whether it reads the list or not.
    WakesAnyone,
    /// A session goes idle if its leaves are empty, although a list still drains.
    IdleWhileDraining,
    /// A session claims from a draining list.
    ClaimsWhileDraining,
    /// A type that is resumed wakes nobody.
    ResumeWakesNobody,
    /// A type that is paused wakes nobody, although a session that no longer reads a list may have been woken for it.
    PauseWakesNobody,
    /// A task that stops running wakes nobody.
    FreeingWakesNobody,
    /// A task that stops running wakes only sessions that read its list, although other lists of the queue are not empty.
    FreeingWakesOwnList,
    /// A limit that is raised wakes nobody.
    RaiseWakesNobody,
    /// A claim does not count the running tasks.
    IgnoresLimit,
}

impl State {
    pub(super) fn new(bounds: &Bounds) -> Self {
        Self {
            routes: bounds.intern(Routes::default()),
            lists: BTreeMap::new(),
            expected: BTreeMap::new(),
            workers: vec![Worker::Absent; bounds.sets.len()],
            pushes: 0,
            releases: 0,
            deaths: 0,
            pauses: 0,
            shutdowns: 0,
            raises: 0,
        }
    }

    /// Returns `true` if one more task of a queue may run.
    pub(super) fn has_room(&self, queue: &QueueName, bounds: &Bounds) -> bool {
        queue.is_default() || self.running(queue, bounds) < self.limit(bounds)
    }

    /// Returns the maximum number of running tasks of a named queue.
    fn limit(&self, bounds: &Bounds) -> usize {
        bounds.limit + 2 * self.raises
    }

    fn running(&self, queue: &QueueName, bounds: &Bounds) -> usize {
        let workers = bounds.sets.iter().zip(&self.workers);
        let runs = workers
            .filter(|(set, worker)| set.queue() == queue && matches!(worker, Worker::Busy(_)));
        runs.count()
    }

    /// Wakes sessions of a queue in which a task has stopped running: one for each list that is not empty.
    pub(super) fn free(
        self,
        queue: &QueueName,
        task: Task,
        bounds: &Bounds,
        rule: Rule,
    ) -> Vec<Self> {
        let mut lists = self.routes.lists_of_queue(queue);
        let own = self.routes.path(task.kind);
        lists.retain(|list| rule != Rule::FreeingWakesOwnList || own.contains(list));
        match queue.is_default() || rule == Rule::FreeingWakesNobody {
            true => vec![self],
            false => self.wake(lists, bounds, rule),
        }
    }

    pub(super) fn change_routes(&mut self, bounds: &Bounds, change: impl FnOnce(&mut Routes)) {
        let mut routes = Routes::clone(&self.routes);
        change(&mut routes);
        self.routes = bounds.intern(routes);
    }

    pub(super) fn is_empty(&self, list: ListId) -> bool {
        self.lists.get(&list).is_none_or(VecDeque::is_empty)
    }

    /// Wakes one idle session for each of these lists that is not empty: any session that reads it.
    pub(super) fn wake(
        self,
        lists: impl IntoIterator<Item = ListId>,
        bounds: &Bounds,
        rule: Rule,
    ) -> Vec<Self> {
        let mut states = vec![self];
        for list in lists {
            states = states
                .into_iter()
                .flat_map(|state| state.wake_for(list, bounds, rule))
                .collect();
        }
        states
    }

    fn wake_for(self, list: ListId, bounds: &Bounds, rule: Rule) -> Vec<Self> {
        if self.is_empty(list) {
            return vec![self];
        }
        let readers: BTreeSet<_> = self.routes.readers(list).collect();
        let mut queues = readers.iter().map(|&set| self.routes.queue(set));
        if queues.any(|queue| !self.has_room(&queue, bounds)) {
            return vec![self];
        }
        let idle = (0..self.workers.len()).filter(|&worker| {
            let reads = readers.contains(&bounds.sets[worker].id());
            self.workers[worker] == Worker::Idle && (reads || rule == Rule::WakesAnyone)
        });
        let woken = idle.map(|worker| {
            let mut state = self.clone();
            state.workers[worker] = Worker::Awake;
            state
        });
        let woken: Vec<_> = woken.collect();
        if woken.is_empty() { vec![self] } else { woken }
    }

    /// Removes differences on which no step and no check depends, so that states that behave alike are explored once: which
    /// of the workers with equal sets is which, the numbers of tasks, and whether an empty list was used before.
    pub(super) fn normalize(&mut self, bounds: &Bounds) {
        self.lists.retain(|_, tasks| !tasks.is_empty());
        self.expected.retain(|_, tasks| !tasks.is_empty());
        for one in 0..self.workers.len() {
            for other in one + 1..self.workers.len() {
                let are_equal = bounds.sets[one] == bounds.sets[other];
                if are_equal && self.workers[one] > self.workers[other] {
                    self.workers.swap(one, other);
                }
            }
        }
        self.number_tasks();
    }

    /// Numbers the tasks of each kind: first those that wait, in order, and then those that run.
    fn number_tasks(&mut self) {
        for task in self.lists.values_mut().flatten() {
            let expected = self.expected.get(&task.kind).into_iter().flatten();
            let number = expected.clone().position(|it| it == task);
            task.number = number.expect("a task is lost or duplicated");
        }
        let mut next = BTreeMap::new();
        for (&kind, tasks) in &mut self.expected {
            next.insert(kind, tasks.len());
            for (number, task) in tasks.iter_mut().enumerate() {
                task.number = number;
            }
        }
        for worker in &mut self.workers {
            if let Worker::Busy(task) = worker {
                let next = next.entry(task.kind).or_default();
                task.number = *next;
                *next += 1;
            }
        }
    }

    /// Checks the conditions that hold in every state.
    pub(super) fn check(&self, bounds: &Bounds) {
        let waiting: usize = self.lists.values().map(VecDeque::len).sum();
        let expected: usize = self.expected.values().map(VecDeque::len).sum();
        assert_eq!(waiting, expected, "a task is lost or duplicated");
        for queue in bounds.sets.iter().map(TypeSet::queue) {
            let running = self.running(queue, bounds);
            let exceeds = !queue.is_default() && running > self.limit(bounds);
            assert!(!exceeds, "more tasks run than the limit");
        }
        if self.workers.contains(&Worker::Awake) {
            return;
        }
        for (set, worker) in bounds.sets.iter().zip(&self.workers) {
            let mut claimed = set.placed().iter();
            let could_run = claimed.any(|(kind, _, _)| {
                let waiting = self.expected.get(kind);
                !self.routes.is_paused(*kind) && waiting.is_some_and(|waiting| !waiting.is_empty())
            });
            let could_run = could_run && self.has_room(set.queue(), bounds);
            assert!(
                *worker != Worker::Idle || !could_run,
                "a worker is idle that could run a task"
            );
        }
    }
}
