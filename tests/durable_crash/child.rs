//! The program that the tests start, several times at once: this test binary itself, told by the
//! environment what to do.

use std::env;
use std::io::{BufRead, stdin};
use std::process::exit;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use throng::Retry;
use throng::durable::{DurableClient, DurableExecutor, SpawnOptions, TaskId};
use tokio::sync::mpsc;
use tokio::time::sleep;
use tokio::{runtime, select};

use super::family::{Member, Parent};
use super::job::{Child, Folder, Job};
use super::operator::Operation;
use super::outbox::{Death, buy};
use super::relay::{OutboxAddress, relay_until};
use super::site::PATIENT;
use super::store_address::{Service, StoreAddress};
use super::support::Numbers;
use super::torture::chore::{Chore, Lane};
use super::torture::producers::any_chore;

/// The plan of a process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) folder: Folder,
    pub(crate) address: StoreAddress,
    pub(crate) role: Role,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Role {
    /// Runs tasks until it is told to stop.
    Worker(Work),
    /// Stores so many tasks, one after the other, and then as many at once; the `n`th under the
    /// [id](nth_id) of that number.
    Producer { tasks: usize },
    /// Stores chores until it is killed.
    Storer,
    /// Stores an order of the user and its task in one transaction, and dies.
    Buyer(Death),
    /// Moves tasks from an outbox into the store until it is told to stop.
    Relay(OutboxAddress),
    /// Awaits a task, and says who has run it.
    Awaiter { id: TaskId },
    /// Changes all tasks that match, and says after each part how many it has changed so far.
    Operator(Operation),
    /// Runs so many tasks of its own, shuts its executor down, stores as many tasks again, and
    /// closes its only client, or drops it. Then it lives until it is told to stop.
    Whole { tasks: usize, closes: bool },
}

/// The options of a worker. Times are in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Work {
    pub(crate) executors: usize,
    pub(crate) max_running: usize,
    pub(crate) lease: u64,
    pub(crate) stall_limit: u64,
    /// `true` if it also runs the children of tasks.
    pub(crate) children: bool,
    /// `true` if it also runs chores, from all their queues.
    pub(crate) chores: bool,
}

/// The variable of the environment that holds a [`Plan`].
pub(crate) const PLAN: &str = "THRONG_CRASH_PLAN";
/// The name of the test that follows it.
pub(crate) const ENTRY: &str = "child::entry";
/// The prefix of all output of a child: the test harness prints, too.
pub(crate) const SAYS: &str = "child says: ";

/// The number of threads that run the tasks of a process.
pub(crate) const THREADS: usize = 2;

/// The id of the `n`th task of a producer.
pub(crate) fn nth_id(n: usize) -> TaskId {
    TaskId::derive("test.job", &n.to_le_bytes())
}

/// Follows a plan, if there is one. If there is none, this is a test like any other: of the plans.
#[test]
fn entry() {
    match env::var(PLAN) {
        Ok(plan) => follow(serde_json::from_str(&plan).expect("a plan")),
        Err(_) => plans_arrive_as_they_were_sent(),
    }
}

fn plans_arrive_as_they_were_sent() {
    let work = Work {
        executors: 2,
        max_running: 3,
        lease: 500,
        stall_limit: 60_000,
        children: true,
        chores: false,
    };
    let id = nth_id(7);
    for role in [
        Role::Worker(work),
        Role::Producer { tasks: 3 },
        Role::Storer,
        Role::Buyer(Death::Within),
        Role::Relay(OutboxAddress::Server("a url".into())),
        Role::Operator(Operation::Replay),
        Role::Awaiter { id },
        Role::Whole {
            tasks: 3,
            closes: true,
        },
    ] {
        let folder = Folder("a folder/\"with\" a name".into());
        let address = StoreAddress::Server {
            service: Service::Redis { partitions: 2 },
            url: "a url".into(),
            answer_timeout: 5,
        };
        let plan = Plan {
            folder,
            address,
            role,
        };
        let text = serde_json::to_string(&plan).expect("a text");
        assert_eq!(serde_json::from_str::<Plan>(&text).expect("a plan"), plan);
    }
    assert_ne!(id, nth_id(8));
}

fn follow(plan: Plan) {
    let mut runtime = runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(THREADS).enable_all().build();
    // The plan does not run on a thread of the runtime: tasks can block all of those.
    runtime.expect("a runtime").block_on(async {
        let orders = orders();
        let client = plan.address.client().await;
        match plan.role {
            Role::Worker(work) => {
                run_tasks(&client, plan.folder, work, orders).await;
                if plan.address.is_file() {
                    // Otherwise, the process may end before the threads of the store have removed its files. Others may have the
                    // file locked.
                    client.close().await.ok();
                }
            }
            Role::Producer { tasks } => store_tasks(&client, tasks).await,
            Role::Storer => store_chores(&client).await,
            Role::Buyer(death) => buy(&client, &plan.folder, death),
            Role::Relay(outbox) => relay_until(&client, &outbox, orders).await,
            Role::Operator(operation) => operation.run(&client).await,
            Role::Awaiter { id } => await_task(&client, id).await,
            Role::Whole { tasks, closes } => {
                run_and_end(client, plan.folder, (tasks, closes), orders).await;
            }
        }
    });
}

