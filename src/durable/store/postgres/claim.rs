//! Claims: takes the next tasks out of their lines, and records who has them.

use tokio::try_join;

use super::connection::Params;
use super::error::Fault;
use super::next_check::{Ahead, look_ahead};
use super::next_tasks::{Next, REMOVE_ENTRIES};
use super::queues::queue_column;
use super::session::Session;
use super::state::State;
use super::transaction::Transaction;
use super::view::uuids;
use crate::durable::TaskId;
use crate::durable::clock::millis;
use crate::durable::queue::name::QueueName;
use crate::durable::store::kind::TypeSet;
use crate::durable::store::{Claim, Epoch, Turn};

const RAISE_EPOCH: &str = "SELECT setval('throng.epoch', $1)";

/// Stores a claim, and records the turn, so that a repetition is detected.
const INSERT: &str = "WITH new AS (
        INSERT INTO throng.claim (epoch, session, until, lease, held, queue, claimed_at)
        VALUES (nextval('throng.epoch'), $1, $2, $3, $4, $5, $6) RETURNING epoch, session
    ), recorded AS (
        UPDATE throng.session SET number = $7, claim = new.epoch, first = NULL
        FROM new WHERE session.id = new.session
    )
    SELECT epoch FROM new";

/// Gives a claim of a session another epoch.
const CHANGE_EPOCH: &str = "WITH changed AS (
        UPDATE throng.claim SET epoch = $2 WHERE epoch = $1 RETURNING session
    )
    UPDATE throng.session SET claim = $2 FROM changed WHERE session.id = changed.session";

/// Looks for the tasks that a turn claims, if it has nothing else to do before. Returns `None` if that cannot be known yet.
pub(super) async fn look<'a>(
    tx: &Transaction,
    set: Option<&TypeSet>,
    request: &'a Turn,
) -> Result<Option<Next<'a>>, Fault> {
    let Some(set) = set.filter(|set| is_plain(tx, set)) else {
        return Ok(None);
    };
    let mut next = Next::new(request);
    next.take_behind_mark(tx, &tx.kinds(set)).await?;
    Ok(Some(next))
}

/// Returns `true` if the tasks of a set are claimed in the order in which they wait.
fn is_plain(tx: &Transaction, set: &TypeSet) -> bool {
    set.queue().is_default() && !tx.uses_priorities
}

/// Claims tasks of the types of a session, within the limits of the request and of the queue: those that were found, or the next ones. May
/// also look ahead.
pub(super) async fn claim(
    tx: &mut Transaction,
    session: &Session,
    request: &Turn,
    found: Option<Next<'_>>,
) -> Result<(Option<Claim>, Option<Ahead>), Fault> {
    let Some(set) = &session.set else {
        return Ok((None, None));
    };
    let (queue, kinds) = (session.queue(), tx.kinds(set));
    let is_plain = is_plain(tx, set);
    let mut next = Next::new(request);
    match found {
        Some(found) => next = found,
        None if is_plain => next.take(tx, &kinds, "", request.want).await?,
        None => next.take_of_queue(tx, set, &queue).await?,
    }
    if next.entries.is_empty() {
        let ahead = match is_plain && next.wants_more() {
            true => Some(look_ahead(tx, &kinds, &queue, next.quarantined, 0).await?),
            false => None,
        };
        return Ok((None, ahead.map(Ahead::beside_others)));
    }
    let is_short = next.wants_more();
    if is_plain {
        next.set_mark(tx, &kinds);
    }
    let ids = next.ids();
    // The look ahead must see what is written: see `View::prepare`.
    tx.prepare(&[INSERT, REMOVE_ENTRIES]).await?;
    let insert = insert_claim(tx, request, &queue, &ids);
    let ahead = async {
        let low = tx.shared.low_marks.get(session.id, &kinds);
        let ahead = match is_plain {
            true => Some(look_ahead(tx, &kinds, &queue, next.quarantined, low).await?),
            false => None,
        };
        Ok::<_, Fault>(ahead)
    };
    let (epoch, (), ahead) = try_join!(biased; insert, next.remove_entries(tx), ahead)?;
    tx.settle_groups().await?;
    tx.moved(State::Waiting, State::Running, ids.len());
    tx.deltas.add(|it| &mut it.claimed, ids.len() as i64);
    if !next.keyed.is_empty() {
        tx.free_keys(&next.keyed).await?;
    }
    let ahead = match is_short {
        true => ahead.map(Ahead::beside_others),
        false => ahead,
    };
    let tasks = next.into_tasks(tx).await?;
    Ok((Some(Claim { epoch, tasks }), ahead))
}

/// Stores a claim. Returns its epoch.
async fn insert_claim(
    tx: &Transaction,
    request: &Turn,
    queue: &QueueName,
    ids: &[TaskId],
) -> Result<Epoch, Fault> {
    let lease = millis(request.lease) as i64;
    let (session, until) = (request.session as i64, tx.now.boot.saturating_add(lease));
    let mut ids = ids.to_vec();
    ids.sort_unstable();
    let (ids, queue, now) = (uuids(&ids), queue_column(queue), tx.now.wall);
    let number = request.number as i64;
    let params: Params<'_> = &[&session, &until, &lease, &ids, &queue, &now, &number];
    let epoch: Option<i64> = tx.value(INSERT, params).await?;
    let epoch = raised_epoch(tx, epoch.unwrap_or_default(), request.floor).await?;
    Ok(epoch as Epoch)
}

/// Ensures that the epoch of a claim is above `floor`.
async fn raised_epoch(tx: &Transaction, epoch: i64, floor: Epoch) -> Result<i64, Fault> {
    let floor = floor as i64;
    if epoch > floor {
        return Ok(epoch);
    }
    // The database was restored from a copy. Others must not set the sequence back.
    tx.require_exclusive()?;
    let raised = floor + 1;
    tx.rows(RAISE_EPOCH, &[&raised]).await?;
    tx.execute(CHANGE_EPOCH, &[&epoch, &raised]).await?;
    Ok(raised)
}
