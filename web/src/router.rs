//! The routes.

use std::sync::Arc;

use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::get;

use crate::basic_auth::require_user;
use crate::dashboard::Shared;
use crate::error::{ErrorKind, WebError};
use crate::events::events;
use crate::extract::body_limit;
use crate::guard::refuse_cross_site;
use crate::headers::add_headers;
use crate::host::refuse_other_hosts;
use crate::visit::{enter, no_page, require_operate};
use crate::{api, assets, forms, pages};

/// Returns the service that answers the requests.
pub(crate) fn router(shared: &Arc<Shared>) -> Router {
    let mut routes = pages::routes()
        .merge(api::routes())
        .route("/s/{store}/events", get(events))
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
                "There is no such operation: use the buttons of the pages. A dashboard without an access hook has none.",
            )
        })
        .with_state(Arc::clone(shared));
    // The outer router only runs the middleware, before the inner one looks for a route. Forged requests are refused after `enter`, since
    // a refusal reveals that there is a dashboard.
    let mut router = Router::new()
        .fallback_service(routes)
        .layer(from_fn(refuse_cross_site))
        .layer(from_fn_with_state(Arc::clone(shared), enter));
    if let Some(users) = &shared.basic_auth {
        router = router.layer(from_fn_with_state(Arc::clone(users), require_user));
    }
    if let Some(hosts) = &shared.allowed_hosts {
        router = router.layer(from_fn_with_state(hosts.clone(), refuse_other_hosts));
    }
    router.layer(from_fn(add_headers))
}

/// The maximum length of a body, except that of a signal. The longest form has the ids of all tasks of a page, which are 8 KiB.
const MAX_BODY_BYTES: usize = 64 << 10;

/// Returns the routes that change something, behind the guards.
fn operations() -> Router<Arc<Shared>> {
    forms::routes()
        .merge(api::operations())
        .route_layer(body_limit(MAX_BODY_BYTES))
        .route_layer(from_fn(require_operate))
}
