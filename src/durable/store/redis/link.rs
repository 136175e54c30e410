//! [`Link`]: a connection for requests, which is replaced when it breaks.
//!
//! The `redis` crate keeps a connection even if the server does not answer, or has become a replica. A link closes a
//! connection on anything but an answer. It reconnects at once, and if that fails, retries with pauses.

use std::future::{self, Future};
use std::sync::{Arc, Weak};

use redis::{Cmd, Value};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::connection::{Connection, ConnectionSettings, PartitionArrivals, ScriptCall};
use super::connector::{Connector, NewConnection};
use super::copies::{Copies, CopyWaits};
use super::error::{Fault, no_answer, no_connection, not_connected, replaced, with_unknown_effect};
use super::sentinels::ServerWatch;
use super::timeouts::{BACKOFF, Timeouts};
use crate::durable::failure::{Effect, Failure};

/// A connection for requests, which is replaced when it breaks.
pub(super) struct Link {
    timeouts: Timeouts,
    state: watch::Sender<State>,
    /// The partitions at the server.
    partitions: watch::Receiver<Vec<usize>>,
    arrivals: Arc<PartitionArrivals>,
    settings: Arc<ConnectionSettings>,
    copy_waits: CopyWaits,
}

/// The way in which a request is sent.
#[derive(Clone, Copy)]
pub(super) struct SendAttempt {
    /// The time until which the link waits for a connection, and sends the request again if the server defers it.
    pub(super) end: Instant,
    /// `true` if another node has redirected the request to this one by `ASK`.
    pub(super) is_asking: bool,
}

enum State {
    /// There is no connection. The reason is unknown before the first attempt to connect.
    Down(Option<Failure>),
    Up(Connection),
}

impl Link {
    /// Creates a link, and keeps it connected until it is dropped. When `checks` changes, the connection is pinged at
    /// once. When `partitions` changes, those partitions are prepared on the connection.
    pub(super) fn start(
        connector: Connector,
        checks: watch::Receiver<()>,
        partitions: watch::Receiver<Vec<usize>>,
        settings: Arc<ConnectionSettings>,
    ) -> Arc<Self> {
        let link = Arc::new(Self {
            timeouts: connector.timeouts,
            state: watch::Sender::new(State::Down(None)),
            partitions,
            arrivals: Arc::default(),
            settings,
            copy_waits: CopyWaits::default(),
        });
        tokio::spawn(supervise(Arc::downgrade(&link), connector, checks));
        link
    }

    /// Makes the server refuse the writes of scripts, if it is Redis 7.0 or later. A replica then also runs the scripts.
    pub(super) async fn refuse_writes(&self) {
        let mut command = redis::cmd("EVAL_RO");
        command.arg("return 1").arg(0);
        if self.send(&command).await.is_ok() {
            self.settings.is_read_only.get_or_init(|| ());
        }
    }

    // ===== Requests =====

    /// Runs a script. While the server cannot be reached or is not ready, waits until the end of the attempt.
    pub(super) async fn run(
        &self,
        call: &ScriptCall<'_>,
        attempt: SendAttempt,
    ) -> Result<Value, Fault> {
        let [with_hash, with_text] = match self.settings.is_read_only.get() {
            Some(()) => ["EVALSHA_RO", "EVAL_RO"],
            None => ["EVALSHA", "EVAL"],
        };
        let command = |name, text| {
            let keys = call.script.keys(call.keys);
            call.arguments.command(name, text, keys)
        };
        let by_hash = command(with_hash, call.script.hash());
        match self.send_until(&by_hash, Some(call), attempt).await {
            Err(Fault::NoScript) => {
                let by_text = command(with_text, call.script.text());
                self.send_until(&by_text, Some(call), attempt).await
            }
            answer => answer,
        }
    }

    /// Runs a script, and waits until the changes have been copied. It waits on the connection that has received the answer, since another
    /// one may lead to a server that has lost the changes.
    pub(super) async fn run_and_wait(
        &self,
        call: &ScriptCall<'_>,
        attempt: SendAttempt,
        copies: Copies,
    ) -> Result<Value, Fault> {
        let before = self.connection(attempt.end).await.map_err(Fault::Final)?;
        let (answer, answered) = (self.run(call, attempt).await?, Instant::now());
        let wait = || async {
            if !self.is_current(before.number) {
                return Err(Fault::Final(no_answer()));
            }
            let time = self.timeouts.answer / 2;
            let copied = before.unless_closed(|it| copies.wait(it, call.keys, time));
            // Those that would wait next for the same server fail at once.
            copied.await.inspect_err(|fault| {
                if let Fault::Broken(failure) = fault {
                    self.disconnect(before.number, failure);
                }
            })
        };
        let copied = self.copy_waits.share(before.number, answered, wait);
        let failure = match copied.await {
            // A connection that the link has left counts for nothing, even if the wait that the request shares has ended before.
            Ok(true) if self.is_current(before.number) => return Ok(answer),
            Ok(_) => no_answer(),
            Err(fault) => with_unknown_effect(fault.into_failure()),
        };
        Err(Fault::Final(failure))
    }

