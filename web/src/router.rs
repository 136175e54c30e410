//! The routes.

use std::sync::Arc;

use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::get;

use crate::dashboard::Shared;
use crate::error::{ErrorKind, WebError};
use crate::visit::{enter, no_page, require_operate};
use crate::{api, assets, forms, pages};

/// Returns the service that answers the requests.
pub(crate) fn router(shared: &Arc<Shared>) -> Router {
    let mut routes = pages::routes()
        .merge(api::routes())
        .route("/assets/{hash}/{name}", get(assets::serve));
    // Without a hook, nobody may operate, so the routes do not exist.
    if shared.access.is_some() {
        routes = routes.merge(operations());
    }
    let routes = routes
        .fallback(async || no_page())
        .method_not_allowed_fallback(async || {
            WebError::new(
                ErrorKind::MethodNotAllowed,
                "There is no such operation. A dashboard without an access hook is read-only.",
            )
        })
        .with_state(Arc::clone(shared));
    // The outer router only runs the middleware, before the inner one looks for a route.
    Router::new()
        .fallback_service(routes)
        .layer(from_fn_with_state(Arc::clone(shared), enter))
}

/// Returns the routes that change something, behind the guards.
fn operations() -> Router<Arc<Shared>> {
    forms::routes()
        .merge(api::operations())
        .route_layer(from_fn(require_operate))
}
