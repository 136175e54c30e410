//! A real Prometheus scrapes all kinds of parts under load, and answers the expressions of the alerts and of the dashboard.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener as StdTcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::get;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tempfile::TempDir;
use throng::blocking::Bulkhead;
use throng::durable::{
    DurableClient, DurableExecutor, DurableTask, MemoryStore, QueueSettings, Run, TaskContext,
    TaskError,
};
use throng::watch::Registry;
use throng::{BlockingPool, CompletionStream, ComputePool, SerialExecutor};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

use crate::ops::{Query, dashboard, queries};

/// The time in which Prometheus must have answered everything.
const LIMIT: Duration = Duration::from_secs(120);

/// The pause between two rounds of questions to Prometheus, and between two rounds of the load.
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Serialize, Deserialize)]
struct Resize(u32);

impl DurableTask for Resize {
    const NAME: &'static str = "image.resize";
    type Output = ();
}

struct App;

impl Run<App> for Resize {
    async fn run(self, _: TaskContext<App>) -> Result<(), TaskError> {
        match self.0 {
            0 => Err(TaskError::fatal("there is nothing to resize")),
            _ => Ok(()),
        }
    }
}

/// A program with all kinds of parts.
struct Program {
    blocking: BlockingPool,
    bulkhead: Bulkhead,
    compute: ComputePool,
    serial: SerialExecutor<u64>,
    client: DurableClient,
    _executor: DurableExecutor,
}

impl Program {
    async fn start(registry: &Registry) -> Self {
        let mut builder = BlockingPool::builder();
        let blocking = builder.max_threads(1).queue_capacity(4).build().unwrap();
        let client = DurableClient::open(MemoryStore::new());
        let limits = QueueSettings::new().max_running(4);
        let gpu = client.queue("gpu");
        gpu.set(limits).await.unwrap();
        gpu.pause().await.unwrap();
        let mut builder = DurableExecutor::builder(client.clone());
        let program = Self {
            bulkhead: blocking.bulkhead(1, 1).unwrap(),
            blocking,
            compute: ComputePool::builder().threads(1).build().unwrap(),
            serial: SerialExecutor::new(0),
            _executor: builder.register::<Resize>().start(App).await.unwrap(),
            client,
        };
        registry.watch("db", &program.blocking);
        registry.watch("reports", &program.bulkhead);
        registry.watch("parse", &program.compute);
        registry.watch("session", &program.serial);
        registry.watch("images", &program.client);
        registry.watch("images", &program._executor);
        program
    }

    /// Uses each part. The pool rejects some of the tasks, and one task becomes a dead letter.
    async fn work(&self, registry: &Registry) {
        let (jobs, mut done) = CompletionStream::<u64>::builder().build().unwrap();
        registry.watch("pages", &done);
        loop {
            for _ in 0..20 {
                drop(self.blocking.try_spawn_blocking(|| ()));
            }
            self.bulkhead
                .reserve()
                .await
                .unwrap()
                .spawn_blocking(|| ())
                .await
                .unwrap();
            self.compute.spawn(|| ()).await.unwrap();
            self.serial.submit(|n| *n += 1).await.unwrap();
            assert!(jobs.submit((), async { 1 }).await.is_ok());
            assert!(done.next().await.is_some());
            for size in [0, 640] {
                let resized = self.client.spawn(Resize(size)).await.unwrap();
                assert_eq!(resized.await.is_ok(), size > 0);
            }
            sleep(PAUSE).await;
        }
    }
}

/// Serves the numbers on a free port.
async fn serve(registry: Registry) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let metrics = move || async move { registry.snapshot_with_stores().await.prometheus() };
    let router = Router::new().route("/metrics", get(metrics));
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

/// A server of Prometheus with a folder of its own.
struct Prometheus {
    child: Child,
    address: SocketAddr,
    folder: TempDir,
}

