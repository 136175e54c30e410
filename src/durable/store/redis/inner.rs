//! [`Inner`]: the shared state of a store, and its requests to the partitions.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use redis::{Client, ConnectionInfo, ProtocolVersion, Value};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};

use super::builder::RedisStoreBuilder;
use super::error::{no_connection, not_connected};
use super::keys::{self, Keys};
use super::link::{Arguments, Link, Times};
use super::mail::{Mail, Postman};
use super::partitions::{self, Partitions};
use super::recall::Recall;
use super::reply::Reader;
use super::routing::{RoutesCache, Write};
use super::scripts::{Script, Scripts};
use super::time::Time;
use super::turns::Sessions;
use super::{probe, reply, request, routing};
use crate::durable::clock::millis;
use crate::durable::failpoint::failpoint;
use crate::durable::failure::{Cause, Effect, Failure};
use crate::durable::store::kind::{SetId, TypeSet};
use crate::durable::store::{Enqueue, Epoch, Event, RenewAnswer, SessionId};
use crate::durable::{Counts, TaskId};
use crate::sync::{Mutex, lock};

/// How many claims are renewed at once: each may have a batch of tasks that are to be cancelled.
pub(super) const MAX_BEATS: usize = 16;

/// How often a set is declared for one session: somebody may remove it before the session is opened.
const MAX_DECLARATIONS: usize = 10;

/// What the requests of a store share.
pub(super) struct Inner {
    pub(super) name: Arc<str>,
    pub(super) link: Arc<Link>,
    /// For requests that wait until they are on the disk: they keep those waiting that come behind them.
    disk: Option<Arc<Link>>,
    /// Whether there is something to wait for; until the server was asked, nobody knows.
    has_to_wait: OnceLock<bool>,
    pub(super) scripts: &'static Scripts,
    /// The keys of each partition.
    keys: Vec<Keys>,
    pub(super) partitions: Partitions,
    /// The name of this process, for those who tell it something: eight letters.
    pub(super) client_id: String,
    mail: watch::Receiver<Mail>,
    time: Time,
    pub(super) sessions: Sessions,
    /// The sets of the sessions of this process.
    sets: Mutex<HashMap<SessionId, SetId>>,
    routes: RoutesCache,
    /// Whether the server may remove any key.
    allow_eviction: bool,
    /// The damage that the last pass of maintenance reported for each partition.
    damage: Mutex<Vec<(u64, String)>>,
    /// The lead of the server's clock over the time since this machine was started, in milliseconds.
    ahead: Mutex<i64>,
}

impl Inner {
    pub(super) fn start(
        builder: &RedisStoreBuilder,
        info: ConnectionInfo,
        name: &Arc<str>,
        time: Time,
        runtime: &Handle,
        events: mpsc::UnboundedSender<Event>,
    ) -> Result<Self, Failure> {
        let (requests, pushes) = clients(info, builder.times).map_err(not_connected)?;
        let partitions = Partitions::new(builder.partitions);
        let bases: Vec<_> = partitions
            .all()
            .map(|partition| keys::base(&builder.namespace, partition))
            .collect();
        let client_id = client_id();
        let (state, mail) = watch::channel(Mail::Unknown);
        let (doubts, doubted) = watch::channel(());
        let postman = Postman {
            client: pushes,
            times: builder.times,
            channels: bases
                .iter()
                .map(|base| keys::channel(base, &client_id))
                .collect(),
            events,
            state: Arc::new(state),
            doubts,
        };
        let _entered = runtime.enter();
        tokio::spawn(postman.run());
        let link = || Link::start(requests.clone(), builder.times, doubted.clone());
        Ok(Self {
            name: Arc::clone(name),
            link: link(),
            disk: builder.wait_for_disk.then(link),
            has_to_wait: OnceLock::new(),
            scripts: Scripts::of(time.of_scripts()),
            keys: bases.iter().map(|base| Keys::new(base)).collect(),
            partitions,
            client_id,
            mail,
            time,
            sessions: Sessions::default(),
            sets: Mutex::default(),
            routes: RoutesCache::default(),
            allow_eviction: builder.allow_eviction,
            damage: Mutex::new(vec![Default::default(); partitions.count()]),
            ahead: Mutex::default(),
        })
    }

    /// Sees whether the server will do, and writes down the layout if nobody has.
    pub(super) async fn begin(&self, allow_eviction: bool) -> Result<(), Failure> {
        self.link.connected().await?;
        probe::refuse_unfit(self, allow_eviction).await?;
        if self.disk.is_some() {
            let has_to_wait = probe::can_wait_for_disk(self).await?;
            self.has_to_wait.get_or_init(|| has_to_wait);
        }
        for partition in self.partitions.all() {
            self.open(partition, None, None).await?;
        }
        let mut mail = self.mail.clone();
        mail.wait_for(|mail| *mail != Mail::Unknown).await.ok();
        Ok(())
    }

