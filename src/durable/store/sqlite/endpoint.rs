//! [`Endpoint`]: lets processes that share a database find each other.
//!
//! An *endpoint* is one open store. A folder beside the database contains, for each endpoint,
//!
//! - a file that the process keeps locked for as long as it lives: the system unlocks the file when the process
//!   exits, for any reason;
//! - a socket, to which other processes send messages;
//! - a *marker* in `idle` for each idle session of the endpoint, whose name also says which set of types the session knows. A
//!   process that removes a marker must wake the session;
//! - a marker in `watchers`, if the endpoint awaits tasks that other processes have stored.
//!
//! No wake-up is lost. A worker that finds no task first creates its marker, and then checks again. A
//! producer first commits its task, and then reads the markers. So at least one of them sees what the other
//! has done.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use tokio::sync::mpsc::UnboundedSender;

use self::folder::WATCHERS;
pub(super) use self::folder::{EndpointId, file_name};
use self::socket::PeerSocket;
use crate::durable::TaskId;
use crate::durable::store::kind::SetId;
use crate::durable::store::{Event, SessionId};
use crate::sync::{Mutex, lock};

mod folder;
mod socket;

/// One open store, and its files in the folder.
pub(super) struct Endpoint {
    pub(super) id: EndpointId,
    folder: PathBuf,
    /// The files of the endpoint, or `None` for an observer.
    own: Option<OwnFiles>,
    events: UnboundedSender<Event>,
    /// The idle sessions, and their sets. While a session is idle, either its marker exists, or it has been woken or is about
    /// to be.
    idle: Mutex<HashMap<SessionId, SetId>>,
    is_watching: Mutex<bool>,
    /// `true` if the files stay when the endpoint is closed, as after a crash.
    has_crashed: Mutex<bool>,
}

/// The files through which other processes find an endpoint.
struct OwnFiles {
    lock: File,
    socket: PeerSocket,
}

impl Endpoint {
    /// Creates an endpoint without files. It finds other processes, but they do not find it.
    pub(super) fn observer(path: &Path, events: UnboundedSender<Event>) -> Self {
        Self {
            id: 0,
            folder: folder_of(path),
            own: None,
            events,
            idle: Mutex::default(),
            is_watching: Mutex::default(),
            has_crashed: Mutex::default(),
        }
    }

    /// Creates an endpoint beside the database at `path`. The messages that it receives become `events`.
    pub(super) fn new(path: &Path, events: UnboundedSender<Event>) -> io::Result<Self> {
        let folder = folder_of(path);
        let (id, lock) = folder::join(&folder)?;
        let socket = PeerSocket::new(&folder, id, events.clone());
        Ok(Self {
            id,
            folder,
            own: Some(OwnFiles { lock, socket }),
            events,
            idle: Mutex::default(),
            is_watching: Mutex::new(false),
            has_crashed: Mutex::new(false),
        })
    }

    /// Returns whether other processes can reach this one. If not, it must poll.
    pub(super) fn is_reachable(&self) -> bool {
        self.socket().is_some_and(PeerSocket::is_open)
    }

    /// Returns `true` if the process of `id` has exited. Returns `false` if this is unknown, for instance because the
    /// lock file was deleted; then its leases expire.
    pub(super) fn is_dead(&self, id: EndpointId) -> bool {
        let lock_file = self.lock_file(id);
        id != self.id && File::open(lock_file).is_ok_and(|file| folder::is_unlocked(&file))
    }

    /// The same, but also returns `true` if there is no lock file. Use this only for a process that has no claim: then a
    /// wrong answer does no harm.
    pub(super) fn is_gone(&self, id: EndpointId) -> bool {
        id != self.id
            && match File::open(self.lock_file(id)) {
                Ok(file) => folder::is_unlocked(&file),
                Err(error) => error.kind() == io::ErrorKind::NotFound,
            }
    }

    // ===== Idle sessions =====

    /// Registers a session to be woken. The caller must check for tasks once more before it waits.
    pub(super) fn add_idle(&self, session: SessionId, set: SetId) -> io::Result<()> {
        let mut idle = lock(&self.idle);
        folder::create_marker(&self.idle_marker(self.id, set, session))?;
        idle.insert(session, set);
        Ok(())
    }

