//! [`RouteCache`]: the routes that this process has read last.
//!
//! [`Routes`] are one value in `throng_meta`. Every transaction needs them, and they rarely change, so
//! each process caches them together with their version.

use std::sync::Arc;

use rusqlite::Connection;

use super::error::Fault;
use crate::durable::failure::Cause;
use crate::durable::store::routes::Routes;
use crate::sync::{Mutex, lock};

/// The cached routes, with their version.
#[derive(Default)]
pub(super) struct RouteCache(Mutex<Option<(i64, Arc<Routes>)>>);

impl RouteCache {
    /// Returns the routes that a transaction sees.
    pub(super) fn load(&self, db: &Connection) -> Result<Arc<Routes>, Fault> {
        let mut statement = db.prepare_cached("SELECT routes_version FROM throng_meta")?;
        let version = statement.query_row([], |row| row.get(0))?;
        if let Some((cached, routes)) = &*lock(&self.0)
            && *cached == version
        {
            return Ok(Arc::clone(routes));
        }
        let routes = Arc::new(read(db)?);
        *lock(&self.0) = Some((version, Arc::clone(&routes)));
        Ok(routes)
    }
}

/// Reads the routes from the file.
pub(super) fn read(db: &Connection) -> Result<Routes, Fault> {
    let mut statement = db.prepare_cached("SELECT routes FROM throng_meta")?;
    let text = statement.query_row([], |row| row.get::<_, Option<String>>(0))?;
    let Some(text) = text else {
        return Ok(Routes::default());
    };
    serde_json::from_str(&text).map_err(|_| Fault::Refused(Cause::Corrupt))
}
