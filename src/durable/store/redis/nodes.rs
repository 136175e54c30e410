//! [`Nodes`]: the server of a store, or the nodes of the cluster that have its partitions.
//!
//! All keys of a partition are in one cluster slot. `CLUSTER SLOTS` determines the node of each slot. A node that does not have a slot
//! answers `MOVED` ([`Fault::Elsewhere`]), with the one that has it, which is used from then on. Such an answer also has the owners of all
//! slots read again, as a lost connection does, but at most once in [`REFRESH_INTERVAL`]: while a cluster changes, every request may be
//! redirected.
//!
//! A server that belongs to no cluster is the only node. If Sentinels name it, the connections lead to the one that they name now.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use super::address::ServerAddress;
use super::cluster_slots::{SlotOwners, redirected_to, slot_of};
use super::connection::{Preparation, ScriptCall};
use super::connector::Connector;
use super::copies::Copies;
use super::discovery::{belongs_to_cluster, first_that_answers, read_map, refuse_braces};
use super::error::{Fault, Redirection, is_unreachable, no_answer, no_connection};
use super::link::SendAttempt;
use super::node::{Node, NodeSettings};
use super::sentinel_watcher::SentinelWatcher;
use super::subscriber::Subscription;
use super::timeouts::BACKOFF;
use crate::durable::failure::{Cause, Effect, Failure};
use crate::sync::{Mutex, lock};

/// The minimum time between two requests for the owners of all slots.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);

/// The time that a request spends at a node of a cluster before it looks whether another node has the partition by now.
const ATTEMPT_TIME: Duration = Duration::from_millis(250);

/// The time for which a request waits for one of several partitions whose node cannot be reached or is not ready.
const PART_TIMEOUT: Duration = Duration::from_millis(100);

/// The time for which a request waits for a node that cannot be reached or is not ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeWait {
    /// Until the answer timeout.
    Full,
    /// Not if the node is known to be down, and otherwise for [`PART_TIMEOUT`]: the request concerns other partitions, too.
    Part,
    /// Not at all, since the request has waited for another partition.
    None,
}

/// The server of a store, or the nodes of the cluster that have its partitions.
pub(super) struct Nodes {
    settings: NodeSettings,
    /// The servers that were given. The first is the one that answered when the store was opened.
    given: Vec<Connector>,
    /// The slots of the partitions, or `None` if the server belongs to no cluster.
    slots: Option<Vec<u16>>,
    state: Mutex<NodesState>,
    /// Notified if the owners of slots may have changed.
    refresh: Arc<Notify>,
}

struct NodesState {
    /// The node of each partition.
    owners: Vec<Arc<Node>>,
    /// The nodes with connections: the owners, and others that were asked since the last refresh.
    connected: Vec<Arc<Node>>,
    /// The owners of all slots.
    map: SlotOwners,
}

impl Nodes {
    /// Connects to the first of the given servers that answers. If it belongs to a cluster, finds the nodes of the slots in which the
    /// partitions are. If `is_cluster`, fails unless it does.
    pub(super) async fn connect(
        settings: NodeSettings,
        mut given: Vec<Connector>,
        bases: &[String],
        is_cluster: bool,
    ) -> Result<Arc<Self>, Failure> {
        if let Some(sentinels) = given.first().and_then(Connector::sentinels) {
            SentinelWatcher::watch_all(sentinels, given[0].timeouts.ping_interval);
        }
        let (nth, first) = first_that_answers(&settings, &given).await?;
        given.swap(0, nth);
        let (first, refresh) = (Arc::new(first), Arc::clone(&settings.is_lost));
        let mut nodes = Self {
            settings,
            given,
            slots: None,
            state: Mutex::new(NodesState {
                owners: vec![Arc::clone(&first); bases.len()],
                connected: vec![Arc::clone(&first)],
                map: SlotOwners::default(),
            }),
            refresh,
        };
        if !belongs_to_cluster(&first, nodes.answer_timeout()).await? {
            if is_cluster {
                let what = "it belongs to no cluster: open it with `RedisStore::open`";
                return Err(Failure::new(Effect::None, Cause::Unfit(what.into())));
            }
            first.set_partitions((0..bases.len()).collect());
            return Ok(Arc::new(nodes));
        }
        refuse_braces(bases)?;
        let slots: Vec<_> = bases.iter().map(|base| slot_of(base)).collect();
        let map = read_map(&first).await?;
        if let Some(slot) = slots.iter().find(|slot| map.owner(**slot).is_none()) {
            let what =
                format!("no node of the cluster owns the cluster slot {slot}: assign it to one");
            return Err(Failure::new(Effect::None, Cause::Unfit(what)));
        }
        nodes.slots = Some(slots);
        nodes.apply(map);
        let nodes = Arc::new(nodes);
        tokio::spawn(keep_current(
            Arc::downgrade(&nodes),
            Arc::clone(&nodes.refresh),
        ));
        Ok(nodes)
    }

