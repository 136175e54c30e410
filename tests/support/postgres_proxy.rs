//! [`CommitProxy`]: a proxy to the server that loses COMMITs or their answers.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;

/// The message that commits a transaction.
const COMMIT: &[u8] = b"Q\0\0\0\x0bCOMMIT\0";

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
    next: Arc<Mutex<Option<CommitFate>>>,
    task: JoinHandle<()>,
}

impl CommitProxy {
    /// A proxy to the server with this socket.
    pub(crate) fn to(server: PathBuf) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join(".s.PGSQL.5432")).unwrap();
        let next = Arc::new(Mutex::new(None));
        let task = tokio::spawn(serve(listener, server, Arc::clone(&next)));
        Self { folder, next, task }
    }

    /// The folder of the socket, which takes the place of the server's in an address.
    pub(crate) fn host(&self) -> String {
        self.folder.path().display().to_string()
    }

    /// Decides the fate of the next COMMIT.
    pub(crate) fn decide(&self, fate: CommitFate) {
        *self.next.lock().expect("nobody panics here") = Some(fate);
    }
}

impl Drop for CommitProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: UnixListener, server: PathBuf, next: Arc<Mutex<Option<CommitFate>>>) {
    while let Ok((client, _)) = listener.accept().await {
        let (server, next) = (server.clone(), Arc::clone(&next));
        tokio::spawn(async move {
            if let Ok(server) = UnixStream::connect(&server).await {
                carry(client, server, &next).await;
            }
        });
    }
}

/// Forwards data in both directions until the connection ends.
async fn carry(mut client: UnixStream, mut server: UnixStream, next: &Mutex<Option<CommitFate>>) {
    let (mut asked, mut answered) = (vec![0; 64 << 10], vec![0; 64 << 10]);
    loop {
        let goes_on = tokio::select! {
            biased;
            read = client.read(&mut asked) => match read {
                Ok(len) if len > 0 => {
                    let request = &asked[..len];
                    let fate = || next.lock().expect("nobody panics here").take();
                    match commit_in(request).and_then(|at| Some((at, fate()?))) {
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

/// Returns the position of a COMMIT in a request.
fn commit_in(request: &[u8]) -> Option<usize> {
    request
        .windows(COMMIT.len())
        .position(|part| part == COMMIT)
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
