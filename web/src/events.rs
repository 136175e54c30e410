//! The event streams of pages: numbers, and the HTML of the parts of a page that change.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::Query;
use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, HeaderName};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

/// The most streams of a dashboard at once.
pub(crate) const MAX_STREAMS: usize = 128;
/// A comment is sent after this time without an event, so that the server notices a broken connection.
const COMMENT_INTERVAL: Duration = Duration::from_secs(15);
/// The stream ends after this time, and the browser opens another one. So the host authenticates the user again.
const MAX_STREAM_TIME: Duration = Duration::from_secs(60);
/// The time after which the browser opens another stream.
const RECONNECT_AFTER: Duration = Duration::from_millis(250);

/// The query of a stream.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct EventsQuery {
    page: LivePage,
}

/// A page whose parts are sent. Other pages get only what all pages have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LivePage {
    Overview,
    Queues,
    Types,
    Other,
}

/// What the script gets: the HTML of the parts that have changed, and new values of charts.
#[derive(Serialize)]
struct Update<'a> {
    /// By the clock of the store, in milliseconds since 1970.
    now: u64,
    parts: Vec<(&'a str, &'a str)>,
    charts: HashMap<&'static str, Value>,
    /// `true` if `charts` has all values, and not only those since the last event.
    is_whole: bool,
}

/// A stream of a viewer.
struct Viewer {
    store: StoreVisit,
    page: LivePage,
    receiver: watch::Receiver<Latest>,
    /// The HTML that the viewer has, by the ids of its elements.
    sent: HashMap<&'static str, String>,
    is_first: bool,
    end: Instant,
    stop: CancellationToken,
    _permit: OwnedSemaphorePermit,
}

/// Opens a stream. A slow reader misses events, but no viewer makes another one wait.
pub(crate) async fn events(
    store: StoreVisit,
    Query(query): Query<EventsQuery>,
) -> Result<Response, WebError> {
    let streams = Arc::clone(&store.visit.shared.streams);
    let permit = streams.try_acquire_owned().map_err(|_| too_many())?;
    let sampler = &store.store.sampler;
    let viewer = Viewer {
        page: query.page,
        receiver: sampler.subscribe(),
        sent: HashMap::new(),
        is_first: true,
        end: Instant::now() + MAX_STREAM_TIME,
        stop: sampler.stop_token().clone(),
        _permit: permit,
        store,
    };
    let events = stream::unfold(viewer, |mut viewer| async {
        let event = viewer.next().await?;
        Some((Ok::<_, Infallible>(event), viewer))
    });
    let headers = [
        (CACHE_CONTROL, HeaderValue::from_static("no-store, no-transform")),
        // nginx would collect events before it passes them on.
        (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
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
    /// Waits for the next event. Returns `None` at the end of the stream.
    async fn next(&mut self) -> Option<Event> {
        if self.is_first {
            self.receiver.mark_changed();
        }
        tokio::select! {
            biased;
            () = self.stop.cancelled() => None,
            () = sleep_until(self.end) => None,
            changed = self.receiver.changed() => changed.ok().map(|()| self.update()),
            () = sleep(COMMENT_INTERVAL) => Some(Event::default().comment("")),
        }
    }
}
