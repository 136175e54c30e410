//! [`Routes`]: the list in which a task waits, which depends on its kind and on the kinds that live workers know.
//!
//! A claim may only take tasks of kinds that its worker knows, and it must not search for them among
//! others. So tasks wait in *lists*. Two kinds share a list only if exactly the same declared sets
//! contain both. So a worker that reads a list can run every task in it, and a claim takes tasks from its head.
//! While all workers know the same types, there is one list, [`ListId::MAIN`].
//!
//! When workers start or stop, lists are split and joined. Each kind has a *path* of lists. The last list
//! is the kind's *leaf*, from which tasks are claimed. Usually, the path consists of the leaf alone. A new
//! leaf is appended to the path. The lists before the leaf are then *draining*: tasks move
//! from their heads to the next list of their kind's path, in order, a limited number per turn. New
//! tasks are appended to the first list of the path. So the order within a kind is kept: the tasks in a list are older
//! than those in the lists before it. A draining list that is empty is removed from all paths.
//!
//! A *paused* type has a leaf that no set reads, so its tasks wait without delaying others. When the type is resumed, sets
//! read its leaf again, or the leaf drains into one that they read.
//!
//! Each queue has lists of its own, since a set belongs to one queue, and so has each [`Priority`] of a queue. While no task of a store
//! has another priority than the normal one, there are no lists for those: see [`use_priorities`](Routes::use_priorities).
//!
//! A kind that no set has ever contained has its own list, [`ListId::own`], which needs no entry
//! here. So a task of a type that no worker knows waits without delaying other tasks.
//!
//! This module only computes routes. A store saves them, and moves the tasks.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::kind::{Kind, SetId, TypeSet};
use crate::durable::queue::Priority;
use crate::durable::queue::name::QueueName;

/// Maps each kind to the list in which its tasks wait.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Routes {
    /// The declared sets: those of live workers, and those of dead workers that have not been removed yet.
    sets: BTreeMap<SetId, TypeSet>,
    /// The path of each kind that a set has contained.
    paths: BTreeMap<Kind, Vec<ListId>>,
    /// The kinds of version 1 of the paused types, by the names of the types. All versions of these types are paused.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    paused: BTreeMap<String, BTreeSet<Kind>>,
    /// `true` if tasks may have another priority than the normal one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    uses_priorities: bool,
    /// Lists that must not be added to a path: they contain tasks whose routes were lost.
    #[serde(skip)]
    avoided: BTreeSet<ListId>,
}

/// A list of waiting tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct ListId(i64);

impl ListId {
    /// The only list while all workers know the same types.
    pub(crate) const MAIN: Self = Self(0);

    /// Returns the list of a kind that no set has contained. Kinds are negative, shared lists are not.
    pub(crate) fn own(kind: Kind) -> Self {
        Self(kind.number())
    }

    pub(crate) fn from_number(number: i64) -> Self {
        Self(number)
    }

    pub(crate) fn number(self) -> i64 {
        self.0
    }

    pub(crate) fn is_shared(self) -> bool {
        self.0 >= 0
    }
}

/// Identifies kinds that share a list.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    /// These sets contain them, and they have this priority.
    Known(Vec<SetId>, Priority),
    /// No set contains them, and this is their leaf.
    Unknown(ListId),
    /// They belong to the paused type with this name, and are in this queue. These sets contain them.
    Paused(String, QueueName, Vec<SetId>),
}

impl Routes {
    /// Returns the routes that replace lost ones. Tasks of all priorities may wait.
    #[cfg(feature = "redis")]
    pub(crate) fn after_loss() -> Self {
        Self {
            uses_priorities: true,
            ..Self::default()
        }
    }

    // ===== Queries =====

    /// Returns the list to which a new task of this kind is appended.
    pub(crate) fn entrance(&self, kind: Kind) -> ListId {
        let path = self.paths.get(&kind).and_then(|path| path.first());
        path.copied().unwrap_or_else(|| ListId::own(kind))
    }

    /// Returns the list to whose head a released task of this kind returns.
    pub(crate) fn leaf(&self, kind: Kind) -> ListId {
        let path = self.paths.get(&kind).and_then(|path| path.last());
        path.copied().unwrap_or_else(|| ListId::own(kind))
    }

    /// Returns the list to which a task of this kind moves from a draining list.
    #[cfg(any(test, feature = "sqlite-unbundled"))]
    pub(crate) fn next(&self, kind: Kind, list: ListId) -> Option<ListId> {
        let path = self.paths.get(&kind)?;
        let at = path.iter().position(|&it| it == list)?;
        path.get(at + 1).copied()
    }

    pub(crate) fn sets(&self) -> impl Iterator<Item = SetId> {
        self.sets.keys().copied()
    }

