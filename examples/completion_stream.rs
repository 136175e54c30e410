//! A crawler: it fetches every page of a site that fails at random, and finds the pages by their links.
//!
//! ```sh
//! cargo run --release --example completion_stream -- [--pages N] [--failing PERCENT] [--at-once N]
//! ```
//!
//! The site is a local web server, which this program starts. One task crawls it: it submits requests to a
//! `CompletionStream` while there is room, and reads their outcomes. Each page links to others, so the number of pages
//! is not known beforehand. A first phase requests each page once, and ends when no request is outstanding. A second
//! phase requests the pages that failed, with more attempts, and follows their links. In the end, every page must have
//! been fetched exactly once.

#[path = "completion_stream/crawl.rs"]
mod crawl;
#[path = "completion_stream/fetch.rs"]
mod fetch;
#[path = "completion_stream/site.rs"]
mod site;

use std::error::Error;
use std::future::IntoFuture;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Parser, value_parser};
use throng::Retry;
use tokio::net::TcpListener;
use tokio::time::timeout;

use self::crawl::Crawl;
use self::site::Site;

type Fault = Box<dyn Error + Send + Sync>;
type Result<T, E = Fault> = std::result::Result<T, E>;

/// Crawls a site that fails at random. Fails if a page is missed or fetched twice.
#[derive(Clone, Debug, Parser)]
struct Args {
    /// Number of pages of the site
    #[arg(long, value_name = "N", default_value = "3000", value_parser = value_parser!(u64).range(1..))]
    pages: u64,

    /// Percentage of requests that fail
    #[arg(long, value_name = "PERCENT", default_value = "10", value_parser = value_parser!(u64).range(..=75))]
    failing: u64,

    /// Maximum number of concurrent requests
    #[arg(long, value_name = "N", default_value = "32", value_parser = value_parser!(u16).range(1..))]
    at_once: u16,

    /// Seed of the failures
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,
}

/// For the second phase. Even if most requests fail, no page of thousands fails this often.
const PATIENT: Retry = Retry::exponential()
    .attempts(60)
    .base(Duration::from_millis(2))
    .cap(Duration::from_millis(50));

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    // Much longer than needed.
    let summary = timeout(Duration::from_secs(60), run(&args)).await??;
    println!("{summary}");
    Ok(())
}

/// Starts the site, crawls it, and compares the counts of both.
async fn run(args: &Args) -> Result<String> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    let site = Arc::new(Site::new(args.pages, args.failing, args.seed));
    let server = axum::serve(listener, site::router(Arc::clone(&site)));
    let server = tokio::spawn(server.into_future());

    let started = Instant::now();
    let mut crawl = Crawl::new(address, args.at_once.into())?;
    crawl.phase(Retry::exponential().attempts(1)).await?;
    let first = crawl.fetched();
    crawl.phase(PATIENT).await?;
    let time = started.elapsed();

    server.abort();
    check(args, &site, &crawl)?;
    Ok(format!(
        "{} pages in {:.2} s: {first} in the first phase, {} in the second; \
         {} requests, {} failed, {} at once",
        crawl.fetched(),
        time.as_secs_f64(),
        crawl.fetched() - first,
        site.requests(),
        site.requests() - crawl.fetched() as u64,
        site.most_at_once(),
    ))
}

/// Checks that each page was fetched once, and that the limit was kept.
fn check(args: &Args, site: &Site, crawl: &Crawl) -> Result<()> {
    let (fetched, pages) = (crawl.fetched() as u64, args.pages);
    ensure(fetched == pages, || {
        let why = crawl.last_failure().map(ToString::to_string);
        format!(
            "{fetched} pages of {pages} were fetched; {}",
            why.unwrap_or_default()
        )
    })?;
    let not_once = site.served().find(|(_, times)| *times != 1);
    ensure(not_once.is_none(), || {
        format!("a page was not served exactly once: {not_once:?}")
    })?;
    let (attempts, requests) = (crawl.attempts(), site.requests());
    ensure(attempts == requests, || {
        format!("{attempts} attempts, but {requests} requests")
    })?;
    let most = site.most_at_once();
    ensure(most <= args.at_once.into(), || {
        format!("{most} concurrent requests")
    })
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

    async fn crawl(flags: &[&str]) -> String {
        let args = Args::parse_from(["completion_stream"].iter().chain(flags));
        let crawled = timeout(Duration::from_secs(30), run(&args)).await;
        crawled.unwrap().unwrap()
    }

    #[tokio::test]
    async fn a_site_that_fails_is_fetched_completely() {
        let summary = crawl(&["--pages", "300", "--failing", "30", "--at-once", "4"]).await;
        assert!(summary.starts_with("300 pages in "), "{summary}");
        assert!(!summary.contains(" 0 in the second"), "{summary}");
        assert!(!summary.contains(" 0 failed"), "{summary}");
    }

    #[tokio::test]
    async fn without_failures_the_first_phase_is_enough() {
        let summary = crawl(&["--pages", "50", "--failing", "0"]).await;
        assert!(summary.contains(" 50 in the first phase"), "{summary}");
        assert!(summary.contains(" 50 requests, 0 failed"), "{summary}");
    }

    #[tokio::test]
    async fn one_page_needs_one_request() {
        let summary = crawl(&["--pages", "1", "--failing", "0", "--at-once", "1"]).await;
        assert!(
            summary.ends_with(" 1 requests, 0 failed, 1 at once"),
            "{summary}"
        );
    }
}
