//! Lists of tasks, a page at a time. A page begins after the last task of the previous page, which an index finds.

use tokio_postgres::Row;

use super::connection::Params;
use super::error::Fault;
use super::list_position::{AfterId, AfterLine};
use super::state::State;
use super::task_info;
use super::view::View;
use crate::durable::store::ListTasks;
use crate::durable::{Cursor, Status, TaskInfo, TaskPage};

/// Selects waiting tasks from the end of the lines on. Their positions change only if they move to other lines.
const WAITING: &str =
    "SELECT ready.kind, ready.place, task.id, name, queue, task.group_name, failures,
        crashes, ready_at
    FROM throng.ready JOIN throng.task ON task.id = ready.id
    WHERE (ready.kind, ready.group_name, ready.place) < ($1, $2, $3)
    ORDER BY ready.kind DESC, ready.group_name DESC, ready.place DESC LIMIT $4";

/// Selects running tasks, claim by claim.
const RUNNING: &str =
    "SELECT epoch, claimed_at, task.id, name, task.queue, group_name, failures, crashes
    FROM throng.claim CROSS JOIN LATERAL unnest(held) AS own (id)
    JOIN throng.task ON task.id = own.id
    WHERE epoch >= $1 AND (epoch, own.id) > ($1, $2) ORDER BY epoch, own.id LIMIT $3";

const RUNNING_IN_SESSION: &str = "SELECT epoch, claimed_at, task.id, name, task.queue, group_name,
        failures, crashes
    FROM throng.claim CROSS JOIN LATERAL unnest(held) AS own (id)
    JOIN throng.task ON task.id = own.id
    WHERE session = $4 AND epoch >= $1 AND (epoch, own.id) > ($1, $2)
    ORDER BY epoch, own.id LIMIT $3";

/// Selects the tasks of a state in the order of their times.
const BY_TIME: &str = "SELECT at, id, name, queue, group_name, failures, crashes, retention, took
    FROM throng.task WHERE state = $1 AND at IS NOT NULL AND (at, id) > ($2, $3)
    ORDER BY at, id LIMIT $4";

/// Selects dead letters, the newest one first. Of an error, it reads what a page has: a character takes up to two as it is stored.
const DEAD: &str = "SELECT at, id, name, queue, group_name, failures, crashes, reason, took,
        left(error, 320) AS error
    FROM throng.task WHERE state = 4 AND at > $1 AND (at, id) < ($2, $3)
    ORDER BY at DESC, id DESC LIMIT $4";

/// A task, and its position in the list.
type Listed = (Vec<u8>, TaskInfo);

/// Returns a page of tasks, or `None` if the position is not valid in this store.
pub(super) async fn list(view: &View, request: &ListTasks) -> Result<Option<TaskPage>, Fault> {
    let now = view.expiry().store_time;
    let listed = match request.filter.status {
        Status::Waiting => waiting(view, request).await?,
        Status::Running => running(view, request).await?,
        Status::Dead => dead(view, request).await?,
        Status::Delayed => by_time(view, request, State::Delayed, i64::MIN).await?,
        Status::Done => by_time(view, request, State::Done, now).await?,
        Status::Cancelled => by_time(view, request, State::Cancelled, now).await?,
        Status::Absent => Some(Vec::new()),
    };
    Ok(listed.map(|listed| page(view, request, listed)))
}

/// Returns a page with those of the tasks that match the filter, as far as there is room.
fn page(view: &View, request: &ListTasks, listed: Vec<Listed>) -> TaskPage {
    let filter = &request.filter;
    let (mut page, mut last) = (TaskPage::at(view.now.wall.max(0) as u64), None);
    for (position, info) in listed {
        if page.tasks.len() == request.limit || page.examined == request.max_examined() {
            page.next = last.map(|last| Cursor::new(filter.status, last));
            break;
        }
        page.examined += 1;
        last = Some(position);
        if filter.matches(&info) {
            page.tasks.push(info);
        }
    }
    page
}

/// Returns the number of tasks to read: those that the page may examine, and one that tells whether there are more.
fn most(request: &ListTasks) -> i64 {
    let filter = &request.filter;
    let selects_all = filter.name.is_none() && filter.queue.is_none() && !filter.has_failed;
    let examined = match selects_all {
        true => request.limit.min(request.max_examined()),
        false => request.max_examined(),
    };
    examined as i64 + 1
}

async fn waiting(view: &View, request: &ListTasks) -> Result<Option<Vec<Listed>>, Fault> {
    let Some(after) = AfterLine::of(request) else {
        return Ok(None);
    };
    let AfterLine { kind, group, place } = after;
    let params: Params<'_> = &[&kind, &group, &place, &most(request)];
    let rows = view.rows(WAITING, params).await?;
    let listed = rows.iter().map(|row| {
        let group: Option<String> = row.try_get("group_name")?;
        let position = AfterLine {
            kind: row.try_get("kind")?,
            group: group.unwrap_or_default(),
            place: row.try_get("place")?,
        };
        let info = task_info::info(view, State::Waiting, row)?;
        Ok((position.to_bytes(), info))
    });
    listed.collect::<Result<_, _>>().map(Some)
}

async fn running(view: &View, request: &ListTasks) -> Result<Option<Vec<Listed>>, Fault> {
    let Some(AfterId { number, id }) = AfterId::of(request, AfterId::FIRST) else {
        return Ok(None);
    };
    let most = most(request);
    let rows = match request.filter.session.map(|session| session as i64) {
        None => view.rows(RUNNING, &[&number, &id, &most]).await?,
        Some(session) => {
            let params: Params<'_> = &[&number, &id, &most, &session];
            view.rows(RUNNING_IN_SESSION, params).await?
        }
    };
    let info = |row: &Row| {
        Ok(TaskInfo {
            fencing_token: Some(row.try_get::<_, i64>("epoch")? as u64),
            running_for: Some(view.now.since(row.try_get("claimed_at")?)),
            ..task_info::info(view, State::Running, row)?
        })
    };
    listed(&rows, "epoch", info).map(Some)
}

/// Returns the tasks of a state whose times are later than `since`.
async fn by_time(
    view: &View,
    request: &ListTasks,
    state: State,
    since: i64,
) -> Result<Option<Vec<Listed>>, Fault> {
    let before_first = AfterId::last_at(since);
    let Some(after) = AfterId::of(request, before_first) else {
        return Ok(None);
    };
    let AfterId { number, id } = after.max(before_first);
    let params: Params<'_> = &[&state.stored(), &number, &id, &most(request)];
    let rows = view.rows(BY_TIME, params).await?;
    listed(&rows, "at", |row| task_info::info(view, state, row)).map(Some)
}

async fn dead(view: &View, request: &ListTasks) -> Result<Option<Vec<Listed>>, Fault> {
    let Some(AfterId { number, id }) = AfterId::of(request, AfterId::last_at(i64::MAX)) else {
        return Ok(None);
    };
    let params: Params<'_> = &[&view.expiry().dead_until, &number, &id, &most(request)];
    let rows = view.rows(DEAD, params).await?;
    listed(&rows, "at", |row| task_info::info(view, State::Dead, row)).map(Some)
}

/// Returns tasks whose positions are a number and their ids.
fn listed(
    rows: &[Row],
    number: &str,
    info: impl Fn(&Row) -> Result<TaskInfo, Fault>,
) -> Result<Vec<Listed>, Fault> {
    let listed = rows.iter().map(|row| {
        let (number, id) = (row.try_get(number)?, row.try_get("id")?);
        Ok((AfterId { number, id }.to_bytes(), info(row)?))
    });
    listed.collect()
}
