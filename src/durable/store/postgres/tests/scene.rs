//! [`PostgresScene`]: a schema of the server that the tests share, and the stores in it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, sleep, timeout};

use super::ServerConnection;
use super::server::Server;
use crate::durable::DurableError;
use crate::durable::failure::{Cause, Failure};
use crate::durable::store::kind::TypeSet;
use crate::durable::store::postgres::{PostgresStore, PostgresStoreBuilder};
use crate::durable::store::suite::task;
use crate::durable::store::{
    Backend, Claim, ClaimPushes, Enqueue, Epoch, Event, NewTask, RenewAnswer, SessionId, Turn,
    TurnAnswer, Verdict, Verdicts,
};
use crate::sync::{Mutex, Number, lock};

/// The maximum time for anything that must happen eventually.
pub(super) const DEADLINE: Duration = Duration::from_secs(20);

/// The answer timeout of a store whose requests fail in the test.
pub(super) const SOON: Duration = Duration::from_millis(900);

const LEASE: Duration = Duration::from_secs(30);

/// A schema of the server that the tests share. It is removed at the end.
pub(super) struct PostgresScene {
    connection: ServerConnection,
    pub(super) schema: String,
}

impl PostgresScene {
    pub(super) fn new() -> Self {
        static NEXT: Number = Number::new(0);
        Self {
            connection: ServerConnection::to(Server::shared().url()),
            schema: format!("scene_{}", NEXT.add(1)),
        }
    }

    /// Returns a builder of the store, as a user of the server.
    pub(super) fn builder_of(&self, user: &str) -> PostgresStoreBuilder {
        self.builder_at(&Server::shared().url_of(user))
    }

    /// Returns a builder of the store whose connections can be found: see [`backends`](Self::backends).
    pub(super) fn builder_at(&self, url: &str) -> PostgresStoreBuilder {
        let url = format!("{url} application_name={}", self.schema);
        let mut builder = PostgresStore::builder(&url);
        builder.schema(&*self.schema);
        builder
    }

    pub(super) fn builder(&self) -> PostgresStoreBuilder {
        self.builder_of("throng")
    }

    pub(super) async fn open(&self) -> Caller {
        Caller::of(self.builder().open().await.unwrap()).await
    }

    /// Opens the store, which may be damaged.
    pub(super) async fn try_open(&self) -> Result<Caller, String> {
        let store = self.builder().open().await;
        let store = store.map_err(|error| error.to_string())?;
        let session = store.open_session(TypeSet::of_tests()).await;
        let session = session.map_err(|failure| failure.to_string())?;
        Ok(Caller::in_session(store, session))
    }

    /// Opens the store as a process that does not wait for long.
    pub(super) async fn open_hurried(&self) -> Caller {
        let mut builder = self.builder();
        let store = builder.answer_timeout(SOON).open().await.unwrap();
        Caller::of(store).await
    }

    /// Runs statements, in which `$S` is replaced with the name of the schema.
    pub(super) fn ask(&self, sql: &str) -> Vec<Vec<String>> {
        self.connection.ask(&sql.replace("$S", &self.schema))
    }

    /// The same; the server may refuse a statement.
    pub(super) fn try_ask(&self, sql: &str) -> Result<(), tokio_postgres::Error> {
        self.connection
            .try_ask(&sql.replace("$S", &self.schema))
            .map(drop)
    }

    pub(super) fn number(&self, sql: &str) -> i64 {
        self.ask(sql)[0][0].parse().expect("it is a number")
    }

    /// Creates a user with some rights, and returns the name of it.
    pub(super) fn new_user(&self, rights: &str) -> String {
        let user = format!("user_of_{}", self.schema);
        self.ask(&format!("CREATE ROLE {user} LOGIN; {rights}"));
        user
    }

    /// Returns the process ids of the connections to the server, in the order in which they were opened: the writer, the listener, the
    /// reader.
    pub(super) fn backends(&self) -> Vec<String> {
        self.ask(
            "SELECT pid FROM pg_stat_activity WHERE application_name = '$S'
             ORDER BY backend_start",
        )
        .concat()
    }

    /// Ends a connection, and waits until it is gone.
    pub(super) fn cut(&self, backend: &str) {
        self.ask(&format!("SELECT pg_terminate_backend({backend})"));
        let end = Instant::now() + DEADLINE;
        while self.number(&format!(
            "SELECT count(*) FROM pg_stat_activity WHERE pid = {backend}"
        )) > 0
        {
            assert!(Instant::now() < end, "the connection stays");
        }
    }

    /// Keeps a store from using a table until the returned connection executes `ROLLBACK`.
    pub(super) fn lock(&self, table: &str) -> ServerConnection {
        let other = ServerConnection::to(Server::shared().url());
        other.ask(&format!(
            "BEGIN; LOCK TABLE {}.{table} IN ACCESS EXCLUSIVE MODE",
            self.schema
        ));
        other
    }

