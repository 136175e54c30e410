//! [`Link`]: a connection for requests, which is replaced when it breaks.
//!
//! The `redis` crate keeps a connection even if the server does not answer, or has become a replica. A link closes a
//! connection on anything but an answer. It reconnects at once, and if that fails, retries with pauses.

use std::collections::HashSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock, Weak};

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisResult, Value};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::connector::{Connector, NewConnection};
use super::copies::Copies;
use super::epochs::AdvanceEpochs;
use super::error::{Fault, fault, no_answer, no_connection, not_connected, replaced};
use super::keys::Keys;
use super::scripts::{Arguments, Script};
use super::sentinels::ServerWatch;
use super::timeouts::{BACKOFF, Timeouts};
use crate::durable::failure::{Effect, Failure};
use crate::sync::{Mutex, Number, lock};

/// A connection for requests, which is replaced when it breaks.
pub(super) struct Link {
    timeouts: Timeouts,
    state: watch::Sender<State>,
    /// `true` if scripts run with commands that refuse writes.
    is_read_only: OnceLock<()>,
    preparation: OnceLock<Arc<dyn Preparation>>,
}

/// Runs on each new connection before requests use it.
pub(super) trait Preparation: Send + Sync {
    /// If it fails, the connection is closed.
    fn prepare<'a>(&'a self, connection: &'a mut MultiplexedConnection) -> Prepared<'a>;
}

pub(super) type Prepared<'a> = Pin<Box<dyn Future<Output = Result<(), Failure>> + Send + 'a>>;

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
    /// It is cancelled when the Sentinels name another server.
    replaced: CancellationToken,
}

impl Link {
    /// Creates a link, and keeps it connected until it is dropped. When `checks` changes, the connection is pinged at
    /// once.
    pub(super) fn start(connector: Connector, checks: watch::Receiver<()>) -> Arc<Self> {
        let link = Arc::new(Self {
            timeouts: connector.timeouts,
            state: watch::Sender::new(State::Down(None)),
            is_read_only: OnceLock::new(),
            preparation: OnceLock::new(),
        });
        tokio::spawn(supervise(Arc::downgrade(&link), connector, checks));
        link
    }

    /// Has later connections prepared.
    pub(super) fn prepare_with(&self, preparation: Arc<dyn Preparation>) {
        self.preparation.get_or_init(|| preparation);
    }

    /// Makes the server refuse the writes of scripts, if it is Redis 7.0 or later. A replica then also runs the scripts.
    pub(super) async fn refuse_writes(&self) {
        let mut command = redis::cmd("EVAL_RO");
        command.arg("return 1").arg(0);
        if self.send(&command).await.is_ok() {
            self.is_read_only.get_or_init(|| ());
        }
    }

    /// Runs a script. While the server cannot be reached or is not ready, waits until the answer timeout.
    pub(super) async fn run(
        &self,
        script: &Script,
        keys: &Keys,
        arguments: &Arguments,
    ) -> Result<Value, Failure> {
        self.run_by_hash(script, keys, arguments, None).await
    }

    /// Runs a script on a connection that has advanced the epochs of a partition.
    pub(super) async fn run_after(
        &self,
        script: &Script,
        arguments: &Arguments,
        advance: &AdvanceEpochs<'_>,
    ) -> Result<Value, Failure> {
        self.run_by_hash(script, advance.keys, arguments, Some(advance))
            .await
    }

    async fn run_by_hash(
        &self,
        script: &Script,
        keys: &Keys,
        arguments: &Arguments,
        advance: Option<&AdvanceEpochs<'_>>,
    ) -> Result<Value, Failure> {
        let [with_hash, with_text] = match self.is_read_only.get() {
            Some(()) => ["EVALSHA_RO", "EVAL_RO"],
            None => ["EVALSHA", "EVAL"],
        };
        let by_hash = arguments.command(with_hash, script.hash(), script.keys(keys));
        match self.send_after(&by_hash, advance).await {
            Err(Fault::NoScript) => {
                let by_text = arguments.command(with_text, script.text(), script.keys(keys));
                self.send_after(&by_text, advance).await
            }
            answer => answer,
        }
        .map_err(Fault::into_failure)
    }

    /// Runs a script, and waits until the changes have been copied. It waits on the connection that has received the answer, since another
    /// one may lead to a server that has lost the changes.
    pub(super) async fn run_and_wait(
        &self,
        script: &Script,
        arguments: &Arguments,
        advance: &AdvanceEpochs<'_>,
        copies: Copies,
    ) -> Result<Value, Failure> {
        let before = self
            .connection(Instant::now() + self.timeouts.answer)
            .await?;
        let answer = self.run_after(script, arguments, advance).await?;
        if !self.is_current(before.number) {
            return Err(no_answer());
        }
        let mut connection = before.connection.clone();
        let copied = copies.wait(&mut connection, advance.keys, self.timeouts.answer / 2);
        match before.unless_replaced(copied).await {
            Ok(true) => Ok(answer),
            Ok(false) => Err(no_answer()),
            Err(fault) => Err(with_unknown_effect(fault.into_failure())),
        }
    }

