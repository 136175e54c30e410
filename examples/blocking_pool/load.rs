//! The load: clients that ask again and again, and somebody who watches the service meanwhile.

use std::net::SocketAddr;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::client::Client;
use super::metrics::value;
use super::report::Report;
use super::{Result, ensure};

/// How long clients begin requests in a phase.
const LENGTH: Duration = Duration::from_millis(1_500);
/// How soon a client that was refused comes again. Much sooner than it was told to: a bad day.
const IMPATIENCE: Duration = Duration::from_millis(20);
/// How often somebody looks how the service is.
const INTERVAL: Duration = Duration::from_millis(10);

/// A part of the show.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Phase {
    pub(crate) name: &'static str,
    pub(crate) path: &'static str,
    pub(crate) clients: usize,
}

/// A bar that shows how far it has come, if standard error is a terminal.
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

/// Runs a phase to its end: each client has its last answer then.
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

/// The life of a client.
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

/// Looks how the service is, as somebody would who decides whether it is alive.
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
        let queued = read("queued")?;
        report.largest_queue = report.largest_queue.max(queued);
        report.threads = report.threads.max(read("threads")?);
        screen.show(&phase, queued, last.elapsed());
        last = Instant::now();
        sleep(INTERVAL).await;
    }
    Ok(report)
}
