//! [`Link`]: a connection for requests, which is replaced when it breaks.
//!
//! The `redis` crate keeps a connection even if the server does not answer, or has become a replica. A link closes a
//! connection on anything but an answer. It reconnects at once, and if that fails, retries with pauses.

use std::collections::HashSet;
use std::future::Future;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, RedisResult, Value};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::epochs::AdvanceEpochs;
use super::error::{Fault, fault, no_answer, no_connection, not_connected};
use super::keys::Keys;
use super::scripts::{Arguments, Script};
use crate::durable::failure::{Effect, Failure};
use crate::retry::Retry;
use crate::sync::{Mutex, Number, lock};

/// The pauses between attempts to connect, and between attempts to send a request that the server defers.
pub(super) const BACKOFF: Retry = Retry::exponential()
    .attempts(u32::MAX)
    .base(Duration::from_millis(50))
    .cap(Duration::from_secs(1));

/// The timeouts of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timeouts {
    pub(super) connect: Duration,
    pub(super) answer: Duration,
    /// The time without an answer after which a connection is pinged.
    pub(super) ping_interval: Duration,
}

/// A script, and what it is run with.
#[derive(Clone, Copy)]
pub(super) struct ScriptCall<'a> {
    pub(super) script: &'a Script,
    pub(super) keys: &'a Keys,
    pub(super) arguments: &'a Arguments,
    /// The epochs that the connection must have advanced before.
    pub(super) advance: Option<&'a AdvanceEpochs<'a>>,
}

/// The way in which a request is sent.
#[derive(Clone, Copy)]
pub(super) struct SendAttempt {
    /// The time until which the link waits for a connection, and sends the request again if the server defers it.
    pub(super) end: Instant,
    /// `true` if another node has told that this one is asked.
    pub(super) is_asking: bool,
}

/// A connection for requests, which is replaced when it breaks.
pub(super) struct Link {
    client: Client,
    timeouts: Timeouts,
    state: watch::Sender<State>,
    /// Set if scripts run with commands that refuse writes.
    is_read_only: Arc<OnceLock<()>>,
}

enum State {
    /// There is no connection. The reason is unknown before the first attempt to connect.
    Down(Option<Failure>),
    Up(Connection),
}

/// A connection.
#[derive(Clone)]
struct Connection {
    /// Each new connection of a link has a greater number.
    number: u64,
    connection: MultiplexedConnection,
    /// The number of answers so far.
    answers: Arc<Number>,
    /// The partitions whose epochs this connection has advanced.
    advanced: Arc<Mutex<HashSet<usize>>>,
}

impl Link {
    /// Creates a link, and keeps it connected until it is dropped. When `checks` changes, the connection is pinged at
    /// once. The links of a store share `is_read_only`.
    pub(super) fn start(
        client: Client,
        timeouts: Timeouts,
        checks: watch::Receiver<()>,
        is_read_only: Arc<OnceLock<()>>,
    ) -> Arc<Self> {
        let link = Arc::new(Self {
            client,
            timeouts,
            state: watch::Sender::new(State::Down(None)),
            is_read_only,
        });
        tokio::spawn(supervise(Arc::downgrade(&link), checks));
        link
    }

    /// Makes the server refuse the writes of scripts, if it is Redis 7.0 or later. A replica then also runs the scripts.
    pub(super) async fn refuse_writes(&self) {
        let mut command = redis::cmd("EVAL_RO");
        command.arg("return 1").arg(0);
        if self.send(&command).await.is_ok() {
            self.is_read_only.get_or_init(|| ());
        }
    }

