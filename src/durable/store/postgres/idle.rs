//! Idle sessions: each has a row in the table `park`, by which those who make tasks ready find it.
//!
//! A session enters the table, and then looks once more. Whoever makes a task ready commits, and then reads the table. So one of the two
//! sees the other.

use super::connection::Connection;
use super::error::Fault;
use super::kinds::all_kinds;
use super::next_check::{earlier, look_ahead};
use super::shared::Shared;
use super::view::View;
use super::{groups, queues};
use crate::durable::store::kind::TypeSet;
use crate::durable::store::{SessionId, TurnAnswer};
use crate::sync::{Arc, lock};
use std::time::Duration;

const PARK: &str = "INSERT INTO throng.park (session, endpoint, kinds) VALUES ($1, $2, $3)
    ON CONFLICT (session) DO UPDATE SET endpoint = excluded.endpoint, kinds = excluded.kinds";

/// A session that has nothing to do.
#[derive(Clone)]
pub(super) struct Idle {
    pub(super) session: SessionId,
    pub(super) set: Arc<TypeSet>,
    /// `true` if it may claim a quarantined task.
    pub(super) quarantined: bool,
}

/// Enters a session in the table.
pub(super) async fn park(db: &Connection, shared: &Shared, idle: &Idle) -> Result<(), Fault> {
    lock(&shared.parked).insert(idle.session);
    let kinds = all_kinds(&idle.set);
    db.execute(PARK, &[&(idle.session as i64), &shared.endpoint, &kinds])
        .await?;
    Ok(())
}

/// Returns the answer for a session that has entered the table: if there is something to do now, its next check is at once.
pub(super) async fn look_once_more(view: &View, idle: &Idle) -> Result<TurnAnswer, Fault> {
    let (queue, kinds) = (idle.set.queue(), view.kinds(&idle.set));
    let ahead = look_ahead(view, &kinds, queue, idle.quarantined, 0).await?;
    let mut turned = TurnAnswer {
        next: ahead.next,
        next_tick: ahead.next_tick,
        ..TurnAnswer::default()
    };
    if let Some(wait) = groups::hold_wait(view, queue).await? {
        turned.next = earlier(turned.next, wait);
    }
    if ahead.more {
        let allowed = queues::allowance(view, queue).await?;
        let wait = match allowed.tasks {
            0 => allowed.wait,
            _ => Some(Duration::ZERO),
        };
        if let Some(wait) = wait {
            turned.next = earlier(turned.next, wait);
        }
    }
    Ok(turned)
}
