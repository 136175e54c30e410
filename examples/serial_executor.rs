//! A topic of a message broker: one state, which many tasks change atomically.
//!
//! ```sh
//! cargo run --release --example serial_executor -- [--messages N] [--publishers N] [--subscribers N]
//! ```
//!
//! The topic belongs to a `SerialExecutor`. Each operation is a job: to publish a message, to subscribe, to take
//! messages, to acknowledge one, to disconnect. The topic needs no task of its own and no lock.
//!
//! Publishers pause while a queue is long. Subscribers acknowledge most of the messages that they take, disconnect at
//! any time, and connect again. At the end, an audit checks that each message is accounted for exactly once for each
//! subscriber that was connected when it was published.

#[path = "serial_executor/audit.rs"]
mod audit;
#[path = "serial_executor/broker.rs"]
mod broker;
#[path = "serial_executor/load.rs"]
mod load;
#[path = "serial_executor/topic.rs"]
mod topic;

use std::error::Error;
use std::time::{Duration, Instant};

use clap::Parser;
use throng::serial::Metrics;
use tokio::time::timeout;

use self::audit::Balance;
use self::broker::Broker;

type Fault = Box<dyn Error + Send + Sync>;
type Result<T, E = Fault> = std::result::Result<T, E>;

/// A topic of a message broker under load: fast publishers, and subscribers that come and go. It fails if a message is
/// lost or duplicated.
#[derive(Clone, Debug, Parser)]
struct Args {
    /// Messages that each publisher publishes
    #[arg(long, value_name = "N", default_value = "5000")]
    messages: u64,

    /// Tasks that publish
    #[arg(long, value_name = "N", default_value = "4")]
    publishers: u64,

    /// Tasks that subscribe
    #[arg(long, value_name = "N", default_value = "8")]
    subscribers: u64,
}

impl Args {
    fn all_messages(&self) -> u64 {
        self.publishers * self.messages
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    // Much longer than a run takes.
    let balance = timeout(Duration::from_secs(60), run(&args)).await??;
    println!("{balance}");
    Ok(())
}

/// Puts load on the topic, and audits it afterwards.
async fn run(args: &Args) -> Result<String> {
    let broker = Broker::new();
    let started = Instant::now();
    let lives = load::run(&broker, args).await?;
    let time = started.elapsed();
    let metrics = broker.metrics();

    let topic = broker.close().await?;
    ensure(topic.published() == args.all_messages(), || {
        format!("{} messages were published", topic.published())
    })?;
    let balance = audit::audit(&lives, &topic)?;
    Ok(describe(args, &balance, &metrics, time))
}

/// Describes the result.
fn describe(args: &Args, balance: &Balance, metrics: &Metrics, time: Duration) -> String {
    let jobs = metrics.inline + metrics.queued;
    let seconds = time.as_secs_f64().max(1e-9);
    let lines = [
        format!(
            "messages    {} from {} publishers, to {} subscribers in {} lives",
            args.all_messages(),
            args.publishers,
            args.subscribers,
            balance.lives
        ),
        format!("deliveries  {balance}"),
        format!(
            "operations  {jobs} in {seconds:.2} s, {:.0} each second",
            jobs as f64 / seconds
        ),
        format!(
            "executor    {} at once, {} queued; {} of these on threads of other submitters",
            metrics.inline, metrics.queued, metrics.captured
        ),
        format!(
            "            handed over {} times, {} queued at most",
            metrics.handed_over, metrics.max_queue_length
        ),
    ];
    lines.join("\n")
}

fn ensure(condition: bool, otherwise: impl FnOnce() -> String) -> Result<()> {
    match condition {
        true => Ok(()),
        false => Err(otherwise().into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_small_load_balances() {
        let args = Args::parse_from(["serial_executor", "--messages", "500"]);
        let text = run(&args).await.unwrap();
        assert!(
            text.starts_with("messages    2000 from 4 publishers"),
            "{text}"
        );
        assert_eq!(text.lines().count(), 5, "{text}");
    }

    #[tokio::test]
    async fn there_may_be_no_publishers_and_no_subscribers() {
        for (publishers, subscribers) in [("0", "3"), ("3", "0"), ("0", "0")] {
            let flags = ["", "--publishers", publishers, "--subscribers", subscribers];
            let args = Args::parse_from(flags);
            timeout(Duration::from_secs(30), run(&args))
                .await
                .unwrap()
                .unwrap();
        }
    }
}
