//! The rights of a request: no access, reading, or operating.

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use axum::http::header::CONTENT_TYPE;
use throng::durable::Status;

use crate::stage::Stage;
use crate::support::{ACCESS, PREFIX, Reply, builder, mounted, operated, send};

/// Pages, and paths of the API, that read.
const READS: [&str; 18] = [
    "",
    "/health",
    "/metrics",
    "/process",
    "/s/mail",
    "/s/mail/queues",
    "/s/mail/tasks/waiting",
    "/s/mail/task/{waiting}",
    "/s/mail/dead",
    "/s/mail/workers",
    "/s/mail/schedules",
    "/s/mail/types",
    "/s/mail/find?q=a",
    "/api/v1",
    "/api/v1/stores",
    "/api/v1/s/mail/overview",
    "/api/v1/s/mail/tasks/dead",
    "/api/v1/s/mail/task/{waiting}",
];

/// Paths that change something, without those that also need a body. All of them exist for forms and, below `/api/v1`, for the API.
const CHANGES: [&str; 12] = [
    "/s/mail/task/{waiting}/cancel",
    "/s/mail/task/{waiting}/move",
    "/s/mail/task/{delayed}/run",
    "/s/mail/task/{dead}/replay",
    "/s/mail/queues/pause",
    "/s/mail/queues/resume",
    "/s/mail/types/pause",
    "/s/mail/schedules/pause",
    "/s/mail/schedules/fire",
    "/s/mail/bulk",
    "/s/mail/bulk/7/stop",
    "/s/mail/types/resume",
];

async fn request(app: &Router, stage: &Stage, method: &str, path: &str, access: &str) -> Reply {
    let path = path
        .replace("{waiting}", &stage.waiting.to_string())
        .replace("{delayed}", &stage.delayed.to_string())
        .replace("{dead}", &stage.dead.to_string());
    let media_type = match path.starts_with("/api") {
        true => "application/json",
        false => "application/x-www-form-urlencoded",
    };
    let request = Request::builder()
        .method(method)
        .uri(format!("{PREFIX}{path}"))
        .header(ACCESS, access)
        .header(CONTENT_TYPE, media_type);
    send(app, request, Body::empty()).await
}

#[tokio::test]
async fn each_route_obeys_the_access_of_the_request() {
    let stage = Stage::in_memory().await;
    let with_hook = operated(&stage.client);
    let without_hook = mounted(&mut builder(&stage.client));
    for path in READS {
        let read = async |app, access| request(app, &stage, "GET", path, access).await;
        let hidden = read(&with_hook, "none").await;
        assert_eq!(
            (hidden.status.as_u16(), &*hidden.text),
            (404, "not found"),
            "{path}"
        );
        for access in ["read", "operate"] {
            let status = read(&with_hook, access).await.status.as_u16();
            assert!([200, 303].contains(&status), "{path}: {status}");
        }
        let status = read(&without_hook, "none").await.status.as_u16();
        assert!([200, 303].contains(&status), "{path}: {status}");
    }
    for path in CHANGES
        .iter()
        .flat_map(|path| [(*path).to_owned(), format!("/api/v1{path}")])
    {
        let change = async |app, access| request(app, &stage, "POST", &path, access).await;
        let hidden = change(&with_hook, "none").await;
        assert_eq!(
            (hidden.status.as_u16(), &*hidden.text),
            (404, "not found"),
            "{path}"
        );
        let refused = change(&with_hook, "read").await;
        assert_eq!(refused.status.as_u16(), 403, "{path}: {}", refused.text);
        let absent = change(&without_hook, "operate").await.status.as_u16();
        assert!([404, 405].contains(&absent), "{path}: {absent}");
    }
    let states = [
        (stage.waiting, Status::Waiting),
        (stage.delayed, Status::Delayed),
        (stage.dead, Status::Dead),
    ];
    for (id, status) in states {
        assert_eq!(
            stage.client.status(id).await.unwrap(),
            status,
            "nothing has changed"
        );
    }
    for path in CHANGES
        .iter()
        .flat_map(|path| [(*path).to_owned(), format!("/api/v1{path}")])
    {
        let status = request(&with_hook, &stage, "POST", &path, "operate")
            .await
            .status
            .as_u16();
        assert!(![403, 405].contains(&status), "{path}: {status}");
    }
}

#[tokio::test]
async fn pages_offer_operations_only_to_those_who_may_use_them() {
    let stage = Stage::in_memory().await;
    let with_hook = operated(&stage.client);
    let without_hook = mounted(&mut builder(&stage.client));
    let pages = READS.iter().filter(|path| path.starts_with("/s/"));
    let mut offers = 0;
    for path in pages {
        let page = async |app, access| request(app, &stage, "GET", path, access).await.text;
        let is_form = |page: &str| page.contains("method=\"post\"");
        offers += usize::from(is_form(&page(&with_hook, "operate").await));
        let read = page(&with_hook, "read").await;
        assert!(
            !is_form(&read) && read.contains("read-only"),
            "{path}: {read}"
        );
        assert!(!is_form(&page(&without_hook, "operate").await), "{path}");
    }
    assert_eq!(offers, 7);
}
