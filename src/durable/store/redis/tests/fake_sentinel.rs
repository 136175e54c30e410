//! [`FakeSentinel`]: a Sentinel that answers as a test chooses, and reports no events.

use std::sync::Arc;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::server::Server;
use crate::sync::{Mutex, Number, lock};

/// A Sentinel that ends when it is dropped.
pub(super) struct FakeSentinel {
    pub(super) port: u16,
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

struct Shared {
    says: Mutex<Says>,
    /// Changes when all connections are to be closed.
    cut: watch::Sender<()>,
    /// The number of connections so far on which the first command was not that of a connection that receives events.
    asked: Number,
    /// The number of connections so far that have subscribed to events.
    subscribed: Number,
}

/// The answers of a Sentinel.
#[derive(Clone)]
pub(super) enum Says {
    Nothing,
    /// The answer to every command.
    Always(&'static str),
    /// The host and the port of the primary, and the configuration epoch.
    Primary(&'static str, u16, u64),
}

impl Says {
    fn naming(server: &Server, epoch: u64) -> Self {
        Self::Primary("127.0.0.1", server.port(), epoch)
    }
}

impl FakeSentinel {
    /// Starts a Sentinel that names a server under the name `main`.
    pub(super) async fn naming(server: &Server, epoch: u64) -> Self {
        Self::saying(Says::naming(server, epoch)).await
    }

    /// Starts a Sentinel that does not answer.
    pub(super) async fn silent() -> Self {
        Self::saying(Says::Nothing).await
    }

    pub(super) async fn saying(says: Says) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            says: Mutex::new(says),
            cut: watch::Sender::default(),
            asked: Number::new(0),
            subscribed: Number::new(0),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, Arc::clone(&shared)));
        Self {
            port,
            shared,
            _tasks: tasks,
        }
    }

    pub(super) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// From now on, names this server.
    pub(super) fn name(&self, server: &Server, epoch: u64) {
        self.name_port(server.port(), epoch);
    }

    /// From now on, names the server at this port.
    pub(super) fn name_port(&self, port: u16, epoch: u64) {
        *lock(&self.shared.says) = Says::Primary("127.0.0.1", port, epoch);
    }

    /// Closes all connections. Those that receive events then ask again.
    pub(super) fn cut(&self) {
        self.shared.cut.send_replace(());
    }

    /// Returns the number of connections so far, except those that receive events.
    pub(super) fn asked(&self) -> usize {
        self.shared.asked.get()
    }

    pub(super) fn is_watched(&self) -> bool {
        self.shared.subscribed.get() > 0
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let mut cut = shared.cut.subscribe();
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            tokio::select! {
                () = serve(stream, shared) => {}
                _ = cut.changed() => {}
            }
        });
    }
}

async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    let mut stream = BufReader::new(stream);
    let mut is_first = true;
    while let Some(command) = read_command(&mut stream).await {
        if is_first && command[0] != "HELLO" {
            shared.asked.add(1);
        }
        is_first = false;
        let says = lock(&shared.says).clone();
        let answer = answer(says, &command, &shared);
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

fn answer(says: Says, command: &[String], shared: &Shared) -> String {
    let (host, port, epoch) = match says {
        Says::Nothing => return String::new(),
        Says::Always(answer) => return answer.into(),
        Says::Primary(host, port, epoch) => (host, port, epoch),
    };
    let command: Vec<_> = command.iter().map(String::as_str).collect();
    match &*command {
        ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main"] => list(&[host, &port.to_string()]),
        ["SENTINEL", "MASTER", "main"] => list(&["config-epoch", &epoch.to_string()]),
        ["SENTINEL", ..] => "*-1\r\n".into(),
        ["HELLO", ..] => "%1\r\n$5\r\nproto\r\n:3\r\n".into(),
        ["SUBSCRIBE", channels @ ..] => {
            shared.subscribed.add(1);
            channels.iter().map(|it| subscribed(it)).collect()
        }
        _ => "+OK\r\n".into(),
    }
}

/// Reads a command: an array of strings.
async fn read_command(stream: &mut BufReader<TcpStream>) -> Option<Vec<String>> {
    let mut parts = Vec::new();
    for _ in 0..read_number(stream).await? {
        let mut part = vec![0; read_number(stream).await? + 2];
        stream.read_exact(&mut part).await.ok()?;
        parts.push(String::from_utf8_lossy(&part).trim_end().to_owned());
    }
    Some(parts)
}

/// Reads a line with a sign and a number.
async fn read_number(stream: &mut BufReader<TcpStream>) -> Option<usize> {
    let mut line = String::new();
    stream.read_line(&mut line).await.ok()?;
    line.get(1..)?.trim().parse().ok()
}

/// Returns the answer to a subscription.
fn subscribed(channel: &str) -> String {
    let len = channel.len();
    format!(">3\r\n$9\r\nsubscribe\r\n${len}\r\n{channel}\r\n:1\r\n")
}

/// Returns an answer that is an array of strings.
fn list(parts: &[&str]) -> String {
    let part = |it: &&str| format!("${}\r\n{it}\r\n", it.len());
    format!(
        "*{}\r\n{}",
        parts.len(),
        parts.iter().map(part).collect::<String>()
    )
}
