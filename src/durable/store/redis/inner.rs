//! [`Inner`]: the shared state of a store, with which requests run scripts.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::sync::mpsc;

use super::address::ConnectTarget;
use super::births::Births;
use super::builder::RedisStoreBuilder;
use super::connection::ScriptCall;
use super::connector::Connector;
use super::copies::Copies;
use super::epochs::AdvanceEpochs;
use super::error::is_unreachable;
use super::keys::{self, Keys};
use super::node::NodeSettings;
use super::nodes::{NodeWait, Nodes};
use super::partitions::Partitions;
use super::recorded_types::RecordedTypes;
use super::relays::Relays;
use super::routes_cache::RoutesCache;
use super::scripts::{Arguments, Script, Scripts};
use super::server_clock::ServerClock;
use super::session_state::Sessions;
use super::subscriber::Subscription;
use super::tail::Tail;
use super::time::Time;
use crate::durable::TaskId;
use crate::durable::clock::millis;
use crate::durable::failure::{Effect, Failure};
use crate::durable::store::{Event, Rewind};
use crate::sync::{Mutex, lock};

/// The shared state of a store.
pub(super) struct Inner {
    pub(super) name: Arc<str>,
    pub(super) namespace: String,
    pub(super) nodes: Arc<Nodes>,
    /// The number of replicas that must have a write.
    pub(super) replicas: usize,
    /// `true` if acknowledged writes may not be on the disk yet. It is unset until the server was asked.
    pub(super) has_to_wait: OnceLock<bool>,
    pub(super) scripts: &'static Scripts,
    /// The keys of each partition.
    keys: Vec<Keys>,
    pub(super) partitions: Partitions,
    /// The id by which others send messages to this process, of eight characters.
    pub(super) client_id: String,
    /// Sends events to the engine, unless this process only observes.
    events: Option<mpsc::UnboundedSender<Event>>,
    time: Time,
    pub(super) clock: Arc<ServerClock>,
    pub(super) sessions: Arc<Sessions>,
    pub(super) routes: RoutesCache,
    pub(super) types: RecordedTypes,
    pub(super) relays: Relays,
    /// The last tasks that this process has stored.
    pub(super) tail: Tail,
    pub(super) births: Births,
    /// `true` if the server may evict any key.
    pub(super) allow_eviction: bool,
    /// The damage that the last pass of maintenance found in each partition.
    pub(super) damage: Mutex<Vec<(u64, String)>>,
    /// The difference between the server's clock and the time since this machine was started, in milliseconds.
    clock_offset: Mutex<i64>,
}

impl Inner {
    /// Connects to the server, or to the nodes of its cluster. Without a sender of events, the process receives no messages.
    pub(super) async fn connect(
        builder: RedisStoreBuilder,
        target: ConnectTarget,
        name: Arc<str>,
        time: Time,
        events: Option<mpsc::UnboundedSender<Event>>,
    ) -> Result<Self, Failure> {
        let partitions = Partitions::new(builder.partitions);
        let bases: Vec<_> = partitions
            .all()
            .map(|partition| keys::base(&builder.namespace, partition))
            .collect();
        let client_id = new_client_id();
        let channel = |base: &String| keys::channel(base, &client_id);
        let (clock, sessions) = (Arc::default(), Arc::default());
        let settings = NodeSettings {
            has_waiting: builder.wait_for_disk || builder.wait_for_replicas > 0,
            channels: bases.iter().map(channel).collect(),
            clock: Arc::clone(&clock),
            sessions: Arc::clone(&sessions),
            events: events.clone(),
            requests: Arc::default(),
            is_lost: Arc::default(),
        };
        let is_cluster = target.is_cluster;
        let given = Connector::all(target, builder.timeouts);
        let nodes = Nodes::connect(settings, given, &bases, is_cluster).await?;
        Ok(Self {
            name,
            namespace: builder.namespace,
            scripts: Scripts::of(time.of_scripts(), builder.layouts, nodes.is_cluster()),
            nodes,
            replicas: builder.wait_for_replicas,
            has_to_wait: OnceLock::new(),
            keys: bases.iter().map(|base| Keys::new(base)).collect(),
            partitions,
            client_id,
            events,
            time,
            clock,
            sessions,
            routes: RoutesCache::default(),
            types: RecordedTypes::default(),
            relays: Relays::default(),
            tail: Tail::default(),
            births: Births::default(),
            allow_eviction: builder.allow_eviction,
            damage: Mutex::new(vec![Default::default(); partitions.count()]),
            clock_offset: Mutex::default(),
        })
    }

    /// Runs a script on the keys of a partition.
    pub(super) async fn run(
        &self,
        script: &Script,
        partition: usize,
        arguments: Arguments,
    ) -> Result<Value, Failure> {
        let wait = NodeWait::Full;
        self.run_within(wait, script, partition, arguments).await
    }

    /// Runs a script on the keys of a partition. If there may be others at other nodes, does not wait long for its node: see
    /// [`skips`](Self::skips).
    pub(super) async fn run_part(
        &self,
        script: &Script,
        partition: usize,
        arguments: Arguments,
    ) -> Result<Value, Failure> {
        let wait = self.wait_for_part();
        self.run_within(wait, script, partition, arguments).await
    }

