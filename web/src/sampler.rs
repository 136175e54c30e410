//! [`Sampler`]: reads the overview of a store at intervals, once for all viewers.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, Once};
use std::time::{Duration, SystemTime};

use throng::durable::{DurableClient, DurableError, Finding, Overview};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::error::WebError;
use crate::gate::GateError;
use crate::recent::SHARED_FOR;

/// The interval while somebody watches.
const LIVE_INTERVAL: Duration = Duration::from_secs(1);
/// The interval while nobody does.
const IDLE_INTERVAL: Duration = Duration::from_secs(15);
/// The time for which findings are kept, unless the store is changed. They cost more than the numbers.
const FINDINGS_INTERVAL: Duration = Duration::from_secs(15);
/// The time after which an attempt to read fails.
const READ_TIMEOUT: Duration = Duration::from_secs(2);
/// If the store is slow, the sampler pauses for this many times the duration of a read, and at most for [`IDLE_INTERVAL`].
const PAUSE_FACTOR: u32 = 20;
/// The time for which a page waits for new numbers: a read, and the pause before it if the store is fast.
const MAX_WAIT: Duration = Duration::from_millis(2_500);
/// The number of samples that are kept: 15 minutes while somebody watches.
const MAX_SAMPLES: usize = 900;

/// Reads the overview of a store at intervals, and keeps the last samples of its numbers. So the cost for the store does not depend on
/// the number of viewers.
///
/// The first page starts a task, which ends with the dashboard.
pub(crate) struct Sampler {
    shared: Arc<SamplerShared>,
    start: Once,
    /// Ends the task when the dashboard is dropped.
    stop: DropGuard,
}

struct SamplerShared {
    client: DurableClient,
    latest: watch::Sender<Latest>,
    samples: Mutex<VecDeque<Sample>>,
    /// Ends the pause between two reads.
    wake: Notify,
}

/// The result of the last attempts to read the overview.
#[derive(Clone, Debug, Default)]
pub(crate) struct Latest {
    /// The last overview, even if later attempts have failed. It is `None` until an attempt succeeds.
    pub(crate) overview: Option<Arc<Overview>>,
    /// The error of the last attempt.
    pub(crate) error: Option<WebError>,
    /// The problems of the store.
    pub(crate) findings: Arc<[Finding]>,
    /// The time at which the findings were read, and the number of changes at that time.
    findings_read: Option<(Instant, u64)>,
    /// The number of changes that this dashboard has made.
    changes: u64,
    /// The end of the pause after the last attempt, until which pages share its result.
    shared_until: Option<Instant>,
    attempts: u64,
}

/// Some numbers of a store at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sample {
    /// By the clock of the store, in milliseconds since 1970.
    pub(crate) at: u64,
    /// All runs that have succeeded.
    pub(crate) done: u64,
    /// All runs that have failed.
    pub(crate) failed: u64,
    /// Zero if no task waits, and `None` if the store does not know for how long they have waited.
    pub(crate) oldest_waiting: Option<Duration>,
}

impl Sampler {
    /// Creates a sampler, which ends with `shutdown`.
    pub(crate) fn new(client: DurableClient, shutdown: &CancellationToken) -> Self {
        let shared = SamplerShared {
            client,
            latest: watch::Sender::default(),
            samples: Mutex::default(),
            wake: Notify::new(),
        };
        Self {
            shared: Arc::new(shared),
            start: Once::new(),
            stop: shutdown.child_token().drop_guard(),
        }
    }

    /// Returns the result of the last attempt if the sampler pauses after it: for 250 ms, and longer if the store is slow. Otherwise
    /// waits for a new attempt. If it takes too long, or after the shutdown, the result is older.
    pub(crate) async fn latest(&self) -> Latest {
        self.start();
        let mut receiver = self.shared.latest.subscribe();
        let attempts = {
            let latest = receiver.borrow();
            if latest.is_shared() {
                return latest.clone();
            }
            latest.attempts
        };
        self.shared.wake.notify_one();
        let is_newer = |latest: &Latest| latest.attempts > attempts;
        let newer = timeout(MAX_WAIT, receiver.wait_for(is_newer));
        self.stop_token().run_until_cancelled(newer).await;
        self.shared.latest.borrow().clone()
    }

    /// Returns a receiver of all later results. While one exists, the store is read every second.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Latest> {
        self.start();
        let receiver = self.shared.latest.subscribe();
        self.shared.wake.notify_one();
        receiver
    }

    /// Makes the next page wait for new numbers, because the store was changed.
    pub(crate) fn expire(&self) {
        self.shared.latest.send_if_modified(|latest| {
            latest.shared_until = None;
            latest.changes += 1;
            false
        });
    }

    /// Returns the samples that are kept, the oldest first.
    pub(crate) fn samples(&self) -> Vec<Sample> {
        self.shared.lock_samples().iter().copied().collect()
    }

    /// Returns the token that is cancelled when the task ends.
    pub(crate) fn stop_token(&self) -> &CancellationToken {
        self.stop.token()
    }

    fn start(&self) {
        self.start.call_once(|| {
            let shared = Arc::clone(&self.shared);
            let stop = self.stop_token().clone();
            tokio::spawn(async move { stop.run_until_cancelled(shared.run()).await });
        });
    }
}

