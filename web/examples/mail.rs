//! A mail service with its dashboard.
//!
//! ```sh
//! cargo run -p throng-web --example mail                      # serves http://127.0.0.1:9300/throng until Ctrl-C
//! cargo run -p throng-web --example mail -- 127.0.0.1:8080    # the same, on another address
//! cargo run -p throng-web --example mail -- --check           # looks at its own dashboard, prints what it sees, and ends
//! ```
//!
//! Two customers send mails all the time. The provider accepts 20 mails per second, is sometimes busy, and does not know some of
//! the recipients. So there are always tasks that wait, run, are delayed, succeed and die. A schedule writes a report every minute.
//!
//! The tasks are kept in a SQLite file, which is removed at the end. Everybody who reaches the address may operate the dashboard, so the
//! service listens on the local machine only. A real service derives the access from its users.

use std::error::Error;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use axum::Router;
use serde::{Deserialize, Serialize};
use throng::durable::{
    DurableClient, DurableExecutor, DurableTask, Every, Groups, QueueSettings, Rate, Run,
    ServedQueue, SpawnOptions, SqliteStore, TaskContext, TaskError,
};
use throng::watch::Registry;
use throng_web::{Access, Dashboard};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{interval, sleep};
use tokio_util::sync::CancellationToken;

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// The queue of the mails.
const MAIL: &str = "mail";
/// The maximum time that the check takes.
const MAX_CHECK: Duration = Duration::from_secs(30);

#[tokio::main]
async fn main() -> Result<()> {
    let argument = std::env::args().nth(1);
    let is_check = argument.as_deref() == Some("--check");
    let address: SocketAddr = match argument {
        Some(_) if is_check => "127.0.0.1:0".parse()?,
        Some(address) => address.parse()?,
        None => "127.0.0.1:9300".parse()?,
    };
    let folder = tempfile::tempdir()?;
    let client = DurableClient::open(SqliteStore::open(folder.path().join("tasks.db")).await?);
    let executor = work(&client).await?;
    let registry = Registry::new();
    registry.watch(MAIL, &client);
    registry.watch(MAIL, &executor);

    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    println!("The dashboard is at http://{address}/throng");
    let token = CancellationToken::new();
    let app = app(&client, &registry, &token)?;
    let server = axum::serve(listener, app).with_graceful_shutdown(token.clone().cancelled_owned());
    let server = tokio::spawn(server.into_future());
    let sender = tokio::spawn(send_mails(client.clone()));
    match is_check {
        true => check(address).await?,
        false => tokio::signal::ctrl_c().await?,
    }
    sender.abort();
    token.cancel();
    server.await??;
    executor.shutdown(Duration::from_secs(1)).await;
    client.close().await?;
    Ok(())
}

/// Returns the application: the dashboard, and whatever else the service has.
fn app(client: &DurableClient, registry: &Registry, token: &CancellationToken) -> Result<Router> {
    let dashboard = Dashboard::builder()
        .store(MAIL, client.clone())
        .registry(registry.clone())
        .access(|_| Access::operate("somebody on this machine"))
        .shutdown(token.clone())
        .build()?;
    Ok(Router::new().nest_service("/throng", dashboard.service()))
}

// ===== The service =====

#[derive(Serialize, Deserialize)]
struct SendMail {
    to: String,
    /// The dashboard hides it.
    provider_token: String,
}

impl DurableTask for SendMail {
    const NAME: &'static str = "mail.send";
    const QUEUE: Option<&'static str> = Some(MAIL);
    type Output = u16;
}

impl Run<()> for SendMail {
    async fn run(self, cx: TaskContext<()>) -> Result<u16, TaskError> {
        sleep(Duration::from_millis(fastrand::u64(20..400))).await;
        match fastrand::u8(0..20) {
            0 => Err(TaskError::fatal(format!("550 no such user: {}", self.to))),
            1..4 => {
                let wait = Duration::from_secs(5 * u64::from(cx.attempt()));
                Err(TaskError::retry_after("421 try later", wait))
            }
            _ => Ok(250),
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Report {}

impl DurableTask for Report {
    const NAME: &'static str = "report.build";
    type Output = ();
}

impl Run<()> for Report {
    async fn run(self, cx: TaskContext<()>) -> Result<(), TaskError> {
        for percent in (0..=100).step_by(10) {
            cx.progress(&percent);
            sleep(Duration::from_secs(1)).await;
        }
        Ok(())
    }
}

/// Starts a worker, and defines the limits of the queue and the schedule.
async fn work(client: &DurableClient) -> Result<DurableExecutor> {
    let settings = QueueSettings::new()
        .rate(Rate::per_second(20).burst(10))
        .grouped(Groups::new());
    client.queue(MAIL).set(settings).await?;
    let minutely = Every::new(Duration::from_secs(60));
    client.schedule("report", minutely, Report {}).await?;
    let executor = DurableExecutor::builder(client.clone())
        .register::<SendMail>()
        .register::<Report>()
        .serve(ServedQueue::new(MAIL))
        .serve(ServedQueue::default_queue())
        .max_running(16)
        .start(())
        .await?;
    Ok(executor)
}

/// Stores mails of two customers until this future is dropped.
async fn send_mails(client: DurableClient) -> Result<()> {
    let mut ticks = interval(Duration::from_secs(1));
    loop {
        ticks.tick().await;
        let mails = (0..18).map(|number| {
            let customer = if number < 12 { "acme" } else { "bobs-shop" };
            let mail = SendMail {
                to: format!("reader-{}@example.org", fastrand::u16(..)),
                provider_token: "0123456789abcdef".into(),
            };
            (mail, SpawnOptions::new().group(customer))
        });
        client.spawn_all_with(mails).await?;
    }
}

// ===== The check =====

/// Waits until the dashboard shows that mails were sent.
async fn check(address: SocketAddr) -> Result<()> {
    let begun = Instant::now();
    let page = loop {
        let page = get(address, "/throng/api/v1/s/mail/tasks/done?limit=3").await?;
        if page.contains("\"status\":\"done\"") {
            break page;
        }
        if begun.elapsed() > MAX_CHECK {
            return Err(format!("no mail was sent: {page}").into());
        }
        sleep(Duration::from_millis(50)).await;
    };
    println!("{page}");
    let overview = get(address, "/throng/s/mail").await?;
    if !overview.contains("mail</a>") {
        return Err(format!("the overview lacks the queue: {overview}").into());
    }
    Ok(())
}

/// Returns the body of a page.
async fn get(address: SocketAddr, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) if head.starts_with("HTTP/1.1 200") => Ok(body.to_owned()),
        _ => Err(format!("{path}: {answer}").into()),
    }
}