    /// Returns how long a request that concerns several partitions waits for the node of one.
    pub(super) fn wait_for_part(&self) -> NodeWait {
        match self.has_nodes() {
            false => NodeWait::Full,
            true => NodeWait::Part,
        }
    }

    /// Returns `true` if the partitions may be at several nodes.
    fn has_nodes(&self) -> bool {
        self.nodes.is_cluster() && self.partitions.count() > 1
    }

    /// Returns `true` if a request that concerns several partitions is to go on without one that has failed like this: its node cannot be
    /// reached or is not ready, while others may be.
    pub(super) fn skips(&self, failure: &Failure) -> bool {
        self.has_nodes() && is_unreachable(failure)
    }

    pub(super) async fn run_within(
        &self,
        wait: NodeWait,
        script: &Script,
        partition: usize,
        mut arguments: Arguments,
    ) -> Result<Value, Failure> {
        self.time.push_to(&mut arguments);
        let call = ScriptCall {
            script,
            partition,
            keys: &self.keys[partition],
            arguments: &arguments,
            advance: None,
        };
        self.nodes.run(&call, Copies::default(), wait).await
    }

    /// Returns the command that runs a script on the keys of a partition.
    pub(super) fn command(
        &self,
        script: &Script,
        partition: usize,
        mut arguments: Arguments,
    ) -> Cmd {
        self.time.push_to(&mut arguments);
        let keys = script.keys(&self.keys[partition]);
        arguments.command("EVAL", script.text(), keys)
    }

    /// Reports writes that the server has lost to the engine.
    pub(super) fn report(&self, rewind: Rewind) {
        if rewind != Rewind::default() {
            self.events
                .iter()
                .for_each(|events| _ = events.send(Event::Rewound(rewind)));
        }
    }

    /// Runs the script `turn`. Since it may claim, its connection must have advanced the epochs of the partition.
    pub(super) async fn run_turn(
        &self,
        wait: NodeWait,
        partition: usize,
        mut arguments: Arguments,
    ) -> Result<Value, Failure> {
        self.time.push_to(&mut arguments);
        let advance = self.advance_epochs(partition);
        let call = Self::call_after(&self.scripts.turn, &arguments, &advance);
        self.nodes.run(&call, Copies::default(), wait).await
    }

    /// Returns a call of a script on a connection that has advanced the epochs of its partition.
    fn call_after<'a>(
        script: &'a Script,
        arguments: &'a Arguments,
        advance: &'a AdvanceEpochs<'a>,
    ) -> ScriptCall<'a> {
        ScriptCall {
            script,
            partition: advance.partition,
            keys: advance.keys,
            arguments,
            advance: Some(advance),
        }
    }

    /// Returns the request that a connection sends before its first claim in a partition.
    fn advance_epochs(&self, partition: usize) -> AdvanceEpochs<'_> {
        AdvanceEpochs {
            script: &self.scripts.advance_epochs,
            time: &self.time,
            keys: &self.keys[partition],
            partition,
        }
    }

    /// Runs a script that stores tasks or schedules, and may claim tasks for an idle session. If the store is to wait for the disk, returns
    /// when they are on the disk.
    pub(super) async fn run_storing(
        &self,
        script: &Script,
        partition: usize,
        mut arguments: Arguments,
    ) -> Result<Value, Failure> {
        self.time.push_to(&mut arguments);
        let advance = self.advance_epochs(partition);
        let call = Self::call_after(script, &arguments, &advance);
        let wait = NodeWait::Full;
        self.nodes.run(&call, self.copies(), wait).await
    }

    /// Returns `true` if the store receives the messages of all partitions.
    pub(super) fn is_subscribed(&self) -> bool {
        self.nodes.subscription() == Subscription::Active
    }

    /// Returns the copies of a write for which its request waits.
    fn copies(&self) -> Copies {
        Copies {
            on_disk: self.waits_for_disk(),
            replicas: self.replicas,
        }
    }

    /// Returns `true` if answers are delayed until the writes that they acknowledge are on the disk.
    pub(super) fn waits_for_disk(&self) -> bool {
        self.has_to_wait.get() == Some(&true)
    }

    /// Returns the time since this machine was started.
    pub(super) fn since_boot(&self) -> Duration {
        self.time.since_boot()
    }

    /// Returns the estimated time of the server's clock, in milliseconds since 1970.
    pub(super) fn server_time(&self) -> u64 {
        let offset = *lock(&self.clock_offset);
        u64::try_from(millis(self.time.since_boot()) as i64 + offset).unwrap_or_default()
    }

    /// Records the time of the server's clock.
    pub(super) fn set_server_time(&self, time: i64) {
        *lock(&self.clock_offset) = time - millis(self.time.since_boot()) as i64;
    }
}

/// Returns the failure of a request of which this number of parts has succeeded.
pub(super) fn after_others(mut failure: Failure, others: usize) -> Failure {
    if others > 0 {
        failure.effect = Effect::Unknown;
    }
    failure
}

/// Returns a random client id.
fn new_client_id() -> String {
    const LETTERS: &[u8; 64] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_";
    let random = &TaskId::new().to_bytes()[8..];
    random
        .iter()
        .map(|byte| char::from(LETTERS[usize::from(byte % 64)]))
        .collect()
}
