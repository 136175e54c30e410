//! The live numbers of the overview, and the event streams.

use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::response::Response;
use http_body_util::BodyExt;
use serde_json::Value;
use throng::durable::{DurableClient, MemoryStore, TaskId};
use throng_web::{Access, Dashboard};
use tokio::time::{Duration, Instant, timeout};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::support::{PREFIX, builder, get, mounted, until};

/// The number of streams that a dashboard has at once.
const MAX_STREAMS: usize = 128;
const LIMIT: Duration = Duration::from_secs(10);

fn dashboard(shutdown: &CancellationToken) -> Dashboard {
    let client = DurableClient::open(MemoryStore::new());
    let mut builder = Dashboard::builder();
    builder.store("mail", client).shutdown(shutdown.clone());
    builder.build().expect("the dashboard is valid")
}

async fn open(dashboard: &Dashboard) -> Response {
    let request = Request::get("/s/mail/events").body(Body::empty());
    let answer = dashboard
        .service()
        .oneshot(request.expect("a request"))
        .await;
    answer.expect("an answer")
}

/// Returns the next chunk of a stream, or `None` at its end.
async fn next(stream: &mut Response) -> Option<String> {
    let frame = timeout(LIMIT, stream.body_mut().frame())
        .await
        .expect("an event or the end");
    let bytes = frame?.expect("no error").into_data().expect("data");
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[tokio::test]
async fn a_stream_begins_with_all_parts_and_forbids_buffering() {
    let mut stream = open(&dashboard(&CancellationToken::new())).await;
    assert_eq!(stream.status(), StatusCode::OK);
    assert_eq!(stream.headers()["content-type"], "text/event-stream");
    assert_eq!(stream.headers()["cache-control"], "no-store, no-transform");
    assert_eq!(stream.headers()["x-accel-buffering"], "no");
    let event = next(&mut stream).await.expect("an event");
    for expected in [
        "event: update\n",
        "part-numbers",
        "part-queues",
        "chart-runs",
        "\"is_whole\":true",
    ] {
        assert!(event.contains(expected), "{expected} is missing: {event}");
    }
}

#[tokio::test]
async fn a_part_is_sent_again_only_if_it_has_changed() {
    let mut stream = open(&dashboard(&CancellationToken::new())).await;
    next(&mut stream).await.expect("an event");
    let event = next(&mut stream).await.expect("an event");
    assert!(event.contains("\"parts\":[]"), "{event}");
}

#[tokio::test]
async fn a_value_of_a_chart_is_sent_only_once() {
    let client = DurableClient::open(MemoryStore::new());
    let mut builder = Dashboard::builder();
    let dashboard = builder.store("mail", client.clone()).build();
    let mut stream = open(&dashboard.expect("the dashboard is valid")).await;
    let mut sent = Vec::new();
    while sent.is_empty() {
        let event = next(&mut stream).await.expect("an event");
        sent = times(&event);
    }
    client.close().await.expect("the client is closed");
    loop {
        let event = next(&mut stream).await.expect("an event");
        if event.contains("These numbers are old") {
            assert_eq!(times(&event), Vec::<u64>::new(), "{event}");
            return;
        }
    }
}

/// Returns the times of the values that an event contains for the chart of the runs.
fn times(event: &str) -> Vec<u64> {
    let data = event.lines().find_map(|line| line.strip_prefix("data: "));
    let update: Value = serde_json::from_str(data.expect("data")).expect("JSON");
    serde_json::from_value(update["charts"]["chart-runs"][0].clone()).expect("times")
}

#[tokio::test]
async fn a_shutdown_ends_all_streams_at_once() {
    let shutdown = CancellationToken::new();
    let dashboard = dashboard(&shutdown);
    let mut streams = Vec::new();
    for _ in 0..10 {
        streams.push(open(&dashboard).await);
    }
    next(&mut streams[0]).await.expect("an event");
    let start = Instant::now();
    shutdown.cancel();
    for stream in &mut streams {
        while next(stream).await.is_some() {}
    }
    assert!(
        start.elapsed() < Duration::from_millis(100),
        "{:?}",
        start.elapsed()
    );
}

#[tokio::test]
async fn the_number_of_streams_is_limited() {
    let dashboard = dashboard(&CancellationToken::new());
    let mut streams = Vec::new();
    for _ in 0..MAX_STREAMS {
        let stream = open(&dashboard).await;
        assert_eq!(stream.status(), StatusCode::OK);
        streams.push(stream);
    }
    let refused = open(&dashboard).await;
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(refused.headers().contains_key("retry-after"));
    streams.pop();
    assert_eq!(open(&dashboard).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_request_without_access_gets_no_stream() {
    let client = DurableClient::open(MemoryStore::new());
    let mut builder = Dashboard::builder();
    builder.store("mail", client).access(|_| Access::None);
    let dashboard = builder.build().expect("the dashboard is valid");
    assert_eq!(open(&dashboard).await.status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn the_last_numbers_of_a_store_that_no_longer_answers_are_shown_as_old() {
    let client = DurableClient::open(MemoryStore::new());
    let app = mounted(&mut builder(&client));
    let path = format!("{PREFIX}/s/mail");
    assert_eq!(get(&app, &path).await.status, StatusCode::OK);
    let deleted = || {
        let dead = format!("{PREFIX}/s/mail/task/{}", TaskId::new());
        format!("{dead}?did=delete&effect=yes")
    };
    assert_eq!(get(&app, &deleted()).await.status, StatusCode::OK);
    client.close().await.expect("the client is closed");
    let unknown = get(&app, &deleted()).await;
    assert_eq!(unknown.status, StatusCode::SERVICE_UNAVAILABLE);
    until("the numbers are old", async || {
        let page = get(&app, &path).await;
        assert_eq!(page.status, StatusCode::OK, "{}", page.text);
        page.text.contains("These numbers are old")
    })
    .await;
    let hour = get(&app, &format!("{path}?range=1h")).await;
    assert_eq!(hour.status, StatusCode::OK, "{}", hour.text);
    let text = "The charts show the last 15 minutes";
    assert!(hour.text.contains(text), "{}", hour.text);
}
