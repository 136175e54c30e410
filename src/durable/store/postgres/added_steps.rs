//! [`AddedSteps`]: the steps that a request adds to tasks.

use std::collections::{BTreeSet, HashMap};

use super::error::Fault;
use super::text;
use super::transaction::Transaction;
use super::view::{View, task_id, uuid, uuids};
use crate::durable::TaskId;
use crate::durable::store::{
    ChildEnd, MAX_BYTES_WITH_OUTPUTS, StepAnswer, StepName, TaskState, has_room,
};

const TOTALS: &str = "SELECT id, steps, bytes, until FROM throng.workflow WHERE id = ANY ($1)";

/// Selects those of the steps with the names `$2` that the tasks `$1` have.
const FIND: &str = "SELECT step.id, step.name, value
    FROM unnest($1::uuid[], $2::text[]) AS own (id, name)
    JOIN throng.step ON step.id = own.id AND step.name = own.name";

const INSERT: &str = "INSERT INTO throng.step (id, name, number, at, value)
    SELECT id, name, number, $5, value
    FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::bytea[]) AS new (id, name, number, value)";

const SAVE_TOTALS: &str = "INSERT INTO throng.workflow (id, steps, bytes)
    SELECT id, steps, bytes FROM unnest($1::uuid[], $2::integer[], $3::bigint[])
        AS new (id, steps, bytes)
    ON CONFLICT (id) DO UPDATE SET steps = excluded.steps, bytes = excluded.bytes";

/// The steps that a request adds to tasks whose rows are locked.
pub(super) struct AddedSteps {
    tasks: HashMap<TaskId, StepTotals>,
    /// The values of the steps that the tasks have, if the request names them.
    values: HashMap<(TaskId, String), Vec<u8>>,
    new: Vec<(TaskId, String, u32)>,
}

/// The number and the size of the steps of a task.
#[derive(Clone, Copy, Default)]
struct StepTotals {
    steps: u32,
    /// The size of the names and values, in bytes.
    bytes: usize,
    /// `true` if the task waits for a number of steps, or has waited.
    waits: bool,
    /// `true` if the task has a row in the table `workflow`.
    is_stored: bool,
}

impl AddedSteps {
    /// Reads what the tasks have, given the names of all steps that may be added.
    pub(super) async fn load(
        view: &View,
        steps: impl IntoIterator<Item = (TaskId, &StepName)>,
    ) -> Result<Self, Fault> {
        let (ids, names): (Vec<_>, Vec<_>) = steps
            .into_iter()
            .map(|(id, name)| (id, text::stored(name.as_str())))
            .unzip();
        let mut added = Self {
            tasks: ids.iter().map(|id| (*id, StepTotals::default())).collect(),
            values: HashMap::new(),
            new: Vec::new(),
        };
        if ids.is_empty() {
            return Ok(added);
        }
        added.load_totals(view).await?;
        for row in view.rows(FIND, &[&uuids(&ids), &names]).await? {
            let name = text::loaded(row.try_get("name")?);
            let step = (task_id(row.try_get("id")?), name);
            added.values.insert(step, row.try_get("value")?);
        }
        Ok(added)
    }

    async fn load_totals(&mut self, view: &View) -> Result<(), Fault> {
        for row in view.rows(TOTALS, &[&uuids(self.tasks.keys())]).await? {
            let (steps, bytes): (i32, i64) = (row.try_get("steps")?, row.try_get("bytes")?);
            let totals = StepTotals {
                steps: steps as u32,
                bytes: bytes as usize,
                waits: row.try_get::<_, Option<i32>>("until")?.is_some(),
                is_stored: true,
            };
            self.tasks.insert(task_id(row.try_get("id")?), totals);
        }
        Ok(())
    }

    /// Ensures that the first steps of tasks are stored by a transaction that has the store for itself.
    pub(super) fn need_store_for_first_steps(&self, tx: &Transaction) -> Result<(), Fault> {
        match self.tasks.values().all(|task| task.is_stored) {
            true => Ok(()),
            false => tx.require_exclusive(),
        }
    }

    /// Adds a step, unless the task has one with this name, or has too many.
    pub(super) fn add(&mut self, id: TaskId, name: &StepName, value: &[u8]) -> StepAnswer {
        if let Some(first) = self.values.get(&(id, name.as_str().to_owned())) {
            return StepAnswer::Found(first.clone());
        }
        let task = self.tasks.get(&id).copied().unwrap_or_default();
        if !has_room(task.steps, task.bytes, name.as_str().len() + value.len()) {
            return StepAnswer::Full;
        }
        self.insert(id, name, value.to_vec());
        StepAnswer::Stored
    }

    /// Adds the end of a child: in any case, but without its output if the task would have too many bytes of steps with it.
    pub(super) fn add_end(&mut self, parent: TaskId, name: &StepName, end: &TaskState) {
        let bytes = self.tasks.get(&parent).map_or(0, |task| task.bytes);
        let room = MAX_BYTES_WITH_OUTPUTS.saturating_sub(bytes + name.as_str().len());
        let is_known = self
            .values
            .contains_key(&(parent, name.as_str().to_owned()));
        if let Some(value) = ChildEnd::encode(end, room).filter(|_| !is_known) {
            self.insert(parent, name, value);
        }
    }

    fn insert(&mut self, id: TaskId, name: &StepName, value: Vec<u8>) {
        let task = self.tasks.entry(id).or_default();
        task.steps += 1;
        task.bytes += name.as_str().len() + value.len();
        let name = name.as_str().to_owned();
        self.new.push((id, name.clone(), task.steps));
        self.values.insert((id, name), value);
    }

    /// Stores the steps that were added.
    pub(super) async fn save(&self, tx: &Transaction) -> Result<(), Fault> {
        if self.new.is_empty() {
            return Ok(());
        }
        let new = self.new.iter();
        let ids: Vec<_> = new.clone().map(|(id, ..)| uuid(*id)).collect();
        let names: Vec<_> = new.clone().map(|(_, name, _)| text::stored(name)).collect();
        let numbers: Vec<_> = new.clone().map(|(.., number)| i64::from(*number)).collect();
        let values: Vec<_> = new
            .map(|(id, name, _)| {
                self.values
                    .get(&(*id, name.clone()))
                    .map_or(&[][..], |it| it)
            })
            .collect();
        tx.execute(INSERT, &[&ids, &names, &numbers, &values, &tx.now.wall])
            .await?;
        let changed: Vec<_> = self.changed().into_iter().collect();
        let totals = changed.iter().map(|id| self.tasks[id]);
        let steps: Vec<_> = totals.clone().map(|task| task.steps as i32).collect();
        let bytes: Vec<_> = totals.map(|task| task.bytes as i64).collect();
        tx.execute(SAVE_TOTALS, &[&uuids(&changed), &steps, &bytes])
            .await?;
        Ok(())
    }

    /// Returns the tasks to which steps were added.
    fn changed(&self) -> BTreeSet<TaskId> {
        self.new.iter().map(|(id, ..)| *id).collect()
    }

    /// Returns the tasks to which steps were added and that wait for steps, or have waited.
    pub(super) fn tasks_that_wait(&self) -> Vec<TaskId> {
        let changed = self.changed().into_iter();
        changed.filter(|id| self.tasks[id].waits).collect()
    }
}