impl Prometheus {
    /// Starts the server, which scrapes the target each second. `THRONG_PROMETHEUS` names its program.
    async fn start(target: SocketAddr) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("ops/prometheus/rules.yml");
        let config = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\n\
             rule_files: [{rules:?}]\n\
             scrape_configs: [{{job_name: throng, static_configs: [{{targets: [\"{target}\"]}}]}}]\n"
        );
        fs::write(folder.path().join("prometheus.yml"), config).unwrap();
        let free = StdTcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let program = std::env::var_os("THRONG_PROMETHEUS").unwrap_or_else(|| "prometheus".into());
        let mut command = Command::new(program);
        command.arg(format!("--web.listen-address={address}"));
        command.args(["--config.file=prometheus.yml", "--storage.tsdb.path=data"]);
        let log = File::create(folder.path().join("log")).unwrap();
        command
            .current_dir(folder.path())
            .stdout(Stdio::null())
            .stderr(log);
        let child = command.spawn().expect("install the package `prometheus`");
        let mut server = Self {
            child,
            address,
            folder,
        };
        server.wait_until_ready().await;
        server
    }

    async fn wait_until_ready(&mut self) {
        let deadline = Instant::now() + LIMIT;
        while !self
            .get("/-/ready")
            .await
            .is_some_and(|it| it.contains(" 200 "))
        {
            let is_alive = self.child.try_wait().unwrap().is_none();
            let log = || fs::read_to_string(self.folder.path().join("log"));
            assert!(is_alive && Instant::now() < deadline, "{:?}", log());
            sleep(PAUSE).await;
        }
    }

    /// Returns the whole answer, or `None` if there is none.
    async fn get(&self, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect(self.address).await.ok()?;
        let request = format!("GET {path} HTTP/1.0\r\nhost: {}\r\n\r\n", self.address);
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        Some(answer)
    }

    /// Returns the data of an answer of the API.
    async fn ask(&self, path: &str) -> Value {
        let answer = self.get(path).await.expect("the server answers");
        let (_, body) = answer.split_once("\r\n\r\n").expect("an answer has a body");
        let answer: Value = serde_json::from_str(body).expect("the body is JSON");
        assert_eq!(answer["status"], "success", "{path}: {answer}");
        answer["data"].clone()
    }

    /// Returns the series of the result of an expression.
    async fn series(&self, expression: &str) -> Vec<Value> {
        let encoded: String = expression
            .bytes()
            .map(|byte| format!("%{byte:02x}"))
            .collect();
        let data = self.ask(&format!("/api/v1/query?query={encoded}")).await;
        data["result"].as_array().cloned().unwrap_or_default()
    }

    /// The names of the alerts that fire or are about to. Panics if a rule cannot be evaluated.
    async fn active_alerts(&self) -> Vec<String> {
        let data = self.ask("/api/v1/rules?type=alert").await;
        let rules = data["groups"][0]["rules"]
            .as_array()
            .expect("there are rules");
        let is_failing = |rule: &&Value| rule["health"] == "err";
        assert_eq!(rules.iter().find(is_failing), None);
        let active = rules.iter().filter(|rule| rule["state"] != "inactive");
        active
            .map(|rule| rule["name"].as_str().unwrap().to_owned())
            .collect()
    }

    /// Waits until all queries of the dashboard have a result. In each panel, the names of all series differ.
    async fn answer_dashboard(&self) {
        let deadline = Instant::now() + LIMIT / 2;
        let dashboard = dashboard();
        let mut legends = BTreeSet::new();
        for query in queries(&dashboard) {
            for series in self.answer(&query, deadline).await {
                let legend = legend(&query, &series["metric"]);
                let title = query.title;
                assert!(
                    legends.insert((title, legend.clone())),
                    "{title}: several series have the name {legend}"
                );
            }
        }
    }

    /// Waits until a query has a result, and returns its series.
    async fn answer(&self, query: &Query<'_>, deadline: Instant) -> Vec<Value> {
        let expression = query.expression.replace("$__rate_interval", "10s");
        let expression = expression.replace("$job", "throng").replace("$type", ".*");
        loop {
            let series = self.series(&expression).await;
            if !series.is_empty() {
                return series;
            }
            let title = query.title;
            assert!(
                Instant::now() < deadline,
                "{title}: no value of {expression}"
            );
            sleep(PAUSE).await;
        }
    }

    /// Waits until the load has raised its alerts.
    async fn raise_alerts(&self) {
        let expected = ["ThrongDeadLetters", "ThrongPoolRejects"];
        loop {
            let active = self.active_alerts().await;
            if expected
                .iter()
                .all(|alert| active.iter().any(|it| it == alert))
            {
                assert_eq!(active.len(), expected.len(), "{active:?}");
                return;
            }
            sleep(PAUSE).await;
        }
    }
}

/// Returns the name that Grafana gives to a series. The series has all labels of the legend.
fn legend(query: &Query<'_>, labels: &Value) -> String {
    let mut legend = query.legend.to_owned();
    for (label, value) in labels.as_object().expect("a series has labels") {
        let value = value.as_str().expect("the value of a label is a text");
        legend = legend.replace(&format!("{{{{{label}}}}}"), value);
    }
    assert!(!legend.contains("{{"), "{}: {legend}", query.title);
    legend
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

#[tokio::test]
#[ignore = "needs Prometheus, and takes a while: `scripts/test-ops` runs it"]
async fn prometheus_answers_all_expressions() {
    let registry = Registry::new();
    let program = Program::start(&registry).await;
    let prometheus = Prometheus::start(serve(registry.clone()).await).await;
    let ask = async {
        prometheus.answer_dashboard().await;
        prometheus.raise_alerts().await;
    };
    tokio::select! {
        () = program.work(&registry) => unreachable!("it works until it is dropped"),
        asked = timeout(LIMIT, ask) => asked.expect("all expressions have a value in time"),
    }
}