    /// Runs a script on the keys of a partition.
    pub(super) async fn run(
        &self,
        script: &Script,
        partition: usize,
        mut arguments: Arguments,
    ) -> Result<Value, Failure> {
        self.time.tell(&mut arguments);
        let keys = &self.keys[partition];
        self.link.run(script, keys, &arguments).await
    }

    /// Runs a turn. Since it may claim, it runs on a connection that has recalled the epochs of the partition.
    pub(super) async fn run_turn(
        &self,
        partition: usize,
        mut arguments: Arguments,
    ) -> Result<Value, Failure> {
        self.time.tell(&mut arguments);
        let recall = Recall {
            script: &self.scripts.recall,
            time: &self.time,
            keys: &self.keys[partition],
            partition,
        };
        let script = &self.scripts.turn;
        self.link.run_recalled(script, &arguments, &recall).await
    }

    pub(super) fn mail(&self) -> Mail {
        *self.mail.borrow()
    }

    /// Whether answers wait until what they say is on the disk.
    pub(super) fn waits_for_disk(&self) -> bool {
        self.has_to_wait.get() == Some(&true)
    }

    /// Begins a session under a number that nobody else draws.
    pub(super) async fn open_session(&self, set: Option<TypeSet>) -> Result<SessionId, Failure> {
        let mut bytes = [0; 8];
        // Its last bytes are random.
        bytes.copy_from_slice(&TaskId::new().to_bytes()[8..]);
        let session = SessionId::from_be_bytes(bytes);
        for partition in self.partitions.all() {
            match self.open(partition, Some(session), set.as_ref()).await {
                // It is there: an answer was lost, and the request was sent again.
                Err(failure) if failure.cause == Cause::NoSession => return Err(no_connection()),
                opened => opened?,
            }
        }
        if let Some(set) = set {
            lock(&self.sets).insert(session, set.id());
        }
        Ok(session)
    }

    async fn open(
        &self,
        partition: usize,
        session: Option<SessionId>,
        set: Option<&TypeSet>,
    ) -> Result<(), Failure> {
        for nth in 0..MAX_DECLARATIONS {
            let mut arguments = Arguments::default();
            arguments.push(session.map_or_else(String::new, |session| session.to_string()));
            arguments.push(&*self.client_id);
            arguments.number(self.partitions.count());
            arguments.push(set.map_or_else(Vec::new, |set| set.id().to_bytes().to_vec()));
            let answer = self.run(&self.scripts.open, partition, arguments).await?;
            match (routing::opened(&answer)?, set) {
                (None, Some(set)) => {
                    // If the set is still missing after it was declared, the routes are damaged.
                    let write = if nth == 0 { Write::Changes } else { Write::All };
                    routing::declare(self, partition, set, write).await?;
                }
                (time, _) => {
                    self.learn_time(time);
                    return Ok(());
                }
            }
        }
        // The plan of the set is missing, and declaring the set again does not restore it.
        Err(Failure::new(Effect::None, Cause::Corrupt))
    }

    /// Returns the estimated time of the server's clock, in milliseconds since 1970.
    fn server_time(&self) -> u64 {
        let ahead = *lock(&self.ahead);
        u64::try_from(millis(self.time.since_boot()) as i64 + ahead).unwrap_or_default()
    }

    fn learn_time(&self, time: Option<i64>) {
        if let Some(time) = time {
            *lock(&self.ahead) = time - millis(self.time.since_boot()) as i64;
        }
    }

    pub(super) async fn close_session(&self, session: SessionId) -> Result<(), Failure> {
        self.sessions.forget(session);
        for partition in self.partitions.all() {
            self.close_in(partition, session).await?;
        }
        lock(&self.sets).remove(&session);
        Ok(())
    }

    async fn close_in(&self, partition: usize, session: SessionId) -> Result<(), Failure> {
        let mut cursor = b"0".to_vec();
        while !cursor.is_empty() {
            let mut arguments = Arguments::default();
            arguments.number(session);
            arguments.push(&*self.client_id);
            arguments.push(cursor);
            let answer = self.run(&self.scripts.close, partition, arguments).await?;
            cursor = reply::bytes(answer)?;
            if routing::is_last(&cursor) {
                let set = lock(&self.sets).get(&session).copied();
                // If this fails, its lists do no harm.
                if let Some(set) = set {
                    routing::remove(self, partition, set).await.ok();
                }
                return Ok(());
            }
        }
        Ok(())
    }

