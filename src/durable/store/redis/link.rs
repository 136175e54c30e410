//! [`Link`]: the connection for requests, which is replaced when it breaks.
//!
//! The `redis` crate keeps a connection even if nothing is answered on it, or if its server has become a replica. Here,
//! everything that is not an answer ends the connection. A new one is opened at once, and if that fails, again and
//! again after pauses.

use std::collections::HashSet;
use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, RedisResult, Value};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::error::{Fault, fault, no_answer, no_connection, not_connected};
use super::keys::Keys;
use super::recall::Recall;
use super::scripts::Script;
use crate::durable::failure::{Effect, Failure};
use crate::retry::Retry;
use crate::sync::{Mutex, Number, lock};

/// The pauses between attempts to connect, and between attempts of a request that the server defers.
pub(super) const BACKOFF: Retry = Retry::exponential()
    .attempts(u32::MAX)
    .base(Duration::from_millis(50))
    .cap(Duration::from_secs(1));

/// The timeouts of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) connect: Duration,
    pub(super) answer: Duration,
    /// How long a connection may be silent before it is pinged.
    pub(super) pulse: Duration,
}

/// The connection for requests.
pub(super) struct Link {
    client: Client,
    times: Times,
    state: watch::Sender<State>,
}

enum State {
    /// There is no connection: the reason, if it is known.
    Down(Option<Failure>),
    Up(Live),
}

/// A connection, and its number.
#[derive(Clone)]
pub(super) struct Live {
    number: u64,
    connection: MultiplexedConnection,
    /// The number of answers so far.
    answers: Arc<Number>,
    /// The partitions whose epochs this connection has recalled.
    recalled: Arc<Mutex<HashSet<usize>>>,
}

impl Link {
    /// Creates a link, and keeps it connected until it is dropped. When `doubts` changes, the connection is pinged at
    /// once.
    pub(super) fn start(client: Client, times: Times, doubts: watch::Receiver<()>) -> Arc<Self> {
        let link = Arc::new(Self {
            client,
            times,
            state: watch::Sender::new(State::Down(None)),
        });
        tokio::spawn(supervise(Arc::downgrade(&link), doubts));
        link
    }

    /// Runs a script with these arguments. Waits for a server that cannot be reached, or is not ready.
    pub(super) async fn run(
        &self,
        script: &Script,
        keys: &Keys,
        arguments: &Arguments,
    ) -> Result<Value, Failure> {
        self.run_by_hash(script, keys, arguments, None).await
    }

    /// Runs a script on a connection that has recalled the epochs of a partition.
    pub(super) async fn run_recalled(
        &self,
        script: &Script,
        arguments: &Arguments,
        recall: &Recall<'_>,
    ) -> Result<Value, Failure> {
        self.run_by_hash(script, recall.keys, arguments, Some(recall))
            .await
    }

    async fn run_by_hash(
        &self,
        script: &Script,
        keys: &Keys,
        arguments: &Arguments,
        recall: Option<&Recall<'_>>,
    ) -> Result<Value, Failure> {
        let by_hash = arguments.command("EVALSHA", &script.hash, script.keys(keys));
        match self.send_recalled(&by_hash, recall).await {
            Err(Fault::NoScript) => {
                let whole = arguments.command("EVAL", &script.text, script.keys(keys));
                self.send_recalled(&whole, recall).await
            }
            answer => answer,
        }
        .map_err(Fault::into_failure)
    }

