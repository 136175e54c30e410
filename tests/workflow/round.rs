//! A round: an order whose workers are killed.

use std::env;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use throng::durable::{DurableClient, DurableHandle, RedisStore, SqliteStore, Status};
use tokio::time::sleep;

use super::case::Case;
use super::order::{ANSWER, Outcome};
use super::redis_server::Server;
use super::support::TEST_TIMEOUT;

/// The kind of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Server,
}

/// The death of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kill {
    /// Kills itself when it passes a point this number of times, if it ever does.
    At(&'static str, u32),
    /// Is killed while the order waits.
    Waiting,
    /// Is killed while the order waits, and the answer comes before the next worker does.
    Answered,
}

/// The lengths of a day in milliseconds: if nobody answers, and if the answer comes in time. An order has three days, and a run waits in
/// place for less than two seconds.
const SHORT_DAY: u64 = 700;
const LONG_DAY: u64 = 100_000;

/// Runs an order, whose workers die one after the other. Returns how many of them have died. The worker after them lives.
pub(crate) async fn run(kind: Kind, case: Case, kills: &[Kill]) -> usize {
    let mut round = Round::start(kind, case).await;
    let mut killed = 0;
    for kill in kills {
        killed += usize::from(round.live(Some(*kill)).await);
    }
    round.live(None).await;
    round.assert_end(kills, killed).await;
    killed
}

struct Round {
    case: Case,
    client: DurableClient,
    order: DurableHandle<Outcome>,
    is_answered: bool,
    store: String,
    folder: TempDir,
    _server: Option<Server>,
}

impl Round {
    async fn start(kind: Kind, case: Case) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("tasks.db").display().to_string();
        let server = (kind == Kind::Server).then(Server::start);
        let store = server.as_ref().map_or(file, Server::url);
        let client = open(&store).await;
        let order = client.spawn(case.order()).await.expect("it is stored");
        Self {
            case,
            client,
            order,
            is_answered: false,
            store,
            folder,
            _server: server,
        }
    }

    /// Has a worker live until it dies, or until the order ends. Returns `true` if it has died.
    async fn live(&mut self, kill: Option<Kill>) -> bool {
        let mut worker = Worker::start(self, kill);
        let deadline = Instant::now() + TEST_TIMEOUT;
        loop {
            if worker.has_died() {
                return true;
            }
            match self.order.status().await.expect("the store answers") {
                Status::Done => return false,
                // It waits for its answer, or for its parcels.
                Status::Delayed if matches!(kill, Some(Kill::Waiting | Kill::Answered)) => {
                    drop(worker);
                    if kill == Some(Kill::Answered) {
                        self.answer().await;
                    }
                    return true;
                }
                Status::Delayed => self.answer().await,
                status => {
                    let case = self.case;
                    assert!(Instant::now() < deadline, "{case:?}, {kill:?}: {status:?}");
                }
            }
            assert!(Instant::now() < deadline, "{:?}, {kill:?}", self.case);
            sleep(Duration::from_millis(5)).await;
        }
    }

    fn effects(&self) -> PathBuf {
        self.folder.path().join("effects")
    }

    async fn answer(&mut self) {
        if let (Some(answer), false) = (self.case.answer(), self.is_answered) {
            let answered = self.client.signal(self.order.id(), ANSWER, &answer).await;
            assert!(answered.expect("the store answers"), "the first answer");
            self.is_answered = true;
        }
    }

    /// Asserts that the order has ended as it should, and that its steps were repeated no more than the deaths explain.
    async fn assert_end(self, kills: &[Kill], killed: usize) {
        let what = format!("{:?}, {kills:?}", self.case);
        let id = self.order.id();
        let path = self.effects();
        let outcome = self.order.await;
        assert_eq!(outcome.expect("it ends"), self.case.outcome(), "{what}");
        let effects = fs::read_to_string(path);
        let effects = effects
            .expect("the effects")
            .lines()
            .map(|line| {
                let (order, effect) = line.split_once(' ').expect("an effect");
                assert_eq!(order, id.to_string());
                effect.to_owned()
            })
            .collect::<Vec<_>>();
        let repeated = self.case.assert_effects(&effects);
        // One run at a time has at most one effect that is not stored.
        let all: usize = repeated.values().sum();
        let most = kills.iter().map(|kill| kill.max_repetitions());
        assert!(
            all <= most.sum::<usize>().min(killed),
            "{what}: {effects:?}"
        );
        if let ([Kill::At("step.after-run", nth)], 1) = (kills, killed) {
            // The charge that is declined has no effect.
            let expected = usize::from(self.case != Case::Declined || *nth != 2);
            assert_eq!(all, expected, "{what}: {effects:?}");
        }
        let counts = self.client.counts().await.expect("the store answers");
        let left = counts.waiting + counts.delayed + counts.running;
        // The task of the lost parcel is a dead letter.
        let dead = u64::from(self.case == Case::Returned);
        assert_eq!((left, counts.dead), (0, dead), "{what}: {counts:?}");
    }
}

impl Kill {
    /// Returns how many steps may run again because of this death.
    fn max_repetitions(self) -> usize {
        match self {
            Self::At("step.after-run", _) => 1,
            // Nothing is known about what was running.
            Self::At(point, _) if point.starts_with("sqlite.") || point.starts_with("redis.") => 1,
            // The output of each step is stored by then.
            Self::At(..) | Self::Waiting | Self::Answered => 0,
        }
    }
}

/// A process of the example. It is killed when this is dropped.
struct Worker(Child);

impl Worker {
    fn start(round: &Round, kill: Option<Kill>) -> Self {
        let mut command = program();
        let day = match round.case.answer() {
            Some(_) => LONG_DAY,
            None => SHORT_DAY,
        };
        command.args(["worker", "--store", &round.store]);
        command.args(["--day", &day.to_string()]);
        command.arg("--effects").arg(round.effects());
        if let Some(Kill::At(point, nth)) = kill {
            command.env("THRONG_KILL_AT", format!("{point}:{nth}"));
        }
        let child = command.stdin(Stdio::piped()).spawn();
        Self(child.expect("the example can be started"))
    }

    /// Returns `true` if it has killed itself.
    fn has_died(&mut self) -> bool {
        let status = self.0.try_wait().expect("a child");
        status.is_some_and(|status| {
            assert_eq!(status.signal(), Some(9), "{status}");
            true
        })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// The program that cargo has built beside this test.
fn program() -> Command {
    let test = env::current_exe().expect("the path of this test");
    let profile = test.ancestors().nth(2).expect("a profile's directory");
    let program = profile.join("examples").join("workflow");
    assert!(
        program.is_file(),
        "{} is not built: run `cargo test`, or `cargo build --examples`",
        program.display()
    );
    Command::new(program)
}

/// Opens the store as the example does.
async fn open(store: &str) -> DurableClient {
    match store.contains("://") {
        true => {
            let mut store = RedisStore::builder(store);
            let store = store.namespace("workflow").open().await;
            DurableClient::open(store.expect("the server answers"))
        }
        false => {
            let store = SqliteStore::open(store).await;
            DurableClient::open(store.expect("the file can be opened"))
        }
    }
}