    /// Returns the named queues of the declared sets.
    #[cfg(feature = "redis")]
    pub(crate) fn queues(&self) -> BTreeSet<&QueueName> {
        let queues = self.sets.values().map(TypeSet::queue);
        queues.filter(|queue| !queue.is_default()).collect()
    }

    /// Returns the queue of a set.
    pub(crate) fn queue(&self, set: SetId) -> QueueName {
        let set = self.sets.get(&set);
        set.map(|set| set.queue().clone()).unwrap_or_default()
    }

    /// Returns `true` if tasks may have another priority than the normal one.
    pub(crate) fn uses_priorities(&self) -> bool {
        self.uses_priorities
    }

    /// Returns `true` if a declared set contains a kind.
    pub(crate) fn is_known(&self, kind: Kind) -> bool {
        self.sets
            .values()
            .any(|set| self.priority_in(set, kind).is_some())
    }

    /// Returns `true` if tasks of a kind are not claimed.
    pub(crate) fn is_paused(&self, kind: Kind) -> bool {
        self.pause_of(kind).is_some()
    }

    /// Returns the names of the paused types.
    pub(crate) fn paused(&self) -> impl Iterator<Item = &str> {
        self.paused.keys().map(String::as_str)
    }

    /// Returns the lists from which the sessions of a set claim.
    pub(crate) fn leaves(&self, set: SetId) -> BTreeSet<ListId> {
        self.claimed_by(set).map(|kind| self.leaf(kind)).collect()
    }

    /// Returns the lists from which the sessions of a set claim tasks of a priority.
    pub(crate) fn leaves_at(&self, set: SetId, priority: Priority) -> BTreeSet<ListId> {
        let Some(declared) = self.sets.get(&set) else {
            return BTreeSet::new();
        };
        let kinds = self.claimed_by(set);
        let kinds = kinds.filter(|&kind| self.priority_in(declared, kind) == Some(priority));
        kinds.map(|kind| self.leaf(kind)).collect()
    }

    /// Returns the lists that may have tasks of a queue, if a set of the queue is declared.
    pub(crate) fn lists_of_queue(&self, queue: &QueueName) -> BTreeSet<ListId> {
        let sets = self.sets.iter().filter(|(_, set)| set.queue() == queue);
        let kinds = sets.flat_map(|(&set, _)| self.kinds(set));
        let paths = kinds.filter_map(|kind| self.paths.get(&kind));
        paths.flatten().copied().collect()
    }

    /// Returns the lists that the sessions of a set drain before they claim, in the order of the paths.
    pub(crate) fn draining(&self, set: SetId) -> Vec<ListId> {
        let (mut lists, mut seen) = (Vec::new(), BTreeSet::new());
        let paths = self
            .claimed_by(set)
            .filter_map(|kind| self.paths.get(&kind));
        for list in paths.flat_map(|path| &path[..path.len() - 1]) {
            if seen.insert(*list) {
                lists.push(*list);
            }
        }
        lists
    }

    /// Returns all lists in the paths of a set. If one of them is not empty, its sessions have work.
    #[cfg(feature = "sqlite-unbundled")]
    pub(crate) fn reads(&self, set: SetId) -> BTreeSet<ListId> {
        let paths = self
            .claimed_by(set)
            .filter_map(|kind| self.paths.get(&kind));
        paths.flatten().copied().collect()
    }

    /// Returns the lists in which tasks of a kind may wait. The last one is the leaf.
    #[cfg(any(test, feature = "sqlite-unbundled"))]
    pub(crate) fn path(&self, kind: Kind) -> &[ListId] {
        self.paths.get(&kind).map_or(&[], |path| path)
    }

    /// Returns the sets whose sessions have work if a list is not empty: those with a kind that may be in
    /// the list.
    pub(crate) fn readers(&self, list: ListId) -> impl Iterator<Item = SetId> {
        let has_list = move |kind| {
            let path = self.paths.get(&kind);
            path.is_some_and(|path| path.contains(&list))
        };
        let sets = self.sets();
        sets.filter(move |&set| self.claimed_by(set).any(has_list))
    }

    /// Returns the only declared set, if its sessions read only [`ListId::MAIN`], in the default queue.
    #[cfg(any(test, feature = "redis"))]
    pub(crate) fn plain(&self) -> Option<SetId> {
        let (&set, declared) = self.sets.first_key_value()?;
        let is_plain = declared.queue().is_default()
            && self.draining(set).is_empty()
            && self.leaves(set).iter().eq([&ListId::MAIN]);
        (self.sets.len() == 1 && is_plain).then_some(set)
    }

    #[cfg(feature = "redis")]
    pub(crate) fn paths(&self) -> impl Iterator<Item = (Kind, &[ListId])> {
        self.paths.iter().map(|(&kind, path)| (kind, &**path))
    }

    /// Returns the lists in all paths.
    #[cfg(feature = "redis")]
    pub(crate) fn lists(&self) -> BTreeSet<ListId> {
        self.paths.values().flatten().copied().collect()
    }