    /// Waits until a connection of the store waits for a lock. Returns its process id.
    pub(super) async fn blocked(&self) -> String {
        let end = Instant::now() + DEADLINE;
        loop {
            let found = self.ask(
                "SELECT pid FROM pg_stat_activity
                 WHERE application_name = '$S' AND wait_event_type = 'Lock'",
            );
            if let Some(pid) = found.concat().pop() {
                return pid;
            }
            assert!(Instant::now() < end, "no connection waits");
            sleep(Duration::from_millis(10)).await;
        }
    }
}

impl Drop for PostgresScene {
    fn drop(&mut self) {
        let user = format!("user_of_{}", self.schema);
        self.ask(&format!(
            "SET client_min_messages = error; SET lock_timeout = '10s'; DROP SCHEMA IF EXISTS $S CASCADE;
             DO $$ BEGIN
                 IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = '{user}') THEN
                     DROP OWNED BY {user}; DROP ROLE {user};
                 END IF;
             END $$"
        ));
    }
}

/// A session of a store, which numbers its requests.
pub(super) struct Caller {
    pub(super) store: PostgresStore,
    pub(super) session: SessionId,
    number: Number,
    /// The claim with which the last turn was answered.
    received: Mutex<Option<Epoch>>,
}

impl Caller {
    pub(super) async fn of(store: PostgresStore) -> Self {
        let session = settled(|| store.open_session(TypeSet::of_tests())).await;
        Self::in_session(store, session.unwrap())
    }

    fn in_session(store: PostgresStore, session: SessionId) -> Self {
        Self {
            session,
            store,
            number: Number::new(0),
            received: Mutex::default(),
        }
    }

    fn next_number(&self) -> u64 {
        self.number.add(1) as u64 + 1
    }

    pub(super) fn new_enqueue(&self, tasks: impl IntoIterator<Item = NewTask>) -> Arc<Enqueue> {
        Arc::new(Enqueue {
            session: self.session,
            number: self.next_number(),
            batch: Arc::new(tasks.into_iter().collect::<Vec<_>>().into()),
        })
    }

    pub(super) fn new_turn(&self, verdicts: Vec<Verdicts>, want: usize) -> Arc<Turn> {
        Arc::new(Turn {
            session: self.session,
            number: self.next_number(),
            verdicts,
            received: lock(&self.received).take(),
            floor: 0,
            want,
            want_bytes: 1 << 20,
            quarantined: true,
            lease: LEASE,
            go_idle: want > 0,
            pushes: ClaimPushes::default(),
        })
    }

    /// Stores the task with this number, with one request.
    pub(super) async fn store(&self, number: u64) -> Result<(), Failure> {
        let request = self.new_enqueue([task(number)]);
        self.store.enqueue(request).await.map(drop)
    }

    pub(super) async fn turn(&self, verdicts: Vec<Verdicts>, want: usize) -> TurnAnswer {
        let request = self.new_turn(verdicts, want);
        let turned = settled(|| self.store.turn(Arc::clone(&request))).await;
        let turned = turned.unwrap();
        *lock(&self.received) = turned.claim.as_ref().map(|claim| claim.epoch);
        turned
    }

    pub(super) async fn claim(&self, want: usize) -> Claim {
        let turned = self.turn(Vec::new(), want).await;
        turned.claim.expect("there is something to claim")
    }

    pub(super) async fn renew(&self, claim: &Claim) -> RenewAnswer {
        settled(|| self.store.renew(vec![claim.epoch]))
            .await
            .unwrap()
    }
}

/// Returns the verdicts that all tasks of a claim have succeeded.
pub(super) fn done(claim: &Claim) -> Vec<Verdicts> {
    let done = |id| (id, Verdict::Done(b"output".to_vec()));
    vec![Verdicts {
        epoch: claim.epoch,
        tasks: claim.tasks.iter().map(|task| done(task.id)).collect(),
    }]
}

/// Sends a request again until it is known what has become of it, as the engine does.
pub(super) async fn settled<T, F>(send: impl Fn() -> F) -> Result<T, Failure>
where
    F: Future<Output = Result<T, Failure>>,
{
    let end = Instant::now() + DEADLINE;
    loop {
        match send().await {
            Err(failure) if failure.cause == Cause::Unavailable && Instant::now() < end => {
                sleep(Duration::from_millis(20)).await;
            }
            answer => return answer,
        }
    }
}

/// Waits for an event. A wake-up names the session that is woken.
pub(super) async fn until(events: &mut UnboundedReceiver<Event>, wanted: &Event) {
    let found = async {
        while let Some(event) = events.recv().await {
            if event == *wanted || event.is_wake() && wanted.is_wake() {
                return;
            }
        }
        panic!("there are no more events");
    };
    let found = timeout(DEADLINE, found).await;
    found.unwrap_or_else(|_| panic!("{wanted:?} has not come"));
}

/// Returns the error with which a store cannot be opened.
pub(super) async fn refused(builder: &PostgresStoreBuilder) -> DurableError {
    let opened = builder.open().await;
    opened.expect_err("the store should not be opened")
}
