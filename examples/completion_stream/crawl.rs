//! The crawler: what it knows of the site, and how it comes to know more.

use std::collections::{HashSet, VecDeque};
use std::net::SocketAddr;

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
    /// Taken while a phase lasts.
    done: Option<CompletionStream<Outcome, Path>>,
    /// Pages to be fetched in this phase, or in the next.
    to_do: VecDeque<Path>,
    /// Pages that are left for the next phase.
    failed: Vec<Path>,
    last_failure: Option<Error>,
    /// All pages that were ever named.
    found: HashSet<Path>,
    fetched: usize,
    attempts: u64,
    bar: ProgressBar,
}

impl Crawl {
    /// A crawl that begins with the root of the site.
    pub(crate) fn new(address: SocketAddr, at_once: usize) -> Self {
        let (jobs, done) = CompletionStream::builder()
            .max_running(at_once)
            .max_outstanding(at_once)
            .build()?;
        let root = Path::from("/0");
        Self {
            address,
            at_once,
            jobs,
            done: Some(done),
            to_do: VecDeque::from([root.clone()]),
            failed: Vec::new(),
            last_failure: None,
            found: HashSet::from([root]),
            fetched: 0,
            attempts: 0,
            bar: bar(),
        }
    }

    /// How many pages were fetched.
    pub(crate) fn fetched(&self) -> usize {
        self.fetched
    }

    /// How often a page was asked for.
    pub(crate) fn attempts(&self) -> u64 {
        self.attempts
    }

    /// Why a page was left for the next phase, the last time.
    pub(crate) fn last_failure(&self) -> Option<&Error> {
        self.last_failure.as_ref()
    }

    /// Fetches what there is to do, and what that names, until nothing is left. What has failed, after as
    /// many attempts as `retry` allows, is what the next phase has to do.
    pub(crate) async fn phase(&mut self, retry: Retry) -> Result<()> {
        let done = self.done.take().ok_or("the last phase has failed")?;
        // The submitter stays, so the stream goes on; the phase ends when nothing is outstanding.
        let mut phase = done.until_idle();
        self.submit(retry).await?;
        while let Some(completed) = phase.next().await {
            self.learn(completed)?;
            self.submit(retry).await?;
        }
        self.done = Some(phase.into_inner());
        self.to_do.extend(self.failed.drain(..));
        Ok(())
    }

    /// Submits as much as there is room for. It never waits for room, which only the reader, who is the
    /// same task, could make: nobody else submits.
    async fn submit(&mut self, retry: Retry) -> Result<()> {
        while self.jobs.in_flight() < self.at_once
            && let Some(path) = self.to_do.pop_front()
        {
            let (address, asked) = (self.address, path.clone());
            let attempt = move |_| fetch(address, asked.clone());
            let submitted = self.jobs.submit_retry(path, retry, attempt).await;
            submitted.map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Takes what a page names, or that it has failed.
    fn learn(&mut self, completed: Completed<Outcome, Path>) -> Result<()> {
        self.attempts += u64::from(completed.attempts);
        // A job that panics ends the program.
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

    /// The bar gets longer, too: nobody knows how many pages there are.
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

/// A bar, if standard error is a terminal.
fn bar() -> ProgressBar {
    let style = ProgressStyle::with_template("[{bar:30}] {pos} of {len} pages found so far; {msg}");
    let bar = ProgressBar::new(1);
    bar.set_style(style.expect("the template is right").progress_chars("=> "));
    bar
}
