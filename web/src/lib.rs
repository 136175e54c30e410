//! A dashboard for the durable tasks of [`throng`]: pages and a JSON API that an axum application mounts.
//!
//! See [`Dashboard`] for an example, and the README for access, proxies and security.

mod access;
mod api;
mod assets;
mod basic_auth;
mod dashboard;
mod error;
mod events;
mod extract;
mod form_text;
mod forms;
mod gate;
mod guard;
mod headers;
mod host;
mod html;
mod operations;
mod pages;
mod recent;
mod redact;
mod root;
mod router;
mod sampler;
mod store;
mod views;
mod visit;

pub use self::access::Access;
pub use self::basic_auth::{BasicAuth, BasicAuthError};
pub use self::dashboard::{BuildDashboardError, Dashboard, DashboardBuilder};
pub use self::redact::{Shown, ShownPart};

#[cfg(test)]
mod tests;
