//! Makes `web/dashboard.png`, the picture in the README, from a quarter of an hour of a mail service. A manual clock lets it pass in a minute.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use throng::durable::{
    Clock, DurableClient, DurableExecutor, DurableTask, InlineExecutor, MemoryStore, QueueSettings,
    Rate, Run, ServedQueue, SpawnOptions, TaskContext, TaskError,
};
use throng_web::{Access, Dashboard};
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep};
use tower::ServiceExt;

use crate::driver::{Browser, LIMIT, with_browser};

/// The number of values in the charts, and the time between two of them.
const ROUNDS: u64 = 110;
const ROUND: Duration = Duration::from_secs(8);
/// The time that passes between two values while the picture is made.
const SECOND: Duration = Duration::from_secs(1);
/// The queue that is paused.
const PAUSED: &str = "reports";
const WIDTH: u32 = 1280;

#[tokio::test]
#[ignore = "changes a file of the repository"]
async fn the_picture_of_the_readme_is_made() {
    with_browser(async |browser| {
        let mut service = Service::start().await;
        for round in 0..ROUNDS {
            service.pass(round, ROUND).await;
        }
        let _films = service.encode_films().await;
        let url = service.serve().await;
        let (picture, path) = (take(&browser, &url), path());
        tokio::select! {
            bytes = picture => std::fs::write(&path, bytes).expect("the picture is written"),
            () = service.continue_to_run() => unreachable!("it runs until it is dropped"),
        }
        shrink(&path);
    })
    .await;
}

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("dashboard.png")
}

async fn take(browser: &Browser, url: &str) -> Vec<u8> {
    browser.emulate(WIDTH, "light").await;
    browser.open(url).await;
    for condition in [
        "document.querySelector('[data-live-state=on]')",
        "document.querySelectorAll('figure canvas').length === 2",
    ] {
        browser.wait_until(condition).await;
    }
    browser.sharp_picture(WIDTH).await
}

/// Reduces the picture to 64 colours.
fn shrink(path: &Path) {
    let mut command = Command::new("pngquant");
    command.args(["--force", "--ext", ".png", "--speed", "1", "--strip", "64"]);
    let status = command.arg(path).status();
    let status = status.expect("the package `pngquant` is installed");
    assert!(status.success(), "pngquant: {status}");
}

/// A mail service whose clock stands still between two rounds.
struct Service {
    clock: Clock,
    client: DurableClient,
    worker: InlineExecutor,
    dashboard: Router,
    /// The time of the last value in the charts, by the clock of the service.
    last: Value,
}

impl Service {
    async fn start() -> Self {
        let clock = Clock::manual();
        let client = DurableClient::open(MemoryStore::with_clock(&clock));
        let swift = QueueSettings::new().rate(Rate::per_second(20).burst(200));
        client.queue("mail/swift").set(swift).await.unwrap();
        let steady = QueueSettings::new().rate(Rate::per_second(5).burst(50));
        client.queue("mail/steady").set(steady).await.unwrap();
        client.queue(PAUSED).pause().await.unwrap();
        let mut worker = DurableExecutor::builder(client.clone());
        worker.register::<SendMail>().register::<Report>();
        for queue in ["mail/swift", "mail/steady", PAUSED] {
            worker.serve(ServedQueue::new(queue));
        }
        let dashboard = Dashboard::builder()
            .store("mail", client.clone())
            .access(|_| Access::operate("ops@example"))
            .build();
        Self {
            worker: worker.start_inline(()).await.unwrap(),
            dashboard: dashboard.unwrap().service(),
            last: Value::Null,
            clock,
            client,
        }
    }