    /// Returns the kinds of the tasks of all versions of a type, in all queues and with all priorities.
    #[cfg(feature = "sqlite-unbundled")]
    pub(crate) fn kinds_of(&self, of: Kind) -> BTreeSet<Kind> {
        let sets = self.sets();
        let kinds = sets.flat_map(|set| self.kinds(set));
        let is_of = |&kind: &Kind| {
            let mut found = self.sets.values().filter_map(|set| set.find(kind));
            found.any(|(found, _)| found.with_version(1) == of)
        };
        kinds.filter(is_of).collect()
    }

    /// Returns the lists that no set reads because the types of their tasks, which a set contains, are paused: those at the ends of paths,
    /// whose tasks the set knows, and others, which may have tasks of other types.
    #[cfg(feature = "redis")]
    pub(crate) fn paused_lists(&self, set: SetId) -> [BTreeSet<ListId>; 2] {
        let paused = self.kinds(set).filter(|&kind| self.is_paused(kind));
        let paths: Vec<_> = paused.filter_map(|kind| self.paths.get(&kind)).collect();
        let is_unread = |list: &ListId| self.readers(*list).next().is_none();
        let leaves: BTreeSet<_> = paths.iter().filter_map(|path| path.last()).collect();
        let others = paths.iter().flat_map(|path| path.iter());
        let others = others.filter(|list| !leaves.contains(list) && is_unread(list));
        let others = others.copied().collect();
        let leaves = leaves.into_iter().copied();
        [leaves.filter(is_unread).collect(), others]
    }

    /// Returns the lists that [`collapse`](Self::collapse) removes once they are empty.
    pub(crate) fn collapsible(&self) -> BTreeSet<ListId> {
        let paths = self.paths.iter().flat_map(|(&kind, path)| {
            let kept = usize::from(self.is_known(kind));
            &path[..path.len() - kept]
        });
        paths.copied().collect()
    }

    /// Returns the kinds that a set contains.
    pub(crate) fn kinds(&self, set: SetId) -> impl Iterator<Item = Kind> {
        let set = self.sets.get(&set);
        let placed = set.into_iter().flat_map(|set| set.placed());
        let is_used = |priority| priority == Priority::Normal || self.uses_priorities;
        let used = placed.filter(move |(_, _, priority)| is_used(*priority));
        used.map(|&(kind, _, _)| kind)
    }

    /// Returns the kinds whose tasks the sessions of a set claim.
    fn claimed_by(&self, set: SetId) -> impl Iterator<Item = Kind> {
        self.kinds(set).filter(|&kind| !self.is_paused(kind))
    }

    /// Returns the priority of a kind, if the set contains it.
    fn priority_in(&self, set: &TypeSet, kind: Kind) -> Option<Priority> {
        let found = set.find(kind).map(|(_, priority)| priority);
        found.filter(|&priority| priority == Priority::Normal || self.uses_priorities)
    }

    /// Returns the name of the paused type of a kind, if it is paused. The priority and the queue of the kind do not matter.
    fn pause_of(&self, kind: Kind) -> Option<&str> {
        if self.paused.is_empty() {
            return None;
        }
        let mut found = self.sets.values().filter_map(|set| set.find(kind));
        let of = found.next().map_or(kind, |(of, _)| of).with_version(1);
        let mut paused = self.paused.iter();
        let paused = paused.find(|(_, kinds)| kinds.contains(&of));
        paused.map(|(name, _)| &**name)
    }

    // ===== Changes =====

    /// Keeps later changes from adding one of these lists to a path. Paths that name one already keep it.
    #[cfg(feature = "redis")]
    pub(crate) fn avoid(&mut self, lists: impl IntoIterator<Item = ListId>) {
        self.avoided = lists.into_iter().collect();
    }

    /// Adds the set of a worker that has started.
    pub(crate) fn declare(&mut self, set: &TypeSet) {
        if self.sets.insert(set.id(), set.clone()).is_none() {
            self.add_paths();
            self.assign();
        }
    }

    /// Prepares the lists for tasks of other priorities than the normal one. This is done before the first such task is stored.
    pub(crate) fn use_priorities(&mut self) {
        if !self.uses_priorities {
            self.uses_priorities = true;
            self.add_paths();
            self.assign();
        }
    }

    /// Adds a path for each kind that has none: its tasks may wait in the list of their own.
    fn add_paths(&mut self) {
        let sets: Vec<_> = self.sets().collect();
        let kinds: Vec<_> = sets.iter().flat_map(|&set| self.kinds(set)).collect();
        for kind in kinds {
            let path = self.paths.entry(kind);
            path.or_insert_with(|| vec![ListId::own(kind)]);
        }
    }

