//! Spans that arrive at an OTLP receiver, as those of a collector do.

#[path = "collected/client.rs"]
mod client;
#[path = "collected/mail.rs"]
mod mail;
#[path = "collected/otlp.rs"]
mod otlp;
#[path = "collected/program.rs"]
mod program;
#[path = "collected/receiver.rs"]
mod receiver;
#[path = "../../examples/durable_redis/server.rs"]
mod server;

use std::error::Error;
use std::time::{Duration, Instant};

use throng::durable::{DurableClient, DurableError, RedisStore};
use tokio::time::sleep;

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// The time limit of a condition.
const LIMIT: Duration = Duration::from_secs(60);

/// For the server that the tests share with an example.
async fn open(url: &str) -> Result<DurableClient, DurableError> {
    let mut store = RedisStore::builder(url);
    Ok(DurableClient::open(store.namespace("mail").open().await?))
}

/// Waits until there is a value.
async fn until<T>(what: &str, mut condition: impl AsyncFnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = condition().await {
            return found;
        }
        assert!(begun.elapsed() < LIMIT, "this does not happen: {what}");
        sleep(Duration::from_millis(10)).await;
    }
}
