//! [`Endpoint`]: lets processes that share a database find each other.
//!
//! There is a folder beside the database. In it, each process (more exactly, each open store) has
//!
//! - a file that it keeps locked for as long as it lives: the system unlocks the file when the process exits, for
//!   any reason;
//! - a socket, to which other processes send it messages;
//! - while it is idle, markers in `idle`, one for each set of types that its sessions know: a process that
//!   removes a marker must wake the process that created it;
//! - a marker in `watchers`, if it awaits tasks that other processes have stored.
//!
//! No wake-up is lost. A worker that finds no task first creates its marker, and then looks again. A
//! producer first commits its task, and then looks for markers. So at least one of them sees what the other
//! has done.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};

use tokio::sync::mpsc::UnboundedSender;

use super::peek::ClaimsOfOthers;
use super::post::Post;
use super::repair::DamageWatch;
use super::routing::RouteCache;
use crate::durable::TaskId;
use crate::durable::store::kind::SetId;
use crate::durable::store::{Event, SessionId};
use crate::sync::{Mutex, lock};

/// The folders of markers.
const IDLE: &str = "idle";
const WATCHERS: &str = "watchers";

/// The id of an endpoint. It is random, so it is never used twice.
pub(super) type EndpointId = i64;

/// The files of one process in the folder.
pub(super) struct Endpoint {
    pub(super) id: EndpointId,
    folder: PathBuf,
    lock: File,
    post: Post,
    events: UnboundedSender<Event>,
    /// The idle sessions, and their sets. While a set has an idle session, either its marker exists, or another process
    /// is about to wake this one.
    parked: Mutex<HashMap<SessionId, SetId>>,
    watching: Mutex<bool>,
    /// Whether the files stay when the endpoint is closed, as after a crash.
    abandoned: Mutex<bool>,
    /// The routes of the tasks that wait.
    pub(super) routes: RouteCache,
    /// The part of the database that cannot be read.
    pub(super) damage: DamageWatch,
    pub(super) others: ClaimsOfOthers,
}

impl Endpoint {
    /// Creates an endpoint beside the database at `path`. The messages that it receives become `events`.
    pub(super) fn new(path: &Path, events: UnboundedSender<Event>) -> io::Result<Self> {
        let mut folder = OsString::from(path);
        folder.push("-throng");
        let folder = PathBuf::from(folder);
        let (id, lock) = enter(&folder)?;
        let post = Post::new(&folder, id, events.clone());
        Ok(Self {
            id,
            folder,
            lock,
            post,
            events,
            parked: Mutex::default(),
            watching: Mutex::new(false),
            abandoned: Mutex::new(false),
            routes: RouteCache::default(),
            damage: DamageWatch::default(),
            others: ClaimsOfOthers::default(),
        })
    }

    /// Returns whether other processes can reach this one. If not, it must poll.
    pub(super) fn is_reachable(&self) -> bool {
        self.post.is_open()
    }

    /// Returns `true` if the process of `id` has exited. Returns `false` if this is unknown, for instance because the
    /// lock file was deleted; then its leases expire.
    pub(super) fn is_dead(&self, id: EndpointId) -> bool {
        id != self.id && File::open(self.lock_file(id)).is_ok_and(|file| is_free(&file))
    }

    /// The same, but also returns `true` if there is no lock file. Only for a process that holds no claim: then a wrong
    /// answer does no harm.
    pub(super) fn is_gone(&self, id: EndpointId) -> bool {
        id != self.id
            && match File::open(self.lock_file(id)) {
                Ok(file) => is_free(&file),
                Err(error) => error.kind() == io::ErrorKind::NotFound,
            }
    }

    // ===== Markers =====

    /// Registers a session to be woken. The caller must look for tasks once more before it rests.
    pub(super) fn park(&self, session: SessionId, set: SetId) -> io::Result<()> {
        let mut parked = lock(&self.parked);
        put_marker(&self.idle_marker(self.id, set))?;
        parked.insert(session, set);
        Ok(())
    }

    /// Returns `true` if a session rests, and another process has woken this one since.
    pub(super) fn was_woken(&self, session: SessionId) -> bool {
        let parked = lock(&self.parked);
        let set = parked.get(&session);
        set.is_some_and(|&set| !self.idle_marker(self.id, set).exists())
    }

    /// Unregisters a session. The marker stays while other sessions of this process with the same set are idle.
    pub(super) fn unpark(&self, session: SessionId) {
        let mut parked = lock(&self.parked);
        if let Some(set) = parked.remove(&session)
            && !parked.values().any(|&other| other == set)
        {
            fs::remove_file(self.idle_marker(self.id, set)).ok();
        }
    }

    /// Registers for the ends of all tasks. Returns `false` if this process was registered before.
    pub(super) fn watch(&self) -> bool {
        let mut watching = lock(&self.watching);
        let is_new = !*watching && put_marker(&self.watcher_marker(self.id)).is_ok();
        *watching |= is_new;
        is_new
    }

