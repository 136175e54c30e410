//! [`Post`]: sends messages between endpoints, over sockets in their folder.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::UnboundedSender;

use super::endpoint::{EndpointId, file_name};
use super::schema::sleep;
use crate::durable::TaskId;
use crate::durable::store::Event;
use crate::sync::{Mutex, Number, lock, thread};

const WAKE: u8 = b'w';
const ENDED: u8 = b'e';
const CANCEL: u8 = b'c';
const STOP: u8 = b'q';

/// How many ids one datagram has at most: some systems take no more than 2048 bytes.
const IDS: usize = 120;
/// The bytes of an id.
const ID: usize = 16;

/// How long the path of a folder may be for the paths of its sockets to fit where the system takes
/// them: 104 bytes are the least, and the name of a socket, a slash and a zero go there too.
const MAX_FOLDER: usize = 80;

/// The number of further attempts to send to an endpoint whose inbox is full, and the pause before each.
const AGAIN: usize = 10;
const AFTER: Duration = Duration::from_micros(200);

/// How long an endpoint whose inbox stays full is skipped: the first time, and at most.
const FIRST_SKIP: Duration = Duration::from_secs(1);
const LONGEST_SKIP: Duration = Duration::from_secs(60);

/// How often the thread that receives looks whether it is to end, should nobody tell it.
const LOOK: Duration = Duration::from_secs(60);

/// The socket of an endpoint, and that by which it sends.
pub(super) struct Post {
    id: EndpointId,
    /// The folder, as sockets can name it.
    folder: PathBuf,
    /// What that name refers to, if it is not the folder's own.
    _open: Option<File>,
    /// Nothing, if the system gives us no socket.
    sender: Option<UnixDatagram>,
    /// Endpoints that do not read. They find missed messages by polling.
    skipped: Mutex<HashMap<EndpointId, Skip>>,
    stopped: Arc<Number>,
    /// How often this process has waited for others to read.
    #[cfg(test)]
    pub(super) waits: Number,
}

/// The end and the length of the time for which an endpoint is skipped.
#[derive(Clone, Copy)]
struct Skip {
    until: Instant,
    time: Duration,
}

impl Post {
    /// Binds the socket of `id`, and starts the thread that turns what it gets into `events`. If that
    /// cannot be done, the post is closed.
    pub(super) fn new(folder: &Path, id: EndpointId, events: UnboundedSender<Event>) -> Self {
        let stopped = Arc::new(Number::new(0));
        let (folder, open) = short(folder);
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
            waits: Number::new(0),
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.sender.is_some()
    }

    /// Sends an event to another endpoint.
    pub(super) fn send(&self, to: EndpointId, event: &Event) -> io::Result<()> {
        match event {
            // They go to nobody else.
            Event::Ready | Event::Ended(_) => Ok(()),
            Event::Wake => self.send_bytes(to, &[WAKE]),
            Event::MaybeEnded(ids) => self.send_ids(to, ENDED, ids),
            Event::Cancel(ids) => self.send_ids(to, CANCEL, ids),
        }
    }

    /// Removes the socket of an endpoint that is dead.
    pub(super) fn forget(&self, id: EndpointId) {
        fs::remove_file(self.folder.join(file_name(id, ".sock"))).ok();
    }

    /// Ends the thread that receives, and removes the socket.
    pub(super) fn close(&self) {
        self.stopped.set(1);
        self.send_bytes(self.id, &[STOP]).ok();
        self.forget(self.id);
    }

    fn send_ids(&self, to: EndpointId, kind: u8, ids: &[TaskId]) -> io::Result<()> {
        for ids in ids.chunks(IDS) {
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
            false => AGAIN,
        };
        loop {
            let sent = sender.send_to(bytes, &path).map(drop);
            let is_full = sent.as_ref().is_err_and(is_full);
            if !is_full || left == 0 {
                self.note(to, is_full);
                return sent;
            }
            left -= 1;
            #[cfg(test)]
            self.waits.add(1);
            sleep(AFTER);
        }
    }

