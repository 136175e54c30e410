//! The checks of requests, through the service: origins, hosts and passwords, and the headers of answers.

use axum::Router;
use axum::body::Body;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderName, Request, StatusCode};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use throng::durable::{DurableClient, MemoryStore};
use throng_web::BasicAuth;
use tower::ServiceExt;

use crate::support::{ACCESS, PREFIX, builder, mounted, operated};

const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const NAME: &str = "jobs.example:9300";

fn client() -> DurableClient {
    DurableClient::open(MemoryStore::new())
}

/// Sends a request with these headers and no others. Empty values are left out.
async fn answer(
    app: &Router,
    request: axum::http::request::Builder,
    headers: &[(HeaderName, &str)],
    body: &'static str,
) -> (StatusCode, HeaderMap) {
    let mut request = request.body(Body::from(body)).expect("a request");
    for (name, value) in headers.iter().filter(|(_, value)| !value.is_empty()) {
        let value = value.parse().expect("a header");
        request.headers_mut().insert(name, value);
    }
    let answer = app.clone().oneshot(request).await.expect("an answer");
    (answer.status(), answer.headers().clone())
}

async fn get(app: &Router, path: &str, headers: &[(HeaderName, &str)]) -> (StatusCode, HeaderMap) {
    answer(app, Request::get(format!("{PREFIX}{path}")), headers, "").await
}

#[tokio::test]
async fn forged_requests_are_refused_whatever_they_send() {
    let app = operated(&client());
    let form = (
        "/s/mail/queues/pause",
        "application/x-www-form-urlencoded",
        "name=bulk",
    );
    let json = (
        "/api/v1/s/mail/queues/pause",
        "application/json",
        r#"{"name":"bulk"}"#,
    );
    let own = format!("http://{NAME}");
    let origins = [own.as_str(), "http://evil.example", "null", ""];
    let mut accepted = 0;
    for (path, media_type, body) in [form, json] {
        for site in ["same-origin", "none", "same-site", "cross-site", ""] {
            for origin in origins {
                for authorization in ["Bearer x", ""] {
                    let is_own = match (site, origin) {
                        ("same-origin" | "none", _) => true,
                        ("", "") => !authorization.is_empty(),
                        ("", origin) => origin == own,
                        _ => false,
                    };
                    let headers = [
                        (HOST, NAME),
                        (SITE, site),
                        (ORIGIN, origin),
                        (AUTHORIZATION, authorization),
                        (CONTENT_TYPE, media_type),
                    ];
                    let request = Request::post(format!("{PREFIX}{path}"));
                    let (status, _) = answer(&app, request, &headers, body).await;
                    let was_accepted = status.is_success() || status.is_redirection();
                    assert_eq!(was_accepted, is_own, "{headers:?}: {status}");
                    assert!(
                        is_own || status == StatusCode::FORBIDDEN,
                        "{headers:?}: {status}"
                    );
                    accepted += u32::from(was_accepted);
                }
            }
        }
    }
    assert_eq!(accepted, 2 * (16 + 2 + 1));
}

#[tokio::test]
async fn a_forged_request_without_access_reveals_nothing() {
    let app = operated(&client());
    let access = HeaderName::from_static(ACCESS);
    for method in ["POST", "PUT", "OPTIONS"] {
        let request = Request::builder()
            .method(method)
            .uri(format!("{PREFIX}/s/mail/queues/pause"));
        let headers = [(access.clone(), "none"), (ORIGIN, "http://evil.example")];
        let (status, _) = answer(&app, request, &headers, "").await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{method}");
    }
}

