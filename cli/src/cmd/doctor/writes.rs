//! Checks that a worker could change the store, and that it would receive messages.

use throng::durable::Health;

use super::Diagnosis;
use crate::failure::Failure;
use crate::store::{Location, StoreArgs};

/// Opens the store as a worker does. This has no effect on tasks.
pub(super) async fn examine(store: &StoreArgs) -> Option<Diagnosis> {
    match write(store).await {
        Err(failure) => Some(refused(&failure)),
        Ok(Health::Mute) => Some(silent(store)),
        Ok(_) => None,
    }
}

/// Opens and closes a session. A store in Redis also sends this process a message on each of its channels, which has to arrive.
async fn write(store: &StoreArgs) -> Result<Health, Failure> {
    let session = store.open_observed().await?;
    let written = session.ask(session.client.admin().check_writes()).await;
    let health = session.client.health();
    session.close().await;
    written.map(|()| health)
}

fn refused(failure: &Failure) -> Diagnosis {
    Diagnosis::error(
        "store.writes",
        format!("the store accepts no changes: {failure}"),
        "remove this cause: until then, no task can be stored, and no worker can run one",
    )
}

fn silent(store: &StoreArgs) -> Diagnosis {
    if let Ok(Location::Postgres(_)) = store.location() {
        return Diagnosis::warn(
            "postgres.notifications",
            "this process receives no notifications from the server, so workers poll for tasks twice a second",
            "connect to the server itself, or through a pooler in session mode",
        );
    }
    Diagnosis::warn(
        "redis.messages",
        "a message that this process sent to itself did not arrive, so workers poll for tasks twice a second",
        "allow the user to `PUBLISH` and `SUBSCRIBE` on the channels `throng:*`",
    )
}
