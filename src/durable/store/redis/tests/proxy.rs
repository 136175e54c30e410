//! A way to the server on which answers are lost and connections break.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What happens to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// All goes through.
    Pass,
    /// What the server answers is swallowed, for ever.
    Mute,
    Cut,
}

pub(super) struct Proxy {
    address: SocketAddr,
    /// The fate of those connections that are there.
    fate: Arc<watch::Sender<Fate>>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// A way to this port of this machine.
    pub(super) async fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let fate = Arc::new(watch::Sender::new(Fate::Pass));
        let task = tokio::spawn(serve(listener, port, Arc::clone(&fate)));
        Self {
            address,
            fate,
            task,
        }
    }

    pub(super) fn url(&self) -> String {
        format!("redis://{}/", self.address)
    }

    /// From now on, the connections that are there swallow what the server answers. New ones do not.
    pub(super) fn mute(&self) {
        self.fate.send_replace(Fate::Mute);
    }

    /// Cuts the connections that are there. New ones are not.
    pub(super) fn cut(&self) {
        self.fate.send_replace(Fate::Cut);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
        self.cut();
    }
}

async fn serve(listener: TcpListener, port: u16, fate: Arc<watch::Sender<Fate>>) {
    while let Ok((client, _)) = listener.accept().await {
        client.set_nodelay(true).ok();
        let mut fate = fate.subscribe();
        fate.mark_unchanged();
        tokio::spawn(async move {
            if let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await {
                server.set_nodelay(true).ok();
                carry(client, server, fate).await;
            }
        });
    }
}

/// Carries what both say, for as long as the connection lasts.
async fn carry(client: TcpStream, server: TcpStream, mut fate: watch::Receiver<Fate>) {
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let answers = fate.clone();
    let up = tokio::spawn(pump(from_client, to_server, None));
    let down = tokio::spawn(pump(from_server, to_client, Some(answers)));
    let cut =
        async { while fate.changed().await.is_ok() && *fate.borrow_and_update() != Fate::Cut {} };
    tokio::pin!(up, down);
    tokio::select! {
        () = cut => {}
        _ = &mut up => {}
        _ = &mut down => {}
    }
    up.abort();
    down.abort();
}

async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    fate: Option<watch::Receiver<Fate>>,
) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(len) = from.read(&mut bytes).await
        && len > 0
    {
        let is_muted = fate
            .as_ref()
            .is_some_and(|fate| fate.has_changed().unwrap_or(true));
        if !is_muted && to.write_all(&bytes[..len]).await.is_err() {
            return;
        }
    }
}
