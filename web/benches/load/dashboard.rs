//! Sends requests to a dashboard, without a server.

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use axum::response::Response;
use serde_json::Value;
use throng::durable::DurableClient;
use throng::watch::Registry;
use throng_web::{Access, Dashboard};
use tower::ServiceExt;

use crate::Result;

/// Returns the service of a new dashboard, whose users may operate, since their pages are the longest.
pub(crate) fn service(client: &DurableClient) -> Result<Router> {
    let registry = Registry::new();
    registry.watch("mail", client);
    let mut builder = Dashboard::builder();
    builder.store("mail", client.clone()).registry(registry);
    let dashboard = builder.access(|_| Access::operate("ops")).build()?;
    Ok(dashboard.service())
}

/// Sends a request.
pub(crate) async fn open(service: &Router, path: &str) -> Result<Response> {
    let request = Request::get(path).body(Body::empty())?;
    let Ok(response) = service.clone().oneshot(request).await;
    Ok(response)
}

/// Sends a request, and reads the body of the answer.
pub(crate) async fn get(service: &Router, path: &str) -> Result<(StatusCode, String)> {
    let response = open(service, path).await?;
    let status = response.status();
    let body = to_bytes(response.into_body(), usize::MAX).await?;
    Ok((status, String::from_utf8(body.into())?))
}

/// Sends a request to the API.
pub(crate) async fn get_json(service: &Router, path: &str) -> Result<Value> {
    let (status, text) = get(service, &format!("/api/v1/s/mail{path}")).await?;
    match status {
        StatusCode::OK => Ok(serde_json::from_str(&text)?),
        status => Err(format!("{path}: {status}: {text}").into()),
    }
}
