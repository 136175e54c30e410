//! [`StoreLayout`]: the layout of a store.

use serde::Serialize;

/// The layout of a store: see [`Admin::layout`](crate::durable::Admin::layout).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(docsrs, not(feature = "unstable-store")), non_exhaustive)]
pub struct StoreLayout {
    /// The current layout of the store. If the partitions of a `RedisStore` have different layouts, this is the oldest of them.
    pub current: i64,
    /// The newest layout that this version of the crate knows. [`DurableClient::upgrade`](crate::durable::DurableClient::upgrade) raises
    /// the layout of the store to it.
    pub newest: i64,
    /// The processes that prevent an upgrade because they do not know the newest layout. The list is empty if the store already has that
    /// layout.
    pub older_processes: Vec<String>,
}
