//! The steps of tasks, in the tables `step` and `workflow`.
//!
//! A transaction that changes the steps of a task has locked the row of the task, or has the store for itself. A run ends its task without
//! a look at its steps if the task has no row in `workflow`, so only the run itself adds the first one, or a transaction that has the store
//! for itself.

use std::collections::BTreeSet;

use super::added_steps::AddedSteps;
use super::ended_child::EndedChild;
use super::error::Fault;
use super::task::Task;
use super::text;
use super::transaction::Transaction;
use super::view::{View, uuid, uuids};
use crate::durable::TaskId;
use crate::durable::store::{
    Epoch, NewStep, SignalAnswer, StepAnswer, StepName, StoredStep, TaskState,
};

const LOCK_RUNNING: &str = "SELECT id FROM throng.task
    WHERE id = ANY ($1) AND state = 0 ORDER BY id FOR UPDATE";

const LOCK_ALIVE: &str = "SELECT id FROM throng.task WHERE id = $1 AND state < 2 FOR UPDATE";

/// Locks tasks that keep their steps: those that have not ended, and dead letters.
const LOCK_PARENTS: &str = "SELECT id FROM throng.task
    WHERE id = ANY ($1) AND (state < 2 OR state = 4) ORDER BY id FOR UPDATE";

const READ: &str = "SELECT name, value, at FROM throng.step WHERE id = $1 ORDER BY number";

const NUMBER_OF_STEPS: &str = "SELECT steps FROM throng.workflow WHERE id = $1";

const WAIT_FOR_STEPS: &str =
    "INSERT INTO throng.workflow (id, steps, bytes, until, waits_for) VALUES ($1, 0, 0, $2, $3)
    ON CONFLICT (id) DO UPDATE SET until = excluded.until, waits_for = excluded.waits_for";

const WAIT_FOR_NONE: &str = "UPDATE throng.workflow SET until = NULL, waits_for = NULL
    WHERE id = ANY ($1) AND until IS NOT NULL";

const END_WAITS: &str = "UPDATE throng.workflow SET until = NULL
    WHERE id = ANY ($1) AND until <= steps RETURNING id";

const MAKE_DUE: &str =
    "UPDATE throng.task SET at = $2, ready_at = $2 WHERE id = ANY ($1) AND state = 1";

const REMOVE_STEPS: &str = "DELETE FROM throng.step WHERE id = $1";

const REMOVE_WORKFLOW: &str = "DELETE FROM throng.workflow WHERE id = $1";

/// Stores steps of running tasks. Returns an answer for each, in their order.
pub(super) async fn store(
    tx: &mut Transaction,
    steps: &[NewStep],
) -> Result<Vec<StepAnswer>, Fault> {
    let held = held(tx, steps).await?;
    let is_held = |step: &NewStep| held.contains(&(step.epoch, step.id));
    let accepted = steps.iter().filter(|step| is_held(step));
    let mut added = AddedSteps::load(tx, accepted.map(|step| (step.id, &step.name))).await?;
    let answers = steps.iter().map(|step| match is_held(step) {
        true => added.add(step.id, &step.name, &step.value),
        false => StepAnswer::Refused,
    });
    let answers = answers.collect();
    added.save(tx).await?;
    // A task that runs waits for no steps any more.
    let waiting = added.tasks_that_wait();
    if !waiting.is_empty() {
        tx.execute(WAIT_FOR_NONE, &[&uuids(&waiting)]).await?;
    }
    Ok(answers)
}

/// Locks the claims and the tasks of new steps. Returns the tasks that are held, with the epochs of the claims.
async fn held(tx: &Transaction, steps: &[NewStep]) -> Result<BTreeSet<(Epoch, TaskId)>, Fault> {
    let epochs: BTreeSet<_> = steps.iter().map(|step| step.epoch).collect();
    let mut held = BTreeSet::new();
    for epoch in epochs {
        let claimed = tx.claimed_tasks(epoch as i64).await?.ids;
        let of_claim = steps.iter().filter(|step| step.epoch == epoch);
        let of_claim = of_claim.filter(|step| claimed.contains(&step.id));
        held.extend(of_claim.map(|step| (epoch, step.id)));
    }
    let ids: Vec<_> = held.iter().map(|(_, id)| *id).collect();
    let running: BTreeSet<_> = tx
        .ids(LOCK_RUNNING, &[&uuids(&ids)])
        .await?
        .into_iter()
        .collect();
    held.retain(|(_, id)| running.contains(id));
    Ok(held)
}

/// Returns the steps of a task, in the order in which they were stored.
pub(super) async fn read(view: &View, id: TaskId) -> Result<Vec<StoredStep>, Fault> {
    let rows = view.rows(READ, &[&uuid(id)]).await?;
    let steps = rows.iter().map(|row| {
        Ok(StoredStep {
            name: text::loaded(row.try_get("name")?),
            value: row.try_get("value")?,
            age: view.now.since(row.try_get("at")?),
        })
    });
    steps.collect()
}

