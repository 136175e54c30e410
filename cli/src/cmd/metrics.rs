//! `throng metrics`: prints or serves the numbers of the store for Prometheus.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::HeaderName;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use clap::Args;
use throng::watch::Registry;

use crate::failure::Failure;
use crate::serve;
use crate::store::{Session, StoreArgs};

#[derive(Args, Debug)]
pub(crate) struct MetricsArgs {
    /// Serves the numbers at `/metrics`, for example on `127.0.0.1:9464`, until Ctrl-C is pressed
    #[arg(long, value_name = "ADDRESS", value_parser = serve::parse_address)]
    listen: Option<SocketAddr>,

    /// The label `store` of the numbers
    #[arg(long, value_name = "LABEL", default_value = "default")]
    label: String,
}

/// A registry that watches the store, and the session, which the registry does not keep open.
struct WatchedStore {
    registry: Registry,
    _session: Session,
}

const TEXT_FORMAT: &str = "text/plain; version=0.0.4";

/// Prints or serves the numbers.
pub(crate) async fn run(store: &StoreArgs, args: MetricsArgs) -> Result<(), Failure> {
    let session = store.observe().await?;
    let registry = Registry::new();
    registry.watch(&args.label, &session.client);
    match args.listen {
        None => print(&registry, &session).await,
        Some(address) => {
            let watched = WatchedStore {
                registry,
                _session: session,
            };
            let app = Router::new()
                .route("/metrics", get(scrape))
                .with_state(Arc::new(watched));
            serve::serve(address, "/metrics", app, || ()).await
        }
    }
}

async fn print(registry: &Registry, session: &Session) -> Result<(), Failure> {
    // A store that does not answer is an error here. A server reports it as a number.
    session.ask(session.client.counts()).await?;
    let text = registry.snapshot_with_stores().await.prometheus();
    Ok(io::stdout().write_all(text.as_bytes())?)
}

async fn scrape(
    State(watched): State<Arc<WatchedStore>>,
) -> ([(HeaderName, &'static str); 1], String) {
    let text = watched.registry.snapshot_with_stores().await.prometheus();
    ([(CONTENT_TYPE, TEXT_FORMAT)], text)
}
