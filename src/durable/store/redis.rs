//! [`RedisStore`]: tasks in Redis.
//!
//! Whatever changes something is a [script](scripts): it runs as a whole, and the server's clock is the
//! only one that counts. A thread of the store drives its two connections: one by which requests
//! [go](link), and one on which the process is [told](mail) what happens. Both are made again whenever
//! they break; a request whose answer is lost has an unknown effect, and is sent again by the engine,
//! under the same number.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::{Client, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, Value};
use tokio::runtime::{self, Handle};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

pub use self::builder::RedisStoreBuilder;
use self::error::{no_connection, not_connected};
use self::link::{Arguments, Link, Times};
use self::mail::{Mail, Postman};
use self::scripts::{Script, Scripts};
use super::{Answer, Backend, Beaten, Enqueue, Epoch, Event, Seen, SessionId, Store, Turn, Turned};
use crate::durable::error::{Cause, Effect, Failure};
use crate::durable::{Counts, DeadFilter, DeadLetter, Durability, DurableError, TaskId};
use crate::sync::{Mutex, lock, thread};

mod admin;
mod builder;
mod entry;
mod error;
mod keys;
mod link;
mod mail;
mod probe;
mod reply;
mod request;
mod scripts;
#[cfg(test)]
pub(super) mod tests;

/// How soon a worker looks again to whom nobody can tell that there is something to do.
const WHILE_UNREACHABLE: Duration = Duration::from_millis(500);

/// How many claims are renewed at once: each may have a batch of tasks that are to be cancelled.
const MAX_BEATS: usize = 16;

/// Tasks in Redis, for the processes of many machines.
///
/// The server is Redis 6.2 or later, or Valkey. It may be one that a program uses already: all keys
/// begin with `throng:`.
///
/// # What is promised
///
/// - What was answered is as durable as the server makes it: see [`Durability`]. With `appendonly yes`
///   and `appendfsync always`, it is on the disk.
/// - A process that ends, however it ends, loses its tasks to others when their lease is over: after
///   ten seconds, unless the executor was built with another one.
/// - When the server cannot be reached, requests wait, and fail after some seconds; connections are made
///   again by themselves, for as long as it takes.
/// - Only the server's clock counts. Setting that moves what is due, and loses nothing.
/// - When the server has no memory left, nothing more can be stored; what is there is still run.
/// - Keys of a newer version of this crate are not touched.
///
/// # What the user of the server may do
///
/// The URL may name a user. Of commands, it needs those on hashes, lists, sets, sorted sets and scripts,
/// and `PUBLISH`, `SUBSCRIBE`, `PUBSUB NUMSUB`, `EXISTS`, `TIME`, `PING` and `HELLO`; of keys `throng:*`, of channels
/// `throng:*`:
///
/// ```text
/// ACL SETUSER worker on >password ~throng:* resetchannels &throng:* +@hash +@list +@set
///     +@sortedset +@scripting +@connection +exists +time +publish +subscribe +pubsub|numsub +info
///     +config|get
/// ```
///
/// Without `INFO` and `CONFIG GET`, the [durability](Durability) is unknown, and a server that removes
/// keys when it is full is not refused. Without the right to the channels, workers look for tasks twice
/// a second.
///
/// # Examples
///
/// ```no_run
/// use throng::durable::{DurableClient, RedisStore};
///
/// # async fn open() -> Result<(), Box<dyn std::error::Error>> {
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

/// What the requests share.
struct Inner {
    name: Arc<str>,
    link: Arc<Link>,
    scripts: Scripts,
    /// The name of this process, for those who tell it something: eight letters.
    mailbox: String,
    mail: watch::Receiver<Mail>,
    time: Time,
}

/// What time a store goes by.
#[derive(Clone, Debug)]
pub(crate) struct Time {
    #[cfg(test)]
    told: Option<crate::durable::clock::Clock>,
}

impl Time {
    /// The server's.
    pub(crate) fn machine() -> Self {
        Self {
            #[cfg(test)]
            told: None,
        }
    }

    #[cfg(not(test))]
    fn of_scripts(&self) -> scripts::Time {
        scripts::Time::Server
    }

