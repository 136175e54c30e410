//! The routes: the page, the mails, the blocked addresses, the metrics and the dashboard.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Json, Router};
use opentelemetry::trace::TraceContextExt;
use serde::{Deserialize, Serialize};
use throng::durable::{DurableClient, DurableError, TaskId};
use throng::watch::Registry;
use throng_web::{Access, Dashboard};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span, info_span};
use tracing_opentelemetry::OpenTelemetrySpanExt;

use super::Result;
use super::delivery::{App, BLOCKED, SendMail};

/// A request to send a mail to some addresses.
#[derive(Deserialize)]
struct NewMails {
    customer: String,
    to: Vec<String>,
    subject: String,
    /// `true` if a user waits for the mails.
    #[serde(default)]
    is_urgent: bool,
}

/// The answer to such a request.
#[derive(Serialize)]
struct Accepted {
    tasks: Vec<TaskId>,
    /// The trace of the request, to which the runs of the tasks are linked.
    trace: String,
}

/// The maximum number of addresses of a request.
const MAX_ADDRESSES: usize = 100;
/// The maximum length of an address, and of a subject, in bytes.
const MAX_TEXT: usize = 200;

const PAGE: &str = "\
A mail service.

Dashboard: /throng
Metrics:   /metrics

Send a mail:
  curl -H 'content-type: application/json' -d '{\"customer\":\"me\",\"to\":[\"a@example.org\"],\"subject\":\"hello\"}' localhost:9300/mails
The answer has the trace of the request. The runs of the tasks are linked to it.

Some mails become dead letters, since their address is blocked:
  curl -X DELETE localhost:9300/blocked/moved@example.org
Then replay the dead letters in the dashboard.
";

/// Returns the site.
pub(crate) fn site(
    client: &DurableClient,
    app: &Arc<App>,
    registry: &Registry,
    close: &CancellationToken,
) -> Result<Router> {
    let dashboard = Dashboard::builder()
        .store("mail", client.clone())
        .registry(registry.clone())
        .access(|_| Access::operate("somebody on this machine"))
        // The dashboard accepts only its IP address and `localhost` as the host, so that no other site can use it through a browser.
        .allowed_hosts(Vec::<String>::new())
        .shutdown(close.clone())
        .build()?;
    let (mails, blocked) = (client.clone(), Arc::clone(app));
    // A browser sends neither JSON nor DELETE to another site without asking it first.
    Ok(Router::new()
        .route("/", get(PAGE))
        .route("/mails", post(send).with_state(mails))
        .route("/blocked/{address}", delete(unblock).with_state(blocked))
        .route("/metrics", get(metrics).with_state(registry.clone()))
        .nest_service("/throng", dashboard.service()))
}

/// Stores a task for each address, in the span of the request. A real service takes this span from a layer, such as that of `tower-http`.
async fn send(State(client): State<DurableClient>, Json(mails): Json<NewMails>) -> Response {
    let span = info_span!("POST /mails", otel.kind = "server");
    let stored = async move {
        mails
            .check()
            .map_err(|reason| (StatusCode::UNPROCESSABLE_ENTITY, reason))?;
        let stored = mails.store(&client).await;
        stored.map_err(|error| (StatusCode::SERVICE_UNAVAILABLE, error.to_string()))
    };
    match stored.instrument(span).await {
        Ok(accepted) => (StatusCode::ACCEPTED, Json(accepted)).into_response(),
        Err(refused) => refused.into_response(),
    }
}

impl NewMails {
    /// Checks the request.
    ///
    /// # Errors
    ///
    /// Returns the reason, and the remedy.
    fn check(&self) -> Result<(), String> {
        if !(1..=MAX_ADDRESSES).contains(&self.to.len()) {
            return Err(format!(
                "`to` has {} addresses: use 1 to {MAX_ADDRESSES}",
                self.to.len()
            ));
        }
        if let Some(wrong) = self.to.iter().find(|it| !is_address(it)) {
            return Err(format!(
                "{wrong:?} is not an address: use one such as `a@example.org`"
            ));
        }
        if !is_customer(&self.customer) {
            return Err("`customer`: use 1 to 64 ASCII letters, digits and hyphens".into());
        }
        if self.subject.len() > MAX_TEXT || self.subject.contains(char::is_control) {
            return Err(format!(
                "`subject`: use at most {MAX_TEXT} bytes without line breaks"
            ));
        }
        Ok(())
    }

    async fn store(self, client: &DurableClient) -> Result<Accepted, DurableError> {
        let mails = self.to.into_iter().map(|to| {
            let mail = SendMail {
                to,
                subject: self.subject.clone(),
                provider_token: "0123456789abcdef".into(),
            };
            let options = mail.options(&self.customer, self.is_urgent);
            (mail, options)
        });
        let tasks = client.spawn_all_with(mails).await?;
        let context = Span::current().context();
        Ok(Accepted {
            tasks: tasks.iter().map(|task| task.id()).collect(),
            trace: context.span().span_context().trace_id().to_string(),
        })
    }
}

fn is_customer(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    (1..=64).contains(&text.len()) && text.bytes().all(is_allowed)
}

fn is_address(text: &str) -> bool {
    let has_both = |(user, domain): (&str, &str)| !user.is_empty() && !domain.is_empty();
    text.len() <= MAX_TEXT
        && text.bytes().all(|byte| byte.is_ascii_graphic())
        && text.split_once('@').is_some_and(has_both)
}

/// Unblocks an address, so that mails to it are sent from now on.
async fn unblock(State(app): State<Arc<App>>, Path(address): Path<String>) -> Response {
    match app.blocked.submit(move |it| it.remove(&address)).await {
        Ok(true) => StatusCode::NO_CONTENT.into_response(),
        Ok(false) => {
            let reason = format!("the address is not blocked: at first, only {BLOCKED} is");
            (StatusCode::NOT_FOUND, reason).into_response()
        }
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, error.to_string()).into_response(),
    }
}

/// Returns the numbers of all parts, in the text format of Prometheus.
async fn metrics(State(registry): State<Registry>) -> impl IntoResponse {
    let media_type = [(
        header::CONTENT_TYPE,
        "text/plain; version=0.0.4; charset=utf-8",
    )];
    (
        media_type,
        registry.snapshot_with_stores().await.prometheus(),
    )
}
