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
//! A kind that no set has ever contained has its own list, [`ListId::own`], which needs no entry
//! here. So a task of a type that no worker knows waits without delaying other tasks.
//!
//! This module only computes routes. A store saves them, and moves the tasks.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::kind::{Kind, SetId, TypeSet};

/// Maps each kind to the list in which its tasks wait.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Routes {
    /// The declared sets: those of live workers, and those of dead workers that have not been removed yet.
    sets: BTreeMap<SetId, Vec<Kind>>,
    /// The path of each kind that a set has contained.
    paths: BTreeMap<Kind, Vec<ListId>>,
    /// The kinds of the paused types, by the names of the types.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    paused: BTreeMap<String, BTreeSet<Kind>>,
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
    /// These sets contain them.
    Known(Vec<SetId>),
    /// No set contains them, and this is their leaf.
    Unknown(ListId),
    /// They belong to the paused type with this name.
    Paused(String),
}

impl Routes {
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

    /// Returns `true` if a declared set contains a kind.
    pub(crate) fn is_known(&self, kind: Kind) -> bool {
        self.sets
            .values()
            .any(|kinds| kinds.binary_search(&kind).is_ok())
    }

    /// Returns `true` if tasks of a kind are not claimed.
    pub(crate) fn is_paused(&self, kind: Kind) -> bool {
        self.paused.values().flatten().any(|&paused| paused == kind)
    }

    /// Returns the names of the paused types.
    pub(crate) fn paused(&self) -> impl Iterator<Item = &str> {
        self.paused.keys().map(String::as_str)
    }

    /// Returns the lists from which the sessions of a set claim.
    pub(crate) fn leaves(&self, set: SetId) -> BTreeSet<ListId> {
        self.claimed_by(set).map(|kind| self.leaf(kind)).collect()
    }

    /// Returns the lists that the sessions of a set drain before they claim, in the order of the paths.
    pub(crate) fn draining(&self, set: SetId) -> Vec<ListId> {
        let mut lists: Vec<ListId> = Vec::new();
        let paths = self
            .claimed_by(set)
            .filter_map(|kind| self.paths.get(&kind));
        for list in paths.flat_map(|path| &path[..path.len() - 1]) {
            if !lists.contains(list) {
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

    /// Returns the only declared set, if its sessions read only [`ListId::MAIN`].
    #[cfg(any(test, feature = "redis"))]
    pub(crate) fn plain(&self) -> Option<SetId> {
        let (&set, _) = self.sets.first_key_value()?;
        let is_plain = self.draining(set).is_empty() && self.leaves(set).iter().eq([&ListId::MAIN]);
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

    /// Returns the lists that no set reads because the types of their tasks, which a set contains, are paused.
    #[cfg(feature = "redis")]
    pub(crate) fn paused_lists(&self, set: SetId) -> BTreeSet<ListId> {
        let paused = self.kinds(set).filter(|&kind| self.is_paused(kind));
        let lists = paused.filter_map(|kind| self.paths.get(&kind)).flatten();
        let unread = lists.filter(|&&list| self.readers(list).next().is_none());
        unread.copied().collect()
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
        self.sets.get(&set).into_iter().flatten().copied()
    }

    /// Returns the kinds whose tasks the sessions of a set claim.
    fn claimed_by(&self, set: SetId) -> impl Iterator<Item = Kind> {
        self.kinds(set).filter(|&kind| !self.is_paused(kind))
    }

    // ===== Changes =====

    /// Keeps later changes from adding one of these lists to a path. Paths that name one already keep it.
    #[cfg(feature = "redis")]
    pub(crate) fn avoid(&mut self, lists: impl IntoIterator<Item = ListId>) {
        self.avoided = lists.into_iter().collect();
    }

    /// Adds the set of a worker that has started.
    pub(crate) fn declare(&mut self, set: &TypeSet) {
        if self.sets.insert(set.id(), set.kinds().to_vec()).is_none() {
            for &kind in set.kinds() {
                self.paths
                    .entry(kind)
                    .or_insert_with(|| vec![ListId::own(kind)]);
            }
            self.assign();
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
        let known: BTreeSet<_> = self.sets.values().flatten().copied().collect();
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
            let unused = self.unused();
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
        self.sets.len() == 1 && matches!(group, Group::Known(_))
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
        let paused = self.paused.iter().find(|(_, kinds)| kinds.contains(&kind));
        if let Some((name, _)) = paused {
            return Group::Paused(name.clone());
        }
        let knows = |kinds: &Vec<Kind>| kinds.binary_search(&kind).is_ok();
        let sets = self.sets.iter().filter(|(_, kinds)| knows(kinds));
        match sets.map(|(&set, _)| set).collect::<Vec<_>>() {
            sets if sets.is_empty() => Group::Unknown(self.leaf(kind)),
            sets => Group::Known(sets),
        }
    }

    /// Returns a shared list that is in no path and need not be avoided.
    fn unused(&self) -> ListId {
        let used: BTreeSet<_> = self.paths.values().flatten().copied().collect();
        let mut lists = (0..).map(ListId);
        lists
            .find(|list| !used.contains(list) && !self.avoided.contains(list))
            .unwrap_or(ListId::MAIN)
    }
}

#[cfg(test)]
mod explorer_tests;
#[cfg(test)]
mod tests;