    #[cfg(not(test))]
    fn tell(&self, _: &mut Arguments) {}

    #[cfg(not(test))]
    fn watch(&self, _: &mpsc::UnboundedSender<Event>) {}
}

#[cfg(test)]
impl Time {
    /// That of a test, which tells it to the scripts.
    pub(crate) fn told(clock: crate::durable::clock::Clock) -> Self {
        Self { told: Some(clock) }
    }

    fn of_scripts(&self) -> scripts::Time {
        match self.told {
            Some(_) => scripts::Time::Told,
            None => scripts::Time::Server,
        }
    }

    fn tell(&self, arguments: &mut Arguments) {
        if let Some(clock) = &self.told {
            arguments.number(clock.wall().as_micros());
        }
    }

    /// Has everybody look when time has passed.
    fn watch(&self, events: &mpsc::UnboundedSender<Event>) {
        if let Some(clock) = &self.told {
            let events = events.clone();
            clock.watch(move || events.send(Event::Wake).is_ok());
        }
    }
}

impl RedisStore {
    /// Opens the store at `url`: `redis://user:password@host:port/database`, or with `rediss://` over
    /// TLS (feature `redis-tls`), or `redis+unix:///path` by a socket of this machine.
    ///
    /// # Errors
    ///
    /// - if the server cannot be reached;
    /// - if it does not let the user in, or run scripts ([`is_denied`](DurableError::is_denied));
    /// - if it is older than 6.2, or removes keys when it is full
    ///   ([`is_unfit`](DurableError::is_unfit));
    /// - if a newer version of this crate has laid out the keys
    ///   ([`is_newer_layout`](DurableError::is_newer_layout)).
    ///
    /// # Cancel safety
    ///
    /// Nothing is left behind if the future is dropped.
    pub async fn open(url: &str) -> Result<Self, DurableError> {
        Self::builder(url).open().await
    }

    /// Opens a store otherwise than by default.
    pub fn builder(url: &str) -> RedisStoreBuilder {
        RedisStoreBuilder::new(url)
    }

    /// Opens it to go by a time.
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
        opened.map_err(|failure| DurableError::store(&name, None, failure))
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

    /// Does something on the thread of the store.
    fn ask<T, F>(&self, work: impl FnOnce(Arc<Inner>) -> F) -> Answer<'static, T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Failure>> + Send + 'static,
    {
        link::spawn(&self.runtime, work(Arc::clone(&self.inner)))
    }

    /// The name by which others tell this process something.
    #[cfg(test)]
    pub(crate) fn mailbox(&self) -> &str {
        &self.inner.mailbox
    }
}

impl Inner {
    fn start(
        builder: &RedisStoreBuilder,
        info: ConnectionInfo,
        name: &Arc<str>,
        time: Time,
        runtime: &Handle,
        events: mpsc::UnboundedSender<Event>,
    ) -> Result<Self, Failure> {
        let (requests, pushes) = clients(info, builder.times).map_err(not_connected)?;
        let base = keys::base(&builder.namespace);
        let mailbox = mailbox();
        let (state, mail) = watch::channel(Mail::Unknown);
        let postman = Postman {
            client: pushes,
            times: builder.times,
            channel: keys::channel(&base, &mailbox),
            events,
            state: Arc::new(state),
        };
        let _entered = runtime.enter();
        tokio::spawn(postman.run());
        Ok(Self {
            name: Arc::clone(name),
            link: Link::start(requests, builder.times),
            scripts: Scripts::new(&base, time.of_scripts()),
            mailbox,
            mail,
            time,
        })
    }

    /// Sees whether the server will do, and writes down the layout if nobody has.
    async fn begin(&self, allow_eviction: bool) -> Result<(), Failure> {
        self.link.connected().await?;
        probe::refuse_unfit(self, allow_eviction).await?;
        let mut arguments = Arguments::default();
        arguments.push("");
        self.run(&self.scripts.open, arguments).await?;
        let mut mail = self.mail.clone();
        mail.wait_for(|mail| *mail != Mail::Unknown).await.ok();
        Ok(())
    }

