//! The kinds of tasks that a session claims now.

use super::view::View;
use crate::durable::queue::Priority;
use crate::durable::store::kind::{Kind, TypeSet};

impl View {
    /// Returns `true` if tasks of the type with this name are not claimed.
    pub(super) fn is_paused(&self, name: &str) -> bool {
        self.paused.iter().any(|paused| paused == name)
    }

    /// Returns the kinds of the tasks in a set that have a priority, except those of paused types.
    pub(super) fn kinds_at(&self, set: &TypeSet, priority: Priority) -> Vec<i64> {
        // Without tasks of other priorities, there is no need to look for them.
        if priority != Priority::Normal && !self.uses_priorities {
            return Vec::new();
        }
        let paused: Vec<_> = self
            .paused
            .iter()
            .flat_map(|name| Kind::all_of(name))
            .collect();
        let placed = set.placed().iter();
        let placed =
            placed.filter(|(_, of, at)| *at == priority && !paused.contains(&of.with_version(1)));
        placed.map(|(kind, ..)| kind.number()).collect()
    }

    /// Returns the kinds of the tasks in a set, except those of paused types.
    pub(super) fn kinds(&self, set: &TypeSet) -> Vec<i64> {
        let priorities = Priority::ALL.into_iter();
        priorities
            .flat_map(|priority| self.kinds_at(set, priority))
            .collect()
    }
}

/// Returns the kinds of all tasks in a set, whether or not they are paused.
pub(super) fn all_kinds(set: &TypeSet) -> Vec<i64> {
    set.placed()
        .iter()
        .map(|(kind, ..)| kind.number())
        .collect()
}
