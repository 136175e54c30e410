//! [`Shared`]: the state of one open store that its threads share.

use super::damage::DamageWatch;
use super::endpoint::Endpoint;
use super::other_claims::OtherClaims;
use super::route_cache::RouteCache;
use crate::durable::store::layouts::Layouts;

/// The state of one open store.
pub(super) struct Shared {
    /// This process counts as alive until all its threads have released this.
    pub(super) endpoint: Endpoint,
    pub(super) routes: RouteCache,
    pub(super) damage: DamageWatch,
    pub(super) other_claims: OtherClaims,
    /// The layouts that this process knows.
    pub(super) layouts: Layouts,
}

impl Shared {
    pub(super) fn new(endpoint: Endpoint, layouts: Layouts) -> Self {
        Self {
            endpoint,
            layouts,
            routes: RouteCache::default(),
            damage: DamageWatch::default(),
            other_claims: OtherClaims::default(),
        }
    }
}
