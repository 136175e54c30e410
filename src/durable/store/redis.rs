//! [`RedisStore`]: tasks in Redis.
//!
//! Every change is made by a [script](scripts), which runs as a whole and uses the server's clock. The store's thread
//! drives two connections: one for [requests](link), and one for [messages](mail) to this process. Each is
//! reopened whenever it breaks. A request whose answer is lost has an unknown effect; the engine sends it again
//! under the same number.

use std::fmt;
use std::sync::Arc;

use redis::{ConnectionInfo, IntoConnectionInfo};
use tokio::runtime::{self, Handle};
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

pub use self::builder::RedisStoreBuilder;
use self::error::{no_connection, not_connected};
use self::inner::Inner;
use self::mail::Mail;
pub use self::probe::RedisReport;
pub(crate) use self::time::Time;
use super::{
    Answer, Backend, Enqueue, Epoch, Event, RenewAnswer, SessionId, Store, TaskState, Turn,
    TurnAnswer,
};
use crate::durable::failure::{Cause, Effect, Failure};
use crate::durable::store::kind::TypeSet;
use crate::durable::{
    AttemptError, Counts, DeadFilter, DeadLetter, Durability, DurableError, Health, TaskId,
};
use crate::sync::{Mutex, lock, thread};

mod admin;
mod builder;
mod entry;
mod error;
mod inner;
mod keys;
mod link;
mod mail;
mod names;
mod partitions;
mod probe;
mod recall;
mod reply;
mod request;
mod routing;
mod scripts;
#[cfg(test)]
pub(super) mod tests;
mod time;
mod turns;

/// Tasks in Redis, for the processes of many machines.
///
/// The server is Redis 6.2 or later, or Valkey. Other programs may use it, too: all keys of the store begin with
/// `throng:`.
///
/// # What is promised
///
/// - An acknowledged write is as durable as the server makes it: see [`Durability`]. With `appendonly yes`
///   and `appendfsync always`, it is on the disk. With `everysec`, a server process that is
///   killed loses up to two seconds of acknowledged writes.
/// - When a process exits, for any reason, other workers take over its tasks once their lease expires: after
///   ten seconds, unless the executor was built with another lease.
/// - If the server cannot be reached, requests wait, and fail after some seconds. The store reconnects by
///   itself, however long that takes.
/// - Only the server's clock counts. If it is set, delayed tasks start earlier or later. Results and dead letters
///   are removed at most one minute early if the clock is set forward, and never early if it is set back. Time counts for
///   them only while an executor runs, and for a minute after that.
/// - If the server has no memory left, no more tasks can be stored; stored tasks still run.
/// - A store with the layout of another version of this crate is neither changed nor converted. If the
///   layout is older, let that version run all tasks to their end, or delete the keys.
///
/// # A cluster
///
/// A store talks to one server. In a cluster, this must be the node that owns the store's slot; at another
/// node, `open` fails with an error that names the right one. While the slot moves to another node, each
/// request waits, and fails after some seconds without any effect. Once the slot has moved, requests fail
/// with an error that names the new node, and the tasks continue when the store is opened there. A Sentinel
/// is refused: ask it for the address of the primary.
///
/// # What a client costs
///
/// A store has one thread and six file descriptors: two for connections to the server, the others for
/// the thread's event loop. With [`wait_for_disk`](RedisStoreBuilder::wait_for_disk), it has a third connection.
/// Clones of a [client](crate::durable::DurableClient), its handles and its executors share the store.
///
/// An idle client sends 8 commands a minute. An idle worker sends 14: it looks for tasks every 7.5 s (with
/// the default lease of ten seconds; less often with a longer one), removes expired results twice a minute,
/// and pings connections that are otherwise silent.
///
/// # Permissions
///
/// The URL may name a user. The user needs access to the keys `throng:*` and the channels `throng:*`, and to these
/// commands: those on hashes, lists, sets, sorted sets and scripts, and `PUBLISH`, `SUBSCRIBE`, `PUBSUB NUMSUB`,
/// `EXISTS`, `TIME`, `PING` and `HELLO`:
///
/// ```text
/// ACL SETUSER worker on >password ~throng:* resetchannels &throng:* +@hash +@list +@set
///     +@sortedset +@scripting +@connection +exists +time +publish +subscribe +pubsub|numsub +info
///     +config|get
/// ```
///
/// Without `INFO` and `CONFIG GET`, the [durability](Durability) is unknown, and a server that evicts
/// keys when it is full is not refused. Without `INFO`, a restart or a promotion of the server is not detected, and
/// [fencing tokens](crate::durable::TaskContext::fencing_token) may fall if the server's clock is behind. Without
/// access to the channels, workers poll for tasks twice a second.
///
/// # Examples
///
/// ```no_run
/// use throng::durable::{DurableClient, RedisStore};
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let client = DurableClient::open(RedisStore::open("redis://127.0.0.1/").await?);
/// # drop(client);
/// # Ok(()) }
/// ```
pub struct RedisStore {
    inner: Arc<Inner>,
    runtime: Handle,
    events: Mutex<Option<mpsc::UnboundedReceiver<Event>>>,
    /// Ends the thread when the store is dropped.
    _thread: DropGuard,
}