    /// Wakes up to `most` endpoints that are parked with one of the chosen sets.
    pub(super) fn wake(&self, most: usize, choose: impl Fn(SetId) -> bool) {
        let mut left = most;
        if left != 0 && self.take_own_marker(&choose) {
            self.events.send(Event::Wake).ok();
            left -= 1;
        }
        self.wake_others(left, choose);
    }

    /// The same, except for this endpoint.
    pub(super) fn wake_others(&self, most: usize, choose: impl Fn(SetId) -> bool) {
        if most == 0 {
            return;
        }
        let others = self
            .idle()
            .filter(|&(id, set)| id != self.id && choose(set));
        // An endpoint that does not read keeps its marker, so that it is woken later.
        let others = others.filter(|&(id, _)| !self.post.is_skipped(id));
        let mut left = most;
        for (other, set) in others {
            // Only one process succeeds in removing the marker, and that process must wake the endpoint.
            let is_ours = fs::remove_file(self.idle_marker(other, set)).is_ok();
            if is_ours && self.send(other, &Event::Wake) {
                left -= 1;
            }
            if left == 0 {
                return;
            }
        }
    }

    /// Notifies the endpoints that stored these tasks, and those that watch all tasks, that the tasks have ended.
    pub(super) fn tell_ended(&self, ended: &[(EndpointId, TaskId)]) {
        if ended.is_empty() {
            return;
        }
        self.tell(ended, Event::MaybeEnded);
        for watcher in list(&self.folder.join(WATCHERS), "") {
            let others = ended.iter().filter(|(owner, _)| *owner != watcher);
            let ids: Vec<_> = others.map(|&(_, id)| id).collect();
            if !ids.is_empty() {
                self.send(watcher, &Event::MaybeEnded(ids));
            }
        }
    }

    /// Notifies the endpoints that run these tasks that the tasks are to be cancelled.
    pub(super) fn tell_cancel(&self, cancel: &[(EndpointId, TaskId)]) {
        self.tell(cancel, Event::Cancel);
    }

    fn tell(&self, about: &[(EndpointId, TaskId)], event: fn(Vec<TaskId>) -> Event) {
        let mut endpoints: Vec<_> = about.iter().map(|&(endpoint, _)| endpoint).collect();
        endpoints.sort_unstable();
        endpoints.dedup();
        for endpoint in endpoints {
            let about = about.iter().filter(|(other, _)| *other == endpoint);
            self.send(endpoint, &event(about.map(|&(_, id)| id).collect()));
        }
    }

    /// Sends an event. Returns `false` if it did not arrive. If the receiving process has exited, removes the files that
    /// it has left behind, except its lock file.
    fn send(&self, to: EndpointId, event: &Event) -> bool {
        if to == self.id {
            return self.events.send(event.clone()).is_ok();
        }
        match self.post.send(to, event) {
            Ok(()) => true,
            Err(error) => {
                let is_gone = matches!(
                    error.kind(),
                    io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound
                );
                if is_gone && self.is_gone(to) {
                    self.forget_signs(to);
                }
                false
            }
        }
    }

    // ===== Files of dead processes =====

    /// Returns the dead endpoints that have left a lock file.
    pub(super) fn dead(&self) -> Vec<EndpointId> {
        let known = list(&self.folder, ".lock");
        known.filter(|&id| self.is_dead(id)).collect()
    }

    /// Removes all files of an endpoint that is dead and has no session.
    pub(super) fn forget(&self, id: EndpointId) {
        self.forget_signs(id);
        fs::remove_file(self.lock_file(id)).ok();
    }

    /// Removes the lock files of processes that died before they had renamed them.
    pub(super) fn forget_unborn(&self) {
        for id in list(&self.folder, ".new") {
            let path = self.folder.join(file_name(id, ".new"));
            if File::open(&path).is_ok_and(|file| is_free(&file)) {
                fs::remove_file(path).ok();
            }
        }
    }

    /// Removes all files of an endpoint except its lock file.
    fn forget_signs(&self, id: EndpointId) {
        self.forget_markers(id);
        self.post.forget(id);
    }

    fn forget_markers(&self, id: EndpointId) {
        for (_, set) in self.idle().filter(|marker| marker.0 == id) {
            fs::remove_file(self.idle_marker(id, set)).ok();
        }
        fs::remove_file(self.watcher_marker(id)).ok();
    }

    /// Removes the lock file, as a user may who cleans up the folder.
    #[cfg(test)]
    pub(super) fn lose_lock_file(&self) {
        fs::remove_file(self.lock_file(self.id)).expect("it is there");
    }

