//! A way to the server on which requests and answers are lost, come late or twice, and connections
//! break.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::sync::{Mutex, lock};

/// What happens to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// All goes through.
    Pass,
    /// What the server answers is swallowed, for ever.
    Mute,
    Cut,
}

/// What happens to one request, or to its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trick {
    /// The answer is swallowed, and the connection cut.
    Lose,
    /// The connection is cut after so many bytes of the answer.
    CutAfter(usize),
    /// The answer is swallowed, and all that follows; the connection stays.
    Stall,
    /// The answer comes late.
    Delay(Duration),
    /// The server gets it twice: the first copy by a connection of its own.
    Double,
    /// It is kept, instead of sent, and the connection cut: see [`Proxy::deliver`].
    Keep,
}

pub(super) struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

struct Shared {
    port: u16,
    /// The fate of those connections that are there.
    fate: watch::Sender<Fate>,
    /// What happens to the next script.
    trick: Mutex<Option<Trick>>,
    /// How many scripts come before that one.
    skip: Mutex<usize>,
    kept: Mutex<Vec<Vec<u8>>>,
}

impl Proxy {
    /// A way to this port of this machine.
    pub(super) async fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            port,
            fate: watch::Sender::new(Fate::Pass),
            trick: Mutex::new(None),
            skip: Mutex::new(0),
            kept: Mutex::new(Vec::new()),
        });
        let task = tokio::spawn(serve(listener, Arc::clone(&shared)));
        Self {
            address,
            shared,
            task,
        }
    }

    pub(super) fn url(&self) -> String {
        format!("redis://{}/", self.address)
    }

    /// From now on, the connections that are there swallow what the server answers. New ones do not.
    pub(super) fn mute(&self) {
        self.shared.fate.send_replace(Fate::Mute);
    }

    /// Cuts the connections that are there. New ones are not.
    pub(super) fn cut(&self) {
        self.shared.fate.send_replace(Fate::Cut);
    }

    /// Has the next script meet with this.
    pub(super) fn play(&self, trick: Trick) {
        self.play_after(0, trick);
    }

    /// Has the script meet with this that comes after so many others.
    pub(super) fn play_after(&self, skip: usize, trick: Trick) {
        *lock(&self.shared.skip) = skip;
        *lock(&self.shared.trick) = Some(trick);
    }

    /// Sends what was kept, in its order, and returns the answers.
    pub(super) async fn deliver(&self) -> Vec<String> {
        let kept = std::mem::take(&mut *lock(&self.shared.kept));
        let mut answers = Vec::new();
        for request in kept {
            answers.push(self.shared.send_alone(&request).await);
        }
        answers
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
        self.cut();
    }
}

impl Shared {
    /// What the script that comes now meets with.
    fn next_trick(&self) -> Option<Trick> {
        let mut skip = lock(&self.skip);
        if *skip > 0 {
            *skip -= 1;
            return None;
        }
        lock(&self.trick).take()
    }

    /// Sends a request by a connection of its own, and returns the beginning of the answer.
    async fn send_alone(&self, request: &[u8]) -> String {
        let mut server = TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        server.write_all(request).await.unwrap();
        let mut answer = vec![0; 1024];
        let len = server.read(&mut answer).await.unwrap();
        String::from_utf8_lossy(&answer[..len]).into_owned()
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((client, _)) = listener.accept().await {
        client.set_nodelay(true).ok();
        let mut fate = shared.fate.subscribe();
        fate.mark_unchanged();
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            if let Ok(server) = TcpStream::connect(("127.0.0.1", shared.port)).await {
                server.set_nodelay(true).ok();
                let up = Way::new(client, server);
                up.carry(&shared, fate).await;
            }
        });
    }
}

/// A connection, from end to end.
struct Way {
    from_client: OwnedReadHalf,
    to_client: OwnedWriteHalf,
    from_server: OwnedReadHalf,
    to_server: OwnedWriteHalf,
    /// What happens to the next answer.
    trick: Option<Trick>,
    is_mute: bool,
}

impl Way {
    fn new(client: TcpStream, server: TcpStream) -> Self {
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        Self {
            from_client,
            to_client,
            from_server,
            to_server,
            trick: None,
            is_mute: false,
        }
    }

    /// Carries what both say, for as long as the connection lasts.
    async fn carry(mut self, shared: &Shared, mut fate: watch::Receiver<Fate>) {
        let (mut asked, mut answered) = (vec![0; 64 << 10], vec![0; 64 << 10]);
        loop {
            let goes_on = tokio::select! {
                biased;
                changed = fate.changed() => {
                    self.is_mute = true;
                    changed.is_ok() && *fate.borrow_and_update() != Fate::Cut
                }
                read = self.from_client.read(&mut asked) => match read {
                    Ok(len) if len > 0 => self.ask(shared, &asked[..len]).await,
                    _ => false,
                },
                read = self.from_server.read(&mut answered) => match read {
                    Ok(len) if len > 0 => self.answer(&answered[..len]).await,
                    _ => false,
                },
            };
            if !goes_on {
                return;
            }
        }
    }

    async fn ask(&mut self, shared: &Shared, request: &[u8]) -> bool {
        if is_script(request) {
            self.trick = shared.next_trick();
        }
        match self.trick {
            Some(Trick::Keep) => {
                lock(&shared.kept).push(request.to_vec());
                return false;
            }
            Some(Trick::Double) => _ = shared.send_alone(request).await,
            _ => {}
        }
        self.to_server.write_all(request).await.is_ok()
    }

    async fn answer(&mut self, answer: &[u8]) -> bool {
        let mut passes = answer;
        match self.trick.take() {
            Some(Trick::Lose) => return false,
            Some(Trick::CutAfter(len)) => passes = &answer[..len.min(answer.len())],
            Some(Trick::Stall) => self.is_mute = true,
            Some(Trick::Delay(time)) => tokio::time::sleep(time).await,
            Some(Trick::Double | Trick::Keep) | None => {}
        }
        if self.is_mute {
            return true;
        }
        self.to_client.write_all(passes).await.is_ok() && passes.len() == answer.len()
    }
}

/// Whether a request is a script; the others only make the connection.
fn is_script(request: &[u8]) -> bool {
    request.windows(7).any(|part| part == b"EVALSHA")
}