    pub(super) fn is_cluster(&self) -> bool {
        self.slots.is_some()
    }

    /// Runs this on all connections for each partition from now on.
    pub(super) fn prepare_with(&self, preparation: Arc<dyn Preparation>) {
        let preparations = &self.settings.requests.preparation;
        preparations.get_or_init(|| preparation);
    }

    pub(super) fn answer_timeout(&self) -> Duration {
        self.given[0].timeouts.answer
    }

    /// Makes the servers refuse the writes of scripts: see [`Link::refuse_writes`](super::link::Link::refuse_writes).
    pub(super) async fn refuse_writes(&self) {
        self.owner(0).link.refuse_writes().await;
    }

    // ===== Requests =====

    /// Runs a script on the keys of a partition.
    pub(super) async fn run(
        &self,
        call: &ScriptCall<'_>,
        copies: Copies,
        wait: NodeWait,
    ) -> Result<Value, Failure> {
        let partition = call.partition;
        let end = Instant::now() + self.time_of(wait);
        if wait != NodeWait::Full && self.owner(partition).link.is_down() {
            self.refresh.notify_one();
            return Err(no_connection());
        }
        let mut route = NodeRoute::default();
        loop {
            let node = route.next(|| self.owner(partition));
            let fault = match node.run(call, copies, self.attempt(&route, end)).await {
                Ok(_) if call.advance.is_some() && self.is_former(&node, partition, &route) => {
                    return Err(no_answer());
                }
                Ok(answer) => return Ok(answer),
                Err(fault) => fault,
            };
            let failure = self.redirect(&mut route, &node, fault, |to| {
                self.set_owner(partition, to);
            });
            self.pause(&mut route, failure?, end).await?;
        }
    }

    /// Returns `true` if another node has replaced this one as the owner of a partition while a request was sent. If the other one was
    /// promoted, it lacks what this node has stored since, and the search for lost writes would not find that.
    fn is_former(&self, node: &Arc<Node>, partition: usize, route: &NodeRoute) -> bool {
        !route.is_asking && !Arc::ptr_eq(node, &self.owner(partition))
    }

    /// Sends a command with this key to the node that has the key. While the node cannot be reached or is not ready, waits until the answer
    /// timeout.
    pub(super) async fn send(&self, key: &str, command: &Cmd) -> Result<Value, Failure> {
        let end = Instant::now() + self.answer_timeout();
        let (mut route, mut moved) = (NodeRoute::default(), None);
        loop {
            let owner = || moved.take().map_or_else(|| self.node_of_key(key), Ok);
            let node = route.try_next(owner)?;
            let attempt = self.attempt(&route, end);
            let fault = match node.link.send_within(command, attempt).await {
                Ok(answer) => return Ok(answer),
                Err(fault) => fault,
            };
            let failure = self.redirect(&mut route, &node, fault, |to| moved = Some(to));
            self.pause(&mut route, failure?, end).await?;
        }
    }

    /// Sends a command with this key once to the node that is known to have the key, since another attempt is not worth the time.
    pub(super) async fn send_once(&self, key: &str, command: &Cmd) -> Result<Value, Failure> {
        let node = self.node_of_key(key)?;
        let end = Instant::now() + self.answer_timeout();
        let attempt = self.attempt(&NodeRoute::default(), end);
        let answer = node.link.send_once(command, attempt.end).await;
        answer.map_err(Fault::into_failure)
    }

    fn time_of(&self, wait: NodeWait) -> Duration {
        match wait {
            NodeWait::Full => self.answer_timeout(),
            NodeWait::Part => self.answer_timeout().min(PART_TIMEOUT),
            NodeWait::None => Duration::ZERO,
        }
    }

    fn attempt(&self, route: &NodeRoute, end: Instant) -> SendAttempt {
        let end = match self.is_cluster() {
            true => end.min(Instant::now() + ATTEMPT_TIME),
            false => end,
        };
        let is_asking = route.is_asking;
        SendAttempt { end, is_asking }
    }

