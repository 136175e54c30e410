//! Examines what an overview does not show. Each query reads a limited number of rows.

use std::collections::BTreeSet;

use super::error::Fault;
use super::findings;
use super::kinds::all_kinds;
use super::view::View;
use super::waiting_kinds::WaitingKind;
use super::{outbox, schedules, workers};
use crate::durable::store::{
    Diagnoses, Diagnosis, MAX_DIAGNOSED, MAX_EXAMINED_WORKERS, RunType, UnclaimedType,
};
use crate::durable::{WorkerInfo, WorkerState};

/// Counts the claims whose lease has been over at the time `$1` for more than two lease times.
const OVERDUE: &str = "SELECT count(*) FROM (
        SELECT 1 FROM throng.claim WHERE until < $1 AND $1 - until > 2 * lease LIMIT $2
    ) AS overdue";

/// Examines the store.
pub(super) async fn diagnose(view: &View) -> Result<Diagnoses, Fault> {
    let diagnosis = Diagnosis {
        now: view.now.wall.max(0) as u64,
        dead: view.totals().await?.dead,
        dead_most: view.limits.retention().dead_most,
        overdue_claims: overdue_claims(view).await?,
        workers: workers_in_trouble(view).await?,
        schedules: schedules::next(view).await?,
        unclaimed: unclaimed_types(view).await?,
    };
    Ok(Diagnoses {
        newer_outbox_rows: outbox::count_newer(view).await?,
        server: findings::findings(view).await?,
        ..diagnosis.into()
    })
}

async fn overdue_claims(view: &View) -> Result<u64, Fault> {
    let most = MAX_DIAGNOSED as i64;
    let claims: Option<i64> = view.value(OVERDUE, &[&view.now.boot, &most]).await?;
    Ok(claims.unwrap_or_default() as u64)
}

async fn workers_in_trouble(view: &View) -> Result<Vec<WorkerInfo>, Fault> {
    let mut workers = workers::read(view, 0, MAX_EXAMINED_WORKERS).await?;
    workers.retain(|worker| worker.state != WorkerState::Live);
    Ok(workers)
}

/// Returns the types of waiting tasks that no live session claims.
async fn unclaimed_types(view: &View) -> Result<Vec<UnclaimedType>, Fault> {
    let sets = view.live_sets().await?;
    let known: BTreeSet<_> = sets.keys().flat_map(all_kinds).collect();
    let is_known = |it: &WaitingKind| known.contains(&it.kind);
    let waiting = view.waiting_kinds().await?.into_iter();
    let unclaimed = waiting.filter(|it| !is_known(it) || view.is_paused(&it.name));
    let unclaimed = unclaimed.take(MAX_DIAGNOSED);
    let unclaimed = unclaimed.map(|it| UnclaimedType {
        run_type: RunType::new(&it.name.as_str().into(), &it.queue),
        is_known: is_known(&it),
        ready_for: Some(it.ready_for),
    });
    Ok(unclaimed.collect())
}
