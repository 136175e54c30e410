//! Renews leases.

use super::inner::Inner;
use super::scripts::Arguments;
use super::{partitions, reply};
use crate::durable::TaskId;
use crate::durable::failpoint::failpoint;
use crate::durable::failure::Failure;
use crate::durable::store::{Epoch, RenewAnswer};

/// The number of claims that one request renews: each may have a batch of tasks that are to be cancelled.
pub(super) const CLAIMS_PER_RENEWAL: usize = 16;

/// Renews the leases of claims.
pub(super) async fn renew(inner: &Inner, claims: Vec<Epoch>) -> Result<RenewAnswer, Failure> {
    let mut renewed = RenewAnswer::default();
    for (partition, claims) in inner.partitions.split_claims(claims) {
        for claims in claims.chunks(CLAIMS_PER_RENEWAL) {
            let (lost, cancelled) = renew_in(inner, partition, claims).await?;
            renewed.lost.extend(lost);
            renewed.cancelled.extend(cancelled);
        }
    }
    Ok(renewed)
}

/// Returns the claims that no longer exist, and the tasks that are to be cancelled.
async fn renew_in(
    inner: &Inner,
    partition: usize,
    claims: &[Epoch],
) -> Result<(Vec<Epoch>, Vec<TaskId>), Failure> {
    let mut arguments = Arguments::default();
    arguments.push_number(claims.len());
    for &epoch in claims {
        arguments.push(reply::epoch_text(epoch));
    }
    failpoint("redis.before-renew");
    let answer = inner
        .run(&inner.scripts.renew, partition, arguments)
        .await?;
    failpoint("redis.after-renew");
    let (lost, cancelled) = reply::renewed(answer)?;
    let is_lost = |epoch: &Epoch| lost.contains(&partitions::own(*epoch));
    Ok((claims.iter().copied().filter(is_lost).collect(), cancelled))
}