    /// Determines where to send a request again that a node has not answered. Returns the failure of the attempt, or fails if another
    /// attempt would not help.
    fn redirect(
        &self,
        route: &mut NodeRoute,
        node: &Node,
        fault: Fault,
        moved: impl FnOnce(Arc<Node>),
    ) -> Result<Failure, Failure> {
        if !self.is_cluster() {
            return Err(fault.into_failure());
        }
        match fault {
            Fault::Elsewhere(to, failure) => {
                let Some(other) = self.node_at(&to, node) else {
                    return Ok(failure.without_effect());
                };
                if to.is_asking {
                    route.asked = Some(other);
                    return Ok(failure);
                }
                moved(other);
                self.refresh.notify_one();
                Ok(Failure::new(Effect::None, Cause::Unavailable).reported_by_store())
            }
            Fault::Final(failure) if is_unreachable(&failure) => {
                self.refresh.notify_one();
                Ok(failure)
            }
            other => Err(other.into_failure()),
        }
    }

    /// Waits before another attempt, except before the second one.
    async fn pause(
        &self,
        route: &mut NodeRoute,
        failure: Failure,
        end: Instant,
    ) -> Result<(), Failure> {
        route.attempts += 1;
        let pause = match route.attempts {
            1 => Duration::ZERO,
            attempts => BACKOFF.delay(attempts - 1).unwrap_or_default(),
        };
        if Instant::now() + pause > end {
            return Err(failure);
        }
        sleep(pause).await;
        Ok(())
    }

    // ===== Owners =====

    pub(super) fn owner(&self, partition: usize) -> Arc<Node> {
        Arc::clone(&lock(&self.state).owners[partition])
    }

    /// Returns the nodes that have partitions, each once.
    pub(super) fn owners(&self) -> Vec<Arc<Node>> {
        let mut nodes: Vec<Arc<Node>> = Vec::new();
        for owner in &lock(&self.state).owners {
            if !nodes.iter().any(|it| Arc::ptr_eq(it, owner)) {
                nodes.push(Arc::clone(owner));
            }
        }
        nodes
    }

    fn set_owner(&self, partition: usize, node: Arc<Node>) {
        let mut state = lock(&self.state);
        state.change_owner(partition, node);
        state.share_out();
    }

    /// Uses the owners of all slots.
    fn apply(&self, map: SlotOwners) {
        let Some(slots) = &self.slots else { return };
        let mut state = lock(&self.state);
        for (partition, &slot) in slots.iter().enumerate() {
            let owner = map.owner(slot).cloned();
            // A slot without an owner remains where it was.
            if let Some(owner) = owner {
                let node = self.connect_in(&mut state, &owner);
                state.change_owner(partition, node);
            }
        }
        state.map = map;
        state.share_out();
        // A node without partitions receives no messages, and its subscriber ends with it.
        let NodesState {
            owners, connected, ..
        } = &mut *state;
        connected.retain(|node| owners.iter().any(|owner| Arc::ptr_eq(owner, node)));
    }

    /// Returns the node to which a redirection by `node` leads. Returns `None` if its address is unknown.
    fn node_at(&self, to: &Redirection, node: &Node) -> Option<Arc<Node>> {
        let address = redirected_to(&to.address, &node.host)?;
        Some(self.connect_in(&mut lock(&self.state), &address))
    }

    fn node_of_key(&self, key: &str) -> Result<Arc<Node>, Failure> {
        let mut state = lock(&self.state);
        if !self.is_cluster() {
            return Ok(Arc::clone(&state.owners[0]));
        }
        let owner = state.map.owner(slot_of(key)).cloned();
        let node = owner.map(|owner| self.connect_in(&mut state, &owner));
        node.ok_or_else(no_connection)
    }

    /// Returns the node with this address, and connects to it if necessary.
    fn connect_in(&self, state: &mut NodesState, address: &ServerAddress) -> Arc<Node> {
        let is_there = |node: &&Arc<Node>| node.address.as_ref() == Some(address);
        if let Some(node) = state.connected.iter().find(is_there) {
            return Arc::clone(node);
        }
        let node = Arc::new(self.settings.connect_to(&self.given[0], address));
        state.connected.push(Arc::clone(&node));
        node
    }

