//! Stopped processes, which do not read the messages of others.

use std::os::unix::net::UnixDatagram;

use super::super::endpoint::file_name;
use super::{Backend, File, Worker, done, id, task};

const STOPPED: u64 = 10;
/// The number of tasks of each process, and of those that end together.
const TASKS: u64 = 60;
const BATCH: usize = 2;

/// A process that reads no messages.
struct Stopped {
    worker: Worker,
    _inbox: UnixDatagram,
}

impl Stopped {
    async fn new(file: &File) -> Self {
        let worker = Worker::new(&file.open().await).await;
        let name = file_name(worker.store.shared.endpoint.id, ".sock");
        let path = file.path.with_file_name("tasks.db-throng").join(name);
        std::fs::remove_file(&path).unwrap();
        let _inbox = UnixDatagram::bind(path).unwrap();
        Self { worker, _inbox }
    }

    async fn store(&self, n: u64) {
        let tasks = (0..TASKS).map(|i| task(n * TASKS + i).0);
        self.worker.enqueue(tasks).await;
    }
}

/// Otherwise, each batch of tasks that ends would wait for each stopped process.
#[tokio::test]
async fn stopped_processes_delay_their_peers_once() {
    let file = File::new();
    let busy = Worker::new(&file.open().await).await;
    let mut stopped = Vec::new();
    for n in 0..2 * STOPPED {
        let other = Stopped::new(&file).await;
        if n < STOPPED {
            other.store(n).await;
        } else {
            let ids = (0..STOPPED * TASKS).map(id).collect();
            other.worker.store.status(ids).await.unwrap();
        }
        stopped.push(other);
    }
    let pauses = || busy.store.shared.endpoint.send_pauses();
    let mut verdicts = vec![];
    let mut ended = 0;
    while let Some(claim) = busy.turn(verdicts, BATCH).await.claim {
        ended += claim.tasks.len() as u64;
        verdicts = done(&claim, vec![]);
    }
    assert_eq!(ended, STOPPED * TASKS);
    // Each stopped process costs ten pauses, once.
    assert!(pauses() <= 2 * STOPPED * 10, "{} pauses", pauses());
    drop(stopped);
}
