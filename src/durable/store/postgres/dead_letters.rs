//! Dead letters.

use std::collections::HashMap;

use super::error::Fault;
use super::errors::errors_of;
use super::removal::remove_ended;
use super::state::State;
use super::text;
use super::transaction::Transaction;
use super::view::{View, task_id, uuid, uuids};
use crate::durable::store::reason_numbers::reason;
use crate::durable::store::{ChangeAnswer, DeadPayload};
use crate::durable::{DeadFilter, DeadLetter, Refusal, TaskId};

/// Selects the dead letters that have not expired, the newest first. Among those of the same millisecond, the one with the largest id comes
/// first.
const ALL: &str = "SELECT id, key IS NOT NULL AS has_key FROM throng.task
    WHERE state = 4 AND at > $1 AND ($2::text IS NULL OR name = $2)
    ORDER BY at DESC, id DESC LIMIT $3";

/// Selects the same among the tasks `$4`. They are found by their ids: a server that knows the condition could read all dead letters.
const SOME: &str = "WITH own AS MATERIALIZED (
        SELECT id, key, name, state, at FROM throng.task WHERE id = ANY ($4)
    ) SELECT id, key IS NOT NULL AS has_key FROM own
    WHERE state = 4 AND at > $1 AND ($2::text IS NULL OR name = $2)
    ORDER BY at DESC, id DESC LIMIT $3";

const READ: &str = "SELECT id, name, reason, error, failures, crashes, at FROM throng.task
    WHERE id = ANY ($1)";

/// Selects the payload of a dead letter, which is found by its id, too.
const PAYLOAD: &str = "WITH own AS MATERIALIZED (
        SELECT name, payload, state, at FROM throng.task WHERE id = $1
    ) SELECT name, payload FROM own WHERE state = 4 AND at > $2";

/// Forgets how tasks have ended. A dead letter without its payload is not replayed.
const REVIVE: &str = "UPDATE throng.task
    SET failures = 0, failing_since = NULL, crashes = 0, lost = 0, cancel = false, reason = NULL,
        error = NULL, took = NULL
    WHERE id = ANY ($1) AND payload IS NOT NULL RETURNING id";

const REMOVE_ERRORS: &str = "DELETE FROM throng.error WHERE id = ANY ($1)";

/// A dead letter that matches a filter.
#[derive(Clone, Copy)]
struct FoundDeadLetter {
    id: TaskId,
    has_key: bool,
}

/// Returns at most `limit` dead letters, the newest first.
pub(super) async fn list(
    view: &View,
    filter: &DeadFilter,
    limit: usize,
) -> Result<Vec<DeadLetter>, Fault> {
    let found = find(view, filter, limit).await?;
    let ids: Vec<_> = found.iter().map(|dead_letter| dead_letter.id).collect();
    let mut dead_letters = read(view, &ids).await?;
    Ok(ids
        .iter()
        .filter_map(|id| dead_letters.remove(id))
        .collect())
}

async fn find(
    view: &View,
    filter: &DeadFilter,
    limit: usize,
) -> Result<Vec<FoundDeadLetter>, Fault> {
    let (since, name) = (view.expiry().dead_until, filter.name.as_deref());
    let name = name.map(text::stored);
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = match &filter.ids {
        None => view.rows(ALL, &[&since, &name, &limit]).await?,
        Some(ids) => {
            view.rows(SOME, &[&since, &name, &limit, &uuids(ids)])
                .await?
        }
    };
    let found = rows.iter().map(|row| {
        Ok(FoundDeadLetter {
            id: task_id(row.try_get("id")?),
            has_key: row.try_get("has_key")?,
        })
    });
    found.collect()
}