impl RedisStore {
    /// Opens the store at `url`: `redis://user:password@host:port/database`, the same with `rediss://` for
    /// TLS (feature `redis-tls`), or `redis+unix:///path` for a Unix socket.
    ///
    /// # Errors
    ///
    /// - if `url` is not a valid address ([`is_invalid`](DurableError::is_invalid));
    /// - if the server cannot be reached;
    /// - if it does not let the user log in or run scripts ([`is_denied`](DurableError::is_denied));
    /// - if the server is older than 6.2, evicts keys when it is full, is a Sentinel, or is a cluster node
    ///   that does not own the store's slot ([`is_unfit`](DurableError::is_unfit));
    /// - if the server is less durable than the builder [requires](RedisStoreBuilder::require)
    ///   ([`is_not_durable`](DurableError::is_not_durable));
    /// - if a version of this crate with an older layout has written the keys
    ///   ([`is_older_layout`](DurableError::is_older_layout)), or one with a newer layout
    ///   ([`is_newer_layout`](DurableError::is_newer_layout)).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind.
    pub async fn open(url: &str) -> Result<Self, DurableError> {
        Self::builder(url).open().await
    }

    /// Returns a builder for a store with other than the default settings.
    pub fn builder(url: &str) -> RedisStoreBuilder {
        RedisStoreBuilder::new(url)
    }

    /// Asks the server for its version and its settings, which determine how durable its writes are and whether
    /// tasks are safe there.
    ///
    /// # Errors
    ///
    /// Fails if the server does not answer.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub async fn report(&self) -> Result<RedisReport, DurableError> {
        let report = self.ask(|inner| async move { probe::report(&inner).await });
        let name = &self.inner.name;
        report
            .await
            .map_err(|failure| DurableError::store(name, None, failure))
    }

    /// Opens the store with a source of time.
    pub(crate) async fn open_as(
        builder: &RedisStoreBuilder,
        time: Time,
    ) -> Result<Self, DurableError> {
        let info = builder.url.as_str().into_connection_info();
        let named = info.as_ref().map(|info| name_of(info, &builder.namespace));
        let name: Arc<str> = named.unwrap_or_else(|_| String::from("redis")).into();
        let opened = match info {
            Ok(info) => Self::try_open(builder, info, &name, time).await,
            Err(error) => Err(not_connected(error)),
        };
        let store = opened.map_err(|failure| DurableError::store(&name, None, failure))?;
        store.require(builder.required).await?;
        Ok(store)
    }

    /// Refuses a server that is less durable than required.
    async fn require(&self, level: Durability) -> Result<(), DurableError> {
        if level == Durability::Unknown {
            return Ok(());
        }
        let found = self.report().await?.durability;
        match found >= level {
            true => Ok(()),
            false => Err(DurableError::not_durable(&self.inner.name, found, level)),
        }
    }

    async fn try_open(
        builder: &RedisStoreBuilder,
        info: ConnectionInfo,
        name: &Arc<str>,
        time: Time,
    ) -> Result<Self, Failure> {
        let stop = CancellationToken::new();
        let runtime = start_thread(stop.clone())?;
        let thread = stop.drop_guard();
        let (sender, events) = mpsc::unbounded_channel();
        time.watch(&sender);
        let store = Self {
            inner: Arc::new(Inner::start(builder, info, name, time, &runtime, sender)?),
            runtime,
            events: Mutex::new(Some(events)),
            _thread: thread,
        };
        let allow_eviction = builder.allow_eviction;
        store
            .ask(move |inner| async move { inner.begin(allow_eviction).await })
            .await?;
        Ok(store)
    }

    /// Runs a future on the store's thread.
    fn ask<T, F>(&self, work: impl FnOnce(Arc<Inner>) -> F) -> Answer<'static, T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Failure>> + Send + 'static,
    {
        link::spawn(&self.runtime, work(Arc::clone(&self.inner)))
    }

    /// The id by which other processes send messages to this one.
    #[cfg(test)]
    pub(crate) fn client_id(&self) -> &str {
        &self.inner.client_id
    }
}

