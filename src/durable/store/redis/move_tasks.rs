//! Moves tasks to another queue: see `lua/move_tasks.lua`.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use redis::Value;

use super::admin::status;
use super::batches::{TASKS_PER_CHANGE, answer_of, run_change};
use super::error::unexpected_answer;
use super::inner::{Inner, after_others};
use super::reply::Reader;
use super::scripts::Arguments;
use super::types;
use crate::durable::failure::Failure;
use crate::durable::queue::Priority;
use crate::durable::queue::name::QueueName;
use crate::durable::store::kind::Kind;
use crate::durable::store::{ChangeAnswer, TaskState};
use crate::durable::{Refusal, Status, TaskId};

/// The number of searches for waiting tasks. A search misses tasks whose entries other requests move meanwhile.
const MAX_SEARCHES: usize = 3;

/// Moves tasks to another queue. Returns an answer for each, in the order of the ids.
pub(super) async fn move_tasks(
    inner: &Inner,
    ids: &[TaskId],
    queue: &QueueName,
) -> Result<Vec<ChangeAnswer>, Failure> {
    let mut answers = HashMap::new();
    let mut sent = 0;
    for (partition, ids) in inner.partitions.split(ids.to_vec(), |&id| id) {
        for ids in ids.chunks(TASKS_PER_CHANGE) {
            let moved = match inner.partitions.of_queue(queue) {
                Some(queue_partition) if queue_partition != partition => refuse(inner, ids).await,
                _ => Move::new(inner, partition, queue).run(ids).await,
            };
            answers.extend(moved.map_err(|failure| after_others(failure, sent))?);
            sent += 1;
        }
    }
    let answer = |id| answers.get(id).copied();
    let answers = ids
        .iter()
        .map(|id| answer(id).unwrap_or(ChangeAnswer::OtherStatus));
    Ok(answers.collect())
}

/// The answers for some tasks.
type Answers = BTreeMap<TaskId, ChangeAnswer>;

/// Returns the answers for tasks that are in another partition than the queue.
async fn refuse(inner: &Inner, ids: &[TaskId]) -> Result<Answers, Failure> {
    let states = status(inner, ids).await?;
    let may_move = |it: &TaskState| matches!(it.status(), Status::Waiting | Status::Delayed);
    let answers = states.iter().map(|state| match may_move(state) {
        true => ChangeAnswer::Refused(Refusal::OtherPartition),
        false => ChangeAnswer::OtherStatus,
    });
    Ok(ids.iter().copied().zip(answers).collect())
}

/// Waiting tasks, by their path and their group. A path consists of the lists that may contain the task.
type Places = BTreeMap<(String, String), Vec<TaskId>>;

/// A move of some tasks within a partition.
struct Move<'a> {
    inner: &'a Inner,
    partition: usize,
    queue: &'a QueueName,
    /// The kinds of tasks after the move, with their priorities, by the kinds before the move.
    kinds: BTreeMap<Kind, (Kind, Priority)>,
    answers: Answers,
}

/// A part of a list.
#[derive(Clone, Copy, Default)]
struct ListPart<'a> {
    /// The list, or empty to move delayed tasks.
    list: &'a str,
    group: &'a str,
    /// The number of entries at the head of the list that are still to be read, or `None` to begin at its end.
    left: Option<i64>,
}

impl<'a> Move<'a> {
    fn new(inner: &'a Inner, partition: usize, queue: &'a QueueName) -> Self {
        Self {
            inner,
            partition,
            queue,
            kinds: BTreeMap::new(),
            answers: Answers::new(),
        }
    }

    async fn run(mut self, ids: &[TaskId]) -> Result<Answers, Failure> {
        let mut rest = ids.to_vec();
        for _ in 0..MAX_SEARCHES {
            let searched = self.search(&rest).await;
            searched.map_err(|failure| after_others(failure, self.moved()))?;
            rest.retain(|id| !self.answers.contains_key(id));
            if rest.is_empty() {
                break;
            }
        }
        Ok(self.answers)
    }

    /// Returns the number of tasks that have moved.
    fn moved(&self) -> usize {
        let answers = self.answers.values();
        answers.filter(|&&it| it == ChangeAnswer::Changed).count()
    }

    /// Moves delayed tasks, and the waiting ones that are found.
    async fn search(&mut self, ids: &[TaskId]) -> Result<(), Failure> {
        let mut places = Places::new();
        self.step(ListPart::default(), ids, &mut places).await?;
        for ((path, group), mut ids) in places {
            // The ids of lists have 16 digits.
            for list in path.as_bytes().chunks(16) {
                let list = String::from_utf8_lossy(list);
                self.search_list(&list, &group, &mut ids).await?;
            }
        }
        Ok(())
    }