    /// Stores tasks: each partition its own, all under the same number.
    pub(super) async fn enqueue(&self, request: &Enqueue) -> Result<(), Failure> {
        let tasks: Vec<_> = request.batch.close().iter().collect();
        let mut parts = self.partitions.split(tasks, |task| task.id);
        if parts.is_empty() {
            // The session may have ended all the same.
            parts.push((0, Vec::new()));
        }
        for (nth, (partition, tasks)) in parts.into_iter().enumerate() {
            let routes = self.routes.get(self, partition).await;
            let now = self.server_time();
            let arguments = request::enqueue(request, &tasks, &self.client_id, &routes, now);
            failpoint("redis.before-enqueue");
            self.store(partition, arguments)
                .await
                .map_err(|failure| after_others(failure, nth))?;
            failpoint("redis.after-enqueue");
        }
        Ok(())
    }

    async fn store(&self, partition: usize, mut arguments: Arguments) -> Result<(), Failure> {
        let (script, keys) = (&self.scripts.enqueue, &self.keys[partition]);
        self.time.tell(&mut arguments);
        let stored = match &self.disk {
            Some(disk) if self.waits_for_disk() => disk.run_to_disk(script, keys, &arguments).await,
            _ => self.link.run(script, keys, &arguments).await,
        };
        if matches!(stored?, Value::BulkString(answer) if answer == b"ROUTES") {
            self.routes.forget(partition);
        }
        Ok(())
    }

    pub(super) async fn renew(&self, claims: Vec<Epoch>) -> Result<RenewAnswer, Failure> {
        let mut beaten = RenewAnswer::default();
        for (partition, claims) in self.partitions.split_claims(claims) {
            for claims in claims.chunks(MAX_BEATS) {
                let (lost, cancelled) = self.beat_in(partition, claims).await?;
                beaten.lost.extend(lost);
                beaten.cancelled.extend(cancelled);
            }
        }
        Ok(beaten)
    }

    async fn beat_in(
        &self,
        partition: usize,
        claims: &[Epoch],
    ) -> Result<(Vec<Epoch>, Vec<TaskId>), Failure> {
        let mut arguments = Arguments::default();
        arguments.number(claims.len());
        for &epoch in claims {
            arguments.push(reply::epoch_text(epoch));
        }
        failpoint("redis.before-beat");
        let answer = self.run(&self.scripts.renew, partition, arguments).await?;
        failpoint("redis.after-beat");
        let (lost, cancelled) = reply::beaten(answer)?;
        let is_lost = |epoch: &Epoch| lost.contains(&partitions::own(*epoch));
        Ok((claims.iter().copied().filter(is_lost).collect(), cancelled))
    }

    pub(super) async fn maintain(&self, budget: usize) -> Result<bool, Failure> {
        let mut more = false;
        for partition in self.partitions.all() {
            let budget = budget.div_ceil(self.partitions.count());
            more |= self.maintain_in(partition, budget).await?;
        }
        Ok(more)
    }

    async fn maintain_in(&self, partition: usize, budget: usize) -> Result<bool, Failure> {
        let mut arguments = Arguments::default();
        arguments.number(budget);
        arguments.number(u8::from(self.allow_eviction));
        arguments.number(self.partitions.count());
        let answer = self.run(&self.scripts.maintain, partition, arguments);
        let mut parts = Reader::new(answer.await?)?;
        let more = parts.number()? != 0;
        let sets = parts.list()?.rest(routing::set)?;
        let found = u64::try_from(parts.number()?).unwrap_or_default();
        lock(&self.damage)[partition] = (found, parts.text()?);
        // If one of these requests fails, a later pass repeats it.
        if parts.number()? != 0 {
            routing::mend(self, partition).await.ok();
        }
        for set in sets {
            routing::remove(self, partition, set).await.ok();
        }
        Ok(more)
    }

    /// Returns the number of rows that were found lately to be damaged, and what is wrong with the last.
    pub(super) fn damage(&self) -> Option<(u64, String)> {
        let damage = lock(&self.damage);
        let (_, last) = damage.iter().rfind(|(found, _)| *found > 0)?;
        Some((damage.iter().map(|(found, _)| found).sum(), last.clone()))
    }

    pub(super) async fn counts(&self) -> Result<Counts, Failure> {
        let mut sums = [0; reply::COUNTS];
        for partition in self.partitions.all() {
            let counts = &self.scripts.counts;
            let answer = self.run(counts, partition, Arguments::default()).await?;
            reply::add_counts(&mut sums, answer)?;
        }
        Ok(reply::counts(&sums))
    }
}

/// The failure of a request after so many others of which it is a part.
pub(super) fn after_others(mut failure: Failure, others: usize) -> Failure {
    if others > 0 {
        failure.effect = Effect::Unknown;
    }
    failure
}

/// A name that no other process draws.
fn client_id() -> String {
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