    /// Runs a script. While the server cannot be reached or is not ready, waits until the end of the attempt.
    pub(super) async fn run(
        &self,
        call: &ScriptCall<'_>,
        attempt: SendAttempt,
    ) -> Result<Value, Fault> {
        let [with_hash, with_text] = match self.is_read_only.get() {
            Some(()) => ["EVALSHA_RO", "EVAL_RO"],
            None => ["EVALSHA", "EVAL"],
        };
        let command = |name, text| {
            let keys = call.script.keys(call.keys);
            call.arguments.command(name, text, keys)
        };
        let by_hash = command(with_hash, call.script.hash());
        match self.send_after(&by_hash, call.advance, attempt).await {
            Err(Fault::NoScript) => {
                let by_text = command(with_text, call.script.text());
                self.send_after(&by_text, call.advance, attempt).await
            }
            answer => answer,
        }
    }

    /// Runs a script, and waits until the server has written the changes to its disk. It waits on the connection that has
    /// received the answer, since another one may lead to a server that has lost the changes.
    pub(super) async fn run_to_disk(
        &self,
        call: &ScriptCall<'_>,
        attempt: SendAttempt,
    ) -> Result<Value, Fault> {
        let before = self.connection(attempt.end).await.map_err(Fault::Final)?;
        let answer = self.run(call, attempt).await?;
        if !self.is_current(before.number) {
            return Err(Fault::Final(no_answer()));
        }
        let mut connection = before.connection;
        // `WAITAOF` waits only for writes of its own connection. The script may have changed nothing because an earlier
        // connection has, so this one writes something after those changes.
        let mut wait = redis::pipe();
        wait.hset(call.keys.meta(), "disk", 1).ignore();
        let limit = self.timeouts.answer.as_millis() as u64 / 2;
        wait.cmd("WAITAOF").arg(1).arg(0).arg(limit);
        // The numbers of disks that have the writes: the server's own, and those of its replicas.
        let disks: RedisResult<((u64, u64),)> = wait.query_async(&mut connection).await;
        let failure = match disks {
            Ok(((1, _),)) => return Ok(answer),
            Ok(_) => no_answer(),
            Err(error) => with_unknown_effect(fault(error).into_failure()),
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
        self.send_after(command, None, attempt).await
    }

    /// Sends a command once, since another attempt is not worth the time. Waits for a connection until `end`.
    pub(super) async fn send_once(&self, command: &Cmd, end: Instant) -> Result<Value, Fault> {
        let connection = self.connection(end).await.map_err(Fault::Final)?;
        connection.send(command, false).await
    }

    async fn send_after(
        &self,
        command: &Cmd,
        advance: Option<&AdvanceEpochs<'_>>,
        attempt: SendAttempt,
    ) -> Result<Value, Fault> {
        let mut failures = 0;
        loop {
            let connection = self.connection(attempt.end).await.map_err(Fault::Final)?;
            let sent = connection.send_after(command, advance, attempt.is_asking);
            let fault = match sent.await {
                Ok(answer) => return Ok(answer),
                Err(fault) => fault,
            };
            let failure = match fault {
                Fault::Wait(failure) => failure,
                Fault::Broken(failure) => {
                    self.disconnect(connection.number, &failure);
                    failure
                }
                other => return Err(other),
            };
            failures += 1;
            let pause = BACKOFF.delay(failures).unwrap_or_default();
            if failure.effect == Effect::Unknown || Instant::now() + pause > attempt.end {
                return Err(Fault::Final(failure));
            }
            sleep(pause).await;
        }
    }

    /// Has the connection advance the epochs of a partition again before its next claim, since the partition was elsewhere meanwhile.
    pub(super) fn forget_epochs(&self, partition: usize) {
        if let State::Up(connection) = &*self.state.borrow() {
            lock(&connection.advanced).remove(&partition);
        }
    }

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

    /// Closes a connection, unless it was replaced meanwhile.
    fn disconnect(&self, number: u64, failure: &Failure) {
        self.state.send_if_modified(|state| {
            let is_current = matches!(state, State::Up(it) if it.number == number);
            if is_current {
                *state = State::Down(Some(failure.clone()));
            }
            is_current
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

    /// Returns `true` if this is the number of the current connection. Since numbers rise, it then has been all the time.
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

impl Connection {
    /// Sends a command. Before the first command that needs it, advances the epochs of a partition. If this fails, the
    /// command is not sent.
    async fn send_after(
        &self,
        command: &Cmd,
        advance: Option<&AdvanceEpochs<'_>>,
        is_asking: bool,
    ) -> Result<Value, Fault> {
        if let Some(advance) = advance
            && !lock(&self.advanced).contains(&advance.partition)
        {
            let advanced = self.send(&advance.command(), is_asking).await;
            advanced.map_err(Fault::not_sent)?;
            lock(&self.advanced).insert(advance.partition);
        }
        self.send(command, is_asking).await
    }

    async fn send(&self, command: &Cmd, is_asking: bool) -> Result<Value, Fault> {
        let mut connection = self.connection.clone();
        let answer = match is_asking {
            false => connection.send_packed_command(command).await,
            true => ask(&mut connection, command).await,
        };
        let answer = answer.and_then(Value::extract_error).map_err(fault);
        if !matches!(answer, Err(Fault::Broken(_))) {
            self.answers.add(1);
        }
        answer
    }
}

/// Sends a command to the node to which the slot of its keys is being moved. `ASKING` is valid for the command that follows it.
async fn ask(connection: &mut MultiplexedConnection, command: &Cmd) -> RedisResult<Value> {
    let mut both = redis::pipe();
    both.cmd("ASKING").add_command(command.clone());
    let answers = connection.send_packed_commands(&both, 1, 1).await?;
    Ok(answers.into_iter().next().unwrap_or(Value::Nil))
}

/// Returns the failure of a request that may have had an effect.
fn with_unknown_effect(mut failure: Failure) -> Failure {
    failure.effect = Effect::Unknown;
    failure
}

/// Keeps a link connected.
async fn supervise(link: Weak<Link>, mut checks: watch::Receiver<()>) {
    let (mut number, mut failures) = (0, 0);
    while let Some(it) = link.upgrade() {
        match connect(&it.client, it.timeouts).await {
            Ok(connection) => {
                (number, failures) = (number + 1, 0);
                let connection = Connection {
                    number,
                    connection,
                    answers: Arc::default(),
                    advanced: Arc::default(),
                };
                it.state.send_replace(State::Up(connection.clone()));
                let (state, interval) = (it.state.subscribe(), it.timeouts.ping_interval);
                drop(it);
                monitor(&link, &connection, state, &mut checks, interval).await;
            }
            Err(error) => {
                let failure = not_connected(error);
                it.state.send_replace(State::Down(Some(failure)));
                failures += 1;
            }
        }
        sleep(BACKOFF.delay(failures.max(1)).unwrap_or_default()).await;
    }
}

async fn connect(client: &Client, timeouts: Timeouts) -> RedisResult<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(timeouts.connect))
        .set_response_timeout(Some(timeouts.answer));
    let connection = client.get_multiplexed_async_connection_with_config(&config);
    let mut connection = connection.await?;
    // A server that requires a password refuses the first command rather than the connection.
    let answer = connection.send_packed_command(&redis::cmd("PING")).await;
    answer.and_then(Value::extract_error)?;
    Ok(connection)
}

/// Pings a connection when it has been silent or a check is requested, until it is closed.
async fn monitor(
    link: &Weak<Link>,
    connection: &Connection,
    mut state: watch::Receiver<State>,
    checks: &mut watch::Receiver<()>,
    ping_interval: Duration,
) {
    loop {
        let answers = connection.answers.get();
        let down = state.wait_for(|state| matches!(state, State::Down(_)));
        let is_check = tokio::select! {
            _ = down => return,
            check = timeout(ping_interval, checks.changed()) => match check {
                Ok(Ok(())) => true,
                Ok(Err(_)) => return,
                Err(_) => false,
            },
        };
        if (is_check || connection.answers.get() == answers)
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