    /// Reads the owners of all slots from a node that answers, each time from another one: a node that the others cannot reach may not
    /// know the owners. Returns `false` if none answers.
    async fn read_owners(&self) -> bool {
        let connected = {
            let connected = &mut lock(&self.state).connected;
            connected.rotate_left(1);
            connected.clone()
        };
        let reachable = connected.iter().filter(|node| node.link.is_connected());
        for node in reachable {
            if let Some(map) = map_of(node).await {
                self.apply(map);
                return true;
            }
        }
        for given in &self.given {
            if let Some(map) = map_of(&self.settings.connect(given)).await {
                self.apply(map);
                return true;
            }
        }
        false
    }

    // ===== State =====

    /// Returns the reason why there is no connection to a node, or `None` if there is one to each.
    pub(super) fn failure(&self) -> Option<String> {
        let owners = lock(&self.state).owners.clone();
        let mut failures = BTreeMap::new();
        for (partition, owner) in owners.iter().enumerate() {
            if let Some(failure) = owner.link.failure() {
                let node = owner.address.as_ref().map(ServerAddress::to_string);
                let (_, partitions) = failures.entry(node).or_insert((failure, Vec::new()));
                partitions.push(partition.to_string());
            }
        }
        let (node, (failure, partitions)) = failures.pop_first()?;
        Some(match node {
            None => failure,
            Some(node) => format!(
                "the node {node}, which has partition {}: {failure}",
                partitions.join(", ")
            ),
        })
    }

    /// Returns `false` if a partition cannot be reached while others can.
    pub(super) fn is_reachable(&self, partition: usize) -> bool {
        let owners = &lock(&self.state).owners;
        !owners[partition].link.is_down() || owners.iter().all(|owner| owner.link.is_down())
    }

    /// Returns `true` if messages of a partition arrive.
    pub(super) fn is_subscribed(&self, partition: usize) -> bool {
        *self.owner(partition).subscription().borrow() == Subscription::Active
    }

    /// Returns the state of the subscriptions of all partitions: the worst of them.
    pub(super) fn subscription(&self) -> Subscription {
        let states = self
            .owners()
            .into_iter()
            .map(|node| *node.subscription().borrow());
        states.max().unwrap_or(Subscription::Unknown)
    }

    /// Waits until it is known whether messages arrive from the nodes.
    pub(super) async fn subscribed(&self) {
        for node in self.owners() {
            let is_known = |it: &Subscription| *it != Subscription::Unknown;
            node.subscription().wait_for(is_known).await.ok();
        }
    }
}

impl NodesState {
    fn change_owner(&mut self, partition: usize, node: Arc<Node>) {
        if !Arc::ptr_eq(&self.owners[partition], &node) {
            node.forget(partition);
            self.owners[partition] = node;
        }
    }

    /// Tells each node its partitions.
    fn share_out(&self) {
        for node in &self.connected {
            let owners = self.owners.iter().enumerate();
            let own = owners.filter(|(_, owner)| Arc::ptr_eq(owner, node));
            node.set_partitions(own.map(|(partition, _)| partition).collect());
        }
    }
}

async fn map_of(node: &Node) -> Option<SlotOwners> {
    timeout(REFRESH_INTERVAL, read_map(node)).await.ok()?.ok()
}

/// The next node of a request.
#[derive(Default)]
struct NodeRoute {
    /// A node to which the slot is being moved, which is asked once.
    asked: Option<Arc<Node>>,
    is_asking: bool,
    attempts: u32,
}

impl NodeRoute {
    fn next(&mut self, owner: impl FnOnce() -> Arc<Node>) -> Arc<Node> {
        self.is_asking = self.asked.is_some();
        self.asked.take().unwrap_or_else(owner)
    }

    fn try_next(
        &mut self,
        owner: impl FnOnce() -> Result<Arc<Node>, Failure>,
    ) -> Result<Arc<Node>, Failure> {
        self.is_asking = self.asked.is_some();
        self.asked.take().map_or_else(owner, Ok)
    }
}

/// Reads the owners of all slots whenever they may have changed, for as long as the store exists.
async fn keep_current(nodes: Weak<Nodes>, refresh: Arc<Notify>) {
    loop {
        refresh.notified().await;
        let Some(nodes) = nodes.upgrade() else { return };
        if !nodes.read_owners().await {
            refresh.notify_one();
        }
        drop(nodes);
        sleep(REFRESH_INTERVAL).await;
    }
}