    /// Returns `true` if a session is idle and was woken since it went idle.
    pub(super) fn was_woken(&self, session: SessionId) -> bool {
        let idle = lock(&self.idle);
        let set = idle.get(&session);
        set.is_some_and(|&set| !self.idle_marker(self.id, set, session).exists())
    }

    /// Unregisters a session.
    pub(super) fn remove_idle(&self, session: SessionId) {
        let mut idle = lock(&self.idle);
        if let Some(set) = idle.remove(&session) {
            fs::remove_file(self.idle_marker(self.id, set, session)).ok();
        }
    }

    /// Registers for the ends of all tasks. Returns `false` if this endpoint was registered before, or is an observer.
    pub(super) fn watch(&self) -> bool {
        if self.own.is_none() {
            return false;
        }
        let mut is_watching = lock(&self.is_watching);
        let is_new = !*is_watching && folder::create_marker(&self.watcher_marker(self.id)).is_ok();
        *is_watching |= is_new;
        is_new
    }

    // ===== Messages =====

    /// Wakes up to `limit` idle sessions with one of the chosen sets, those of this endpoint first.
    pub(super) fn wake(&self, limit: usize, choose: impl Fn(SetId) -> bool) {
        let woken = self.wake_own(limit, &choose);
        self.wake_others(limit - woken, choose);
    }

    /// The same, except for the sessions of this endpoint.
    pub(super) fn wake_others(&self, limit: usize, choose: impl Fn(SetId) -> bool) {
        if limit == 0 {
            return;
        }
        let others = folder::idle_sessions(&self.folder);
        let others = others.filter(|&(id, set, _)| id != self.id && choose(set));
        // An endpoint that does not read keeps its markers, so that its sessions are woken later.
        let others =
            others.filter(|&(id, _, _)| self.socket().is_some_and(|it| !it.is_skipped(id)));
        let mut left = limit;
        for (other, set, session) in others {
            // Only one process succeeds in removing the marker, and that process must wake the session.
            let is_ours = fs::remove_file(self.idle_marker(other, set, session)).is_ok();
            if is_ours && self.send(other, &Event::Wake(Some(session))) {
                left -= 1;
            }
            if left == 0 {
                return;
            }
        }
    }

    /// Notifies the endpoints that stored these tasks, and those that watch all tasks, that the tasks have ended.
    pub(super) fn notify_ended(&self, ended: &[(EndpointId, TaskId)]) {
        if ended.is_empty() {
            return;
        }
        self.notify_each(ended, Event::MaybeEnded);
        for watcher in folder::endpoints(&self.folder.join(WATCHERS), "") {
            let others = ended.iter().filter(|(producer, _)| *producer != watcher);
            let ids: Vec<_> = others.map(|&(_, id)| id).collect();
            if !ids.is_empty() {
                self.send(watcher, &Event::MaybeEnded(ids));
            }
        }
    }

    /// Notifies the endpoints that run these tasks that the tasks are to be cancelled.
    pub(super) fn notify_cancelled(&self, cancelled: &[(EndpointId, TaskId)]) {
        self.notify_each(cancelled, Event::Cancel);
    }

    /// Sends each endpoint one event about its tasks.
    fn notify_each(&self, tasks: &[(EndpointId, TaskId)], event: fn(Vec<TaskId>) -> Event) {
        let mut endpoints: Vec<_> = tasks.iter().map(|&(endpoint, _)| endpoint).collect();
        endpoints.sort_unstable();
        endpoints.dedup();
        for endpoint in endpoints {
            let its_own = tasks.iter().filter(|(other, _)| *other == endpoint);
            self.send(endpoint, &event(its_own.map(|&(_, id)| id).collect()));
        }
    }

    /// Sends an event. Returns `false` if it did not arrive. If the receiving process has exited, removes the files that
    /// it has left behind, except its lock file.
    fn send(&self, to: EndpointId, event: &Event) -> bool {
        if to == self.id {
            return self.events.send(event.clone()).is_ok();
        }
        let Some(socket) = self.socket() else {
            return false;
        };
        match socket.send(to, event) {
            Ok(()) => true,
            Err(error) => {
                let is_closed = matches!(
                    error.kind(),
                    io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound
                );
                if is_closed && self.is_gone(to) {
                    self.remove_all_but_lock_file(to);
                }
                false
            }
        }
    }