async fn read(view: &View, ids: &[TaskId]) -> Result<HashMap<TaskId, DeadLetter>, Fault> {
    let mut errors = errors_of(view, ids).await?;
    let expiry = view.expiry();
    let mut dead_letters = HashMap::with_capacity(ids.len());
    for row in view.rows(READ, &[&uuids(ids)]).await? {
        let id = task_id(row.try_get("id")?);
        let dead_letter = DeadLetter {
            id,
            name: text::loaded(row.try_get("name")?),
            reason: reason(row.try_get::<_, i16>("reason")?.into()),
            error: text::loaded(row.try_get("error")?),
            errors: errors.remove(&id).unwrap_or_default(),
            failures: row.try_get::<_, i32>("failures")? as u32,
            crashes: row.try_get::<_, i32>("crashes")? as u32,
            age: expiry.age_of_dead(row.try_get("at")?),
        };
        dead_letters.insert(id, dead_letter);
    }
    Ok(dead_letters)
}

/// Returns the payload of a dead letter.
pub(super) async fn payload(view: &View, id: TaskId) -> Result<Option<DeadPayload>, Fault> {
    let row = view
        .row(PAYLOAD, &[&uuid(id), &view.expiry().dead_until])
        .await?;
    let Some(row) = row else { return Ok(None) };
    let payload: Option<Vec<u8>> = row.try_get("payload")?;
    Ok(Some(DeadPayload {
        name: text::loaded(row.try_get("name")?).into(),
        payload: payload.ok_or_else(|| String::from("its payload is missing")),
    }))
}

/// Returns the ids of all dead letters that match, in their order.
pub(super) async fn ids(view: &View, filter: &DeadFilter) -> Result<Vec<TaskId>, Fault> {
    let found = find(view, filter, usize::MAX).await?;
    let mut ids: Vec<_> = found.iter().map(|dead_letter| dead_letter.id).collect();
    ids.sort_unstable();
    Ok(ids)
}

/// Makes dead letters wait again, in the order of their ids, except those whose keys other tasks hold. Returns their number.
pub(super) async fn replay(tx: &mut Transaction, filter: &DeadFilter) -> Result<u64, Fault> {
    tx.require_exclusive()?;
    let mut dead_letters = find(tx, filter, usize::MAX).await?;
    dead_letters.sort_unstable_by_key(|dead_letter| dead_letter.id);
    let mut replayed = 0;
    // Letters may have the same key, so each that has one is replayed before the next one is looked at.
    for dead_letters in dead_letters.chunk_by(|one, next| !one.has_key && !next.has_key) {
        let ids: Vec<_> = dead_letters
            .iter()
            .map(|dead_letter| dead_letter.id)
            .collect();
        if !dead_letters[0].has_key || tx.key_allows_replay(ids[0]).await? {
            replayed += revive(tx, &ids).await?;
        }
    }
    Ok(replayed)
}

/// Replays a dead letter, unless another task holds its key.
pub(super) async fn replay_one(tx: &mut Transaction, id: TaskId) -> Result<ChangeAnswer, Fault> {
    tx.require_exclusive()?;
    if !tx.key_allows_replay(id).await? {
        return Ok(ChangeAnswer::Refused(Refusal::KeyHeld));
    }
    Ok(match revive(tx, &[id]).await? {
        0 => ChangeAnswer::Refused(Refusal::Unreadable),
        _ => ChangeAnswer::Changed,
    })
}

/// Makes dead letters wait again. Returns the number of those that have their payloads.
async fn revive(tx: &mut Transaction, ids: &[TaskId]) -> Result<u64, Fault> {
    let mut whole = tx.ids(REVIVE, &[&uuids(ids)]).await?;
    whole.sort_unstable();
    tx.execute(REMOVE_ERRORS, &[&uuids(&whole)]).await?;
    let now = tx.now.wall;
    tx.push_back(&whole, State::Dead, Some(now)).await?;
    Ok(whole.len() as u64)
}

/// Deletes dead letters. Returns their number.
pub(super) async fn delete(tx: &mut Transaction, filter: &DeadFilter) -> Result<u64, Fault> {
    tx.require_exclusive()?;
    let dead_letters = find(tx, filter, usize::MAX).await?;
    let ids: Vec<_> = dead_letters
        .iter()
        .map(|dead_letter| dead_letter.id)
        .collect();
    remove_ended(tx, &ids).await?;
    Ok(ids.len() as u64)
}