    /// The same, and then waits until the server has written the changes to its disk. It waits on the connection that
    /// has received the answer, since another one may lead to a server that has lost the changes.
    pub(super) async fn run_to_disk(
        &self,
        script: &Script,
        keys: &Keys,
        arguments: &Arguments,
    ) -> Result<Value, Failure> {
        let before = self.live(Instant::now() + self.times.answer).await?;
        let answer = self.run(script, keys, arguments).await?;
        if !self.is_still(before.number) {
            return Err(no_answer());
        }
        let mut connection = before.connection;
        // What a connection has not written itself is not waited for: so it writes something, behind
        // what it may have come too late to write.
        let mut wait = redis::pipe();
        wait.hset(keys.meta(), "disk", 1).ignore();
        let longest = self.times.answer.as_millis() as u64 / 2;
        wait.cmd("WAITAOF").arg(1).arg(0).arg(longest);
        // How many disks have it: the server's own, and those of its replicas.
        let disks: RedisResult<((u64, u64),)> = wait.query_async(&mut connection).await;
        match disks {
            Ok(((1, _),)) => Ok(answer),
            Ok(_) => Err(no_answer()),
            Err(error) => Err(unknown(fault(error).into_failure())),
        }
    }

    /// Sends a command, if need be again, as long as it has had no effect.
    pub(super) async fn send(&self, command: &Cmd) -> Result<Value, Fault> {
        self.send_recalled(command, None).await
    }