    /// Wakes up to `limit` idle sessions of this endpoint. Returns their number.
    fn wake_own(&self, limit: usize, choose: impl Fn(SetId) -> bool) -> usize {
        let (idle, mut woken) = (lock(&self.idle), 0);
        for (&session, &set) in idle.iter().filter(|(_, set)| choose(**set)) {
            let marker = self.idle_marker(self.id, set, session);
            if woken < limit && fs::remove_file(marker).is_ok() {
                self.events.send(Event::Wake(Some(session))).ok();
                woken += 1;
            }
        }
        woken
    }

    // ===== Files of dead processes =====

    /// Returns the dead endpoints that have left a lock file.
    pub(super) fn dead(&self) -> Vec<EndpointId> {
        let all = folder::endpoints(&self.folder, ".lock");
        all.filter(|&id| self.is_dead(id)).collect()
    }

    /// Removes all files of an endpoint that is dead and has no session.
    pub(super) fn remove_files(&self, id: EndpointId) {
        self.remove_all_but_lock_file(id);
        fs::remove_file(self.lock_file(id)).ok();
    }

    /// Removes the lock files of processes that died while they joined.
    pub(super) fn remove_unfinished_lock_files(&self) {
        folder::remove_unfinished_lock_files(&self.folder);
    }

    fn remove_all_but_lock_file(&self, id: EndpointId) {
        self.remove_markers(id);
        if let Some(socket) = self.socket() {
            socket.remove_file(id);
        }
    }

    fn remove_markers(&self, id: EndpointId) {
        let idle = folder::idle_sessions(&self.folder);
        for (_, set, session) in idle.filter(|marker| marker.0 == id) {
            fs::remove_file(self.idle_marker(id, set, session)).ok();
        }
        fs::remove_file(self.watcher_marker(id)).ok();
    }

    /// Removes all files of this endpoint, and also the folder if it was the last one in it. From then on,
    /// other processes take this process for dead.
    pub(super) fn close(&self) {
        let Some(own) = &self.own else {
            return;
        };
        if !*lock(&self.has_crashed) {
            self.remove_markers(self.id);
            own.socket.close();
            fs::remove_file(self.lock_file(self.id)).ok();
            folder::remove_if_empty(&self.folder);
        }
        // Unlocks explicitly, since a child process that was forked meanwhile also has the file open.
        own.lock.unlock().ok();
    }

    fn socket(&self) -> Option<&PeerSocket> {
        self.own.as_ref().map(|own| &own.socket)
    }

    fn idle_marker(&self, id: EndpointId, set: SetId, session: SessionId) -> PathBuf {
        folder::idle_marker(&self.folder, id, set, session)
    }

    fn watcher_marker(&self, id: EndpointId) -> PathBuf {
        self.folder.join(WATCHERS).join(file_name(id, ""))
    }

    fn lock_file(&self, id: EndpointId) -> PathBuf {
        self.folder.join(file_name(id, ".lock"))
    }

    // ===== Tests =====

    /// Removes the lock file, like a user who cleans up the folder.
    #[cfg(test)]
    pub(super) fn remove_lock_file(&self) {
        fs::remove_file(self.lock_file(self.id)).expect("the lock file exists");
    }

    /// Returns how often this endpoint has paused for processes that do not read their messages.
    #[cfg(test)]
    pub(super) fn send_pauses(&self) -> u64 {
        self.socket().map_or(0, |socket| socket.pauses.get() as u64)
    }

    /// Releases the lock, as the system does when a process has died.
    #[cfg(test)]
    pub(super) fn simulate_crash(&self) {
        *lock(&self.has_crashed) = true;
        let own = self.own.as_ref().expect("it is no observer");
        own.lock.unlock().expect("a lock can be released");
    }
}

/// Returns the folder of the endpoints of a database.
fn folder_of(path: &Path) -> PathBuf {
    let mut folder = OsString::from(path);
    folder.push("-throng");
    PathBuf::from(folder)
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.close();
    }
}
