//! [`CommitProxy`]: a proxy to the server that loses COMMITs or their answers, or passes on no notifications.

use std::mem;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;

/// The statement by which a connection receives notifications, and another one of the same length without an effect.
const LISTEN: &[u8] = b"LISTEN ";
const NOTIFY: &[u8] = b"NOTIFY ";

/// The message that commits a transaction.
const COMMIT: &[u8] = b"Q\0\0\0\x0bCOMMIT\0";

/// A statement of the transaction that sets a connection up.
const SET_UP: &[u8] = b"SET LOCAL synchronous_commit = local";

/// The fate of a COMMIT. The connection is closed in each case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommitFate {
    /// The server does not receive it.
    Dropped,
    /// The server has answered it, and the answer is discarded.
    Unanswered,
}

/// A proxy to the server, at a socket in a folder of its own.
pub(crate) struct CommitProxy {
    folder: TempDir,
    rules: Arc<Mutex<ProxyRules>>,
    task: JoinHandle<()>,
}

/// The things that a proxy does to the requests.
#[derive(Default)]
struct ProxyRules {
    /// The fate of the next COMMIT.
    next: Option<CommitFate>,
    /// `true` if the COMMIT that sets a connection up is not meant.
    spares_set_up: bool,
    /// `true` if no connection receives notifications.
    swallows_listen: bool,
}

impl CommitProxy {
    /// A proxy to the server with this socket.
    pub(crate) fn to(server: PathBuf) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join(".s.PGSQL.5432")).unwrap();
        let rules = Arc::<Mutex<ProxyRules>>::default();
        let task = tokio::spawn(serve(listener, server, Arc::clone(&rules)));
        Self {
            folder,
            rules,
            task,
        }
    }

    /// The folder of the socket, which takes the place of the server's in an address.
    pub(crate) fn host(&self) -> String {
        self.folder.path().display().to_string()
    }

    /// Decides the fate of the next COMMIT.
    pub(crate) fn decide(&self, fate: CommitFate) {
        lock(&self.rules).next = Some(fate);
    }

    /// Has only COMMITs of requests meet their fate: a store may open a connection at any time.
    pub(crate) fn spare_set_up(&self) {
        lock(&self.rules).spares_set_up = true;
    }

    /// Decides whether connections that are to listen are kept from it.
    pub(crate) fn swallow_listen(&self, swallows: bool) {
        lock(&self.rules).swallows_listen = swallows;
    }
}

impl ProxyRules {
    /// Returns the fate of a COMMIT, which sets a connection up if `sets_up`.
    fn fate(&mut self, sets_up: bool) -> Option<CommitFate> {
        self.next.take_if(|_| !(sets_up && self.spares_set_up))
    }
}

impl Drop for CommitProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: UnixListener, server: PathBuf, rules: Arc<Mutex<ProxyRules>>) {
    while let Ok((client, _)) = listener.accept().await {
        let (server, rules) = (server.clone(), Arc::clone(&rules));
        tokio::spawn(async move {
            if let Ok(server) = UnixStream::connect(&server).await {
                carry(client, server, &rules).await;
            }
        });
    }
}

/// Locks the rules, also after a panic.
fn lock(rules: &Mutex<ProxyRules>) -> MutexGuard<'_, ProxyRules> {
    rules.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Forwards data in both directions until the connection ends.
async fn carry(mut client: UnixStream, mut server: UnixStream, rules: &Mutex<ProxyRules>) {
    let (mut asked, mut answered) = (vec![0; 64 << 10], vec![0; 64 << 10]);
    let mut sets_up = false;
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
                    sets_up |= find(SET_UP, request).is_some();
                    let mut fate = |at| Some((at, lock(rules).fate(mem::take(&mut sets_up))?));
                    match find(COMMIT, request).and_then(&mut fate) {
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
