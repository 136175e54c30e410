//! Changes of the lists in which tasks wait: see [`Routes`].

use std::collections::BTreeSet;
use std::sync::Arc;

use super::error::Fault;
use super::ready_queue;
use super::transaction::Transaction;
use crate::durable::store::kind::{Kind, SetId};
use crate::durable::store::routes::Routes;

impl Transaction<'_> {
    /// Changes the routes, and removes empty lists from them.
    pub(super) fn change_routes(&mut self, change: impl FnOnce(&mut Routes)) -> Result<(), Fault> {
        let mut routes = Routes::clone(&self.routes);
        change(&mut routes);
        let mut empty = BTreeSet::new();
        for list in routes.collapsible() {
            if ready_queue::is_empty(self.db, list)? {
                empty.insert(list);
            }
        }
        routes.collapse(|list| empty.contains(&list));
        if routes == *self.routes {
            return Ok(());
        }
        let text = serde_json::to_string(&routes).unwrap_or_default();
        self.execute(
            "UPDATE throng_meta SET routes = ?1, routes_version = routes_version + 1",
            [text],
        )?;
        self.routes = Arc::new(routes);
        Ok(())
    }

    /// Pauses or resumes the type with this name.
    pub(super) fn set_paused(&mut self, name: &str, is_paused: bool) -> Result<(), Fault> {
        let kinds = Kind::all_of(name);
        self.change_routes(|routes| match is_paused {
            true => routes.pause(name, kinds),
            false => routes.resume(name),
        })?;
        // Idle sessions that read the lists from now on have work. A session that no longer reads them may have been woken
        // for their tasks.
        let kinds = kinds.into_iter().flat_map(|of| self.routes.kinds_of(of));
        for kind in kinds {
            for &list in self.routes.path(kind) {
                self.notices.add_ready(list, 0);
            }
        }
        Ok(())
    }

    /// Removes the sets that no session has.
    pub(super) fn remove_unused_sets(&mut self) -> Result<(), Fault> {
        let mut statement = self
            .db
            .prepare_cached("SELECT DISTINCT types FROM throng_session WHERE types IS NOT NULL")?;
        let live = statement.query_map([], |row| row.get(0).map(SetId::from_number))?;
        let live = live.collect::<Result<BTreeSet<_>, _>>()?;
        drop(statement);
        let gone: Vec<_> = self
            .routes
            .sets()
            .filter(|set| !live.contains(set))
            .collect();
        self.change_routes(|routes| gone.iter().for_each(|&set| routes.remove(set)))
    }
}
