//! No room is left for a file: the disk is full, or the file has reached the largest size that the system allows.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::{Resource, Rlimit, setrlimit};
use serde::{Deserialize, Serialize};
use throng::durable::{
    DurableClient, DurableError, DurableExecutor, DurableTask, Health, Run, SqliteStore, Status,
    TaskContext, TaskError,
};

use crate::harness::{Door, in_time, reaches, until};
use crate::support::within;

/// A task that is as large as its output.
#[derive(Serialize, Deserialize)]
struct Large(String);

impl DurableTask for Large {
    const NAME: &'static str = "large";
    type Output = String;
}

struct App {
    door: Door,
    runs: AtomicUsize,
}

impl Run<App> for Large {
    async fn run(self, cx: TaskContext<App>) -> Result<String, TaskError> {
        cx.app().runs.fetch_add(1, Ordering::SeqCst);
        cx.app().door.pass().await;
        Ok(large())
    }
}

/// Returns a text that is too large for the unused part of a file that exists.
fn large() -> String {
    "x".repeat(300_000)
}

/// A file system whose free space a test controls.
trait Disk {
    fn fill(&self, folder: &Path);
    fn make_space(&self, folder: &Path);
}

/// A disk of some megabytes, which another file fills.
struct Small;

impl Disk for Small {
    fn fill(&self, folder: &Path) {
        let mut other = File::create(folder.join("other")).unwrap();
        while other.write_all(&[0; 4096]).is_ok() {}
    }

    fn make_space(&self, folder: &Path) {
        fs::remove_file(folder.join("other")).unwrap();
    }
}

/// A process whose files may not grow.
struct Limited;

impl Disk for Limited {
    fn fill(&self, folder: &Path) {
        let log = fs::metadata(folder.join("tasks.db-wal")).unwrap().len();
        limit(Some(log));
    }

    fn make_space(&self, _folder: &Path) {
        limit(None);
    }
}

fn limit(bytes: Option<u64>) {
    let limit = Rlimit {
        current: bytes,
        maximum: None,
    };
    setrlimit(Resource::Fsize, limit).unwrap();
}

#[test]
fn a_full_disk_is_named_at_once_and_costs_nothing() {
    let test = "full::a_full_disk_is_named_at_once_and_costs_nothing";
    let script = "unshare -rm true || exit 77
        exec unshare -rm sh -c 'mount -t tmpfs -o size=8m tmpfs \"$FOLDER\" && exec \"$@\"' sh \"$@\"";
    in_child(test, script, Small);
}

#[test]
fn the_largest_size_of_a_file_is_named_at_once_and_costs_nothing() {
    let test = "full::the_largest_size_of_a_file_is_named_at_once_and_costs_nothing";
    // If the process does not ignore the signal, the system ends it.
    in_child(test, "trap '' XFSZ; exec \"$@\"", Limited);
}

/// Runs the test in a process of its own, which a script starts. The script ends with 77 if it cannot.
fn in_child(test: &str, script: &str, disk: impl Disk) {
    const FOLDER: &str = "FOLDER";
    const IN_CHILD: &str = "THRONG_TEST_IN_CHILD";
    if std::env::var_os(IN_CHILD).is_some() {
        let folder = std::env::var_os(FOLDER).unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let test = is_named_and_costs_nothing(Path::new(&folder), disk);
        return runtime.block_on(in_time(test));
    }
    let folder = tempfile::tempdir().unwrap();
    let child = Command::new("sh")
        .args(["-c", script, "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(IN_CHILD, "1")
        .env(FOLDER, folder.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout);
    let complained = String::from_utf8_lossy(&child.stderr);
    if child.status.code() == Some(77) {
        eprintln!("skipped: this user cannot have a small disk: {complained}");
        return;
    }
    assert!(child.status.success(), "{said}{complained}");
    assert!(said.contains("1 passed"), "it did not run: {said}");
}

async fn is_named_and_costs_nothing(folder: &Path, disk: impl Disk) {
    const TASKS: usize = 4;
    let (producer, consumer) = (client(folder).await.unwrap(), client(folder).await.unwrap());
    let (app, executor) = start(&consumer).await;
    let tasks = (0..TASKS).map(|_| Large(String::new()));
    let handles = producer.spawn_all(tasks).await.unwrap();
    for handle in &handles {
        reaches(handle, Status::Running).await;
    }

    disk.fill(folder);
    assert_is_full(&producer.spawn(Large(large())).await.unwrap_err());
    // The request was sent once, and its failure is reported at once.
    assert_eq!(failures(&producer, "storing tasks"), 1);
    app.door.open();
    until("a worker's turn has failed", || {
        executor.metrics().failures > 0
    })
    .await;
    assert!(failures(&consumer, "a worker's turn") > 0);
    if let Err(error) = client(folder).await {
        assert_is_full(&error);
    }

    disk.make_space(folder);
    for handle in handles {
        assert_eq!(within(handle).await.unwrap(), large());
    }
    let late = producer.spawn(Large(large())).await.unwrap();
    assert_eq!(within(late).await.unwrap(), large());
    assert_eq!(app.runs.load(Ordering::SeqCst), TASKS + 1);
    for client in [producer, consumer] {
        until("all is well", || client.health() == Health::Well).await;
        let counts = client.counts().await.unwrap();
        let ended = (counts.stored, counts.claimed, counts.done);
        assert_eq!(ended, (5, 5, 5), "{counts:?}");
    }
}

async fn client(folder: &Path) -> Result<DurableClient, DurableError> {
    let store = SqliteStore::open(folder.join("tasks.db")).await?;
    Ok(DurableClient::open(store))
}

async fn start(client: &DurableClient) -> (Arc<App>, DurableExecutor) {
    let app = Arc::new(App {
        door: Door::new(),
        runs: AtomicUsize::new(0),
    });
    let mut builder = DurableExecutor::builder(client.clone());
    builder.register::<Large>();
    let executor = builder.start(Arc::clone(&app)).await.unwrap();
    (app, executor)
}

fn assert_is_full(error: &DurableError) {
    assert!(error.is_full() && !error.is_unknown(), "{error}");
    assert!(error.to_string().contains("make some"), "{error}");
}

/// Returns how often requests of one kind have failed, according to `health`.
fn failures(client: &DurableClient, sort: &str) -> u32 {
    let Health::Failing {
        error, failures, ..
    } = client.health()
    else {
        panic!("{:?}", client.health());
    };
    assert!(error.contains(sort) && error.contains("no room"), "{error}");
    failures
}