impl fmt::Debug for Sampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sampler").finish_non_exhaustive()
    }
}

impl SamplerShared {
    async fn run(&self) {
        loop {
            let pause = self.read().await;
            sleep(pause).await;
            let is_watched = self.latest.receiver_count() > 0;
            let interval = if is_watched {
                LIVE_INTERVAL
            } else {
                IDLE_INTERVAL
            };
            // This is an error if nobody wakes the sampler.
            let _ = timeout(interval - SHARED_FOR, self.wake.notified()).await;
        }
    }

    /// Reads the numbers and, less often, the findings. Returns the duration of the pause that follows.
    async fn read(&self) -> Duration {
        let start = Instant::now();
        let admin = self.client.admin();
        let overview = answer(admin.overview()).await.map(Arc::new);
        if let Ok(overview) = &overview {
            self.keep(Sample::of(overview));
            self.read_findings(overview).await;
        }
        let pause = (start.elapsed() * PAUSE_FACTOR).clamp(SHARED_FOR, IDLE_INTERVAL);
        self.latest
            .send_modify(|latest| latest.add(overview, Instant::now() + pause));
        pause
    }

    /// Reads the findings unless they are recent. If this fails, the old ones stay.
    async fn read_findings(&self, overview: &Overview) {
        let (is_due, changes) = {
            let latest = self.latest.borrow();
            (latest.are_findings_due(), latest.changes)
        };
        if !is_due {
            return;
        }
        let report = answer(self.client.admin().report_of(overview)).await;
        self.latest.send_if_modified(|latest| {
            latest.findings_read = Some((Instant::now(), changes));
            if let Ok(report) = report {
                latest.findings = report.findings.into();
            }
            false // The viewers get them with the numbers.
        });
    }

    fn keep(&self, sample: Sample) {
        let mut samples = self.lock_samples();
        if samples.len() == MAX_SAMPLES {
            samples.pop_front();
        }
        samples.push_back(sample);
    }

    fn lock_samples(&self) -> MutexGuard<'_, VecDeque<Sample>> {
        self.samples.lock().unwrap_or_else(|it| it.into_inner())
    }
}

/// Waits for the answer of the store, and not for too long.
async fn answer<T>(request: impl Future<Output = Result<T, DurableError>>) -> Result<T, WebError> {
    match timeout(READ_TIMEOUT, request).await {
        Ok(answer) => answer.map_err(WebError::from),
        Err(_) => Err(WebError::from(GateError::TimedOut)),
    }
}

impl Latest {
    fn are_findings_due(&self) -> bool {
        self.findings_read.is_none_or(|(at, changes)| {
            at.elapsed() >= FINDINGS_INTERVAL || changes != self.changes
        })
    }

    fn is_shared(&self) -> bool {
        self.shared_until.is_some_and(|end| Instant::now() <= end)
    }

    fn add(&mut self, overview: Result<Arc<Overview>, WebError>, shared_until: Instant) {
        self.shared_until = Some(shared_until);
        self.attempts += 1;
        self.error = overview.as_ref().err().cloned();
        if let Ok(overview) = overview {
            self.overview = Some(overview);
        }
    }
}

impl Sample {
    fn of(overview: &Overview) -> Self {
        let counts = &overview.counts;
        let oldest = overview.queues.iter().filter_map(|it| it.oldest_waiting);
        let oldest = oldest.max();
        let nobody_waits = overview.queues.iter().all(|it| it.info.waiting == 0);
        let since_1970 = overview.now.duration_since(SystemTime::UNIX_EPOCH);
        let at = since_1970.unwrap_or_default().as_millis();
        Self {
            at: u64::try_from(at).unwrap_or(u64::MAX),
            done: counts.done,
            failed: counts.retried.saturating_add(counts.died),
            oldest_waiting: oldest.or_else(|| nobody_waits.then_some(Duration::ZERO)),
        }
    }
}

#[cfg(test)]
mod tests {
    use throng::durable::MemoryStore;

    use super::*;

    fn sampler(shutdown: &CancellationToken) -> Sampler {
        let store = MemoryStore::new();
        Sampler::new(DurableClient::open(store.observe()), shutdown)
    }

    #[tokio::test]
    async fn pages_at_the_same_time_share_one_read() {
        let sampler = sampler(&CancellationToken::new());
        let pages = (0..50).map(|_| sampler.latest());
        for latest in futures_util::future::join_all(pages).await {
            assert!(latest.overview.is_some());
            assert_eq!(latest.attempts, 1);
        }
    }