    async fn run(&self, script: &Script, mut arguments: Arguments) -> Result<Value, Failure> {
        self.time.tell(&mut arguments);
        self.link.run(script, &arguments).await
    }

    fn mail(&self) -> Mail {
        *self.mail.borrow()
    }

    /// Begins a session under a number that nobody else draws.
    async fn open_session(&self) -> Result<SessionId, Failure> {
        let mut bytes = [0; 8];
        // Its last bytes are random.
        bytes.copy_from_slice(&TaskId::new().to_bytes()[8..]);
        let session = SessionId::from_be_bytes(bytes);
        let mut arguments = Arguments::default();
        arguments.number(session);
        arguments.push(&*self.mailbox);
        match self.run(&self.scripts.open, arguments).await {
            // It is there: an answer was lost, and the request was sent again.
            Err(failure) if failure.cause == Cause::NoSession => Err(no_connection()),
            opened => opened.map(|_| session),
        }
    }

    async fn close_session(&self, session: SessionId) -> Result<(), Failure> {
        let mut cursor = b"0".to_vec();
        while !cursor.is_empty() {
            let mut arguments = Arguments::default();
            arguments.number(session);
            arguments.push(&*self.mailbox);
            arguments.push(cursor);
            let answer = self.run(&self.scripts.close, arguments).await?;
            cursor = reply::bytes(answer)?;
        }
        Ok(())
    }

    async fn enqueue(&self, request: &Enqueue) -> Result<(), Failure> {
        let arguments = request::enqueue(request, &self.mailbox);
        self.run(&self.scripts.enqueue, arguments).await.map(drop)
    }

    async fn turn(&self, request: &Turn) -> Result<Turned, Failure> {
        let is_reachable = self.mail() == Mail::Comes;
        let (arguments, places) =
            request::turn(request, &self.mailbox, request.park && is_reachable);
        let answer = self.run(&self.scripts.turn, arguments).await?;
        let (mut turned, mut refused) = reply::turned(answer)?;
        // In the order in which they were asked.
        refused
            .iter_mut()
            .for_each(|place| *place = places.get(*place - 1).copied().unwrap_or_default());
        refused.sort_unstable();
        let verdicts: Vec<_> = request.verdicts.iter().flat_map(|it| &it.tasks).collect();
        turned.refused = refused
            .into_iter()
            .filter_map(|place| verdicts.get(place).map(|it| it.0))
            .collect();
        if let Some(claim) = &mut turned.claim
            && claim.tasks.is_empty()
        {
            turned.claim = None;
        }
        if request.park && !is_reachable && self.mail() != Mail::Comes {
            turned.next = Some(
                turned
                    .next
                    .map_or(WHILE_UNREACHABLE, |next| next.min(WHILE_UNREACHABLE)),
            );
        }
        Ok(turned)
    }

    async fn beat(&self, claims: &[Epoch]) -> Result<Beaten, Failure> {
        let mut beaten = Beaten::default();
        for claims in claims.chunks(MAX_BEATS) {
            let mut arguments = Arguments::default();
            arguments.number(claims.len());
            claims
                .iter()
                .for_each(|&epoch| arguments.push(reply::epoch_text(epoch)));
            let answer = self.run(&self.scripts.beat, arguments).await?;
            let (lost, cancelled) = reply::beaten(answer)?;
            beaten.lost.extend(lost);
            beaten.cancelled.extend(cancelled);
        }
        Ok(beaten)
    }

    async fn maintain(&self, budget: usize) -> Result<bool, Failure> {
        let mut arguments = Arguments::default();
        arguments.number(budget);
        let answer = self.run(&self.scripts.maintain, arguments).await?;
        Ok(reply::number(&answer)? != 0)
    }

    async fn counts(&self) -> Result<Counts, Failure> {
        reply::counts(self.run(&self.scripts.counts, Arguments::default()).await?)
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

    fn events(&self) -> mpsc::UnboundedReceiver<Event> {
        let events = lock(&self.events).take();
        events.unwrap_or_else(|| mpsc::unbounded_channel().1)
    }

    fn open_session(&self) -> Answer<'_, SessionId> {
        self.ask(|inner| async move { inner.open_session().await })
    }

