//! [`Shared`]: the state of one open store that its threads share.

use super::damage::DamageWatch;
use super::endpoint::Endpoint;
use super::other_claims::OtherClaims;
use super::route_cache::RouteCache;

/// The state of one open store.
pub(super) struct Shared {
    /// This process counts as alive until all its threads have released this.
    pub(super) endpoint: Endpoint,
    pub(super) routes: RouteCache,
    pub(super) damage: DamageWatch,
    pub(super) other_claims: OtherClaims,
}

impl Shared {
    pub(super) fn new(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            routes: RouteCache::default(),
            damage: DamageWatch::default(),
            other_claims: OtherClaims::default(),
        }
    }
}
