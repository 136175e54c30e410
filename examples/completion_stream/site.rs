//! The site: pages that link to others, on a server that fails.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures::stream;
use tokio::time::sleep;

/// The number of links of a page to later pages. By these, every page can be found.
const CHILDREN: u64 = 3;
/// The number of other links of a page, so that most pages can be found even if a page fails.
const OTHERS: u64 = 2;
/// The maximum duration of an answer, in milliseconds.
const MAX_ANSWER_MS: u64 = 8;

/// The state of the server.
pub(crate) struct Site {
    pages: Vec<Page>,
    failing: u64,
    seed: u64,
    /// Requests that are being answered.
    now: AtomicUsize,
    most: AtomicUsize,
}

/// The numbers of requests and of successful answers for a page.
#[derive(Default)]
struct Page {
    requests: AtomicU64,
    served: AtomicU64,
}

impl Site {
    /// A site with a number of pages. `failing` is the percentage of requests that fail.
    pub(crate) fn new(pages: u64, failing: u64, seed: u64) -> Self {
        Self {
            pages: (0..pages).map(|_| Page::default()).collect(),
            failing,
            seed,
            now: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
        }
    }

    /// The pages, and how often each was served.
    pub(crate) fn served(&self) -> impl Iterator<Item = (usize, u64)> {
        let times = |page: &Page| page.served.load(Ordering::Relaxed);
        self.pages.iter().map(times).enumerate()
    }

    /// The number of requests for all pages.
    pub(crate) fn requests(&self) -> u64 {
        let requests = |page: &Page| page.requests.load(Ordering::Relaxed);
        self.pages.iter().map(requests).sum()
    }

    /// The maximum number of concurrent requests.
    pub(crate) fn most_at_once(&self) -> usize {
        self.most.load(Ordering::Relaxed)
    }

    /// Waits for a random time, and then answers or fails.
    async fn answer(&self, number: u64) -> Response {
        let Some(page) = usize::try_from(number).ok().and_then(|n| self.pages.get(n)) else {
            return StatusCode::NOT_FOUND.into_response();
        };
        let request = page.requests.fetch_add(1, Ordering::Relaxed);
        let mut dice = Dice::of([self.seed, number, request]);
        sleep(Duration::from_millis(dice.below(MAX_ANSWER_MS))).await;
        if dice.below(100) < self.failing {
            return match dice.below(2) {
                0 => StatusCode::SERVICE_UNAVAILABLE.into_response(),
                _ => cut_off(self.text(number)),
            };
        }
        page.served.fetch_add(1, Ordering::Relaxed);
        self.text(number).into_response()
    }

    /// The links of a page.
    fn text(&self, number: u64) -> String {
        let pages = self.pages.len() as u64;
        let first = number.saturating_mul(CHILDREN).saturating_add(1);
        let children = (first..first.saturating_add(CHILDREN)).filter(|child| *child < pages);
        let mut dice = Dice::of([self.seed, number, u64::MAX]);
        let others = (0..OTHERS).map(|_| dice.below(pages));
        children
            .chain(others)
            .map(|page| format!("/{page}\n"))
            .collect()
    }
}

/// The server's one route.
pub(crate) fn router(site: Arc<Site>) -> Router {
    Router::new().route("/{page}", get(page)).with_state(site)
}

async fn page(State(site): State<Arc<Site>>, Path(number): Path<u64>) -> Response {
    let now = site.now.fetch_add(1, Ordering::Relaxed) + 1;
    site.most.fetch_max(now, Ordering::Relaxed);
    let response = site.answer(number).await;
    site.now.fetch_sub(1, Ordering::Relaxed);
    response
}

/// An answer whose second half is missing.
fn cut_off(text: String) -> Response {
    let length = text.len();
    let half = text[..length / 2].to_owned();
    let pieces = [Ok(half), Err(io::Error::other("the site has failed"))];
    let body = Body::from_stream(stream::iter(pieces));
    ([(header::CONTENT_LENGTH, length)], body).into_response()
}

/// Pseudo-random numbers, which are the same for the same seed: SplitMix64.
struct Dice(u64);

impl Dice {
    fn of(seed: [u64; 3]) -> Self {
        let mix = |dice: Self, n: u64| Self(Self(dice.0 ^ n).next());
        seed.into_iter().fold(Self(0), mix)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut n = self.0;
        n = (n ^ (n >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        n = (n ^ (n >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        n ^ (n >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}
