//! [`Proxy`]: a proxy to the server that loses, delays or repeats requests and answers, and closes connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::sync::{Mutex, lock};

/// The fate of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Everything is forwarded.
    Pass,
    /// All answers are discarded.
    Mute,
    Cut,
}

/// The fate of one request, or of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trick {
    /// The answer is discarded, and the connection closed.
    Lose,
    /// The connection is closed after this number of bytes of the answer.
    CutAfter(usize),
    /// This answer and all later ones are discarded. The connection stays open.
    Stall,
    /// The answer is delayed.
    Delay(Duration),
    /// The server receives the request twice, the first time on a separate connection.
    Double,
    /// The request is kept rather than sent, and the connection closed: see [`Proxy::deliver`].
    Keep,
}

/// The text of a request that runs a script.
const SCRIPT: &str = "EVALSHA";

pub(super) struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

struct Shared {
    port: u16,
    /// The fate of the current connections.
    fate: watch::Sender<Fate>,
    /// The trick for the next request with the text `on`: by default, a script.
    trick: Mutex<Option<Trick>>,
    on: Mutex<&'static str>,
    /// The number of such requests before that one.
    skip: Mutex<usize>,
    kept: Mutex<Vec<Vec<u8>>>,
}

impl Proxy {
    /// Creates a proxy to this port.
    pub(super) async fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            port,
            fate: watch::Sender::new(Fate::Pass),
            trick: Mutex::new(None),
            on: Mutex::new(SCRIPT),
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

    pub(super) fn port(&self) -> u16 {
        self.address.port()
    }

    pub(super) fn url(&self) -> String {
        format!("redis://{}/", self.address)
    }

    /// Discards all answers on the current connections from now on. New connections are not affected.
    pub(super) fn mute(&self) {
        self.shared.fate.send_replace(Fate::Mute);
    }

    /// Closes the current connections. New ones are not affected.
    pub(super) fn cut(&self) {
        self.shared.fate.send_replace(Fate::Cut);
    }

    /// Applies a trick to the next script.
    pub(super) fn play(&self, trick: Trick) {
        self.play_after(0, trick);
    }

    /// Applies a trick to the script after this number of others.
    pub(super) fn play_after(&self, skip: usize, trick: Trick) {
        self.play_on(SCRIPT, skip, trick);
    }

    /// Applies a trick to the request with this text after this number of others.
    pub(super) fn play_on(&self, text: &'static str, skip: usize, trick: Trick) {
        *lock(&self.shared.on) = text;
        *lock(&self.shared.skip) = skip;
        *lock(&self.shared.trick) = Some(trick);
    }

    /// Sends the requests that were kept, in their order. Returns the answers.
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
    /// Returns `true` if tricks may be played on a request. The others only set up the connection.
    fn is_played_on(&self, request: &[u8]) -> bool {
        let text = lock(&self.on).as_bytes();
        request.windows(text.len()).any(|part| part == text)
    }

    /// Returns the trick for the current request.
    fn next_trick(&self) -> Option<Trick> {
        let mut skip = lock(&self.skip);
        if *skip > 0 {
            *skip -= 1;
            return None;
        }
        lock(&self.trick).take()
    }

    /// Sends a request on a separate connection. Returns the beginning of the answer.
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

/// A connection from the client to the server.
struct Way {
    from_client: OwnedReadHalf,
    to_client: OwnedWriteHalf,
    from_server: OwnedReadHalf,
    to_server: OwnedWriteHalf,
    /// The trick for the next answer.
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

    /// Forwards data in both directions until the connection ends.
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
        if shared.is_played_on(request) {
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
