//! Shows the parts of throng in [tokio-console](https://github.com/tokio-rs/console).
//!
//! ```sh
//! RUSTFLAGS="--cfg tokio_unstable" cargo run -p throng-console
//! tokio-console      # in another terminal: press `r` for the resources
//! ```
//!
//! The tasks of the blocking pool `db` are in the list of tasks, and each part is in the list of resources. The program exits at the end
//! of its input. Its server listens on 127.0.0.1:6669, or on the address in the argument.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use console_subscriber::ConsoleLayer;
use serde::{Deserialize, Serialize};
use throng::durable::{
    DurableClient, DurableExecutor, DurableTask, MemoryStore, Run, TaskContext, TaskError,
};
use throng::watch::Registry;
use throng::{BlockingPool, CompletionStream, ComputePool, SerialExecutor};

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// The interval at which the numbers of the parts are updated.
const INTERVAL: Duration = Duration::from_millis(100);

#[derive(Serialize, Deserialize)]
struct Resize;

impl DurableTask for Resize {
    const NAME: &'static str = "image.resize";
    type Output = ();
}

impl Run<()> for Resize {
    async fn run(self, _: TaskContext<()>) -> Result<(), TaskError> {
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let address = std::env::args().nth(1);
    let address = address.as_deref().unwrap_or("127.0.0.1:6669");
    let console = ConsoleLayer::builder().publish_interval(INTERVAL);
    console.server_addr(address.parse::<SocketAddr>()?).init();

    let registry = Registry::new();
    tokio::spawn({
        let registry = registry.clone();
        async move { registry.trace_every(INTERVAL).await }
    });
    let pool = BlockingPool::builder().name("db").max_threads(1).build()?;
    let parser = ComputePool::builder().threads(1).build()?;
    let session = SerialExecutor::new(0);
    let (jobs, _done) = CompletionStream::<()>::builder().build()?;
    let client = DurableClient::open(MemoryStore::new());
    let mut builder = DurableExecutor::builder(client);
    let executor = builder.register::<Resize>().start(()).await?;
    registry.watch("db", &pool);
    registry.watch("parser", &parser);
    registry.watch("session", &session);
    registry.watch("pages", &jobs);
    registry.watch("images", &executor);
    registry.watch("images", executor.client());

    // The only thread waits for the end of the input, and another task waits for the thread.
    let ended = pool.spawn_blocking(|| io::copy(&mut io::stdin(), &mut io::sink()));
    let waiting = pool.spawn_blocking(|| ());
    // A job has finished, and is not read.
    jobs.submit((), async {})
        .await
        .map_err(|_| "the stream is closed")?;
    session.submit(|count: &mut u32| *count += 1).await?;
    ended.await??;
    waiting.await?;
    executor.shutdown(INTERVAL).await;
    Ok(())
}