    /// Searches a list from its end, and moves the tasks that it finds. The others remain in `ids`.
    async fn search_list(
        &mut self,
        list: &str,
        group: &str,
        ids: &mut Vec<TaskId>,
    ) -> Result<(), Failure> {
        let mut left = None;
        while left != Some(0) && !ids.is_empty() {
            let part = ListPart { list, group, left };
            left = Some(self.step(part, ids, &mut Places::new()).await?);
            ids.retain(|id| !self.answers.contains_key(id));
        }
        Ok(())
    }

    /// Moves the tasks that are in a part of a list. If the script does not know the kind of a task, sends the kind, and runs it again.
    /// Returns the number of entries that are still to be read.
    async fn step(
        &mut self,
        part: ListPart<'_>,
        ids: &[TaskId],
        places: &mut Places,
    ) -> Result<i64, Failure> {
        let mut ids = ids.to_vec();
        loop {
            let script = &self.inner.scripts.move_tasks;
            let arguments = self.arguments(part, &ids);
            let answer = run_change(self.inner, script, self.partition, arguments).await?;
            let (left, unknown) = self.read(answer, places)?;
            if unknown.is_empty() {
                return Ok(left);
            }
            self.add_kinds(&unknown).await?;
            // The other tasks have moved, or are nearer to the head of the list.
            let is_unknown = |id: &TaskId| {
                let mut all = unknown.iter();
                all.any(|it| it.id == *id) && !self.answers.contains_key(id)
            };
            ids.retain(is_unknown);
            // Without ids, the script would read nothing, and say that nothing is left.
            if ids.is_empty() {
                return Ok(left);
            }
        }
    }

    fn arguments(&self, part: ListPart<'_>, ids: &[TaskId]) -> Arguments {
        let mut arguments = Arguments::default();
        arguments.push(self.queue.as_str());
        arguments.push(part.list);
        arguments.push(part.group);
        arguments.push(part.left.map_or(String::new(), |left| left.to_string()));
        arguments.push_number(self.kinds.len());
        arguments.push_number(ids.len());
        for (kind, (moved, priority)) in &self.kinds {
            arguments.push(kind.to_bytes());
            arguments.push(moved.to_bytes());
            arguments.push_number(*priority as u8);
        }
        ids.iter().for_each(|id| arguments.push(id.to_bytes()));
        arguments
    }

    /// Reads the answer of the script. Returns the number of entries that are still to be read, and the tasks of unknown kinds.
    fn read(
        &mut self,
        answer: Value,
        places: &mut Places,
    ) -> Result<(i64, Vec<UnknownKind>), Failure> {
        let mut parts = Reader::new(answer)?;
        let left = parts.number()?;
        let mut unknown = Vec::new();
        for (id, told) in parts.rest(|part| told(part.list()?))? {
            match told {
                Told::Answer(answer) => drop(self.answers.insert(id, answer)),
                Told::Waits(place) => places.entry(place).or_default().push(id),
                Told::Unknown(kind) => unknown.push(kind),
            }
        }
        Ok((left, unknown))
    }

    /// Computes the kinds of tasks after the move, and records their names before the first task moves.
    async fn add_kinds(&mut self, unknown: &[UnknownKind]) -> Result<(), Failure> {
        let mut names = BTreeSet::new();
        for it in unknown {
            match it.kind.moved(&it.name, &it.queue, self.queue) {
                Some(moved) => {
                    self.kinds.insert(it.kind, moved);
                    names.insert((moved.0, &*it.name));
                }
                None => {
                    let refused = ChangeAnswer::Refused(Refusal::Unreadable);
                    self.answers.insert(it.id, refused);
                }
            }
        }
        let queue = self.queue;
        let types = names.into_iter().map(|(kind, name)| (kind, queue, name));
        types::record_kinds(self.inner, self.partition, types.collect()).await
    }
}

/// The answer of the script about a task.
enum Told {
    Answer(ChangeAnswer),
    /// The task waits in a list of this path, in the sublist of this group.
    Waits((String, String)),
    Unknown(UnknownKind),
}

/// A task whose kind after the move was not sent to the script.
struct UnknownKind {
    id: TaskId,
    kind: Kind,
    queue: QueueName,
    name: String,
}

fn told(mut parts: Reader) -> Result<(TaskId, Told), Failure> {
    let id = parts.id()?;
    let letter = parts.bytes()?;
    let told = match &*letter {
        b"w" => {
            let (group, path) = (parts.text()?, parts.text()?);
            Told::Waits((path, group))
        }
        b"u" => {
            let (kind, queue, name) = (parts.bytes()?, parts.text()?, parts.text()?);
            let Ok(kind) = <[u8; 8]>::try_from(&*kind) else {
                return Err(unexpected_answer(&Value::BulkString(kind)));
            };
            Told::Unknown(UnknownKind {
                id,
                kind: Kind::from_number(i64::from_be_bytes(kind)),
                queue: QueueName::from(Some(queue).filter(|queue| !queue.is_empty())),
                name,
            })
        }
        [letter] => Told::Answer(answer_of(*letter)?),
        _ => return Err(unexpected_answer(&Value::BulkString(letter))),
    };
    Ok((id, told))
}
