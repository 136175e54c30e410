//! [`Service`]: starts the parts of the service, and stops them in the reverse order.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use throng::durable::{DurableClient, DurableExecutor, ServedQueue};
use throng::watch::Registry;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::Result;
use super::customers::send_mails;
use super::delivery::{App, PROVIDERS, Report, SendMail, define};
use super::site::site;

/// The service, which runs until it is stopped.
pub(crate) struct Service {
    address: SocketAddr,
    client: DurableClient,
    app: Arc<App>,
    executor: DurableExecutor,
    server: JoinHandle<std::io::Result<()>>,
    customers: JoinHandle<Result<u64>>,
    /// Cancelled to stop the customers.
    leave: CancellationToken,
    /// Cancelled to stop the site.
    close: CancellationToken,
}

/// The time for which requests, and mails that are being sent, may continue at the end.
const GRACE: Duration = Duration::from_secs(5);

impl Service {
    /// Starts to serve the address, and to send mails.
    pub(crate) async fn start(
        client: DurableClient,
        archive: PathBuf,
        address: SocketAddr,
        customers: u32,
    ) -> Result<Self> {
        let registry = Registry::new();
        let app = Arc::new(App::new(archive, &registry)?);
        define(&client).await?;
        let executor = start_executor(&client, &app).await?;
        registry.watch("mail", &client);
        registry.watch("mail", &executor);

        let listener = TcpListener::bind(address).await.map_err(|error| {
            format!("cannot listen on {address}: {error}: choose another `--listen`")
        })?;
        let address = listener.local_addr()?;
        let (leave, close) = (CancellationToken::new(), CancellationToken::new());
        let site = site(&client, &app, &registry, &close)?;
        let server = axum::serve(listener, site);
        let server = server.with_graceful_shutdown(close.clone().cancelled_owned());
        let sending = send_mails(address, customers, registry, leave.clone());
        Ok(Self {
            address,
            client,
            app,
            executor,
            server: tokio::spawn(server.into_future()),
            customers: tokio::spawn(sending),
            leave,
            close,
        })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops each part before the parts that it uses, so that no part is used after it has stopped. Returns a summary of what the service
    /// has done.
    pub(crate) async fn stop(mut self) -> Result<String> {
        self.leave.cancel();
        let requests = self.customers.await??;
        // This also ends the streams of open pages of the dashboard, which would otherwise delay the end of the server.
        self.close.cancel();
        match timeout(GRACE, &mut self.server).await {
            Ok(served) => served??,
            // A client is slow, or has disappeared without closing its connection.
            Err(_) => self.server.abort(),
        }
        // Mails that wait stay in the store, and those that are being sent are finished or given back.
        self.executor.shutdown(GRACE).await;
        let mails = self.executor.metrics().completed;
        self.app.close().await;
        self.client.close().await?;
        Ok(format!("{requests} requests answered, {mails} tasks done"))
    }
}

async fn start_executor(client: &DurableClient, app: &Arc<App>) -> Result<DurableExecutor> {
    let mut builder = DurableExecutor::builder(client.clone());
    builder.register::<SendMail>().register::<Report>();
    for (queue, _) in PROVIDERS {
        builder.serve(ServedQueue::new(queue));
    }
    builder.serve(ServedQueue::default_queue()).max_running(16);
    Ok(builder.start(Arc::clone(app)).await?)
}