    fn close_session(&self, session: SessionId) -> Answer<'_, ()> {
        self.ask(move |inner| async move { inner.close_session(session).await })
    }

    fn enqueue(&self, request: Arc<Enqueue>) -> Answer<'_, ()> {
        self.ask(move |inner| async move { inner.enqueue(&request).await })
    }

    fn turn(&self, request: Arc<Turn>) -> Answer<'_, Turned> {
        self.ask(move |inner| async move { inner.turn(&request).await })
    }

    fn beat(&self, claims: Vec<Epoch>) -> Answer<'_, Beaten> {
        self.ask(move |inner| async move { inner.beat(&claims).await })
    }

    fn look(&self, ids: Vec<TaskId>) -> Answer<'_, Vec<Seen>> {
        self.ask(move |inner| async move { admin::look(&inner, &ids).await })
    }

    fn cancel(&self, ids: Vec<TaskId>) -> Answer<'_, u64> {
        self.ask(move |inner| async move { admin::cancel(&inner, &ids).await })
    }

    fn dead(&self, filter: DeadFilter, limit: usize) -> Answer<'_, Vec<DeadLetter>> {
        self.ask(move |inner| async move { admin::dead(&inner, &filter, limit).await })
    }

    fn replay(&self, filter: DeadFilter) -> Answer<'_, u64> {
        self.ask(move |inner| async move { admin::revive(&inner, "replay", &filter).await })
    }

    fn bury(&self, filter: DeadFilter) -> Answer<'_, u64> {
        self.ask(move |inner| async move { admin::revive(&inner, "bury", &filter).await })
    }

    fn maintain(&self, budget: usize) -> Answer<'_, bool> {
        self.ask(move |inner| async move { inner.maintain(budget).await })
    }

    fn counts(&self) -> Answer<'_, Counts> {
        self.ask(|inner| async move { inner.counts().await })
    }

    fn probe(&self) -> Answer<'_, Durability> {
        self.ask(|inner| async move { probe::durability(&inner).await })
    }
}

/// What messages call the store: without the password.
fn name_of(info: &ConnectionInfo, namespace: &str) -> String {
    let (address, database) = (info.addr(), info.redis_settings().db());
    format!("redis://{address}/{database} ({namespace})")
}

/// A name that no other process draws.
fn mailbox() -> String {
    const LETTERS: &[u8; 64] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_";
    let random = &TaskId::new().to_bytes()[8..];
    random
        .iter()
        .map(|byte| char::from(LETTERS[usize::from(byte % 64)]))
        .collect()
}

/// Makes what connects, for requests and for what is pushed.
fn clients(info: ConnectionInfo, times: Times) -> redis::RedisResult<(Client, Client)> {
    use redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
    // Whole seconds, at least one.
    let alive = times.answer.max(Duration::from_secs(1));
    let keepalive = TcpKeepalive::new().with_time(alive).with_interval(alive);
    let tcp = TcpSettings::default()
        .set_nodelay(true)
        .set_keepalive(keepalive);
    let info = info.set_tcp_settings(tcp);
    let pushing = info
        .redis_settings()
        .clone()
        .set_protocol(ProtocolVersion::RESP3);
    let pushing = info.clone().set_redis_settings(pushing);
    Ok((Client::open(info)?, Client::open(pushing)?))
}

/// Starts a thread that drives the connections until `stop` is cancelled.
fn start_thread(stop: CancellationToken) -> Result<Handle, Failure> {
    let (sender, receiver) = std::sync::mpsc::channel();
    let thread = thread::Builder::new().name("throng-redis".into());
    // Made there: a runtime must not be dropped where the caller may be, in another.
    let started = thread.spawn(move || {
        let Ok(runtime) = runtime::Builder::new_current_thread().enable_all().build() else {
            return;
        };
        sender.send(runtime.handle().clone()).ok();
        runtime.block_on(stop.cancelled());
    });
    let failure = |error| Failure::new(Effect::None, Cause::Unavailable).because(error);
    started.map_err(failure)?;
    receiver.recv().map_err(|_| no_connection())
}
