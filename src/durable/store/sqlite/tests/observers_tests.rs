//! Observers of a store in a file, which leave no trace in its folder.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::{env, fs};

use super::*;
use crate::durable::DurableError;
use crate::durable::store::suite::{contents_of, look};

async fn refused(path: &Path) -> DurableError {
    let error = SqliteStore::observe(path).await.unwrap_err();
    assert!(!error.is_unknown(), "{error}");
    error
}

impl File {
    async fn observe(&self) -> Store {
        SqliteStore::observe(&self.path).await.unwrap()
    }

    fn contents(&self) -> Vec<(String, Vec<u8>)> {
        contents_of(self._folder.path())
    }

    /// Copies the database and the files that SQLite keeps beside it to another folder, as after a crash.
    fn after_crash(&self) -> Self {
        let copy = Self::new();
        for suffix in ["", "-wal", "-shm"] {
            let name = format!("tasks.db{suffix}");
            let from = self.path.with_file_name(&name);
            fs::copy(from, copy.path.with_file_name(name)).unwrap();
        }
        copy
    }
}

async fn waiting(observer: &Store) -> u64 {
    observer.0.counts().await.unwrap().waiting
}

#[tokio::test]
async fn a_path_without_a_file_stays_one() {
    let file = File::new();
    let error = refused(&file.path).await;
    assert!(error.is_invalid(), "{error}");
    for expected in [
        "there is no file",
        &file.path.display().to_string(),
        "`open`",
    ] {
        assert!(error.to_string().contains(expected), "{error}");
    }
    let error = refused(&file.path.join("folder/tasks.db")).await;
    assert!(error.is_invalid(), "{error}");
    assert!(refused(Path::new(":memory:")).await.is_invalid());
    assert_eq!(file.contents(), []);
}

#[tokio::test]
async fn a_file_without_a_store_is_refused() {
    let file = File::new();
    fs::write(&file.path, "").unwrap();
    let error = refused(&file.path).await;
    assert!(
        error.is_invalid() && error.to_string().contains("contains no store"),
        "{error}"
    );
    file.sql("CREATE TABLE users (id INTEGER)");
    let before = file.contents();
    assert!(refused(&file.path).await.is_invalid());
    assert!(file.contents() == before);
    fs::write(&file.path, vec![7; 10_000]).unwrap();
    assert!(refused(&file.path).await.is_corrupt());
}

#[tokio::test]
async fn a_store_of_another_layout_is_not_observed() {
    let file = File::new();
    drop(file.open().await);
    let known = Layouts::KNOWN.newest;
    file.sql("UPDATE throng_meta SET layout = 99");
    let error = refused(&file.path).await;
    assert!(error.is_newer_layout(), "{error:?}");
    file.sql(&format!("UPDATE throng_meta SET layout = {known}"));
    let observer = file.observe().await;
    assert_eq!(waiting(&observer).await, 0);
    file.sql("UPDATE throng_meta SET layout = 1");
    let failure = observer.0.counts().await.unwrap_err();
    assert_eq!(failure.cause, Cause::OlderLayout { found: 1, known });
    assert!(refused(&file.path).await.is_older_layout());
}

#[tokio::test]
async fn a_file_that_nobody_has_open_is_read_without_a_trace() {
    let file = File::new();
    let worker = Worker::new(&file.open().await).await;
    worker.enqueue([task(1).0]).await;
    worker.store.close().await.unwrap();
    drop(worker);
    let before = file.contents();
    assert_eq!(before.len(), 1);
    let observer = file.observe().await;
    assert_eq!(waiting(&observer).await, 1);
    assert_eq!(observer.0.probe().await.unwrap(), Durability::Synced);
    look(&observer).await;
    assert!(file.contents() == before);
    observer.0.close().await.unwrap();
    assert!(file.contents() == before);
}

/// The index of the log is only read, although nobody maintains it.
#[tokio::test]
async fn the_files_of_a_crashed_process_are_read_without_a_trace() {
    let file = File::new();
    let worker = Worker::new(&file.open().await).await;
    worker.enqueue([task(1).0, task(2).0]).await;
    let copy = file.after_crash();
    let before = copy.contents();
    assert_eq!(before.len(), 3);
    let observer = copy.observe().await;
    assert_eq!(waiting(&observer).await, 2);
    look(&observer).await;
    assert!(copy.contents() == before);
}

/// The variable that contains the path of the store for a child process.
const PATH: &str = "THRONG_TEST_OBSERVED";