/// Stores a signal for a task. If the task waits for as many steps as it has now, it is due.
pub(super) async fn signal(
    tx: &mut Transaction,
    id: TaskId,
    name: &StepName,
    value: &[u8],
) -> Result<SignalAnswer, Fault> {
    let mut is_alive = tx.row(LOCK_ALIVE, &[&uuid(id)]).await?.is_some();
    if !is_alive {
        // Another transaction may have moved it meanwhile.
        tx.move_from_outbox(id).await?;
        is_alive = tx.row(LOCK_ALIVE, &[&uuid(id)]).await?.is_some();
    }
    if !is_alive {
        return Ok(SignalAnswer::Absent);
    }
    let mut added = AddedSteps::load(tx, [(id, name)]).await?;
    added.need_store_for_first_steps(tx)?;
    let answer = added.add(id, name, value).into();
    added.save(tx).await?;
    tx.wake_suspended(&added.tasks_that_wait()).await?;
    Ok(answer)
}

impl Transaction {
    /// Returns the number of steps of a task.
    pub(super) async fn number_of_steps(&self, id: TaskId) -> Result<u32, Fault> {
        let steps: Option<i32> = self.value(NUMBER_OF_STEPS, &[&uuid(id)]).await?;
        Ok(steps.unwrap_or_default() as u32)
    }

    /// Suspends a running task until `due`, or until it has `until` steps, which the text describes. If it has them, it is due now.
    pub(super) async fn suspend(
        &mut self,
        id: TaskId,
        task: &Task,
        due: i64,
        until: Option<(u32, &str)>,
    ) -> Result<(), Fault> {
        self.forget_failures(id, task).await?;
        let Some((until, waits_for)) = until else {
            return self.delay(id, due).await;
        };
        if self.number_of_steps(id).await? >= until {
            return self.delay(id, self.now.wall).await;
        }
        self.delay(id, due).await?;
        self.execute(
            WAIT_FOR_STEPS,
            &[&uuid(id), &(until as i32), &text::stored(waits_for)],
        )
        .await?;
        Ok(())
    }

    /// Records that a task, which is delayed now, waits for no number of steps.
    pub(super) async fn wait_for_no_steps(&self, id: TaskId) -> Result<(), Fault> {
        self.execute(WAIT_FOR_NONE, &[&[uuid(id)].as_slice()])
            .await?;
        Ok(())
    }

    /// Removes the steps of a task.
    pub(super) async fn remove_steps(&self, id: TaskId) -> Result<(), Fault> {
        if self.execute(REMOVE_WORKFLOW, &[&uuid(id)]).await? > 0 {
            self.execute(REMOVE_STEPS, &[&uuid(id)]).await?;
        }
        Ok(())
    }

    /// Has the parent of a task, if it has one, told of the end of the task by [`tell_parents`](Self::tell_parents).
    pub(super) async fn tell_parent(
        &mut self,
        child: TaskId,
        task: &Task,
        end: TaskState,
    ) -> Result<(), Fault> {
        let new = |parent| EndedChild { parent, child, end };
        self.ended_children.extend(task.parent.map(new));
        Ok(())
    }

    /// Stores the ends of children as steps of their parents, unless these have ended and are no dead letters. If a parent waits for as
    /// many steps as it has now, it is due.
    ///
    /// This locks the parents of all children together, in the order of their ids. So two transactions do not wait for one another.
    pub(super) async fn tell_parents(&mut self) -> Result<(), Fault> {
        if self.ended_children.is_empty() {
            return Ok(());
        }
        let mut ended = std::mem::take(&mut self.ended_children);
        let parents: BTreeSet<_> = ended.iter().map(|it| it.parent).collect();
        let kept: BTreeSet<_> = self
            .ids(LOCK_PARENTS, &[&uuids(&parents)])
            .await?
            .into_iter()
            .collect();
        ended.retain(|it| kept.contains(&it.parent));
        let names: Vec<_> = ended
            .iter()
            .map(|it| StepName::of_child(it.child))
            .collect();
        let steps = ended.iter().map(|it| it.parent).zip(&names);
        let mut added = AddedSteps::load(self, steps).await?;
        added.need_store_for_first_steps(self)?;
        for (EndedChild { parent, end, .. }, name) in ended.iter().zip(&names) {
            added.add_end(*parent, name, end);
        }
        added.save(self).await?;
        self.wake_suspended(&added.tasks_that_wait()).await
    }

    /// If tasks wait for as many steps as they have now, the wait is over: if they are delayed, they are due.
    async fn wake_suspended(&mut self, ids: &[TaskId]) -> Result<(), Fault> {
        if ids.is_empty() {
            return Ok(());
        }
        let over = self.ids(END_WAITS, &[&uuids(ids)]).await?;
        let now = self.now.wall;
        let woken = self.execute(MAKE_DUE, &[&uuids(&over), &now]).await?;
        self.notices.needs_any |= woken != 0;
        Ok(())
    }
}
