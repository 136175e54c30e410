//! Workers in processes of their own.

use std::error::Error;
use std::fs::OpenOptions;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use throng::durable::DurableExecutor;

use super::ours::open;
use super::redis;
use super::tasks::{Ledger, Slow, Stamp, Starts};
use crate::areas::two_workers;

/// An order to a worker, as JSON in its argument.
#[derive(Debug, Serialize, Deserialize)]
enum Order {
    Sqlite {
        /// Where the store is.
        dir: PathBuf,
        /// Where to write what happens; else it is told at the end when tasks have begun.
        ledger: Option<PathBuf>,
    },
    Redis {
        url: String,
    },
    /// As a worker of another system: it tells at the end when tasks have begun.
    RedisStamped {
        url: String,
        max_running: usize,
        /// The queue that it serves, or the default one.
        queue: Option<String>,
    },
}

/// Runs tasks in this process, until nobody holds the other end of its input any longer.
///
/// # Errors
///
/// Fails if the order is malformed, with the reason.
pub(crate) fn work(order: &str) -> Result<(), String> {
    let order: Order =
        serde_json::from_str(order).map_err(|error| format!("not an order: {error}"))?;
    let obeyed = match order {
        Order::Sqlite { dir, ledger } => work_in(&dir, ledger.as_deref()),
        Order::Redis { url } => redis::work(&url),
        Order::RedisStamped {
            url,
            max_running,
            queue,
        } => redis::work_stamped(&url, max_running, queue.as_deref()),
    };
    obeyed.map_err(|error| error.to_string())
}

fn work_in(dir: &Path, ledger: Option<&Path>) -> Result<(), Box<dyn Error>> {
    let runtime = two_workers().build()?;
    let starts = Arc::new(Starts::default());
    let executor = runtime.block_on(async {
        let client = open(dir).await;
        match ledger {
            Some(ledger) => {
                let ledger = OpenOptions::new().append(true).open(ledger);
                let ledger = Ledger(ledger.expect("there is a ledger"));
                let mut builder = DurableExecutor::builder(client);
                builder.max_running(1);
                builder.register::<Slow>().start(ledger).await
            }
            None => {
                let mut builder = DurableExecutor::builder(client);
                builder.register::<Stamp>().start(starts.clone()).await
            }
        }
    })?;
    println!("ready");
    io::stdin().read_to_end(&mut Vec::new())?;
    drop(executor);
    starts.print();
    Ok(())
}

/// A worker, as seen by who has started it. It ends when this is dropped.
pub(super) struct Worker {
    child: Child,
    output: BufReader<ChildStdout>,
    /// A worker ends with it.
    input: Option<ChildStdin>,
}

impl Worker {
    /// Starts one, and does not wait for it.
    pub(super) fn start(dir: &Path, ledger: Option<&Path>) -> Self {
        Self::start_with(&Order::Sqlite {
            dir: dir.to_owned(),
            ledger: ledger.map(Path::to_owned),
        })
    }

    /// Starts one that works with a server, from when it is told to [go](Self::go).
    pub(super) fn start_on(url: &str) -> Self {
        Self::start_with(&Order::Redis {
            url: url.to_owned(),
        })
    }

    /// The same, and it tells at the end when tasks have begun.
    pub(super) fn start_stamped(url: &str, max_running: usize, queue: Option<&str>) -> Self {
        Self::start_with(&Order::RedisStamped {
            url: url.to_owned(),
            max_running,
            queue: queue.map(str::to_owned),
        })
    }

    fn start_with(order: &Order) -> Self {
        let order = serde_json::to_string(order).expect("a path is UTF-8");
        let own = std::env::current_exe().expect("this program is a file");
        Self::start_program(Command::new(own).args(["worker", &order]))
    }

    /// Starts a worker of another system, which behaves like ours.
    pub(super) fn start_program(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a worker can be started");
        let output = child.stdout.take().expect("it is piped");
        Self {
            output: BufReader::new(output),
            input: child.stdin.take(),
            child,
        }
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it is at work.
    pub(super) fn wait_ready(&mut self) {
        self.wait_until_it_says("ready");
    }

    pub(super) fn wait_until_it_says(&mut self, word: &str) {
        let mut line = String::new();
        self.output
            .read_line(&mut line)
            .expect("a worker can be read");
        assert_eq!(line.trim_end(), word, "a worker has failed");
    }

    pub(super) fn go(&mut self) {
        let mut input = self.input.as_ref().expect("it has not been ended");
        input.write_all(b"\n").expect("it listens");
    }

    /// Ends it as nothing ends well.
    pub(super) fn kill(&mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it is dead");
    }

    /// Ends it, and returns when which task has begun.
    pub(super) fn finish(mut self) -> Vec<(u64, u64)> {
        self.input = None;
        let mut text = String::new();
        self.output
            .read_to_string(&mut text)
            .expect("a worker can be read");
        let status = self.child.wait().expect("it ends");
        assert!(status.success(), "a worker failed: {status}");
        let lines = text.lines().filter_map(|line| {
            let (number, begun) = line.split_once(' ')?;
            Some((number.parse().ok()?, begun.parse().ok()?))
        });
        lines.collect()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
