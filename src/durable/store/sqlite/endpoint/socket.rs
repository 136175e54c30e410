//! [`PeerSocket`]: sends messages between endpoints, over sockets in their folder.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::UnboundedSender;

use super::folder::{EndpointId, file_name};
use crate::durable::TaskId;
use crate::durable::store::Event;
use crate::durable::store::sqlite::time::sleep;
use crate::sync::{Mutex, Number, lock, thread};

const WAKE: u8 = b'w';
const ENDED: u8 = b'e';
const CANCEL: u8 = b'c';
const STOP: u8 = b'q';

/// The ids in one datagram, at most. Some systems limit a datagram to 2048 bytes.
const MAX_IDS: usize = 120;
/// The length of an id, in bytes.
const ID_LEN: usize = 16;

/// The longest path of a folder, in bytes, that can be used in the address of a socket. Systems accept addresses of at
/// least 104 bytes, which also contain a slash, the name of the socket and a final zero.
const MAX_FOLDER_LEN: usize = 80;

/// The number of further attempts to send to an endpoint whose inbox is full, and the pause before each.
const MAX_SEND_RETRIES: usize = 10;
const SEND_RETRY_PAUSE: Duration = Duration::from_micros(200);

/// The time for which an endpoint whose inbox stays full is skipped: the first time, and at most.
const MIN_SKIP: Duration = Duration::from_secs(1);
const MAX_SKIP: Duration = Duration::from_secs(60);

/// The interval at which the receiving thread checks whether it is to stop, in case the message that stops it is lost.
const STOP_CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// The sockets of an endpoint: one to receive, and one to send.
pub(super) struct PeerSocket {
    id: EndpointId,
    /// A path of the folder that is short enough for the addresses of sockets.
    folder: PathBuf,
    /// The open folder, if the path goes through the list of open files.
    _open: Option<File>,
    /// `None` if the system provides no socket.
    sender: Option<UnixDatagram>,
    /// Endpoints that do not read. They find missed messages by polling.
    skipped: Mutex<HashMap<EndpointId, Skip>>,
    stopped: Arc<Number>,
    /// The number of times that this process has paused until others read.
    #[cfg(test)]
    pub(super) pauses: Number,
}

/// The end and the length of the time for which an endpoint is skipped.
#[derive(Clone, Copy)]
struct Skip {
    until: Instant,
    time: Duration,
}

impl PeerSocket {
    /// Binds the socket of `id`, and starts the thread that turns its messages into `events`. If this
    /// fails, the socket is not open.
    pub(super) fn new(folder: &Path, id: EndpointId, events: UnboundedSender<Event>) -> Self {
        let stopped = Arc::new(Number::new(0));
        let (folder, open) = shorten(folder);
        let socket = bind(&folder.join(file_name(id, ".sock")));
        let sender = socket.and_then(|socket| {
            receive(socket, events, Arc::clone(&stopped))?;
            let sender = UnixDatagram::unbound()?;
            sender.set_nonblocking(true)?;
            Ok(sender)
        });
        Self {
            id,
            folder,
            _open: open,
            sender: sender.ok(),
            skipped: Mutex::default(),
            stopped,
            #[cfg(test)]
            pauses: Number::new(0),
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.sender.is_some()
    }

    /// Sends an event to another endpoint.
    pub(super) fn send(&self, to: EndpointId, event: &Event) -> io::Result<()> {
        match event {
            // Other processes do not get these.
            Event::Ready | Event::Ended(_) | Event::Pushed(_) | Event::Rewound(_) => Ok(()),
            Event::Wake(None) => self.send_bytes(to, &[WAKE]),
            Event::Wake(Some(session)) => {
                let session = session.to_le_bytes();
                self.send_bytes(to, &[&[WAKE][..], &session].concat())
            }
            Event::MaybeEnded(ids) => self.send_ids(to, ENDED, ids),
            Event::Cancel(ids) => self.send_ids(to, CANCEL, ids),
        }
    }

    /// Removes the socket of a dead endpoint.
    pub(super) fn remove_file(&self, id: EndpointId) {
        fs::remove_file(self.folder.join(file_name(id, ".sock"))).ok();
    }

    /// Stops the receiving thread, and removes the socket.
    pub(super) fn close(&self) {
        self.stopped.set(1);
        self.send_bytes(self.id, &[STOP]).ok();
        self.remove_file(self.id);
    }

    fn send_ids(&self, to: EndpointId, kind: u8, ids: &[TaskId]) -> io::Result<()> {
        for ids in ids.chunks(MAX_IDS) {
            let mut bytes = vec![kind];
            bytes.extend(ids.iter().flat_map(|id| id.to_bytes()));
            self.send_bytes(to, &bytes)?;
        }
        Ok(())
    }

    /// Returns `true` if the endpoint is skipped for now, since its inbox is full.
    pub(super) fn is_skipped(&self, id: EndpointId) -> bool {
        let skipped = lock(&self.skipped);
        skipped.get(&id).is_some_and(|it| Instant::now() < it.until)
    }

    /// Sends a datagram. A process that has stopped reading delays its peers once, by two milliseconds.
    fn send_bytes(&self, to: EndpointId, bytes: &[u8]) -> io::Result<()> {
        let Some(sender) = &self.sender else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        if self.is_skipped(to) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let path = self.folder.join(file_name(to, ".sock"));
        let mut left = match lock(&self.skipped).contains_key(&to) {
            true => 0,
            false => MAX_SEND_RETRIES,
        };
        loop {
            let sent = sender.send_to(bytes, &path).map(drop);
            let is_full = sent.as_ref().is_err_and(is_full);
            if !is_full || left == 0 {
                self.record_send(to, is_full);
                return sent;
            }
            left -= 1;
            #[cfg(test)]
            self.pauses.add(1);
            sleep(SEND_RETRY_PAUSE);
        }
    }

    /// Records whether the inbox of an endpoint was full.
    fn record_send(&self, id: EndpointId, is_full: bool) {
        let mut skipped = lock(&self.skipped);
        let before = skipped.remove(&id);
        if is_full {
            let time = before.map_or(MIN_SKIP, |skip| MAX_SKIP.min(skip.time * 2));
            let until = Instant::now() + time;
            skipped.insert(id, Skip { until, time });
        }
    }
}

impl Drop for PeerSocket {
    fn drop(&mut self) {
        self.close();
    }
}

/// Returns a path of the folder that is short enough for the addresses of sockets. If its own path is too long, the
/// result goes through the list of open files, on systems that have one.
fn shorten(folder: &Path) -> (PathBuf, Option<File>) {
    if folder.as_os_str().len() > MAX_FOLDER_LEN
        && let Ok(open) = File::open(folder)
    {
        let name = format!("/proc/self/fd/{}", open.as_raw_fd());
        return (PathBuf::from(name), Some(open));
    }
    (folder.to_owned(), None)
}

fn bind(path: &Path) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::bind(path)?;
    socket.set_read_timeout(Some(STOP_CHECK_INTERVAL))?;
    Ok(socket)
}