    /// Sends a command. Sends it again if it fails without an effect, until the answer timeout.
    pub(super) async fn send(&self, command: &Cmd) -> Result<Value, Fault> {
        let attempt = SendAttempt {
            end: Instant::now() + self.timeouts.answer,
            is_asking: false,
        };
        self.send_within(command, attempt).await
    }

    /// Sends a command. Sends it again if it fails without an effect, until the end of the attempt.
    pub(super) async fn send_within(
        &self,
        command: &Cmd,
        attempt: SendAttempt,
    ) -> Result<Value, Fault> {
        self.send_until(command, None, attempt).await
    }

    /// Sends a command once, since another attempt is not worth the time. Waits for a connection until `end`.
    pub(super) async fn send_once(&self, command: &Cmd, end: Instant) -> Result<Value, Fault> {
        let connection = self.connection(end).await.map_err(Fault::Final)?;
        connection.send(command, false).await
    }

    async fn send_until(
        &self,
        command: &Cmd,
        call: Option<&ScriptCall<'_>>,
        attempt: SendAttempt,
    ) -> Result<Value, Fault> {
        let mut failures = 0;
        loop {
            let connection = self.connection(attempt.end).await.map_err(Fault::Final)?;
            let sent = match call {
                Some(call) => connection.call(command, call, attempt.is_asking).await,
                None => connection.send(command, attempt.is_asking).await,
            };
            let failure = match sent {
                Ok(answer) => return Ok(answer),
                Err(Fault::Wait(failure)) => failure,
                Err(Fault::Broken(failure)) => {
                    self.disconnect(connection.number, &failure);
                    failure
                }
                Err(other) => return Err(other),
            };
            failures += 1;
            let pause = BACKOFF.delay(failures).unwrap_or_default();
            if failure.effect == Effect::Unknown || Instant::now() + pause > attempt.end {
                return Err(Fault::Final(failure));
            }
            sleep(pause).await;
        }
    }

    /// Has all connections, even one that is not up yet, prepare a partition and advance its epochs again, since the partition was
    /// elsewhere meanwhile.
    pub(super) fn forget(&self, partition: usize) {
        self.arrivals.count(partition);
    }

    // ===== State =====

    /// Returns the connection, or waits for one until `end`.
    async fn connection(&self, end: Instant) -> Result<Connection, Failure> {
        let mut state = self.state.subscribe();
        let up = state.wait_for(|state| matches!(state, State::Up(_)));
        if let Ok(Ok(state)) = timeout_at(end, up).await
            && let State::Up(connection) = &*state
        {
            return Ok(connection.clone());
        }
        match &*self.state.borrow() {
            State::Down(Some(failure)) => Err(failure.clone().without_effect()),
            _ => Err(no_connection()),
        }
    }

    /// Waits until the first attempt to connect has succeeded or failed.
    pub(super) async fn connected(&self) -> Result<(), Failure> {
        let mut state = self.state.subscribe();
        let known = state
            .wait_for(|state| !matches!(state, State::Down(None)))
            .await;
        match known.as_deref() {
            Ok(State::Down(Some(failure))) => Err(failure.clone()),
            _ => Ok(()),
        }
    }

    /// Closes a connection, unless it was replaced meanwhile. Requests that wait for its answers fail at once.
    fn disconnect(&self, number: u64, failure: &Failure) {
        self.state.send_if_modified(|state| match state {
            State::Up(connection) if connection.number == number => {
                connection.close(failure);
                *state = State::Down(Some(failure.clone()));
                true
            }
            _ => false,
        });
    }

    /// Returns the reason why there is no connection, or `None` if there is one.
    pub(super) fn failure(&self) -> Option<String> {
        match &*self.state.borrow() {
            State::Up(_) => None,
            State::Down(Some(failure)) => Some(failure.to_string()),
            State::Down(None) => Some(no_connection().to_string()),
        }
    }

    /// Returns `true` if this is the number of the current connection. Since numbers rise, no other one has been in between.
    fn is_current(&self, number: u64) -> bool {
        matches!(&*self.state.borrow(), State::Up(it) if it.number == number)
    }

    /// Returns `true` if the last attempt to connect has failed.
    pub(super) fn is_down(&self) -> bool {
        matches!(&*self.state.borrow(), State::Down(Some(_)))
    }

