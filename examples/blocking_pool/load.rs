//! The load: clients that send requests all the time, and a monitor that checks the health of the service.

use std::net::SocketAddr;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::client::Client;
use super::metrics::value;
use super::report::Report;
use super::{Result, ensure};

/// The time during which clients begin requests in a phase.
const LENGTH: Duration = Duration::from_millis(1_500);
/// The time after which a refused client tries again. Much shorter than `Retry-After`, as in an overload.
const IMPATIENCE: Duration = Duration::from_millis(20);
/// The time between two health checks.
const INTERVAL: Duration = Duration::from_millis(10);

/// A phase of the load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Phase {
    pub(crate) name: &'static str,
    pub(crate) path: &'static str,
    pub(crate) clients: usize,
}

/// A progress bar, if standard error is a terminal.
pub(crate) struct Screen(ProgressBar);

impl Screen {
    pub(crate) fn new(phases: &[Phase]) -> Self {
        let style = ProgressStyle::with_template("[{bar:30}] {msg}");
        let millis = LENGTH.as_millis() as u64 * phases.len() as u64;
        let bar = ProgressBar::new(millis);
        bar.set_style(style.expect("the template is right").progress_chars("=> "));
        Self(bar)
    }

    fn show(&self, phase: &Phase, queued: u64, passed: Duration) {
        self.0.inc(passed.as_millis() as u64);
        self.0
            .set_message(format!("{}, {queued} queued", phase.name));
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Runs a phase until each client has its last answer.
pub(crate) async fn run(address: SocketAddr, phase: Phase, screen: &Screen) -> Result<Report> {
    let until = Instant::now() + LENGTH;
    let mut clients = JoinSet::new();
    for _ in 0..phase.clients {
        clients.spawn(ask(address, phase, until));
    }
    let mut report = watch(address, phase, until, screen).await?;
    while let Some(client) = clients.join_next().await {
        report.add(client??);
    }
    Ok(report.finish())
}

/// Runs a client.
async fn ask(address: SocketAddr, phase: Phase, until: Instant) -> Result<Report> {
    let mut client = Client::connect(address).await?;
    let mut report = Report::new(phase);
    while Instant::now() < until {
        let begin = Instant::now();
        report.sent += 1;
        let answer = client.get(phase.path).await?;
        match answer.status {
            200 => report.latencies.push(begin.elapsed()),
            503 => {
                let told = answer.retry_after.is_some_and(|seconds| seconds > 0);
                ensure(told, || format!("it does not say when: {answer:?}"))?;
                report.rejected += 1;
                sleep(IMPATIENCE).await;
            }
            _ => return Err(format!("the service has failed: {answer:?}").into()),
        }
    }
    Ok(report)
}

/// Checks the health of the service, as an orchestrator does.
async fn watch(
    address: SocketAddr,
    phase: Phase,
    until: Instant,
    screen: &Screen,
) -> Result<Report> {
    let mut client = Client::connect(address).await?;
    let mut report = Report::new(phase);
    let mut last = Instant::now();
    while Instant::now() < until {
        let begin = Instant::now();
        let answer = client.get("/health").await?;
        report.health.push(begin.elapsed());
        ensure(answer.status == 200, || format!("not healthy: {answer:?}"))?;

        let metrics = client.get("/metrics").await?.body;
        let read =
            |name: &str| value(&metrics, name).ok_or_else(|| format!("no {name}: {metrics}"));
        let queued = read("queue_length")?;
        report.largest_queue = report.largest_queue.max(queued);
        report.threads = report.threads.max(read("threads")?);
        screen.show(&phase, queued, last.elapsed());
        last = Instant::now();
        sleep(INTERVAL).await;
    }
    Ok(report)
}