/// What the test writes to standard input: how many milliseconds of grace there are. At its end,
/// this process ends, too: the test is gone.
fn orders() -> mpsc::UnboundedReceiver<Duration> {
    let (sender, receiver) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in stdin().lock().lines().map_while(Result::ok) {
            let millis = line.parse().expect("a number of milliseconds");
            sender.send(Duration::from_millis(millis)).ok();
        }
        exit(1);
    });
    receiver
}

async fn run_tasks(
    client: &DurableClient,
    folder: Folder,
    work: Work,
    mut orders: mpsc::UnboundedReceiver<Duration>,
) {
    let mut executors = Vec::new();
    for _ in 0..work.executors {
        executors.push(executor(client, &folder, work).await);
    }
    say("ready");
    let grace = loop {
        select! {
            grace = orders.recv() => break grace.expect("the thread never ends"),
            () = sleep(Duration::from_millis(20)) => note_late_wakes(&folder, &executors),
        }
    };
    for executor in &executors {
        executor.shutdown(grace).await;
        let metrics = executor.metrics();
        let (rejected, lost) = (metrics.rejected, metrics.leases_lost);
        say(&format!("late {}", rejected + lost));
        say(&format!("failures {}", metrics.failures));
    }
    note_late_wakes(&folder, &executors);
    say("stopped");
}

/// Leaves the number of late wakes in the folder, since this process may be killed before it can tell.
fn note_late_wakes(folder: &Folder, executors: &[DurableExecutor]) {
    let late: u64 = executors
        .iter()
        .map(|executor| executor.metrics().late_wakes)
        .sum();
    if late > 0 {
        folder.note_late_wakes(late);
    }
}

async fn executor(client: &DurableClient, folder: &Folder, work: Work) -> DurableExecutor {
    let retry = Retry::exponential().base(Duration::from_millis(20));
    let mut builder = DurableExecutor::builder(client.clone());
    builder.register::<Job>();
    if work.children {
        builder.register::<Child>();
        builder.register::<Parent>().register::<Member>();
    }
    if work.chores {
        builder.register::<Chore>();
        for lane in Lane::ALL {
            builder.serve(lane.served());
        }
    }
    let executor = builder
        .max_running(work.max_running)
        .lease(Duration::from_millis(work.lease))
        .stall_limit(Duration::from_millis(work.stall_limit))
        .retry(retry.attempts(1000).cap(Duration::from_millis(50)))
        .start(folder.clone());
    executor.await.expect("an executor")
}

async fn store_tasks(client: &DurableClient, tasks: usize) {
    let job = |n| (Job::Work(1), SpawnOptions::new().id(nth_id(n)));
    for n in 0..tasks {
        let (job, options) = job(n);
        let handle = client.spawn_with(job, options).await.expect("it is stored");
        say(&format!("stored {}", handle.id()));
    }
    let all = client.spawn_all_with((tasks..2 * tasks).map(job)).await;
    for handle in all.expect("they are stored") {
        say(&format!("stored {}", handle.id()));
    }
    say("all stored");
    client.close().await.expect("it ends in order");
}

async fn store_chores(client: &DurableClient) {
    let mut random = Numbers::new(u64::from(std::process::id()));
    loop {
        let (chore, options) = any_chore(&mut random);
        let handle = client.spawn_with(chore, options).await;
        say(&format!("stored {}", handle.expect("it is stored").id()));
        sleep(Duration::from_millis(random.below(30))).await;
    }
}

async fn await_task(client: &DurableClient, id: TaskId) {
    let handle = client.attach::<Job>(id);
    say("awaits");
    let outcome = handle.await.expect("it succeeds");
    say(&format!("run by {}", outcome.pid));
}

async fn run_and_end(
    client: DurableClient,
    folder: Folder,
    (tasks, closes): (usize, bool),
    mut orders: mpsc::UnboundedReceiver<Duration>,
) {
    let executor = executor(&client, &folder, PATIENT).await;
    drop(client);
    let client = executor.client();
    let stored = client.spawn_all(vec![Job::Work(1); tasks]).await;
    for handle in stored.expect("they are stored") {
        handle.await.expect("it succeeds");
    }
    executor.shutdown(Duration::from_secs(20)).await;
    let stored = client.spawn_all(vec![Job::Work(1); tasks]).await;
    drop(stored.expect("they are stored"));
    match closes {
        true => client.close().await.expect("it ends in order"),
        false => drop(executor),
    }
    say("ended");
    orders.recv().await.expect("the thread never ends");
}

pub(crate) fn say(text: &str) {
    println!("{SAYS}{text}");
}