#[tokio::test]
async fn every_answer_has_the_headers_that_restrict_browsers() {
    let mut builder = builder(&client());
    builder.allowed_hosts(["jobs.example"]);
    let app = mounted(&mut builder);
    for (path, host) in [
        ("/s/mail", NAME),
        ("/s/absent", NAME),
        ("/api/v1/s/mail/queues", NAME),
        ("/health", NAME),
        ("/assets/x/app.css", NAME),
        ("/s/mail/events", NAME),
        ("/s/mail", "evil.example"),
    ] {
        let (_, headers) = get(&app, path, &[(HOST, host)]).await;
        let policy = headers["content-security-policy"].to_str().expect("a text");
        assert!(
            policy.starts_with("default-src 'none'; script-src 'self';"),
            "{path}: {policy}"
        );
        assert!(
            policy.contains("frame-ancestors 'none'"),
            "{path}: {policy}"
        );
        assert_eq!(headers["x-content-type-options"], "nosniff", "{path}");
        assert_eq!(headers["referrer-policy"], "same-origin", "{path}");
        let caching = headers["cache-control"].to_str().expect("a text");
        assert!(caching.starts_with("no-store"), "{path}: {caching}");
    }
}

#[tokio::test]
async fn other_host_names_are_refused_only_if_names_are_set() {
    let mut restricted = builder(&client());
    restricted.allowed_hosts(["jobs.example"]);
    for (app, other) in [
        (mounted(&mut restricted), StatusCode::FORBIDDEN),
        (mounted(&mut builder(&client())), StatusCode::OK),
    ] {
        for (host, status) in [
            (NAME, StatusCode::OK),
            ("localhost:9300", StatusCode::OK),
            ("127.0.0.1", StatusCode::OK),
            ("evil.example", other),
        ] {
            assert_eq!(
                get(&app, "/health", &[(HOST, host)]).await.0,
                status,
                "{host}"
            );
        }
    }
}

#[tokio::test]
async fn users_with_passwords_have_the_access_of_their_role() {
    let users = BasicAuth::from_text("ada:operate:pass 1\nbob:read:pass 2\n");
    let mut builder = builder(&client());
    builder.basic_auth(users.expect("the users are valid"));
    let app = mounted(&mut builder);
    let (status, headers) = get(&app, "/s/mail", &[]).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    let challenge = headers["www-authenticate"].to_str().expect("a text");
    assert!(challenge.starts_with("Basic realm="), "{challenge}");
    for (credentials, reads, operates) in [
        ("ada:pass 1", StatusCode::OK, StatusCode::SEE_OTHER),
        ("bob:pass 2", StatusCode::OK, StatusCode::FORBIDDEN),
        (
            "bob:pass 1",
            StatusCode::UNAUTHORIZED,
            StatusCode::UNAUTHORIZED,
        ),
    ] {
        let authorization = format!("Basic {}", BASE64_STANDARD.encode(credentials));
        let headers = [
            (AUTHORIZATION, authorization.as_str()),
            (SITE, "same-origin"),
            (CONTENT_TYPE, "application/x-www-form-urlencoded"),
        ];
        assert_eq!(
            get(&app, "/s/mail", &headers).await.0,
            reads,
            "{credentials}"
        );
        let request = Request::post(format!("{PREFIX}/s/mail/queues/pause"));
        let (status, _) = answer(&app, request, &headers, "name=bulk").await;
        assert_eq!(status, operates, "{credentials}");
    }
}

#[tokio::test]
async fn after_five_wrong_passwords_within_a_second_none_is_examined() {
    let users = BasicAuth::from_text("ada:operate:right\n").expect("the users are valid");
    let mut builder = builder(&client());
    builder.basic_auth(users);
    let app = mounted(&mut builder);
    let wrong = format!("Basic {}", BASE64_STANDARD.encode("ada:wrong"));
    let right = format!("Basic {}", BASE64_STANDARD.encode("ada:right"));
    // On a busy machine, the guesses may take more than a second.
    for _ in 0..100 {
        for _ in 0..5 {
            get(&app, "/health", &[(AUTHORIZATION, &wrong)]).await;
        }
        let (status, headers) = get(&app, "/health", &[(AUTHORIZATION, &right)]).await;
        if status == StatusCode::TOO_MANY_REQUESTS {
            assert_eq!(headers["retry-after"], "1");
            return;
        }
    }
    panic!("no guess is refused");
}
