//! [`Site`]: a server with a dashboard, and a worker whose tasks it shows.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tempfile::TempDir;
use throng::Retry;
use throng::durable::{
    Counts, DurableClient, DurableExecutor, DurableTask, Every, Run, ServedQueue, SpawnOptions,
    SqliteStore, TaskContext, TaskError,
};
use throng::watch::Registry;
use throng_web::{Access, Dashboard};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::crash::crash_workers;
use crate::driver::LIMIT;
use crate::hostile::{HOSTILE_NAME, Hostile};

pub(crate) struct Site {
    pub(crate) address: SocketAddr,
    pub(crate) client: DurableClient,
    server: RunningServer,
    executor: DurableExecutor,
    folder: TempDir,
}

/// A server of a dashboard.
struct RunningServer {
    service: Router,
    shutdown: CancellationToken,
    task: JoinHandle<()>,
}

/// The path at which the dashboard is mounted.
pub(crate) const MOUNTED_AT: &str = "/ops/throng";
/// The name of the file of the store.
const FILE: &str = "tasks.db";
/// A queue that tests pause.
pub(crate) const PAUSED_QUEUE: &str = "reports";

impl Site {
    /// Starts a server, and a worker that serves the default queue and the queue `reports`. The store is a file.
    pub(crate) async fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder for the store");
        let store = SqliteStore::open(folder.path().join(FILE)).await;
        let client = DurableClient::open(store.expect("a store"));
        let executor = start_worker(&client).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        Self {
            address: listener.local_addr().expect("a port"),
            server: RunningServer::start(listener, &client),
            client,
            executor,
            folder,
        }
    }

    /// Starts another server, at the same address, after the server was stopped.
    pub(crate) async fn start_server(&mut self) {
        let listener = TcpListener::bind(self.address).await;
        self.server = RunningServer::start(listener.expect("the port is free"), &self.client);
    }

    pub(crate) async fn stop_server(&mut self) {
        self.server.shutdown.cancel();
        let ended = timeout(LIMIT, &mut self.server.task).await;
        ended
            .expect("the server ends")
            .expect("the server has not panicked");
    }

    /// Makes all changes of the store wait until the connection is dropped.
    pub(crate) fn lock_store(&self) -> rusqlite::Connection {
        let db = rusqlite::Connection::open(self.folder.path().join(FILE)).expect("the file");
        db.execute_batch("BEGIN IMMEDIATE").expect("a transaction");
        db
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{MOUNTED_AT}{path}", self.address)
    }

    /// Opens as many event streams as the dashboard allows.
    pub(crate) async fn open_all_streams(&self) -> Vec<Response> {
        let mut streams = Vec::new();
        loop {
            let request = Request::get("/s/mail/events").body(Body::empty());
            let stream = self
                .server
                .service
                .clone()
                .oneshot(request.expect("a request"));
            let stream = stream.await.expect("an answer");
            if !stream.status().is_success() {
                return streams;
            }
            streams.push(stream);
        }
    }

    /// Stores tasks and waits until there are some in each state.
    pub(crate) async fn fill(&self) {
        let client = &self.client;
        crash_workers(client, &self.folder.path().join(FILE)).await;
        for user in 0..40 {
            client.spawn(SendMail::to(user)).await.expect("a task");
        }
        let later = SpawnOptions::new().delay(Duration::from_secs(3600));
        client
            .spawn_with(SendMail::to(41), later)
            .await
            .expect("a task");
        client
            .spawn(Encode {
                file: "holiday.mov".into(),
            })
            .await
            .expect("a task");
        client
            .spawn(Resize {
                image: "avatar.png".into(),
            })
            .await
            .expect("a task");
        client
            .queue(PAUSED_QUEUE)
            .pause()
            .await
            .expect("the queue is paused");
        client
            .spawn(Report {
                month: "2026-10".into(),
            })
            .await
            .expect("a task");
        let daily = Every::new(Duration::from_secs(86400));
        client
            .schedule("daily-digest", daily, SendMail::to(1))
            .await
            .expect("a schedule");
        self.wait_for(|it| it.done > 30 && it.dead > 2 && it.delayed > 1 && it.running > 0)
            .await;
    }

    pub(crate) async fn wait_for(&self, condition: impl Fn(&Counts) -> bool) {
        let start = Instant::now();
        loop {
            let counts = self.client.counts().await.expect("the store answers");
            if condition(&counts) {
                return;
            }
            assert!(start.elapsed() < LIMIT, "{counts:?}");
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Asks the server to end, and returns the time until it has ended. Open connections delay this.
    pub(crate) async fn stop(mut self) -> Duration {
        let start = Instant::now();
        self.stop_server().await;
        let time = start.elapsed();
        self.executor.shutdown(Duration::ZERO).await;
        self.client.close().await.expect("the store is closed");
        time
    }
}

impl RunningServer {
    fn start(listener: TcpListener, client: &DurableClient) -> Self {
        let shutdown = CancellationToken::new();
        let service = dashboard(client, &shutdown);
        let app = Router::new().nest_service(MOUNTED_AT, service.clone());
        let ended = shutdown.clone().cancelled_owned();
        let server = axum::serve(listener, app).with_graceful_shutdown(ended);
        Self {
            service,
            shutdown,
            task: tokio::spawn(async { server.await.expect("a server") }),
        }
    }
}

fn dashboard(client: &DurableClient, shutdown: &CancellationToken) -> Router {
    let registry = Registry::new();
    registry.watch("mail", client);
    Dashboard::builder()
        .store("mail", client.clone())
        .registry(registry)
        .access(|_| Access::operate("ops@example"))
        .shutdown(shutdown.clone())
        .build()
        .expect("the dashboard is valid")
        .service()
}

async fn start_worker(client: &DurableClient) -> DurableExecutor {
    DurableExecutor::builder(client.clone())
        .register::<SendMail>()
        .register::<Encode>()
        .register::<Report>()
        .register::<Hostile>()
        .serve(ServedQueue::default_queue())
        .serve(ServedQueue::new(PAUSED_QUEUE))
        .retry(Retry::exponential().base(Duration::from_secs(3600)))
        .start(())
        .await
        .expect("the worker starts")
}

/// Succeeds for most users. Every tenth has no mailbox, and every 13th is busy.
#[derive(Serialize, Deserialize)]
struct SendMail {
    to: String,
    user: u32,
    api_token: String,
}

impl SendMail {
    fn to(user: u32) -> Self {
        let (to, api_token) = (format!("user{user}@example.com"), "t0p-s3cret".into());
        Self {
            to,
            user,
            api_token,
        }
    }
}

impl DurableTask for SendMail {
    const NAME: &'static str = "mail.send";
    type Output = Value;
}

impl Run<()> for SendMail {
    async fn run(self, _: TaskContext<()>) -> Result<Value, TaskError> {
        match self.user {
            user if user % 10 == 0 => Err(TaskError::fatal("SMTP 550: no such user")),
            user if user % 13 == 0 => Err(TaskError::retry("SMTP 421: try again later")),
            _ => Ok(json!({ "message_id": self.user })),
        }
    }
}

/// Runs until the worker ends.
#[derive(Serialize, Deserialize)]
struct Encode {
    file: String,
}

impl DurableTask for Encode {
    const NAME: &'static str = "video.encode";
    type Output = ();
}

impl Run<()> for Encode {
    async fn run(self, cx: TaskContext<()>) -> Result<(), TaskError> {
        cx.progress(&json!({ "frames": 1200, "of": 4800 }));
        cx.stopped().await;
        Err(TaskError::retry("the worker has ended"))
    }
}

/// Waits, since no worker knows the type.
#[derive(Serialize, Deserialize)]
struct Resize {
    image: String,
}

impl DurableTask for Resize {
    const NAME: &'static str = "image.resize";
    type Output = ();
}

/// Waits, since its queue is paused.
#[derive(Serialize, Deserialize)]
struct Report {
    month: String,
}

impl DurableTask for Report {
    const NAME: &'static str = "report.build";
    const QUEUE: Option<&'static str> = Some(PAUSED_QUEUE);
    type Output = ();
}

impl Run<()> for Report {
    async fn run(self, _: TaskContext<()>) -> Result<(), TaskError> {
        Ok(())
    }
}

impl DurableTask for Hostile {
    const NAME: &'static str = HOSTILE_NAME;
    type Output = Value;
}

impl Run<()> for Hostile {
    async fn run(self, cx: TaskContext<()>) -> Result<Value, TaskError> {
        cx.progress(&self.texts);
        match self.fails {
            true => Err(TaskError::fatal(self.texts.join(" "))),
            false => Ok(json!(self.texts)),
        }
    }
}
