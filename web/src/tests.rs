//! The number of requests that pages send to a store.

use std::future::pending;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use throng::durable::{DurableClient, DurableError, MemoryStore, TaskId};
use tokio::task::yield_now;
use tower::ServiceExt;

use crate::Dashboard;
use crate::store::ShownStore;

fn dashboard() -> (Router, Arc<ShownStore>) {
    let client = DurableClient::open(MemoryStore::new());
    let built = Dashboard::builder().store("mail", client).build();
    let dashboard = built.expect("the settings are valid");
    let store = Arc::clone(&dashboard.shared().stores[0]);
    (dashboard.service(), store)
}

async fn get(app: &Router, path: &str) -> (StatusCode, String) {
    let request = Request::get(path).body(Body::empty()).unwrap();
    let (parts, body) = app.clone().oneshot(request).await.unwrap().into_parts();
    let bytes = to_bytes(body, usize::MAX).await.unwrap();
    (parts.status, String::from_utf8_lossy(&bytes).into_owned())
}

#[tokio::test]
async fn no_page_sends_more_than_two_requests() {
    let (app, store) = dashboard();
    let task = format!("task/{}", TaskId::new());
    for (path, most) in [
        ("", 2),
        ("queues", 1),
        ("types", 1),
        ("tasks/next", 1),
        ("tasks/waiting", 1),
        ("tasks/retrying", 1),
        ("dead", 2),
        ("dead?error=a", 2),
        (&task, 1),
        ("workers", 1),
        ("workers/7", 1),
        ("schedules", 1),
        ("find?q=mail", 2),
        ("bulk/1", 0),
    ] {
        for prefix in ["/s/mail", "/api/v1/s/mail"] {
            let path = match (prefix, path) {
                ("/s/mail", "") => String::from("/s/mail"),
                (_, "") => format!("{prefix}/overview"),
                _ => format!("{prefix}/{path}"),
            };
            let before = store.requests();
            get(&app, &path).await;
            let sent = store.requests() - before;
            assert!(
                sent <= most && (sent > 0 || most == 0),
                "{path} sends {sent}"
            );
        }
    }
    let before = store.requests();
    for path in ["/", "/health", "/nowhere", "/s/mail/tasks/waiting?after=q"] {
        get(&app, path).await;
    }
    assert_eq!(store.requests(), before);
}

#[tokio::test]
async fn a_page_is_refused_if_too_many_requests_wait() {
    let (app, store) = dashboard();
    let mut requests = Vec::new();
    while store.has_capacity() {
        let store = Arc::clone(&store);
        requests.push(tokio::spawn(async move {
            let request = pending::<Result<(), DurableError>>();
            store.change(request).await.is_ok()
        }));
        yield_now().await;
    }
    assert_eq!(requests.len(), 20);
    let (status, page) = get(&app, "/s/mail/dead").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(page.contains("try again in a few seconds"), "{page}");

    requests.iter().for_each(|request| request.abort());
    for request in requests {
        assert!(request.await.is_err_and(|error| error.is_cancelled()));
    }
    assert_eq!(get(&app, "/s/mail/dead").await.0, StatusCode::OK);
}
