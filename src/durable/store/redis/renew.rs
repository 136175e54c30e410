//! Renews leases.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::each_partition::ask_each;
use super::inner::Inner;
use super::scripts::Arguments;
use super::{partitions, reply};
use crate::durable::TaskId;
use crate::durable::failpoint::failpoint;
use crate::durable::failure::Failure;
use crate::durable::store::{Epoch, RenewAnswer};

/// The number of claims that one request renews: each may have a batch of tasks that are to be cancelled.
pub(super) const CLAIMS_PER_RENEWAL: usize = 16;

/// Renews the leases of claims. Fails only if no partition answers.
pub(super) async fn renew(inner: &Arc<Inner>, claims: Vec<Epoch>) -> Result<RenewAnswer, Failure> {
    let mut renewed = RenewAnswer::default();
    let of_partitions = inner.partitions.split_claims(claims);
    let of_partitions: BTreeMap<_, _> = of_partitions.into_iter().collect();
    if of_partitions.is_empty() {
        return Ok(renewed);
    }
    let (answers, missing) = ask_each(inner, of_partitions.keys().copied(), |inner, partition| {
        let claims = of_partitions[&partition].clone();
        async move { renew_all(&inner, partition, &claims).await }
    })
    .await?;
    for (_, part) in answers {
        renewed.lost.extend(part.lost);
        renewed.cancelled.extend(part.cancelled);
    }
    let unreached = missing
        .iter()
        .flat_map(|partition| &of_partitions[partition]);
    renewed.unreached.extend(unreached);
    Ok(renewed)
}

/// Renews the leases of claims of a partition.
async fn renew_all(
    inner: &Inner,
    partition: usize,
    claims: &[Epoch],
) -> Result<RenewAnswer, Failure> {
    let mut renewed = RenewAnswer::default();
    for claims in claims.chunks(CLAIMS_PER_RENEWAL) {
        let (lost, cancelled) = renew_in(inner, partition, claims).await?;
        renewed.lost.extend(lost);
        renewed.cancelled.extend(cancelled);
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
        .run_part(&inner.scripts.renew, partition, arguments)
        .await?;
    failpoint("redis.after-renew");
    let (lost, cancelled) = reply::renewed(answer)?;
    let is_lost = |epoch: &Epoch| lost.contains(&partitions::own(*epoch));
    Ok((claims.iter().copied().filter(is_lost).collect(), cancelled))
}