fn receive(
    socket: UnixDatagram,
    events: UnboundedSender<Event>,
    stopped: Arc<Number>,
) -> io::Result<()> {
    let thread = thread::Builder::new().name(String::from("throng-sqlite-events"));
    thread.spawn(move || {
        let mut bytes = [0; 1 + MAX_IDS * ID_LEN];
        while stopped.get() == 0 {
            let received = socket.recv(&mut bytes);
            // A timeout is no error: the loop checks whether it is to stop.
            let event = received.ok().and_then(|len| decode(&bytes[..len]));
            if event.is_some_and(|event| events.send(event).is_err()) {
                return;
            }
        }
    })?;
    Ok(())
}

/// Decodes a datagram. Returns `None` if it is not a message of an endpoint.
fn decode(bytes: &[u8]) -> Option<Event> {
    let (&kind, rest) = bytes.split_first()?;
    let ids = || {
        let ids = rest
            .chunks_exact(ID_LEN)
            .filter_map(|id| id.try_into().ok());
        ids.map(TaskId::from_bytes).collect()
    };
    match kind {
        WAKE => Some(Event::Wake(rest.try_into().ok().map(u64::from_le_bytes))),
        ENDED => Some(Event::MaybeEnded(ids())),
        CANCEL => Some(Event::Cancel(ids())),
        _ => None,
    }
}

fn is_full(error: &io::Error) -> bool {
    // Systems other than Linux report this.
    const NO_BUFFERS: i32 = 55;
    error.kind() == io::ErrorKind::WouldBlock
        || (cfg!(not(target_os = "linux")) && error.raw_os_error() == Some(NO_BUFFERS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_arrive_as_they_were_sent() {
        let folder = tempfile::tempdir().unwrap();
        let (events, mut received) = tokio::sync::mpsc::unbounded_channel();
        let socket = PeerSocket::new(folder.path(), 1, events);
        let ids = vec![TaskId::from_bytes([7; 16])];
        for event in [
            Event::Wake(None),
            Event::Wake(Some(u64::MAX - 1)),
            Event::MaybeEnded(ids.clone()),
            Event::Cancel(ids),
        ] {
            socket.send(1, &event).unwrap();
            assert_eq!(received.blocking_recv(), Some(event));
        }
    }

    #[test]
    fn a_peer_that_does_not_read_is_skipped_for_a_while() {
        let folder = tempfile::tempdir().unwrap();
        let (events, _received) = tokio::sync::mpsc::unbounded_channel();
        let socket = PeerSocket::new(folder.path(), 1, events);
        let [stopped, healthy] = [2, 3].map(|id| {
            let path = folder.path().join(file_name(id, ".sock"));
            let socket = UnixDatagram::bind(path).unwrap();
            socket.set_nonblocking(true).unwrap();
            socket
        });
        let read = |socket: &UnixDatagram| {
            let mut bytes = [0; 8];
            std::iter::from_fn(|| socket.recv(&mut bytes).ok()).count()
        };
        let sent = std::iter::from_fn(|| socket.send(2, &Event::Wake(None)).ok()).count();
        assert!(socket.is_skipped(2) && sent > 0);
        // Now its inbox has room, but it is skipped.
        assert_eq!(read(&stopped), sent);
        for _ in 0..100 {
            let refused = socket.send(2, &Event::Wake(None)).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        }
        assert_eq!(read(&stopped), 0);
        socket.send(3, &Event::Wake(None)).unwrap();
        assert_eq!(read(&healthy), 1);

        while socket.is_skipped(2) {
            std::thread::yield_now();
        }
        socket.send(2, &Event::Wake(None)).unwrap();
        assert_eq!(read(&stopped), 1);
        assert!(lock(&socket.skipped).is_empty());
    }

    #[test]
    fn a_peer_whose_inbox_stays_full_is_skipped_for_up_to_a_minute() {
        let folder = tempfile::tempdir().unwrap();
        let (events, _received) = tokio::sync::mpsc::unbounded_channel();
        let socket = PeerSocket::new(folder.path(), 1, events);
        let times = (0..8).map(|_| {
            socket.record_send(2, true);
            lock(&socket.skipped)[&2].time.as_secs()
        });
        assert_eq!(times.collect::<Vec<_>>(), [1, 2, 4, 8, 16, 32, 60, 60]);
    }
}
