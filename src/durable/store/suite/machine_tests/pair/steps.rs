//! Steps and signals.

use super::{Outcome, Pair, same};
use crate::durable::TaskId;
use crate::durable::store::suite::Harness;
use crate::durable::store::{NewStep, StepKind, StepName};

pub(super) fn step_name(kind: StepKind, name: u8) -> StepName {
    StepName::new(kind, &format!("{name}")).expect("it is a valid name")
}

impl<H: Harness> Pair<H> {
    /// Stores steps of tasks, which are chosen among all that were ever claimed, the newest first.
    pub(super) async fn store_steps(&mut self, picks: &[u8], name: u8, len: usize) -> Outcome {
        self.marks += 1;
        let [for_model, for_tested] = [0, 1].map(|side| self.new_steps(side, picks, name, len));
        let [model, tested] = self.stores(0);
        let answers = model.0.store_steps(for_model).await;
        same((answers, tested.0.store_steps(for_tested).await))
    }

    fn new_steps(&self, side: usize, picks: &[u8], name: u8, len: usize) -> Vec<NewStep> {
        let newest = picks
            .iter()
            .filter_map(|&pick| self.claimed.iter().rev().nth(usize::from(pick)));
        let mut value = self.marks.to_be_bytes().to_vec();
        value.resize(value.len() + len, 7);
        let steps = newest.map(|one| NewStep {
            id: one.task,
            epoch: self.epochs[side][one.claim],
            name: step_name(StepKind::Step, name),
            value: value.clone(),
        });
        steps.collect()
    }

    pub(super) async fn signal(&mut self, task: u8, name: u8) -> Outcome {
        self.marks += 1;
        let (id, name) = (self.ids.of(task), step_name(StepKind::Signal, name));
        let value = self.marks.to_be_bytes().to_vec();
        let [model, tested] = self.stores(0);
        let answer = model.0.signal(id, name.clone(), value.clone()).await;
        same((answer, tested.0.signal(id, name, value).await))
    }

    pub(super) async fn steps(&mut self, process: u8, ids: &[TaskId]) -> Outcome {
        let [model, tested] = self.stores(process);
        for &id in ids {
            same((model.0.steps(id).await, tested.0.steps(id).await))?;
        }
        Ok(())
    }
}