    /// Remembers whether the inbox of an endpoint is full.
    fn note(&self, id: EndpointId, is_full: bool) {
        let mut skipped = lock(&self.skipped);
        let before = skipped.remove(&id);
        if is_full {
            let time = before.map_or(FIRST_SKIP, |skip| LONGEST_SKIP.min(skip.time * 2));
            let until = Instant::now() + time;
            skipped.insert(id, Skip { until, time });
        }
    }
}

impl Drop for Post {
    fn drop(&mut self) {
        self.close();
    }
}

/// A name of the folder that is short enough for its sockets: through the list of open files, if
/// need be, where the system has one.
fn short(folder: &Path) -> (PathBuf, Option<File>) {
    if folder.as_os_str().len() > MAX_FOLDER
        && let Ok(open) = File::open(folder)
    {
        let name = format!("/proc/self/fd/{}", open.as_raw_fd());
        return (PathBuf::from(name), Some(open));
    }
    (folder.to_owned(), None)
}

fn bind(path: &Path) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::bind(path)?;
    socket.set_read_timeout(Some(LOOK))?;
    Ok(socket)
}

fn receive(
    socket: UnixDatagram,
    events: UnboundedSender<Event>,
    stopped: Arc<Number>,
) -> io::Result<()> {
    let thread = thread::Builder::new().name(String::from("throng-sqlite-events"));
    thread.spawn(move || {
        let mut bytes = [0; 1 + IDS * ID];
        while stopped.get() == 0 {
            let received = socket.recv(&mut bytes);
            // Nothing for a while, which is no error: it looks whether it is to end.
            let event = received.ok().and_then(|len| read(&bytes[..len]));
            if event.is_some_and(|event| events.send(event).is_err()) {
                return;
            }
        }
    })?;
    Ok(())
}

/// What a datagram says; nothing if it is none of ours.
fn read(bytes: &[u8]) -> Option<Event> {
    let (&kind, ids) = bytes.split_first()?;
    let ids = || {
        let ids = ids.chunks_exact(ID).filter_map(|id| id.try_into().ok());
        ids.map(TaskId::from_bytes).collect()
    };
    match kind {
        WAKE => Some(Event::Wake),
        ENDED => Some(Event::MaybeEnded(ids())),
        CANCEL => Some(Event::Cancel(ids())),
        _ => None,
    }
}

fn is_full(error: &io::Error) -> bool {
    // That is what systems but Linux say.
    const NO_BUFFERS: i32 = 55;
    error.kind() == io::ErrorKind::WouldBlock
        || (cfg!(not(target_os = "linux")) && error.raw_os_error() == Some(NO_BUFFERS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_does_not_read_is_skipped_and_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        let (events, _received) = tokio::sync::mpsc::unbounded_channel();
        let post = Post::new(folder.path(), 1, events);
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
        let sent = std::iter::from_fn(|| post.send(2, &Event::Wake).ok()).count();
        assert!(post.is_skipped(2) && sent > 0);
        // From here on its inbox has room, but no sender tries.
        assert_eq!(read(&stopped), sent);
        for _ in 0..100 {
            let refused = post.send(2, &Event::Wake).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        }
        assert_eq!(read(&stopped), 0);
        post.send(3, &Event::Wake).unwrap();
        assert_eq!(read(&healthy), 1);

        while post.is_skipped(2) {
            std::thread::yield_now();
        }
        post.send(2, &Event::Wake).unwrap();
        assert_eq!(read(&stopped), 1);
        assert!(lock(&post.skipped).is_empty());
    }

    #[test]
    fn one_that_stays_full_is_skipped_for_longer_and_longer() {
        let folder = tempfile::tempdir().unwrap();
        let (events, _received) = tokio::sync::mpsc::unbounded_channel();
        let post = Post::new(folder.path(), 1, events);
        let times = (0..8).map(|_| {
            post.note(2, true);
            lock(&post.skipped)[&2].time.as_secs()
        });
        assert_eq!(times.collect::<Vec<_>>(), [1, 2, 4, 8, 16, 32, 60, 60]);
    }
}
