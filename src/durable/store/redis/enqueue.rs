//! Stores batches of tasks.

use std::sync::Arc;

use redis::Value;

use super::inner::{Inner, after_others};
use super::request;
use super::routes_cache::KnownRoutes;
use super::routing;
use crate::durable::failpoint::failpoint;
use crate::durable::failure::Failure;
use crate::durable::store::Enqueue;

/// Stores a batch of tasks. Each partition stores its own tasks, all under the same number.
pub(super) async fn enqueue(inner: &Inner, request: &Enqueue) -> Result<(), Failure> {
    let batch: Vec<_> = request.batch.close().iter().collect();
    let mut batches = inner.partitions.split(batch, |task| task.id);
    if batches.is_empty() {
        // An empty batch must still fail if the session has ended.
        batches.push((0, Vec::new()));
    }
    for (nth, (partition, batch)) in batches.into_iter().enumerate() {
        let routes = known_routes(inner, partition).await;
        let now = inner.server_time();
        let arguments = request::enqueue(request, &batch, &inner.client_id, &routes, now);
        failpoint("redis.before-enqueue");
        let stored = inner.run_enqueue(partition, arguments).await;
        let answer = stored.map_err(|failure| after_others(failure, nth))?;
        if matches!(answer, Value::BulkString(answer) if answer == b"ROUTES") {
            inner.routes.remove(partition);
        }
        failpoint("redis.after-enqueue");
    }
    Ok(())
}

/// Returns the routes of a partition. If they cannot be read, they are unknown, and the script looks them up.
async fn known_routes(inner: &Inner, partition: usize) -> Arc<KnownRoutes> {
    if let Some(known) = inner.routes.get(partition) {
        return known;
    }
    match routing::read(inner, partition).await {
        Ok(stored) if stored.is_whole => {
            let known = Arc::new(stored.known);
            inner.routes.insert(partition, &known);
            known
        }
        _ => Arc::default(),
    }
}
