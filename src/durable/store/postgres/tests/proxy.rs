//! [`CommitProxy`]: a proxy to the server that loses COMMITs or their answers, or passes on no notifications.

use std::path::PathBuf;
use std::sync::Arc;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;

use super::server::Server;
use crate::sync::{Mutex, lock};

/// The statement by which a connection receives notifications, and another one of the same length without an effect.
const LISTEN: &[u8] = b"LISTEN ";
const NOTIFY: &[u8] = b"NOTIFY ";

/// The message that commits a transaction.
const COMMIT: &[u8] = b"Q\0\0\0\x0bCOMMIT\0";

/// The fate of a COMMIT. The connection is closed in each case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommitFate {
    /// The server does not receive it.
    Dropped,
    /// The server has answered it, and the answer is discarded.
    Unanswered,
}

/// A proxy to the server, at a socket in a folder of its own.
pub(super) struct CommitProxy {
    folder: TempDir,
    rules: Arc<Mutex<ProxyRules>>,
    task: JoinHandle<()>,
}

/// The things that a proxy does to the requests.
#[derive(Default)]
struct ProxyRules {
    /// The fate of the next COMMIT.
    next: Option<CommitFate>,
    /// `true` if no connection receives notifications.
    swallows_listen: bool,
}

impl CommitProxy {
    pub(super) fn to(server: &Server) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join(".s.PGSQL.5432")).unwrap();
        let rules = Arc::<Mutex<ProxyRules>>::default();
        let task = tokio::spawn(serve(listener, server.socket(), Arc::clone(&rules)));
        Self {
            folder,
            rules,
            task,
        }
    }

    pub(super) fn url(&self) -> String {
        let folder = self.folder.path().display();
        format!("host={folder} user=throng dbname=postgres")
    }

    /// Decides the fate of the next COMMIT.
    pub(super) fn decide(&self, fate: CommitFate) {
        lock(&self.rules).next = Some(fate);
    }

    /// Decides whether connections that are to listen are kept from it.
    pub(super) fn swallow_listen(&self, swallows: bool) {
        lock(&self.rules).swallows_listen = swallows;
    }
}

impl Drop for CommitProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: UnixListener, server: PathBuf, rules: Arc<Mutex<ProxyRules>>) {
    while let Ok((client, _)) = listener.accept().await {
        let server = UnixStream::connect(&server).await.unwrap();
        let rules = Arc::clone(&rules);
        tokio::spawn(async move { carry(client, server, &rules).await });
    }
}

/// Forwards data in both directions until the connection ends.
async fn carry(mut client: UnixStream, mut server: UnixStream, rules: &Mutex<ProxyRules>) {
    let (mut asked, mut answered) = (vec![0; 64 << 10], vec![0; 64 << 10]);
    loop {
        let goes_on = tokio::select! {
            biased;
            read = client.read(&mut asked) => match read {
                Ok(len) if len > 0 => {
                    let request = &mut asked[..len];
                    if lock(rules).swallows_listen
                        && let Some(at) = find(LISTEN, request)
                    {
                        request[at..at + LISTEN.len()].copy_from_slice(NOTIFY);
                    }
                    let fate = |at| Some((at, lock(rules).next.take()?));
                    match find(COMMIT, request).and_then(fate) {
                        Some((at, fate)) => {
                            end(&mut server, &request[..at], fate, &mut answered).await;
                            false
                        }
                        None => server.write_all(request).await.is_ok(),
                    }
                }
                _ => false,
            },
            read = server.read(&mut answered) => match read {
                Ok(len) if len > 0 => client.write_all(&answered[..len]).await.is_ok(),
                _ => false,
            },
        };
        if !goes_on {
            return;
        }
    }
}

/// Returns the position of a part of a request.
fn find(part: &[u8], request: &[u8]) -> Option<usize> {
    let mut parts = request.windows(part.len());
    parts.position(|it| it == part)
}

/// Sends the request before a COMMIT and, unless that is dropped, the COMMIT. Waits until the server is done.
async fn end(server: &mut UnixStream, before: &[u8], fate: CommitFate, answer: &mut [u8]) {
    server.write_all(before).await.unwrap();
    if fate == CommitFate::Unanswered {
        server.write_all(COMMIT).await.unwrap();
        // An answer with this tag may follow those of other statements.
        let mut seen = Vec::new();
        while !seen.windows(7).any(|part: &[u8]| part == b"COMMIT\0") {
            let len = server.read(answer).await.unwrap();
            assert!(len > 0, "the server has closed the connection");
            seen.extend_from_slice(&answer[..len]);
        }
    }
}
