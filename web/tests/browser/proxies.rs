//! The dashboard behind proxies that change its path.

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use fantoccini::Locator;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;

use crate::driver::{Browser, with_browser};
use crate::site::{MOUNTED_AT, PAUSED_QUEUE, Site};

#[tokio::test]
async fn a_proxy_may_strip_a_prefix() {
    works_at("/tools/ops/throng").await;
}

#[tokio::test]
async fn a_proxy_may_rename_the_path() {
    works_at("/jobs").await;
}

/// Checks links, forms, redirects, assets and the event stream of a dashboard that users see at this path.
async fn works_at(path: &'static str) {
    with_browser(async |browser| {
        let site = Site::start().await;
        let proxy = start_proxy(&site, path).await;
        browser.open(&format!("{proxy}{path}/")).await;
        is_at(&browser, &format!("{path}/s/mail")).await;
        browser
            .wait_until("document.querySelector('[data-live-state=on]')")
            .await;
        click(&browser, "//nav//a[. = 'Queues']").await;
        is_at(&browser, &format!("{path}/s/mail/queues")).await;
        let button = format!("//tr[contains(., '{PAUSED_QUEUE}')]//button[. = 'Pause']");
        click(&browser, &button).await;
        click(&browser, &button.replace("Pause", "Resume")).await;
        is_at(&browser, &format!("{path}/s/mail/queues")).await;
        assert_eq!(browser.console().await, Vec::<String>::new());
        site.stop().await;
    })
    .await;
}

async fn is_at(browser: &Browser, path: &str) {
    let condition = format!("location.pathname === '{path}' && document.readyState === 'complete'");
    browser.wait_until(&condition).await;
}

async fn click(browser: &Browser, path: &str) {
    let wait = browser.client.wait();
    let found = wait.for_element(Locator::XPath(path)).await;
    let found = found.unwrap_or_else(|error| panic!("{path}: {error}"));
    found.click().await.expect("it can be clicked");
}

/// Starts a proxy that passes on requests below a path, which it replaces by the one at which the dashboard is mounted.
async fn start_proxy(site: &Site, path: &'static str) -> String {
    let client = Client::builder(TokioExecutor::new()).build_http();
    let server = site.address;
    let app = Router::new().fallback(async move |request: Request| {
        let own = request.uri().to_string();
        match own.strip_prefix(path) {
            Some(rest) => {
                let target = format!("http://{server}{MOUNTED_AT}{rest}");
                forward(&client, request, &target).await
            }
            None => StatusCode::BAD_GATEWAY.into_response(),
        }
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("a port");
    tokio::spawn(async move { axum::serve(listener, app).await });
    format!("http://{address}")
}

async fn forward(
    client: &Client<HttpConnector, Body>,
    mut request: Request,
    target: &str,
) -> Response {
    *request.uri_mut() = target.parse::<Uri>().expect("a URL");
    match client.request(request).await {
        Ok(answer) => answer.map(Body::new),
        Err(_) => StatusCode::BAD_GATEWAY.into_response(),
    }
}
