//! The page of an error.

use axum::response::Html;
use maud::html;

use super::Frame;
use super::text::block;
use crate::error::WebError;
use crate::visit::Visit;

pub(crate) fn page(visit: &Visit, error: &WebError) -> Html<String> {
    Frame::new(visit, error.kind.title()).page(html! {
        p.warning role="alert" { (block(&error.detail)) }
        // The empty link is this page.
        @if error.kind.retry_after().is_some() { p { a href="" { "Try again" } } }
        p { a href=(visit.root) { "Go to the first page" } }
    })
}
