//! Extractors whose rejections are printed like all other errors.

use axum::extract::{DefaultBodyLimit, FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::{Extension, Form, Json};
use serde::de::DeserializeOwned;

use crate::error::{ErrorKind, WebError};
use crate::visit::no_page;

/// The query of the URL.
#[derive(Debug)]
pub(crate) struct Params<T>(pub(crate) T);

/// The parameters in the path. A path with an invalid parameter is no page.
#[derive(Debug)]
pub(crate) struct Segments<T>(pub(crate) T);

/// The fields of a form.
#[derive(Debug)]
pub(crate) struct FormBody<T>(pub(crate) T);

/// A body in JSON, whose media type says so.
#[derive(Debug)]
pub(crate) struct JsonBody<T>(pub(crate) T);

/// The maximum length of the body of a request, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BodyLimit(usize);

/// Returns the layer that limits the bodies of requests to this number of bytes. The innermost one counts.
pub(crate) fn body_limit(max: usize) -> (Extension<BodyLimit>, DefaultBodyLimit) {
    (Extension(BodyLimit(max)), DefaultBodyLimit::max(max))
}

impl<S: Sync, T: DeserializeOwned> FromRequestParts<S> for Params<T> {
    type Rejection = WebError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, WebError> {
        match Query::try_from_uri(&parts.uri) {
            Ok(Query(params)) => Ok(Self(params)),
            Err(error) => Err(WebError::invalid(error.body_text())),
        }
    }
}

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Segments<T> {
    type Rejection = WebError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, WebError> {
        let path = Path::from_request_parts(parts, state).await;
        path.map(|Path(path)| Self(path)).map_err(|_| no_page())
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for FormBody<T> {
    type Rejection = WebError;

    async fn from_request(request: Request, state: &S) -> Result<Self, WebError> {
        let limit = request.extensions().get().copied();
        match Form::from_request(request, state).await {
            Ok(Form(form)) => Ok(Self(form)),
            Err(error) => Err(refused_body(error.status(), error.body_text(), limit)),
        }
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for JsonBody<T> {
    type Rejection = WebError;

    async fn from_request(request: Request, state: &S) -> Result<Self, WebError> {
        let limit = request.extensions().get().copied();
        match Json::from_request(request, state).await {
            Ok(Json(body)) => Ok(Self(body)),
            Err(error) => Err(refused_body(error.status(), error.body_text(), limit)),
        }
    }
}

/// Returns the error of a request whose body cannot be read.
fn refused_body(status: StatusCode, text: String, limit: Option<BodyLimit>) -> WebError {
    match (status, limit) {
        (StatusCode::PAYLOAD_TOO_LARGE, Some(BodyLimit(max))) => {
            let detail = format!("{text}: this operation accepts at most {max} bytes. Send less.");
            WebError::new(ErrorKind::TooLarge, detail)
        }
        _ => WebError::invalid(text),
    }
}
