//! The page of an error.

use axum::response::Html;
use maud::html;

use super::Frame;
use super::text::block;
use crate::error::WebError;
use crate::store::ShownStore;
use crate::visit::Visit;

/// Returns the page of an error. It offers to send the request again only if the request has read something.
pub(crate) fn page(
    visit: &Visit,
    store: Option<&ShownStore>,
    error: &WebError,
    has_read: bool,
) -> Html<String> {
    let can_retry = has_read && error.kind.retry_after().is_some();
    Frame::new(visit, store, error.kind.title()).page(html! {
        p.warning role="alert" { (block(&error.detail)) }
        // The empty link is this page.
        @if can_retry { p { a href="" { "Try again" } } }
        p { a href=(visit.root) { "Go to the first page" } }
    })
}