    pub(super) fn is_connected(&self) -> bool {
        self.failure().is_none()
    }
}

/// Keeps a link connected.
async fn supervise(link: Weak<Link>, connector: Connector, mut checks: watch::Receiver<()>) {
    let (mut number, mut failures) = (0, 0);
    while let Some(it) = link.upgrade() {
        match connect(&it, &connector, number + 1).await {
            Ok((connection, watch)) => {
                (number, failures) = (number + 1, 0);
                it.state.send_replace(State::Up(connection.clone()));
                let state = it.state.subscribe();
                drop(it);
                monitor(&link, &connection, state, &mut checks, watch).await;
            }
            Err(failure) => {
                it.state.send_replace(State::Down(Some(failure)));
                failures += 1;
            }
        }
        connector.pause(failures.max(1)).await;
    }
}

async fn connect(
    link: &Arc<Link>,
    connector: &Connector,
    number: u64,
) -> Result<(Connection, ServerWatch), Failure> {
    let NewConnection {
        mut connection,
        watch,
    } = connector.connect(None).await?;
    // A server that requires a password refuses the first command rather than the connection.
    let answer = connection.send_packed_command(&redis::cmd("PING")).await;
    answer
        .and_then(Value::extract_error)
        .map_err(not_connected)?;
    let connection = Connection::new(number, connection, &link.settings, &link.arrivals);
    let partitions = link.partitions.borrow().clone();
    match connection.prepare(&partitions).await {
        Err(Fault::Broken(failure)) => Err(failure),
        // A request for a partition that is not ready has the same result, and waits or reports it. Others need not wait for that.
        Ok(()) | Err(_) => Ok((connection, watch)),
    }
}

/// Watches a connection until it is closed. Closes it when its server is no longer the primary, even while a ping waits for an answer.
async fn monitor(
    link: &Weak<Link>,
    connection: &Connection,
    state: watch::Receiver<State>,
    checks: &mut watch::Receiver<()>,
    mut watch: ServerWatch,
) {
    let Some(partitions) = link.upgrade().map(|link| link.partitions.clone()) else {
        return;
    };
    tokio::select! {
        () = watch.replaced() => {
            if let Some(link) = link.upgrade() {
                link.disconnect(connection.number, &replaced());
            }
        }
        () = ping(link, connection, state, checks) => {}
        () = prepare_all(connection, partitions) => {}
    }
}

/// Prepares the partitions that come to the server of a connection, and those for which the server was not ready.
async fn prepare_all(connection: &Connection, mut partitions: watch::Receiver<Vec<usize>>) {
    let mut failures = 0;
    loop {
        let current = partitions.borrow_and_update().clone();
        let is_ready = !matches!(connection.prepare(&current).await, Err(Fault::Wait(_)));
        failures = if is_ready { 0 } else { failures + 1 };
        let changed = partitions.changed();
        // If it fails for another reason, the first request for the partition tries again.
        let changed = match is_ready {
            true => changed.await,
            false => {
                let pause = BACKOFF.delay(failures).unwrap_or_default();
                timeout(pause, changed).await.unwrap_or(Ok(()))
            }
        };
        if changed.is_err() {
            future::pending().await
        }
    }
}

/// Pings a connection when it has been silent or a check is requested, until it is closed.
async fn ping(
    link: &Weak<Link>,
    connection: &Connection,
    mut state: watch::Receiver<State>,
    checks: &mut watch::Receiver<()>,
) {
    let Some(ping_interval) = link.upgrade().map(|link| link.timeouts.ping_interval) else {
        return;
    };
    loop {
        let answers = connection.answers();
        let down = state.wait_for(|state| matches!(state, State::Down(_)));
        let is_check = tokio::select! {
            _ = down => return,
            check = timeout(ping_interval, checks.changed()) => match check {
                Ok(Ok(())) => true,
                Ok(Err(_)) => return,
                Err(_) => false,
            },
        };
        if (is_check || connection.answers() == answers)
            && let Err(Fault::Broken(failure)) = connection.send(&redis::cmd("PING"), false).await
            && let Some(link) = link.upgrade()
        {
            link.disconnect(connection.number, &failure);
        }
    }
}

/// Runs a future on the store's thread. The caller may await it in any runtime, or outside of one.
pub(super) fn spawn<T: Send + 'static>(
    runtime: &tokio::runtime::Handle,
    work: impl Future<Output = Result<T, Failure>> + Send + 'static,
) -> crate::durable::store::Answer<'static, T> {
    let task = runtime.spawn(work);
    Box::pin(async move { task.await.unwrap_or_else(|_| Err(no_answer())) })
}
