//! A service that shows its pools to Prometheus.
//!
//! ```sh
//! cargo run --example metrics                       # answers one scrape of its own, prints it, and ends
//! cargo run --example metrics -- --serve 127.0.0.1:9184
//! ```
//!
//! The service has two pools: one for a database whose client blocks, and one for computations. Each is put into a registry once,
//! where it is made. The route `/metrics` reads the registry when it is asked, so nothing runs between two scrapes. A pool
//! that is dropped leaves the registry by itself.
//!
//! Programs with durable tasks also `watch` their client and their executor, and answer with
//! `registry.snapshot_with_stores().await.prometheus()`.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::get;
use clap::Parser;
use throng::watch::Registry;
use throng::{BlockingPool, ComputePool};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The media type of the text format.
const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

#[derive(Parser)]
struct Args {
    /// Serves on this address until the program is ended.
    #[arg(long)]
    serve: Option<SocketAddr>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let registry = Registry::new();
    let service = Service::new(&registry)?;
    match Args::parse().serve {
        Some(address) => {
            let listener = TcpListener::bind(address).await?;
            tokio::spawn(async move {
                loop {
                    service.work().await.expect("no task panics");
                }
            });
            axum::serve(listener, router(registry)).await?;
        }
        None => print!("{}", demonstrate(registry, &service).await?),
    }
    Ok(())
}

/// The routes of the service. Those that do its work would be here, too.
fn router(registry: Registry) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .with_state(registry)
}

async fn metrics(State(registry): State<Registry>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, MEDIA_TYPE)], registry.prometheus())
}

struct Service {
    database: BlockingPool,
    parser: ComputePool,
}

impl Service {
    fn new(registry: &Registry) -> Result<Self> {
        let database = BlockingPool::builder()
            .max_threads(4)
            .queue_capacity(100)
            .build()?;
        registry.watch("database", &database);
        let parser = ComputePool::builder().threads(2).build()?;
        registry.watch("parser", &parser);
        Ok(Self { database, parser })
    }

    /// Answers a request: reads rows, and parses them.
    async fn work(&self) -> Result<usize> {
        let query = || {
            thread::sleep(Duration::from_millis(1));
            "one two three"
        };
        let rows = self.database.reserve().await?.spawn_blocking(query).await?;
        Ok(self.parser.spawn(move || rows.split(' ').count()).await?)
    }
}

/// Works a little, scrapes the service, and returns what it said.
async fn demonstrate(registry: Registry, service: &Service) -> Result<String> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    let server = axum::serve(listener, router(registry));
    let server = tokio::spawn(server.into_future());
    for _ in 0..20 {
        service.work().await?;
    }
    let answer = timeout(Duration::from_secs(30), scrape(address)).await??;
    server.abort();
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("no head")?;
    let is_ok = head.starts_with("HTTP/1.1 200 ") && head.contains(MEDIA_TYPE);
    is_ok.then(|| body.to_owned()).ok_or_else(|| head.into())
}

/// Sends the request of a scraper, and returns the whole answer.
async fn scrape(address: SocketAddr) -> Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = "GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn both_pools_are_shown() {
        let registry = Registry::new();
        let service = Service::new(&registry).unwrap();
        let text = demonstrate(registry.clone(), &service).await.unwrap();
        for line in [
            "# TYPE throng_blocking_tasks_total counter",
            "throng_blocking_tasks_total{pool=\"database\",outcome=\"completed\"} 20",
            "throng_blocking_queue_capacity{pool=\"database\"} 100",
            "throng_compute_tasks_total{pool=\"parser\",outcome=\"completed\"} 20",
        ] {
            assert!(text.lines().any(|it| it == line), "{line} in {text}");
        }
    }

    #[tokio::test]
    async fn pools_that_are_gone_are_not_shown_as_alive() {
        let registry = Registry::new();
        drop(Service::new(&registry).unwrap());
        let is_gone = || {
            !registry
                .prometheus()
                .contains("throng_blocking_threads_max{")
        };
        while !is_gone() {
            tokio::task::yield_now().await;
        }
    }
}
