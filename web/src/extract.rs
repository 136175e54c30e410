//! Extractors whose rejections are printed like all other errors.

use axum::Form;
use axum::Json;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use crate::error::WebError;
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
        match Form::from_request(request, state).await {
            Ok(Form(form)) => Ok(Self(form)),
            Err(error) => Err(WebError::invalid(error.body_text())),
        }
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for JsonBody<T> {
    type Rejection = WebError;

    async fn from_request(request: Request, state: &S) -> Result<Self, WebError> {
        match Json::from_request(request, state).await {
            Ok(Json(body)) => Ok(Self(body)),
            Err(error) => Err(WebError::invalid(error.body_text())),
        }
    }
}