    /// How often this endpoint has waited for processes that do not read their messages.
    #[cfg(test)]
    pub(super) fn waits(&self) -> u64 {
        self.post.waits.get() as u64
    }

    /// Releases the lock, as the system does when a process has died.
    #[cfg(test)]
    pub(super) fn abandon(&self) {
        *lock(&self.abandoned) = true;
        self.lock.unlock().expect("a lock can be released");
    }

    /// Removes all files of this endpoint, and also the folder if it was the last one in it. From then on,
    /// the other processes take this process for dead.
    pub(super) fn close(&self) {
        if !*lock(&self.abandoned) {
            self.forget_markers(self.id);
            self.post.close();
            fs::remove_file(self.lock_file(self.id)).ok();
            leave(&self.folder);
        }
        // Unlocks explicitly, since a child process that was forked meanwhile also has the file open.
        self.lock.unlock().ok();
    }

    fn take_own_marker(&self, choose: impl Fn(SetId) -> bool) -> bool {
        let parked = lock(&self.parked);
        let mut sets = parked.values().filter(|&&set| choose(set));
        sets.any(|&set| fs::remove_file(self.idle_marker(self.id, set)).is_ok())
    }

    /// Returns the idle endpoints, with the sets that their sessions know.
    fn idle(&self) -> impl Iterator<Item = (EndpointId, SetId)> + use<> {
        let entries = fs::read_dir(self.folder.join(IDLE)).into_iter();
        entries.flatten().flatten().filter_map(|entry| {
            let name = entry.file_name();
            let (id, set) = name.to_str()?.split_once('.')?;
            let number = |hex| u64::from_str_radix(hex, 16).map(|number| number as i64);
            Some((number(id).ok()?, SetId::from_number(number(set).ok()?)))
        })
    }

    fn idle_marker(&self, id: EndpointId, set: SetId) -> PathBuf {
        let suffix = format!(".{:016x}", set.number());
        self.folder.join(IDLE).join(file_name(id, &suffix))
    }

    fn watcher_marker(&self, id: EndpointId) -> PathBuf {
        self.folder.join(WATCHERS).join(file_name(id, ""))
    }

    fn lock_file(&self, id: EndpointId) -> PathBuf {
        self.folder.join(file_name(id, ".lock"))
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.close();
    }
}

/// Returns the name of a file of an endpoint.
pub(super) fn file_name(id: EndpointId, suffix: &str) -> String {
    format!("{id:016x}{suffix}")
}

/// Creates the folder, and a lock file in it.
fn enter(folder: &Path) -> io::Result<(EndpointId, File)> {
    loop {
        let made = fs::create_dir_all(folder.join(IDLE))
            .and_then(|()| fs::create_dir_all(folder.join(WATCHERS)))
            .and_then(|()| new_lock(folder));
        match made {
            // The last endpoint has left meanwhile, and has removed the folder.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            made => return made,
        }
    }
}

/// Removes the folder if no endpoint is in it. Each step fails if an endpoint has come meanwhile.
fn leave(folder: &Path) {
    let is_empty = |suffix| list(folder, suffix).next().is_none();
    if is_empty(".lock") && is_empty(".new") {
        fs::remove_dir(folder.join(IDLE)).ok();
        fs::remove_dir(folder.join(WATCHERS)).ok();
        fs::remove_dir(folder).ok();
    }
}

fn put_marker(marker: &Path) -> io::Result<()> {
    let made = File::create(marker).or_else(|error| {
        // Another endpoint has left while this one joined, and has removed the empty folder.
        fs::create_dir_all(marker.parent().ok_or(error)?)?;
        File::create(marker)
    });
    made.map(drop)
}

/// Returns a new id, and its lock file. The file is locked before it gets its final name, so a file with that name
/// that is free belongs to a dead process.
fn new_lock(folder: &Path) -> io::Result<(EndpointId, File)> {
    loop {
        let id = RandomState::new().build_hasher().finish() as EndpointId;
        let new = folder.join(file_name(id, ".new"));
        let file = File::create_new(&new)?;
        file.lock()?;
        match fs::rename(&new, folder.join(file_name(id, ".lock"))) {
            // Another process has removed it before it was locked.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            renamed => return renamed.map(|()| (id, file)),
        }
    }
}

/// Returns `true` if no process has the file locked.
fn is_free(file: &File) -> bool {
    match file.try_lock_shared() {
        Ok(()) => file.unlock().is_ok(),
        Err(TryLockError::WouldBlock | TryLockError::Error(_)) => false,
    }
}

/// Returns the endpoints that have a file with this suffix in a folder.
fn list(folder: &Path, suffix: &'static str) -> impl Iterator<Item = EndpointId> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(move |entry| {
        let name = entry.file_name();
        let hex = name.to_str()?.strip_suffix(suffix)?;
        u64::from_str_radix(hex, 16).ok().map(|id| id as EndpointId)
    })
}
