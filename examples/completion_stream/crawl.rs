//! The crawler: the pages that it has found, and the phases in which it fetches them.

use std::collections::{HashSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use indicatif::{ProgressBar, ProgressStyle};
use throng::completion::{Completed, Submitter};
use throng::{CompletionStream, Retry};

use super::Result;
use super::fetch::{Error, Links, fetch};

/// A page of the site, by its path.
pub(crate) type Path = String;

type Outcome = Result<Links, Error>;

/// A crawl through a site, in phases.
pub(crate) struct Crawl {
    address: SocketAddr,
    at_once: usize,
    jobs: Submitter<Outcome, Path>,
    done: CompletionStream<Outcome, Path>,
    /// Pages to fetch in this phase, or in the next.
    to_do: VecDeque<Path>,
    /// Pages that are left for the next phase.
    failed: Vec<Path>,
    last_failure: Option<Error>,
    /// All pages that were ever named.
    found: HashSet<Path>,
    fetched: usize,
    attempts: Arc<AtomicU64>,
    bar: ProgressBar,
}

impl Crawl {
    /// A crawl that starts at the root of the site.
    pub(crate) fn new(address: SocketAddr, at_once: usize) -> Result<Self> {
        let (jobs, done) = CompletionStream::builder()
            .max_running(at_once)
            .max_outstanding(at_once)
            .build()?;
        let root = Path::from("/0");
        Ok(Self {
            address,
            at_once,
            jobs,
            done,
            to_do: VecDeque::from([root.clone()]),
            failed: Vec::new(),
            last_failure: None,
            found: HashSet::from([root]),
            fetched: 0,
            attempts: Arc::default(),
            bar: bar(),
        })
    }

    /// The number of pages that were fetched.
    pub(crate) fn fetched(&self) -> usize {
        self.fetched
    }

    /// The number of requests for pages.
    pub(crate) fn attempts(&self) -> u64 {
        self.attempts.load(Ordering::Relaxed)
    }

    /// The last reason why a page was left for the next phase.
    pub(crate) fn last_failure(&self) -> Option<&Error> {
        self.last_failure.as_ref()
    }

    /// Fetches the pages to do, and those that they link to, until none is left. Pages that fail, after as many
    /// attempts as `retry` allows, are left for the next phase.
    pub(crate) async fn phase(&mut self, retry: Retry) -> Result<()> {
        self.submit(retry).await?;
        // The stream stays open because there is a submitter. The phase ends when no job is outstanding.
        while let Some(completed) = self.done.next_until_idle().await {
            self.learn(completed)?;
            self.submit(retry).await?;
        }
        self.to_do.extend(self.failed.drain(..));
        Ok(())
    }

    /// Submits pages until the stream is full. It never waits for room: only the reader, which is the same task, could
    /// make some. No other task submits.
    async fn submit(&mut self, retry: Retry) -> Result<()> {
        while self.jobs.in_flight() < self.at_once
            && let Some(path) = self.to_do.pop_front()
        {
            let (address, page) = (self.address, path.clone());
            let attempts = Arc::clone(&self.attempts);
            let job = retry.run(move |_| {
                attempts.fetch_add(1, Ordering::Relaxed);
                fetch(address, page.clone())
            });
            let submitted = self.jobs.submit(path, job).await;
            submitted.map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Records the links of a page, or its failure.
    fn learn(&mut self, completed: Completed<Outcome, Path>) -> Result<()> {
        // A panic of a job ends the program.
        match completed.outcome? {
            Ok(links) => {
                self.fetched += 1;
                let new = links
                    .into_iter()
                    .filter(|link| self.found.insert(link.clone()));
                self.to_do.extend(new);
            }
            Err(error @ Error::NotFound) => {
                return Err(format!("{}: {error}", completed.tag).into());
            }
            Err(error) => {
                self.failed.push(completed.tag);
                self.last_failure = Some(error);
            }
        }
        self.show();
        Ok(())
    }

    /// The bar grows too, because the number of pages is not known beforehand.
    fn show(&self) {
        self.bar.set_length(self.found.len() as u64);
        self.bar.set_position(self.fetched as u64);
        let left = self.failed.len();
        self.bar
            .set_message(format!("{left} left for the next phase"));
    }
}

impl Drop for Crawl {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// A progress bar, if standard error is a terminal.
fn bar() -> ProgressBar {
    let style = ProgressStyle::with_template("[{bar:30}] {pos} of {len} pages found so far; {msg}");
    let bar = ProgressBar::new(1);
    bar.set_style(style.expect("the template is right").progress_chars("=> "));
    bar
}