    /// Sends a command. Sends it again if it fails without an effect, until the answer timeout.
    pub(super) async fn send(&self, command: &Cmd) -> Result<Value, Fault> {
        self.send_after(command, None).await
    }

    /// Sends a command once, since another attempt is not worth the time.
    pub(super) async fn send_once(&self, command: &Cmd) -> Result<Value, Fault> {
        let end = Instant::now() + self.timeouts.answer;
        let connection = self.connection(end).await.map_err(Fault::Final)?;
        connection.send(command).await
    }

    async fn send_after(
        &self,
        command: &Cmd,
        advance: Option<&AdvanceEpochs<'_>>,
    ) -> Result<Value, Fault> {
        let end = Instant::now() + self.timeouts.answer;
        let mut failures = 0;
        loop {
            let connection = self.connection(end).await.map_err(Fault::Final)?;
            let fault = match connection.send_after(command, advance).await {
                // The server may be a former primary, and the search for lost writes has not seen this one.
                Ok(_) if advance.is_some() && !self.is_current(connection.number) => {
                    return Err(Fault::Final(no_answer()));
                }
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
            if failure.effect == Effect::Unknown || Instant::now() + pause > end {
                return Err(Fault::Final(failure));
            }
            sleep(pause).await;
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
    ) -> Result<Value, Fault> {
        if let Some(advance) = advance
            && !lock(&self.advanced).contains(&advance.partition)
        {
            let advanced = self.send(&advance.command()).await;
            advanced.map_err(Fault::not_sent)?;
            lock(&self.advanced).insert(advance.partition);
        }
        self.send(command).await
    }

    async fn send(&self, command: &Cmd) -> Result<Value, Fault> {
        if self.replaced.is_cancelled() {
            return Err(Fault::Broken(replaced()));
        }
        let mut connection = self.connection.clone();
        let answer = async {
            let answer = connection.send_packed_command(command).await;
            answer.and_then(Value::extract_error)
        };
        let answer = self.unless_replaced(answer).await;
        if !matches!(answer, Err(Fault::Broken(_))) {
            self.answers.add(1);
        }
        answer
    }

    /// Awaits an answer, unless the Sentinels name another server meanwhile. Then the answer is worth nothing, since this server will lose
    /// what it acknowledges: it may have been stopped while it was replaced, and go on with the requests that it has received before.
    async fn unless_replaced<T>(
        &self,
        answer: impl Future<Output = RedisResult<T>>,
    ) -> Result<T, Fault> {
        tokio::select! {
            biased;
            () = self.replaced.cancelled() => {
                Err(Fault::Broken(with_unknown_effect(replaced())))
            }
            answer = answer => answer.map_err(fault),
        }
    }
}

/// Returns the failure of a request that may have had an effect.
fn with_unknown_effect(mut failure: Failure) -> Failure {
    failure.effect = Effect::Unknown;
    failure
}

/// Keeps a link connected.
async fn supervise(link: Weak<Link>, connector: Connector, mut checks: watch::Receiver<()>) {
    let (mut number, mut failures) = (0, 0);
    while let Some(it) = link.upgrade() {
        match connect(&connector, it.preparation.get()).await {
            Ok(NewConnection { connection, watch }) => {
                (number, failures) = (number + 1, 0);
                let connection = Connection {
                    number,
                    connection,
                    answers: Arc::default(),
                    advanced: Arc::default(),
                    replaced: CancellationToken::new(),
                };
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
    connector: &Connector,
    preparation: Option<&Arc<dyn Preparation>>,
) -> Result<NewConnection, Failure> {
    let mut new = connector.connect(None).await?;
    // A server that requires a password refuses the first command rather than the connection.
    let answer = new
        .connection
        .send_packed_command(&redis::cmd("PING"))
        .await;
    answer
        .and_then(Value::extract_error)
        .map_err(not_connected)?;
    if let Some(preparation) = preparation {
        preparation.prepare(&mut new.connection).await?;
    }
    Ok(new)
}

/// Watches a connection until it is closed. Closes it when its server is no longer the primary, even while a ping waits for an answer.
async fn monitor(
    link: &Weak<Link>,
    connection: &Connection,
    state: watch::Receiver<State>,
    checks: &mut watch::Receiver<()>,
    mut watch: ServerWatch,
) {
    tokio::select! {
        () = watch.replaced() => {
            connection.replaced.cancel();
            if let Some(link) = link.upgrade() {
                link.disconnect(connection.number, &replaced());
            }
        }
        () = ping(link, connection, state, checks) => {}
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
            && let Err(Fault::Broken(failure)) = connection.send(&redis::cmd("PING")).await
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