    #[tokio::test]
    async fn a_page_after_a_change_gets_new_numbers() {
        let sampler = sampler(&CancellationToken::new());
        let attempts = sampler.latest().await.attempts;
        sampler.expire();
        assert!(sampler.latest().await.attempts > attempts);
    }

    #[tokio::test]
    async fn findings_are_read_again_only_after_a_change_or_some_time() {
        let sampler = sampler(&CancellationToken::new());
        let read_at = |latest: Latest| latest.findings_read.expect("they were read").0;
        let first = read_at(sampler.latest().await);
        sleep(LIVE_INTERVAL).await;
        assert_eq!(read_at(sampler.latest().await), first);
        sampler.expire();
        assert!(read_at(sampler.latest().await) > first);
        let mut latest = sampler.latest().await;
        assert!(!latest.are_findings_due());
        let changes = latest.changes;
        latest.findings_read = Some((first - FINDINGS_INTERVAL, changes));
        assert!(latest.are_findings_due());
    }

    #[tokio::test]
    async fn pages_of_a_slow_store_wait_for_no_pause() {
        let sampler = sampler(&CancellationToken::new());
        sampler.latest().await;
        // The task has read a second time, since the page has woken it. Now it waits for another page.
        sleep(LIVE_INTERVAL).await;
        let pause = Instant::now() + IDLE_INTERVAL;
        let failure = Err(WebError::from(GateError::TimedOut));
        let shared = &sampler.shared;
        shared.latest.send_modify(|it| it.add(failure, pause));
        sleep(SHARED_FOR * 2).await;
        let asked = Instant::now();
        assert!(sampler.latest().await.error.is_some());
        assert!(asked.elapsed() < SHARED_FOR, "{:?}", asked.elapsed());
    }

    #[tokio::test]
    async fn a_page_does_not_wait_for_ever_if_the_runtime_of_the_sampler_has_ended() {
        let sampler = Arc::new(sampler(&CancellationToken::new()));
        let other = Arc::clone(&sampler);
        let runtime = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.unwrap().block_on(async { other.latest().await })
        });
        assert_eq!(runtime.join().unwrap().attempts, 1);
        sampler.expire();
        let latest = timeout(MAX_WAIT * 4, sampler.latest()).await.unwrap();
        assert!(latest.overview.is_some());
    }

    #[tokio::test]
    async fn a_page_after_a_pause_gets_new_numbers() {
        let sampler = sampler(&CancellationToken::new());
        let attempts = sampler.latest().await.attempts;
        sleep(LIVE_INTERVAL * 2).await;
        let asked = Instant::now();
        assert!(sampler.latest().await.attempts > attempts);
        assert!(asked.elapsed() < LIVE_INTERVAL, "{:?}", asked.elapsed());
    }

    #[tokio::test]
    async fn a_watched_store_is_read_again_without_pages() {
        let sampler = sampler(&CancellationToken::new());
        let mut receiver = sampler.subscribe();
        let third = receiver.wait_for(|latest| latest.attempts == 3);
        let third = timeout(Duration::from_secs(10), third).await;
        assert!(third.is_ok_and(|it| it.is_ok()));
    }

    #[tokio::test]
    async fn after_the_shutdown_pages_get_the_last_result() {
        let shutdown = CancellationToken::new();
        let sampler = sampler(&shutdown);
        let attempts = sampler.latest().await.attempts;
        shutdown.cancel();
        sleep(LIVE_INTERVAL * 2).await;
        let latest = timeout(Duration::from_secs(10), sampler.latest())
            .await
            .unwrap();
        assert_eq!(latest.attempts, attempts);
    }

    #[tokio::test]
    async fn dropping_the_sampler_ends_its_task() {
        let sampler = sampler(&CancellationToken::new());
        sampler.latest().await;
        let stop = sampler.stop_token().clone();
        let shared = Arc::downgrade(&sampler.shared);
        drop(sampler);
        assert!(stop.is_cancelled());
        let ended = async {
            while shared.strong_count() > 0 {
                tokio::task::yield_now().await;
            }
        };
        timeout(Duration::from_secs(10), ended).await.unwrap();
    }

    #[test]
    fn the_oldest_samples_are_dropped() {
        let shutdown = CancellationToken::new();
        let sampler = sampler(&shutdown);
        let count = MAX_SAMPLES as u64 + 10;
        for at in 0..count {
            sampler.shared.keep(Sample {
                at,
                ..Sample::default()
            });
        }
        let samples = sampler.samples();
        assert_eq!(samples.len(), MAX_SAMPLES);
        assert_eq!(
            (samples[0].at, samples[MAX_SAMPLES - 1].at),
            (10, count - 1)
        );
    }
}
