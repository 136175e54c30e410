//! [`StoreLayout`]: the layout of a store.

use serde::Serialize;

/// The layout of a store: see [`Admin::layout`](crate::durable::Admin::layout).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct StoreLayout {
    /// The layout that the store has. If the partitions of a `RedisStore` differ, this is the oldest one.
    pub current: i64,
    /// The newest layout that this version of the crate knows. [`DurableClient::upgrade`](crate::durable::DurableClient::upgrade) raises the
    /// layout of the store to it.
    pub newest: i64,
    /// The processes that do not know the newest layout, and prevent an upgrade. It is empty if the store has the newest layout.
    pub older_processes: Vec<String>,
}