impl From<RedisStore> for Store {
    fn from(store: RedisStore) -> Self {
        Self::new(store)
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("name", &self.inner.name)
            .field("is_connected", &self.inner.link.is_up())
            .field("mail", &self.inner.mail())
            .finish_non_exhaustive()
    }
}

impl Backend for RedisStore {
    fn name(&self) -> &str {
        &self.inner.name
    }

    fn runtime(&self) -> Option<&Handle> {
        Some(&self.runtime)
    }

    fn events(&self) -> mpsc::UnboundedReceiver<Event> {
        let events = lock(&self.events).take();
        events.unwrap_or_else(|| mpsc::unbounded_channel().1)
    }

    fn open_session(&self, set: Option<TypeSet>) -> Answer<'_, SessionId> {
        self.ask(|inner| async move { inner.open_session(set).await })
    }

    fn close_session(&self, session: SessionId) -> Answer<'_, ()> {
        self.ask(move |inner| async move { inner.close_session(session).await })
    }

    fn enqueue(&self, request: Arc<Enqueue>) -> Answer<'_, ()> {
        self.ask(move |inner| async move { inner.enqueue(&request).await })
    }

    fn turn(&self, request: Arc<Turn>) -> Answer<'_, TurnAnswer> {
        self.ask(move |inner| async move { turns::turn(&inner, &request).await })
    }

    fn renew(&self, claims: Vec<Epoch>) -> Answer<'_, RenewAnswer> {
        self.ask(move |inner| async move { inner.renew(claims).await })
    }

    fn status(&self, ids: Vec<TaskId>) -> Answer<'_, Vec<TaskState>> {
        self.ask(move |inner| async move { admin::status(&inner, &ids).await })
    }

    fn cancel(&self, ids: Vec<TaskId>) -> Answer<'_, u64> {
        self.ask(move |inner| async move { admin::cancel(&inner, &ids).await })
    }

    fn dead_letters(&self, filter: DeadFilter, limit: usize) -> Answer<'_, Vec<DeadLetter>> {
        self.ask(move |inner| async move { admin::dead_letters(&inner, &filter, limit).await })
    }

    fn replay_dead_letters(&self, filter: DeadFilter) -> Answer<'_, u64> {
        self.ask(move |inner| async move { admin::revive(&inner, "replay", &filter).await })
    }

    fn delete_dead_letters(&self, filter: DeadFilter) -> Answer<'_, u64> {
        self.ask(move |inner| async move { admin::revive(&inner, "delete", &filter).await })
    }

    fn maintain(&self, budget: usize) -> Answer<'_, bool> {
        self.ask(move |inner| async move { inner.maintain(budget).await })
    }

    fn errors(&self, id: TaskId) -> Answer<'_, Vec<AttemptError>> {
        self.ask(move |inner| async move { admin::errors(&inner, id).await })
    }

    fn counts(&self) -> Answer<'_, Counts> {
        self.ask(|inner| async move { inner.counts().await })
    }

    fn health(&self) -> Health {
        match (self.inner.link.trouble(), self.inner.mail()) {
            (Some(trouble), _) => Health::Unreachable(trouble),
            (None, Mail::Comes) => Health::Well,
            (None, _) => Health::Mute,
        }
    }

    fn damage(&self) -> Option<(u64, String)> {
        self.inner.damage()
    }

    fn probe(&self) -> Answer<'_, Durability> {
        self.ask(|inner| async move { Ok(probe::report(&inner).await?.durability) })
    }
}

/// Returns the store's name in messages, which does not contain the password.
fn name_of(info: &ConnectionInfo, namespace: &str) -> String {
    let (address, database) = (info.addr(), info.redis_settings().db());
    format!("redis://{address}/{database} ({namespace})")
}

/// Starts a thread that drives the connections until `stop` is cancelled.
fn start_thread(stop: CancellationToken) -> Result<Handle, Failure> {
    let (sender, receiver) = std::sync::mpsc::channel();
    let thread = thread::Builder::new().name("throng-redis".into());
    // The thread creates the runtime, and drops it: the caller may be in another runtime, where that is not allowed.
    let started = thread.spawn(move || {
        let Ok(runtime) = runtime::Builder::new_current_thread().enable_all().build() else {
            return;
        };
        sender.send(runtime.handle().clone()).ok();
        runtime.block_on(stop.cancelled());
    });
    let failure = |error| Failure::new(Effect::None, Cause::Unavailable).with_source(error);
    started.map_err(failure)?;
    receiver.recv().map_err(|_| no_connection())
}
