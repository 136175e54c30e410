//! Executors to which claims are pushed, and whose connections break.

use serde::{Deserialize, Serialize};

use super::super::proxy::Proxy;
use super::*;
use crate::durable::{DurableClient, DurableExecutor, DurableTask, Run, TaskContext, TaskError};

/// A task that counts its runs.
#[derive(Serialize, Deserialize)]
struct Job;

impl DurableTask for Job {
    const NAME: &'static str = "job";
    type Output = ();
}

impl Run<Number> for Job {
    async fn run(self, cx: TaskContext<Number>) -> Result<(), TaskError> {
        cx.app().add(1);
        Ok(())
    }
}

/// A producer, and an executor behind a proxy.
struct Scene {
    producer: DurableClient,
    _executor: DurableExecutor,
    runs: Arc<Number>,
    proxy: Proxy,
    server: Server,
}

impl Scene {
    async fn new() -> Self {
        let server = Server::start();
        let proxy = Proxy::to(server.port()).await;
        let runs = Arc::new(Number::new(0));
        let client = DurableClient::open(open_hurried(&proxy.url()).await);
        let mut executor = DurableExecutor::builder(client);
        // No task can be claimed again within the time that a test has.
        executor
            .register::<Job>()
            .lease(10 * DEADLINE)
            .max_running(4);
        Self {
            producer: DurableClient::open(open(&server.url()).await),
            _executor: executor.start(Arc::clone(&runs)).await.unwrap(),
            runs,
            proxy,
            server,
        }
    }

    /// Runs a task, and waits until claims may be pushed to the worker.
    async fn warm_up(&self) {
        self.producer.spawn(Job).await.unwrap().await.unwrap();
        let accepts = async {
            while self.server.ask(&["EVAL", ACCEPTS, "0"]) != redis::Value::Int(1) {
                sleep(Duration::from_millis(2)).await;
            }
        };
        timeout(DEADLINE, accepts).await.expect("it is idle");
    }
}

/// 1 if the session that went idle last accepts pushed claims, else 0.
const ACCEPTS: &str = "
local key = redis.call('KEYS', 'throng:{default:0}:idle:*')[1]
local score = key and redis.call('ZREVRANGE', key, 0, 0, 'WITHSCORES')[2]
return score and tonumber(score) % 1 > 0 and 1 or 0";

/// The message is lost with the connection, so the worker asks for its claim.
#[tokio::test]
async fn a_task_whose_message_is_lost_runs_once() {
    needs_redis!();
    let it = Scene::new().await;
    it.warm_up().await;
    it.proxy.mute();
    let handle = it.producer.spawn(Job).await.unwrap();
    let running = it.server.ask(&["HLEN", "throng:{default:0}:running"]);
    assert_eq!(running, redis::Value::Int(1), "it is claimed");
    it.proxy.cut();
    timeout(DEADLINE, handle).await.unwrap().unwrap();
    assert_eq!(it.runs.get(), 2);
    let counts = it.producer.counts().await.unwrap();
    assert_eq!((counts.claimed, counts.done, counts.lost), (2, 2, 0));
}

/// Tasks are stored one after the other while the connections of the worker break.
#[tokio::test]
async fn tasks_run_once_while_connections_break() {
    needs_redis!();
    const TASKS: usize = 150;
    let it = Scene::new().await;
    let spawns = async {
        let mut handles = Vec::new();
        for _ in 0..TASKS {
            handles.push(it.producer.spawn(Job).await.unwrap());
            sleep(Duration::from_millis(fastrand::u64(0..15))).await;
        }
        for handle in handles {
            handle.await.unwrap();
        }
    };
    let cuts = async {
        loop {
            sleep(Duration::from_millis(20 + fastrand::u64(0..120))).await;
            if fastrand::bool() {
                it.proxy.mute();
                sleep(Duration::from_millis(fastrand::u64(0..10))).await;
            }
            it.proxy.cut();
        }
    };
    let all = timeout(2 * DEADLINE, async {
        tokio::select! {
            () = spawns => {}
            () = cuts => {}
        }
    });
    let is_over = all.await;
    let counts = it.producer.counts().await.unwrap();
    assert!(is_over.is_ok(), "{counts:?}");
    assert_eq!((it.runs.get(), counts.lost), (TASKS, 0));
}