/// Stores a task for each line that it reads, and then writes a line.
#[tokio::test]
#[ignore = "another test runs it in a process of its own"]
async fn a_process_stores_tasks() {
    // `scripts/test --long` runs all ignored tests.
    let Some(path) = env::var_os(PATH) else {
        return;
    };
    let store = Arc::new(SqliteStore::open(Path::new(&path)).await.unwrap());
    let worker = Worker::new(&store).await;
    for (nth, _) in (1..).zip(std::io::stdin().lines()) {
        worker.enqueue([task(nth).0]).await;
        println!("\nstored");
    }
    store.close().await.unwrap();
}

/// A process that stores tasks.
struct Producer(Child);

impl Producer {
    fn start(file: &File) -> Self {
        let name = "durable::store::sqlite::tests::observers_tests::a_process_stores_tasks";
        let mut command = Command::new(env::current_exe().unwrap());
        command
            .args(["--exact", name, "--ignored", "--nocapture"])
            .env(PATH, &file.path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        Self(command.spawn().unwrap())
    }

    fn store(&mut self, output: &mut impl BufRead) {
        self.0.stdin.as_mut().unwrap().write_all(b"one\n").unwrap();
        let mut line = String::new();
        while line.trim() != "stored" {
            line.clear();
            assert_ne!(output.read_line(&mut line).unwrap(), 0, "the process ends");
        }
    }
}

#[tokio::test]
async fn the_files_of_a_live_process_are_read_without_a_trace() {
    let file = File::new();
    let mut producer = Producer::start(&file);
    let mut output = BufReader::new(producer.0.stdout.take().unwrap());
    producer.store(&mut output);
    let observer = file.observe().await;
    for stored in 1..20 {
        let before = file.contents();
        assert_eq!(waiting(&observer).await, stored);
        look(&observer).await;
        assert!(file.contents() == before);
        producer.store(&mut output);
    }
    drop(producer.0.stdin.take());
    // It writes its result.
    std::io::copy(&mut output, &mut std::io::sink()).unwrap();
    assert!(producer.0.wait().unwrap().success());
    assert_eq!(
        file.contents().len(),
        1,
        "the process has removed its files"
    );
    assert_eq!(waiting(&observer).await, 20);
}

#[tokio::test]
async fn a_log_without_an_index_is_refused() {
    let file = File::new();
    let worker = Worker::new(&file.open().await).await;
    worker.enqueue([task(1).0]).await;
    let copy = file.after_crash();
    fs::remove_file(copy.path.with_file_name("tasks.db-shm")).unwrap();
    let before = copy.contents();
    let error = refused(&copy.path).await;
    assert!(
        error.is_unfit() && error.to_string().contains("`open`"),
        "{error}"
    );
    assert!(copy.contents() == before);
    drop(copy.open().await);
    assert_eq!(waiting(&copy.observe().await).await, 1);
}

#[tokio::test]
async fn an_observer_follows_processes_that_come_and_go() {
    let file = File::new();
    // The threads of a store that is only dropped may outlive the next one, and with them the log.
    file.open().await.close().await.unwrap();
    let observer = file.observe().await;
    for stored in 1..6 {
        let worker = Worker::new(&file.open().await).await;
        worker.enqueue([task(stored).0]).await;
        assert_eq!(waiting(&observer).await, stored);
        worker.store.close().await.unwrap();
        drop(worker);
        assert_eq!(waiting(&observer).await, stored);
        assert_eq!(file.contents().len(), 1, "the log was removed");
    }
}

#[tokio::test]
async fn another_store_in_the_place_of_the_file_is_not_observed() {
    let (file, other) = (File::new(), File::new());
    for file in [&file, &other] {
        file.open().await.close().await.unwrap();
    }
    let observer = file.observe().await;
    fs::copy(&other.path, &file.path).unwrap();
    let failure = observer.0.counts().await.unwrap_err();
    assert_eq!(failure.cause, Cause::Replaced);
    fs::remove_file(&file.path).unwrap();
    let failure = observer.0.counts().await.unwrap_err();
    assert!(matches!(failure.cause, Cause::Invalid(_)), "{failure}");
    assert_eq!(file.contents(), []);
}

/// A store that is opened while an observer of the same process reads can write nevertheless.
#[tokio::test]
async fn an_observer_does_not_keep_its_process_from_writing() {
    let file = File::new();
    let worker = Worker::new(&file.open().await).await;
    let observer = file.observe().await;
    for number in 1..30 {
        let (opened, _) = tokio::join!(file.open(), waiting(&observer));
        let other = Worker::new(&opened).await;
        other.enqueue([task(number).0]).await;
        assert_eq!(waiting(&observer).await, number);
    }
    drop(worker);
}

#[tokio::test]
async fn a_path_may_contain_any_characters() {
    let folder = temp_folder();
    let path = folder.path().join("50% of #1?mode=rw&\u{e9}.db");
    drop(SqliteStore::open(&path).await.unwrap());
    let observer = SqliteStore::observe(&path).await.unwrap();
    assert_eq!(waiting(&observer).await, 0);
}
