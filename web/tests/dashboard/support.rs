//! Sends requests to a dashboard.

use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::header::{CONTENT_TYPE, HOST, LOCATION};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Request, StatusCode};
use serde_json::Value;
use throng::durable::DurableClient;
use throng::watch::Registry;
use throng_web::{Access, Dashboard, DashboardBuilder};
use tower::ServiceExt;

/// The path under which the dashboards of the tests are mounted.
pub(crate) const PREFIX: &str = "/ops/throng";
/// The header from which the access hook of the tests reads what a request may do.
pub(crate) const ACCESS: &str = "x-access";
/// The time limit of a condition.
const LIMIT: Duration = Duration::from_secs(30);

/// An answer of the dashboard.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

/// Returns a builder with a store and a registry.
pub(crate) fn builder(client: &DurableClient) -> DashboardBuilder {
    let registry = Registry::new();
    registry.watch("mail", client);
    let mut builder = Dashboard::builder();
    builder.store("mail", client.clone()).registry(registry);
    builder
}

/// Returns an application with a dashboard in which everybody may operate, unless a request says otherwise.
pub(crate) fn operated(client: &DurableClient) -> Router {
    mounted(builder(client).access(access))
}

pub(crate) fn mounted(builder: &mut DashboardBuilder) -> Router {
    let dashboard = builder.build().expect("the settings are valid");
    Router::new().nest_service(PREFIX, dashboard.service())
}

pub(crate) fn access(parts: &Parts) -> Access {
    let header = parts.headers.get(ACCESS).map(|value| value.as_bytes());
    match header {
        Some(b"none") => Access::None,
        Some(b"read") => Access::read("ann"),
        _ => Access::operate("bob"),
    }
}

pub(crate) async fn get(app: &Router, path: &str) -> Reply {
    send(app, Request::get(path), Body::empty()).await
}

pub(crate) async fn post_form(app: &Router, path: &str, fields: &[(&str, &str)]) -> Reply {
    let body = form_urlencoded::Serializer::new(String::new())
        .extend_pairs(fields)
        .finish();
    let request = Request::post(path).header(CONTENT_TYPE, "application/x-www-form-urlencoded");
    send(app, request, body.into()).await
}

pub(crate) async fn post_json(app: &Router, path: &str, body: &Value) -> Reply {
    let request = Request::post(path).header(CONTENT_TYPE, "application/json");
    send(app, request, body.to_string().into()).await
}

/// Sends a request as a browser does from a page of the same origin.
pub(crate) async fn send(app: &Router, request: axum::http::request::Builder, body: Body) -> Reply {
    let request = request
        .header(HOST, "localhost")
        .header("sec-fetch-site", "same-origin");
    let request = request.body(body).expect("the request is valid");
    let (parts, body) = app.clone().oneshot(request).await.unwrap().into_parts();
    let bytes = to_bytes(body, usize::MAX).await.expect("the body ends");
    Reply {
        status: parts.status,
        headers: parts.headers,
        text: String::from_utf8(bytes.into()).expect("it is a text"),
    }
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    /// Returns the absolute path to which the answer to a request for `path` leads.
    pub(crate) fn location(&self, path: &str) -> String {
        assert_eq!(self.status, StatusCode::SEE_OTHER, "{}", self.text);
        resolve(path, self.headers[LOCATION].to_str().unwrap())
    }
}

/// Returns the targets of the links and of the forms that read.
pub(crate) fn links(page: &str) -> Vec<String> {
    let pages = page.split(" href=\"").skip(1);
    let links = pages.filter_map(|rest| rest.split('"').next());
    let links = links.filter(|link| !link.starts_with('#'));
    links.map(|link| link.replace("&amp;", "&")).collect()
}

/// Resolves a relative URL as browsers do.
pub(crate) fn resolve(path: &str, link: &str) -> String {
    let path = path.split('?').next().unwrap_or_default();
    if link.is_empty() {
        return path.to_owned();
    }
    let (link, query) = match link.split_once('?') {
        Some((link, query)) => (link, format!("?{query}")),
        None => (link, String::new()),
    };
    assert!(
        !link.starts_with('/') && !link.contains(':'),
        "{link} is not relative"
    );
    let (folder, _) = path.rsplit_once('/').unwrap();
    let mut segments: Vec<&str> = folder.split('/').collect();
    for segment in link.split('/') {
        match segment {
            "." => {}
            ".." => assert!(segments.pop().is_some(), "{link} leaves {path}"),
            _ => segments.push(segment),
        }
    }
    segments.join("/") + &query
}

/// Waits until a condition holds.
pub(crate) async fn until(what: &str, condition: impl AsyncFn() -> bool) {
    let begun = Instant::now();
    while !condition().await {
        assert!(begun.elapsed() < LIMIT, "this does not happen: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
