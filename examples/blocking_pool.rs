//! A web service in front of a slow database: a bounded pool shields it, whatever the load.
//!
//! ```sh
//! cargo run --release --example blocking_pool
//! ```
//!
//! The client of the database blocks, and the database accepts few connections: so the pool has as
//! many threads, and a short queue. The load comes from this program, too, in three phases: no more
//! than the database can take; much more, and who finds the queue full is refused at once (`503`, and
//! when to come again); and as much again, but who finds it full waits for room. Meanwhile `/health`
//! must stay fast, and `/metrics` tells Prometheus about the pool. It takes a few seconds, and fails
//! if something does not come as it should.

#[path = "blocking_pool/client.rs"]
mod client;
#[path = "blocking_pool/load.rs"]
mod load;
#[path = "blocking_pool/metrics.rs"]
mod metrics;
#[path = "blocking_pool/report.rs"]
mod report;
#[path = "blocking_pool/service.rs"]
mod service;

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use self::load::{Phase, Screen};
use self::report::Report;
use self::service::{CONNECTIONS, Service};

type Fault = Box<dyn Error + Send + Sync>;
type Result<T, E = Fault> = std::result::Result<T, E>;

/// The number of clients that overload the service.
const CROWD: usize = 64;

const PHASES: [Phase; 3] = [
    Phase {
        name: "within capacity",
        path: "/shed",
        clients: CONNECTIONS,
    },
    Phase {
        name: "overload, refused",
        path: "/shed",
        clients: CROWD,
    },
    Phase {
        name: "overload, waiting",
        path: "/wait",
        clients: CROWD,
    },
];

#[tokio::main]
async fn main() -> Result<()> {
    // Much longer than the example takes.
    timeout(Duration::from_secs(60), run()).await?
}

async fn run() -> Result<()> {
    let service = Arc::new(Service::new()?);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    let shutdown = CancellationToken::new();
    let server = axum::serve(listener, service::router(Arc::clone(&service)))
        .with_graceful_shutdown(shutdown.clone().cancelled_owned());
    let server = tokio::spawn(server.into_future());

    let reports = load(address).await?;
    print!("{}", report::table(&reports));
    report::check(&reports)?;

    shutdown.cancel();
    server.await??;
    // Accepted queries run to their end. Here, none is left.
    service.pool().close();
    service.pool().closed().await;
    check_totals(&service, &reports)
}

/// Runs the phases one after the other.
async fn load(address: SocketAddr) -> Result<Vec<Report>> {
    let screen = Screen::new(&PHASES);
    let mut reports = Vec::new();
    for phase in PHASES {
        reports.push(load::run(address, phase, &screen).await?);
    }
    Ok(reports)
}

/// Checks that the pool has counted what the clients saw, and that the database never had too many connections.
fn check_totals(service: &Service, reports: &[Report]) -> Result<()> {
    let metrics = service.pool().metrics();
    let answered: u64 = reports.iter().map(Report::answered).sum();
    let rejected: u64 = reports.iter().map(|report| report.rejected).sum();
    ensure(metrics.submitted == answered, || {
        format!("{answered} answers, but {metrics:?}")
    })?;
    ensure(metrics.completed == answered, || {
        format!("{answered} answers, but {metrics:?}")
    })?;
    ensure(metrics.rejected == rejected, || {
        format!("{rejected} refused, but {metrics:?}")
    })?;
    let connections = service.most_connections();
    ensure(connections <= CONNECTIONS, || {
        format!("{connections} connections at once")
    })
}

fn ensure(condition: bool, otherwise: impl FnOnce() -> String) -> Result<()> {
    match condition {
        true => Ok(()),
        false => Err(otherwise().into()),
    }
}
