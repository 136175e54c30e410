//! [`DeadBulk`]: changes all dead letters that match, a part at a time, until Ctrl-C is pressed.

use std::collections::BTreeMap;
use std::future;
use std::time::Duration;

use serde::Serialize;
use throng::durable::{
    Bulk, Cursor, DeadFilter, Refusal, TaskChange, TaskFilter, TaskId, TaskInfo,
};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Failure;
use crate::out::{Line, Output};
use crate::store::Session;

/// The number of dead letters in a part, as in [`Bulk`].
const PART: usize = 128;

/// A change of all dead letters that match a filter.
pub(crate) struct DeadBulk<'a> {
    session: &'a Session,
    filter: TaskFilter,
    change: TaskChange,
    /// The change itself, if the store can select the dead letters.
    bulk: Bulk<'a>,
    /// A part of the error, by which only this program can select dead letters.
    error: Option<String>,
    after: Option<Cursor>,
    is_over: bool,
}

/// The effect of a change so far.
#[derive(Debug, Default, Serialize)]
pub(crate) struct BulkTally {
    pub(crate) changed: u64,
    pub(crate) unchanged: u64,
    pub(crate) refused: BTreeMap<Refusal, u64>,
    pub(crate) examined: u64,
    /// `true` if Ctrl-C has stopped the change before its end.
    pub(crate) is_stopped: bool,
}

/// Returns `true` if the last error of a task contains a text.
pub(crate) fn has_error(task: &TaskInfo, error: Option<&str>) -> bool {
    error.is_none_or(|text| task.error.as_deref().is_some_and(|it| it.contains(text)))
}

/// Returns `true` if a task has ended within a time.
pub(crate) fn has_ended_within(task: &TaskInfo, time: Option<Duration>) -> bool {
    time.is_none_or(|time| task.age.is_some_and(|age| age <= time))
}

impl<'a> DeadBulk<'a> {
    pub(crate) fn new(
        session: &'a Session,
        filter: TaskFilter,
        change: TaskChange,
        error: Option<String>,
    ) -> Self {
        let bulk = session
            .client
            .admin()
            .change_all(filter.clone(), change.clone());
        Self {
            session,
            filter,
            change,
            bulk,
            error,
            after: None,
            is_over: false,
        }
    }

    /// Changes the dead letters.
    pub(crate) async fn run(mut self, verb: &str, out: &Output) -> Result<BulkTally, Failure> {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut tally = BulkTally::default();
        loop {
            let part = self
                .part()
                .await
                .map_err(|failure| tally.describe(&failure, verb))?;
            let Some(part) = part else { break };
            tally.add(part);
            out.progress(&format!(
                "{} {verb}, {} examined",
                tally.changed, tally.examined
            ));
            if is_interrupted(&mut interrupt).await {
                tally.is_stopped = !self.is_over;
                break;
            }
        }
        out.end_progress();
        Ok(tally)
    }

    async fn part(&mut self) -> Result<Option<BulkTally>, Failure> {
        match self.error.clone() {
            _ if self.is_over => Ok(None),
            None => self.part_of_store().await,
            Some(error) => self.part_with_error(&error).await.map(Some),
        }
    }

    /// Changes a part that the store selects.
    async fn part_of_store(&mut self) -> Result<Option<BulkTally>, Failure> {
        let next = async { self.bulk.next().await.transpose() };
        let Some(part) = self.session.ask(next).await? else {
            return Ok(None);
        };
        self.is_over = self.bulk.cursor().is_none();
        Ok(Some(BulkTally {
            changed: part.changed,
            unchanged: part.unchanged,
            refused: part.refused,
            examined: part.examined as u64,
            is_stopped: false,
        }))
    }

    /// Changes the dead letters of a page that have an error with a text.
    async fn part_with_error(&mut self, error: &str) -> Result<BulkTally, Failure> {
        let admin = self.session.client.admin();
        let page = self
            .session
            .ask(admin.tasks(&self.filter, self.after.as_ref(), PART))
            .await?;
        let tasks = page
            .tasks
            .iter()
            .filter(|task| has_error(task, Some(error)));
        let ids: Vec<TaskId> = tasks.map(|task| task.id).collect();
        let (matching, changed) = (ids.len() as u64, self.apply(ids).await?);
        self.after = page.next;
        self.is_over = self.after.is_none();
        Ok(BulkTally {
            changed,
            unchanged: matching.saturating_sub(changed),
            examined: page.examined as u64,
            ..BulkTally::default()
        })
    }

    async fn apply(&self, ids: Vec<TaskId>) -> Result<u64, Failure> {
        if ids.is_empty() {
            return Ok(0);
        }
        let (dead_letters, filter) = (self.session.client.dead_letters(), DeadFilter::ids(ids));
        match self.change {
            TaskChange::Delete => self.session.ask(dead_letters.delete(filter)).await,
            _ => self.session.ask(dead_letters.replay(filter)).await,
        }
    }
}

impl BulkTally {
    fn add(&mut self, part: Self) {
        self.changed += part.changed;
        self.unchanged += part.unchanged;
        self.examined += part.examined;
        for (refusal, number) in part.refused {
            *self.refused.entry(refusal).or_default() += number;
        }
    }

    /// Adds the number of changes to the message of a failure.
    fn describe(&self, failure: &Failure, verb: &str) -> Failure {
        let text = format!(
            "{} dead letters were {verb} before this: {failure}",
            self.changed
        );
        match failure {
            Failure::Unreachable(_) => Failure::Unreachable(text),
            Failure::Usage(_) => Failure::Usage(text),
            _ => Failure::Failed(text),
        }
    }

    /// Returns the lines that describe what was done.
    pub(crate) fn lines(&self, verb: &'static str) -> Vec<Line> {
        let mut lines = vec![(verb, self.changed.to_string())];
        if self.unchanged > 0 {
            lines.push(("unchanged", self.unchanged.to_string()));
        }
        let refused = self.refused.iter();
        lines.extend(refused.map(|(refusal, number)| ("refused", format!("{number}: {refusal}"))));
        lines
    }
}

/// Returns `true` if Ctrl-C has been pressed.
async fn is_interrupted(interrupt: &mut Signal) -> bool {
    tokio::select! {
        biased;
        _ = interrupt.recv() => true,
        () = future::ready(()) => false,
    }
}
