//! The event streams of open overviews: the HTML of the parts that have changed, and new values of the charts.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, HeaderName};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::error::{ErrorKind, WebError};
use crate::html;
use crate::sampler::{Latest, Sample};
use crate::views::charts::charts_of_samples;
use crate::views::overview::SummaryView;
use crate::visit::StoreVisit;

/// The maximum number of streams of a dashboard.
pub(crate) const MAX_STREAMS: usize = 128;
/// A comment is sent after this time without an event, so that the server notices a broken connection.
const COMMENT_INTERVAL: Duration = Duration::from_secs(15);
/// The stream ends after this time, and the browser opens another one. So the application authenticates the user again.
const MAX_STREAM_TIME: Duration = Duration::from_secs(60);
/// The time after which the browser opens another stream.
const RECONNECT_AFTER: Duration = Duration::from_millis(250);

/// The data of an event: the HTML of the parts that have changed, and new values of charts.
#[derive(Serialize)]
struct Update<'a> {
    /// The ids and the HTML of the parts that have changed.
    parts: Vec<(&'a str, &'a str)>,
    charts: BTreeMap<&'static str, Value>,
    /// `true` if `charts` has all values, and not only those since the last event.
    is_whole: bool,
}

/// A stream of a viewer.
struct Viewer {
    store: StoreVisit,
    receiver: watch::Receiver<Latest>,
    /// The HTML that the viewer has, by the ids of its elements.
    sent: HashMap<&'static str, String>,
    /// The sample of the last value that the viewer has.
    last_sample: Option<Sample>,
    end: Instant,
    stop: CancellationToken,
    _permit: OwnedSemaphorePermit,
}

/// Opens a stream. A slow reader misses events, but no viewer makes another one wait.
pub(crate) async fn events(mut store: StoreVisit) -> Result<Response, WebError> {
    // The links are those of the overview, which is above this path.
    store.visit.root = "../".into();
    let streams = Arc::clone(&store.visit.shared.streams);
    let permit = streams.try_acquire_owned().map_err(|_| too_many())?;
    let events = stream::unfold(Viewer::new(store, permit), |mut viewer| async {
        let event = viewer.next().await?;
        Some((Ok::<_, Infallible>(event), viewer))
    });
    let headers = [
        (
            CACHE_CONTROL,
            HeaderValue::from_static("no-store, no-transform"),
        ),
        // nginx would collect events before it passes them on.
        (
            HeaderName::from_static("x-accel-buffering"),
            HeaderValue::from_static("no"),
        ),
    ];
    Ok((headers, Sse::new(events)).into_response())
}

fn too_many() -> WebError {
    WebError::new(
        ErrorKind::TooMany,
        "Too many pages are open at once: this one reads its numbers every 5 seconds.",
    )
}

impl Viewer {
    fn new(store: StoreVisit, permit: OwnedSemaphorePermit) -> Self {
        let sampler = &store.store.sampler;
        // The first event is for numbers that were read before, if there are any.
        let mut receiver = sampler.subscribe();
        if receiver.borrow().overview.is_some() {
            receiver.mark_changed();
        }
        Self {
            receiver,
            sent: HashMap::new(),
            last_sample: None,
            end: Instant::now() + MAX_STREAM_TIME,
            stop: sampler.stop_token().clone(),
            _permit: permit,
            store,
        }
    }

    /// Waits for the next event. Returns `None` at the end of the stream.
    async fn next(&mut self) -> Option<Event> {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => None,
            () = sleep_until(self.end) => None,
            changed = self.receiver.changed() => changed.ok().map(|()| self.update()),
            () = sleep(COMMENT_INTERVAL) => Some(Event::default().comment("")),
        }
    }

    /// Returns the event for the numbers that were read last. If the store has never answered, it is a comment.
    fn update(&mut self) -> Event {
        let latest = self.receiver.borrow_and_update().clone();
        let store = &self.store.store;
        let Ok(summary) = SummaryView::new(store, &latest) else {
            return Event::default().comment("the store has not answered");
        };
        let parts = html::overview::parts(&self.store, &summary);
        let parts = parts.map(|(id, html)| (id, html.into_string()));
        let changed = parts
            .iter()
            .filter(|(id, html)| self.sent.get(id) != Some(html));
        let samples = store.sampler.samples();
        let update = Update {
            parts: changed.map(|(id, html)| (*id, html.as_str())).collect(),
            charts: self.charts(&samples),
            is_whole: self.last_sample.is_none(),
        };
        let event = Event::default().event("update").retry(RECONNECT_AFTER);
        let event = event.json_data(&update).unwrap_or_default();
        self.last_sample = samples.last().copied();
        self.sent = parts.into();
        event
    }

    /// Returns the values of the charts: at first all of them, then those that the viewer does not have.
    fn charts(&self, samples: &[Sample]) -> BTreeMap<&'static str, Value> {
        let is_last = |sample: &Sample| Some(*sample) == self.last_sample;
        // The first new value is computed from the last sample that was sent.
        let start = samples.iter().rposition(is_last).unwrap_or_default();
        let charts = charts_of_samples(&samples[start..]);
        charts
            .iter()
            .map(|chart| (chart.id, html::charts::data(chart)))
            .collect()
    }
}
