//! [`Visit`]: who sends a request and what it may do; and the middleware that determines this for each request.

use std::sync::Arc;

use axum::Json;
use axum::extract::{FromRequestParts, OriginalUri, Path, Request, State};
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::json;

use crate::access::Access;
use crate::dashboard::Shared;
use crate::error::{ErrorKind, WebError};
use crate::html;
use crate::root::root_of;
use crate::store::ShownStore;

/// The properties of a request that all handlers need.
#[derive(Clone, Debug)]
pub(crate) struct Visit {
    pub(crate) shared: Arc<Shared>,
    /// The relative URL of the dashboard's root, with a slash at its end.
    pub(crate) root: Arc<str>,
    /// The name of the user, or `None` without an access hook.
    pub(crate) user: Option<Arc<str>>,
    pub(crate) can_operate: bool,
}

/// A request to a page of a store.
#[derive(Clone, Debug)]
pub(crate) struct StoreVisit {
    pub(crate) visit: Visit,
    pub(crate) store: Arc<ShownStore>,
}

/// Lets a request in if it has access, and prints the error if a handler has returned one.
pub(crate) async fn enter(
    State(shared): State<Arc<Shared>>,
    request: Request,
    next: Next,
) -> Response {
    let (mut parts, body) = request.into_parts();
    let Some(visit) = Visit::new(&shared, &parts) else {
        return (StatusCode::NOT_FOUND, "not found").into_response();
    };
    let request = ErrorContext::new(&visit, &parts);
    // The path parameters of the host must not mix with those of the dashboard.
    parts.extensions = Extensions::new();
    parts.extensions.insert(visit.clone());
    let mut response = next.run(Request::from_parts(parts, body)).await;
    match response.extensions_mut().remove::<WebError>() {
        None => response,
        Some(error) if request.is_api => problem(&error),
        Some(error) => request.page(&visit, &error),
    }
}

/// The properties of a request that the page of an error shows.
struct ErrorContext {
    is_api: bool,
    has_read: bool,
    store: Option<Arc<ShownStore>>,
}

impl ErrorContext {
    fn new(visit: &Visit, parts: &Parts) -> Self {
        let path = parts.uri.path();
        let store = path.strip_prefix("/s/");
        let store = store.and_then(|rest| rest.split('/').next());
        Self {
            is_api: path.starts_with("/api/"),
            has_read: parts.method == Method::GET,
            store: store.and_then(|name| visit.store(name)),
        }
    }

    /// Returns an error as a page.
    fn page(&self, visit: &Visit, error: &WebError) -> Response {
        let page = html::error::page(visit, self.store.as_deref(), error, self.has_read);
        with_retry(error, (error.kind.status(), page).into_response())
    }
}

/// Returns an error as JSON, in the format of RFC 9457.
fn problem(error: &WebError) -> Response {
    let status = error.kind.status();
    let body = json!({
        "type": error.kind,
        "title": error.kind.title(),
        "status": status.as_u16(),
        "detail": error.detail,
    });
    let mut response = (status, Json(body)).into_response();
    let media_type = HeaderValue::from_static("application/problem+json");
    response.headers_mut().insert(CONTENT_TYPE, media_type);
    with_retry(error, response)
}

fn with_retry(error: &WebError, mut response: Response) -> Response {
    if let Some(seconds) = error.kind.retry_after() {
        let seconds = HeaderValue::from_static(seconds);
        response.headers_mut().insert(RETRY_AFTER, seconds);
    }
    response
}

impl Visit {
    /// Returns `None` if the request has no access.
    fn new(shared: &Arc<Shared>, parts: &Parts) -> Option<Self> {
        let access = shared.access.as_ref().map(|access| access(parts));
        let (user, can_operate) = match access {
            None => (None, false),
            Some(Access::None) => return None,
            Some(Access::Read(user)) => (Some(user), false),
            Some(Access::Operate(user)) => (Some(user), true),
        };
        let inner = parts.uri.path();
        let original = parts.extensions.get::<OriginalUri>();
        let original = original.map_or(inner, |uri| uri.0.path());
        Some(Self {
            shared: Arc::clone(shared),
            root: root_of(inner, original).into(),
            user: user.map(Arc::from),
            can_operate,
        })
    }

    fn store(&self, name: &str) -> Option<Arc<ShownStore>> {
        let mut stores = self.shared.stores.iter();
        stores.find(|store| store.name == name).cloned()
    }
}

impl<S: Sync> FromRequestParts<S> for Visit {
    type Rejection = WebError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, WebError> {
        let visit = parts.extensions.get::<Self>();
        visit.cloned().ok_or_else(no_page)
    }
}

impl StoreVisit {
    /// Returns the relative URL of the store, without a slash at its end.
    pub(crate) fn base(&self) -> String {
        format!("{}s/{}", self.visit.root, self.store.name)
    }
}

#[derive(Deserialize)]
struct StorePath {
    store: String,
}

impl<S: Send + Sync> FromRequestParts<S> for StoreVisit {
    type Rejection = WebError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, WebError> {
        let visit = Visit::from_request_parts(parts, state).await?;
        let path = Path::<StorePath>::from_request_parts(parts, state).await;
        let store = path.ok().and_then(|path| visit.store(&path.0.store));
        let store = store.ok_or_else(|| {
            WebError::not_found(
                "This dashboard has no store with this name: choose one on the first page.",
            )
        })?;
        Ok(Self { visit, store })
    }
}

/// Returns the error for a path that is no page.
pub(crate) fn no_page() -> WebError {
    WebError::not_found("There is no such page: use the links above.")
}

/// Refuses a request that may not operate. This guards all operations, so that no handler can forget it.
pub(crate) async fn require_operate(visit: Visit, request: Request, next: Next) -> Response {
    match visit.can_operate {
        true => next.run(request).await,
        false => WebError::new(
            ErrorKind::ReadOnly,
            "You may read this dashboard but not change anything: ask its administrator for the right to operate.",
        )
        .into_response(),
    }
}