    /// Removes the set of workers that have all stopped.
    pub(crate) fn remove(&mut self, set: SetId) {
        if self.sets.remove(&set).is_some() {
            self.assign();
        }
    }

    /// Pauses the type with this name, which has these kinds, and perhaps others that a later version knows.
    pub(crate) fn pause(&mut self, name: &str, kinds: impl IntoIterator<Item = Kind>) {
        let paused = self.paused.entry(name.to_owned()).or_default();
        paused.extend(kinds);
        self.assign();
    }

    /// Resumes a type.
    pub(crate) fn resume(&mut self, name: &str) {
        if self.paused.remove(name).is_some() {
            self.assign();
        }
    }

    /// Removes empty draining lists from the paths, and the kinds that no set contains and of which
    /// no task waits.
    pub(crate) fn collapse(&mut self, is_empty: impl Fn(ListId) -> bool) {
        let sets = self.sets();
        let known: BTreeSet<_> = sets.flat_map(|set| self.kinds(set)).collect();
        self.paths.retain(|kind, path| {
            let leaf = path.last().copied();
            path.retain(|&list| Some(list) == leaf || !is_empty(list));
            known.contains(kind) || path.len() > 1 || leaf.is_some_and(|leaf| !is_empty(leaf))
        });
        // The main list may have become free.
        self.assign();
    }

    /// Assigns each group of kinds a leaf of its own.
    fn assign(&mut self) {
        let kinds_by_leaf = self.kinds_by_leaf();
        for (group, kinds) in self.groups() {
            let is_free_of_others = |leaf: &&ListId| kinds_by_leaf[*leaf].is_subset(&kinds);
            let mut shared = kinds_by_leaf.keys().filter(|leaf| leaf.is_shared());
            let unused = self.unused(kinds.iter().all(|&kind| self.is_plain(kind)));
            let leaf = match shared.find(is_free_of_others) {
                // The only set moves back to the main list as soon as that is free.
                Some(_) if self.is_of_only_set(&group) && unused == ListId::MAIN => unused,
                Some(&leaf) => leaf,
                None => unused,
            };
            for kind in kinds {
                if let Some(path) = self.paths.get_mut(&kind)
                    && path.last() != Some(&leaf)
                {
                    path.push(leaf);
                }
            }
        }
    }

    /// Returns the kinds of each leaf.
    fn kinds_by_leaf(&self) -> BTreeMap<ListId, BTreeSet<Kind>> {
        let mut kinds_by_leaf = BTreeMap::<_, BTreeSet<_>>::new();
        for (&kind, path) in &self.paths {
            kinds_by_leaf
                .entry(path[path.len() - 1])
                .or_default()
                .insert(kind);
        }
        kinds_by_leaf
    }

    fn is_of_only_set(&self, group: &Group) -> bool {
        self.sets.len() == 1 && matches!(group, Group::Known(..))
    }

    /// Returns `true` if the tasks of a kind are in the default queue, with the normal priority, or if no set contains it.
    fn is_plain(&self, kind: Kind) -> bool {
        let mut found = self.sets.values().filter_map(|set| set.find(kind));
        found.all(|(of, _)| of == kind)
    }

    /// Returns the groups of kinds.
    fn groups(&self) -> BTreeMap<Group, BTreeSet<Kind>> {
        let mut groups = BTreeMap::<Group, BTreeSet<_>>::new();
        for &kind in self.paths.keys() {
            groups.entry(self.group(kind)).or_default().insert(kind);
        }
        groups
    }

    fn group(&self, kind: Kind) -> Group {
        if let Some(name) = self.pause_of(kind) {
            let sets = self.sets.iter();
            let sets = sets.filter(|(_, set)| set.find(kind).is_some());
            let sets: Vec<_> = sets.map(|(&id, _)| id).collect();
            let queue = sets.first().map(|&set| self.queue(set));
            return Group::Paused(name.to_owned(), queue.unwrap_or_default(), sets);
        }
        let (mut sets, mut known) = (Vec::new(), None);
        for (&id, set) in &self.sets {
            if let Some(priority) = self.priority_in(set, kind) {
                sets.push(id);
                known = Some(priority);
            }
        }
        match known {
            Some(priority) => Group::Known(sets, priority),
            None => Group::Unknown(self.leaf(kind)),
        }
    }

    /// Returns a shared list that is in no path and need not be avoided. The main list is only for tasks in the default
    /// queue, with the normal priority.
    fn unused(&self, may_be_main: bool) -> ListId {
        let used: BTreeSet<_> = self.paths.values().flatten().copied().collect();
        let mut lists = (i64::from(!may_be_main)..).map(ListId);
        lists
            .find(|list| !used.contains(list) && !self.avoided.contains(list))
            .unwrap_or(ListId::MAIN)
    }
}

#[cfg(test)]
mod explorer_tests;
#[cfg(test)]
mod tests;
