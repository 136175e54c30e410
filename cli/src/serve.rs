//! [`serve`]: a server for browsers or for Prometheus, which ends when Ctrl-C is pressed or the process is terminated.

use std::future::IntoFuture;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use crate::failure::Failure;

/// The time for which requests go on after the signal. Without this limit, a client that is slow, or that has gone without a word, keeps
/// the process alive.
const MAX_END: Duration = Duration::from_secs(3);

/// Serves until the signal, and prints the address of a path. Then `at_end` ends the answers that have no end of their own.
pub(crate) async fn serve(
    address: SocketAddr,
    path: &str,
    app: Router,
    at_end: impl FnOnce(),
) -> Result<(), Failure> {
    let listener = listen(address).await?;
    let (mut interrupt, mut terminate) = (
        signal(SignalKind::interrupt())?,
        signal(SignalKind::terminate())?,
    );
    writeln!(io::stderr(), "http://{}{path}", listener.local_addr()?).ok();
    let (close, is_closing) = oneshot::channel();
    let server = axum::serve(listener, app).with_graceful_shutdown(async {
        is_closing.await.ok();
    });
    let mut server = pin!(server.into_future());
    tokio::select! {
        served = &mut server => return Ok(served?),
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    at_end();
    close.send(()).ok();
    match tokio::time::timeout(MAX_END, server).await {
        Ok(served) => Ok(served?),
        Err(_) => Ok(()),
    }
}

async fn listen(address: SocketAddr) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).await.map_err(|error| {
        Failure::Failed(format!(
            "cannot listen on {address}: {error}: choose another `--listen`"
        ))
    })
}

/// Reads an address such as `127.0.0.1:8787`.
pub(crate) fn parse_address(text: &str) -> Result<SocketAddr, String> {
    text.parse()
        .map_err(|_| "write an IP address and a port, such as `127.0.0.1:8787`".into())
}
