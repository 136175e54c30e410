//! The number of requests that pages send to a store.

use std::future::pending;
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::header::RETRY_AFTER;
use axum::http::{Request, StatusCode};
use axum::response::Response;
use futures_util::future::join_all;
use throng::durable::{DurableClient, DurableError, MemoryStore, TaskId};
use tokio::task::yield_now;
use tower::ServiceExt;

use crate::Dashboard;
use crate::recent::SHARED_FOR;
use crate::store::ShownStore;

fn dashboard() -> (Router, Arc<ShownStore>) {
    let client = DurableClient::open(MemoryStore::new());
    let built = Dashboard::builder().store("mail", client).build();
    let dashboard = built.expect("the settings are valid");
    let store = Arc::clone(&dashboard.shared().stores[0]);
    (dashboard.service(), store)
}

async fn reply(app: &Router, path: &str) -> Response {
    let request = Request::get(path).body(Body::empty()).unwrap();
    app.clone().oneshot(request).await.unwrap()
}

async fn text(reply: Response) -> String {
    let bytes = to_bytes(reply.into_body(), usize::MAX).await.unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

async fn get(app: &Router, path: &str) -> (StatusCode, String) {
    let reply = reply(app, path).await;
    (reply.status(), text(reply).await)
}

#[tokio::test]
async fn no_page_sends_more_than_two_requests() {
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
            let (app, store) = dashboard();
            get(&app, &path).await;
            let sent = store.requests();
            assert!(
                sent <= most && (sent > 0 || most == 0),
                "{path} sends {sent}"
            );
        }
    }
    let (app, store) = dashboard();
    for path in ["/", "/health", "/nowhere", "/s/mail/tasks/waiting?after=q"] {
        get(&app, path).await;
    }
    assert_eq!(store.requests(), 0);
}

#[tokio::test]
async fn equal_pages_at_the_same_time_are_one_question_to_the_store() {
    let (app, store) = dashboard();
    let begun = Instant::now();
    let pages = ["/s/mail/tasks/waiting", "/api/v1/s/mail/tasks/waiting"];
    let requests = (0..100).map(|number| get(&app, pages[number % 2]));
    let answers = join_all(requests).await;
    assert!(answers.iter().all(|(status, _)| *status == StatusCode::OK));
    // On a busy machine, they may take longer than answers are shared.
    let most = begun.elapsed().as_millis() / SHARED_FOR.as_millis() + 1;
    assert!((1..=most).contains(&(store.requests() as u128)));
    get(&app, "/s/mail/tasks/waiting?name=mail.send").await;
    let sent = store.requests();
    let changed = store.change(store.client.queue("mail").pause()).await;
    changed.expect("the store answers");
    get(&app, pages[1]).await;
    assert_eq!(store.requests(), sent + 2, "the change, and a new question");
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
    for path in ["/s/mail/dead", "/api/v1/s/mail/dead"] {
        let reply = reply(&app, path).await;
        assert_eq!(reply.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(reply.headers()[RETRY_AFTER], "2", "{path}");
        let page = text(reply).await;
        assert!(page.contains("try again in a few seconds"), "{page}");
    }

    requests.iter().for_each(|request| request.abort());
    for request in requests {
        assert!(request.await.is_err_and(|error| error.is_cancelled()));
    }
    assert_eq!(get(&app, "/s/mail/dead").await.0, StatusCode::OK);
}