    /// Stores mails, runs those that the rates allow, lets time pass, and waits until the dashboard has read the numbers.
    async fn pass(&mut self, round: u64, time: Duration) {
        self.spawn(round, time.as_secs()).await;
        self.worker.run_due().await.unwrap();
        self.clock.advance(time);
        let start = Instant::now();
        loop {
            let now = self.time_of_numbers().await;
            if now != self.last {
                self.last = now;
                return;
            }
            assert!(start.elapsed() < LIMIT, "the dashboard reads no numbers");
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Stores some mails for each second. Now and then, there are a newsletter and a report.
    async fn spawn(&self, round: u64, seconds: u64) {
        for number in 0..seconds * (9 + random(round) % 4) {
            self.spawn_mail(number % 3 == 0, random(round * 1000 + number))
                .await;
        }
        if round % 40 == 15 {
            for number in 0..900 {
                self.spawn_mail(number % 3 == 0, random(number)).await;
            }
            let report = Report { round };
            self.client.spawn(report).await.unwrap();
        }
    }

    async fn spawn_mail(&self, is_steady: bool, number: u64) {
        let queue = if is_steady {
            "mail/steady"
        } else {
            "mail/swift"
        };
        let options = SpawnOptions::new().queue(queue);
        self.client
            .spawn_with(SendMail { number }, options)
            .await
            .unwrap();
    }

    /// Returns the time of the numbers that the dashboard has read last.
    async fn time_of_numbers(&self) -> Value {
        let request = Request::get("/api/v1/s/mail/overview").body(Body::empty());
        let answer = self.dashboard.clone().oneshot(request.unwrap()).await;
        let body = answer.unwrap().into_body().collect().await.unwrap();
        let overview: Value = serde_json::from_slice(&body.to_bytes()).unwrap();
        overview["now_ms"].clone()
    }

    /// Starts a worker with tasks that do not end. Its leases are long, since the clock of the service is ahead of its own.
    async fn encode_films(&self) -> DurableExecutor {
        for number in 0..3 {
            self.client.spawn(Encode { number }).await.unwrap();
        }
        DurableExecutor::builder(self.client.clone())
            .register::<Encode>()
            .serve(ServedQueue::new("films"))
            .max_running(4)
            .lease(Duration::from_secs(3600))
            .start(())
            .await
            .unwrap()
    }

    /// Serves the dashboard, and returns the URL of the overview.
    async fn serve(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let app = Router::new().nest_service("/throng", self.dashboard.clone());
        tokio::spawn(async { axum::serve(listener, app).await });
        format!("http://{address}/throng/s/mail")
    }

    async fn continue_to_run(&mut self) {
        for round in ROUNDS.. {
            self.pass(round, SECOND).await;
        }
    }
}

/// Returns a number that looks random, and is the same each time.
fn random(seed: u64) -> u64 {
    seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40
}

/// Succeeds, except for some mails that are tried again, and a few that have no recipient.
#[derive(Serialize, Deserialize)]
struct SendMail {
    number: u64,
}

impl DurableTask for SendMail {
    const NAME: &'static str = "mail.send";
    type Output = Value;
}

impl Run<()> for SendMail {
    async fn run(self, cx: TaskContext<()>) -> Result<Value, TaskError> {
        match self.number {
            number if number % 400 == 7 => Err(TaskError::fatal("550: there is no such user")),
            number if number % 11 == 0 && cx.attempt() == 1 => {
                Err(TaskError::retry_after("421: try later", ROUND))
            }
            number => Ok(json!({ "message": number })),
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Report {
    round: u64,
}

impl DurableTask for Report {
    const NAME: &'static str = "report.build";
    const QUEUE: Option<&'static str> = Some(PAUSED);
    type Output = ();
}

impl Run<()> for Report {
    async fn run(self, _: TaskContext<()>) -> Result<(), TaskError> {
        Ok(())
    }
}

/// Runs until its worker ends.
#[derive(Serialize, Deserialize)]
struct Encode {
    number: u64,
}

impl DurableTask for Encode {
    const NAME: &'static str = "film.encode";
    const QUEUE: Option<&'static str> = Some("films");
    type Output = ();
}

impl Run<()> for Encode {
    async fn run(self, cx: TaskContext<()>) -> Result<(), TaskError> {
        cx.stopped().await;
        Err(TaskError::retry("the worker has ended"))
    }
}
