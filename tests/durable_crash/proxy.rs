//! [`Proxy`]: a way to a server that can be cut.

use std::net::SocketAddr;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A way to a server that can be cut.
pub(crate) struct Proxy {
    address: SocketAddr,
    /// Changes when the connections that are there are cut.
    cuts: watch::Sender<()>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// A way to this port of this machine. It needs a runtime that has threads, if the test blocks.
    pub(crate) async fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let cuts = watch::Sender::new(());
        let task = tokio::spawn(serve(listener, port, cuts.clone()));
        Self {
            address,
            cuts,
            task,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}/", self.address)
    }

    /// Cuts the connections that are there. New ones are not.
    pub(crate) fn cut(&self) {
        self.cuts.send_replace(());
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
        self.cut();
    }
}

async fn serve(listener: TcpListener, port: u16, cuts: watch::Sender<()>) {
    while let Ok((client, _)) = listener.accept().await {
        let mut cuts = cuts.subscribe();
        tokio::spawn(async move {
            tokio::select! {
                _ = cuts.changed() => {}
                () = carry(client, port) => {}
            }
        });
    }
}

/// Carries what both say, until one of them says no more.
async fn carry(mut client: TcpStream, port: u16) {
    if let Ok(mut server) = TcpStream::connect(("127.0.0.1", port)).await {
        client.set_nodelay(true).ok();
        server.set_nodelay(true).ok();
        copy_bidirectional(&mut client, &mut server).await.ok();
    }
}
