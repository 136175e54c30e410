//! [`WebError`]: why a request has no answer.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use throng::durable::DurableError;

use crate::gate::GateError;
use crate::redact::redact_text;

/// The reason why a request has no answer. The middleware [`enter`](crate::visit::enter) prints it as a page or, for the API, as JSON.
#[derive(Clone, Debug)]
pub(crate) struct WebError {
    pub(crate) kind: ErrorKind,
    /// A description of the problem, and of the remedy.
    pub(crate) detail: String,
}

/// The kinds of errors. The API serialises them as its stable `type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ErrorKind {
    Invalid,
    NotFound,
    MethodNotAllowed,
    ReadOnly,
    NotInState,
    TooLarge,
    TooMany,
    Unreachable,
}

impl WebError {
    pub(crate) fn new(kind: ErrorKind, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        Self { kind, detail }
    }

    pub(crate) fn invalid(detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, detail)
    }

    pub(crate) fn not_found(detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::NotFound, detail)
    }
}

impl ErrorKind {
    pub(crate) fn status(self) -> StatusCode {
        match self {
            Self::Invalid => StatusCode::BAD_REQUEST,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::ReadOnly => StatusCode::FORBIDDEN,
            Self::NotInState => StatusCode::CONFLICT,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TooMany | Self::Unreachable => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Invalid => "The request is not valid",
            Self::NotFound => "Not found",
            Self::MethodNotAllowed => "The method is not allowed",
            Self::ReadOnly => "Not permitted",
            Self::NotInState => "The state has changed",
            Self::TooLarge => "The request is too large",
            Self::TooMany => "Too many requests",
            Self::Unreachable => "The store does not answer",
        }
    }

    /// Returns the time after which the same request may succeed, in seconds.
    pub(crate) fn retry_after(self) -> Option<&'static str> {
        match self {
            Self::TooMany => Some("2"),
            Self::Unreachable => Some("5"),
            _ => None,
        }
    }
}

impl From<DurableError> for WebError {
    fn from(error: DurableError) -> Self {
        let kind = match &error {
            error if error.is_invalid() => ErrorKind::Invalid,
            error if error.is_too_large() => ErrorKind::TooLarge,
            error if error.is_read_only() || error.is_denied() => ErrorKind::ReadOnly,
            _ => ErrorKind::Unreachable,
        };
        Self::new(kind, redact_text(&error.to_string()))
    }
}

impl From<GateError> for WebError {
    fn from(error: GateError) -> Self {
        match error {
            GateError::Full => Self::new(
                ErrorKind::TooMany,
                "Too many requests of this dashboard wait for the store: try again in a few seconds.",
            ),
            GateError::TimedOut => Self::new(
                ErrorKind::Unreachable,
                "The store has not answered in time. A change may nevertheless have taken effect: check before you repeat it.",
            ),
        }
    }
}

/// The error itself travels in an extension of the response, since only the middleware knows how to print it.
impl IntoResponse for WebError {
    fn into_response(self) -> Response {
        let mut response = self.kind.status().into_response();
        response.extensions_mut().insert(self);
        response
    }
}