    async fn send_recalled(
        &self,
        command: &Cmd,
        recall: Option<&Recall<'_>>,
    ) -> Result<Value, Fault> {
        let end = Instant::now() + self.times.answer;
        let mut failures = 0;
        loop {
            let live = self.live(end).await.map_err(Fault::Final)?;
            let fault = match live.ask_recalled(command, recall).await {
                Ok(answer) => return Ok(answer),
                Err(fault) => fault,
            };
            let failure = match fault {
                Fault::Wait(failure) => failure,
                Fault::Broken(failure) => {
                    self.give_up(live.number, &failure);
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

    /// The connection; waits for one until `end`.
    async fn live(&self, end: Instant) -> Result<Live, Failure> {
        let mut state = self.state.subscribe();
        let up = state.wait_for(|state| matches!(state, State::Up(_)));
        if let Ok(Ok(state)) = timeout_at(end, up).await
            && let State::Up(live) = &*state
        {
            return Ok(live.clone());
        }
        match &*self.state.borrow() {
            State::Down(Some(failure)) => Err(failure.clone().without_effect()),
            _ => Err(no_connection()),
        }
    }

    /// Waits until there is a connection, or a reason why there is none.
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

    /// A connection is of no more use.
    fn give_up(&self, number: u64, why: &Failure) {
        self.state.send_if_modified(|state| {
            let is_it = matches!(state, State::Up(live) if live.number == number);
            if is_it {
                *state = State::Down(Some(why.clone()));
            }
            is_it
        });
    }

    /// Why there is no connection, if there is none.
    pub(super) fn trouble(&self) -> Option<String> {
        match &*self.state.borrow() {
            State::Up(_) => None,
            State::Down(Some(failure)) => Some(failure.to_string()),
            State::Down(None) => Some(no_connection().to_string()),
        }
    }

    /// Whether the connection is that of this number. Numbers rise: so if it is, it was all along.
    fn is_still(&self, number: u64) -> bool {
        matches!(&*self.state.borrow(), State::Up(live) if live.number == number)
    }

    /// Whether there is a connection.
    pub(super) fn is_up(&self) -> bool {
        self.trouble().is_none()
    }
}

impl Live {
    /// Sends a command. Recalls the epochs of a partition before the first command that needs this.
    async fn ask_recalled(
        &self,
        command: &Cmd,
        recall: Option<&Recall<'_>>,
    ) -> Result<Value, Fault> {
        if let Some(recall) = recall
            && !lock(&self.recalled).contains(&recall.partition)
        {
            recall.run(self).await?;
            lock(&self.recalled).insert(recall.partition);
        }
        self.ask(command).await
    }

    pub(super) async fn ask(&self, command: &Cmd) -> Result<Value, Fault> {
        let mut connection = self.connection.clone();
        let answer = connection.send_packed_command(command).await;
        let answer = answer.and_then(Value::extract_error).map_err(fault);
        if !matches!(answer, Err(Fault::Broken(_))) {
            self.answers.add(1);
        }
        answer
    }
}

/// The failure of a request of which a part was done.
fn unknown(mut failure: Failure) -> Failure {
    failure.effect = Effect::Unknown;
    failure
}

/// Keeps a link connected.
async fn supervise(link: Weak<Link>, mut doubts: watch::Receiver<()>) {
    let (mut number, mut failures) = (0, 0);
    while let Some(it) = link.upgrade() {
        match connect(&it.client, it.times).await {
            Ok(connection) => {
                (number, failures) = (number + 1, 0);
                let live = Live {
                    number,
                    connection,
                    answers: Arc::default(),
                    recalled: Arc::default(),
                };
                it.state.send_replace(State::Up(live.clone()));
                let (state, pulse) = (it.state.subscribe(), it.times.pulse);
                drop(it);
                watch_over(&link, &live, state, &mut doubts, pulse).await;
            }
            Err(error) => {
                let why = not_connected(error);
                it.state.send_replace(State::Down(Some(why)));
                failures += 1;
            }
        }
        sleep(BACKOFF.delay(failures.max(1)).unwrap_or_default()).await;
    }
}

async fn connect(client: &Client, times: Times) -> RedisResult<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(times.connect))
        .set_response_timeout(Some(times.answer));
    let connection = client.get_multiplexed_async_connection_with_config(&config);
    let mut connection = connection.await?;
    // Whether it is to be talked to at all: a server that wants a password has not said so yet.
    let answer = connection.send_packed_command(&redis::cmd("PING")).await;
    answer.and_then(Value::extract_error)?;
    Ok(connection)
}

/// Pings a connection when it has been silent or is in doubt, until it is no longer usable.
async fn watch_over(
    link: &Weak<Link>,
    live: &Live,
    mut state: watch::Receiver<State>,
    doubts: &mut watch::Receiver<()>,
    pulse: Duration,
) {
    loop {
        let answers = live.answers.get();
        let down = state.wait_for(|state| matches!(state, State::Down(_)));
        let is_in_doubt = tokio::select! {
            _ = down => return,
            doubt = timeout(pulse, doubts.changed()) => match doubt {
                Ok(Ok(())) => true,
                Ok(Err(_)) => return,
                Err(_) => false,
            },
        };
        if (is_in_doubt || live.answers.get() == answers)
            && let Err(Fault::Broken(failure)) = live.ask(&redis::cmd("PING")).await
            && let Some(link) = link.upgrade()
        {
            link.give_up(live.number, &failure);
        }
    }
}

/// The arguments of a script.
#[derive(Debug, Default)]
pub(super) struct Arguments(Vec<Vec<u8>>);

impl Arguments {
    pub(super) fn push(&mut self, argument: impl Into<Vec<u8>>) {
        self.0.push(argument.into());
    }

    pub(super) fn number(&mut self, number: impl std::fmt::Display) {
        self.push(number.to_string());
    }

    pub(super) fn command<'a>(
        &self,
        name: &str,
        script: &str,
        keys: impl ExactSizeIterator<Item = &'a str>,
    ) -> Cmd {
        let size = self.0.iter().map(Vec::len).sum::<usize>() + script.len() + 1024;
        let mut command = Cmd::with_capacity(self.0.len() + keys.len() + 3, size);
        command.arg(name).arg(script).arg(keys.len());
        for key in keys {
            command.arg(key);
        }
        for argument in &self.0 {
            command.arg(argument);
        }
        command
    }
}

/// Does something on the thread of the store: whoever waits for it may be in any runtime, or in none.
pub(super) fn spawn<T: Send + 'static>(
    runtime: &tokio::runtime::Handle,
    work: impl Future<Output = Result<T, Failure>> + Send + 'static,
) -> crate::durable::store::Answer<'static, T> {
    let task = runtime.spawn(work);
    Box::pin(async move { task.await.unwrap_or_else(|_| Err(no_answer())) })
}
