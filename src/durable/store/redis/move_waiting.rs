//! Moves all waiting tasks that match to another queue.
//!
//! A waiting task that is chosen by its id must be searched for in its list. So this first goes through the lists in their order: see
//! `lua/move_list.lua`. Then it lists the tasks that still match, and moves them one by one: those of groups, and the few that the first
//! pass has passed over.

use std::collections::{BTreeMap, BTreeSet};

use redis::Value;

use super::batches::run_change;
use super::error::unexpected_answer;
use super::inner::Inner;
use super::list_tasks;
use super::move_tasks::move_tasks;
use super::reply::Reader;
use super::scripts::Arguments;
use super::{routing, stats, types};
use crate::durable::failure::Failure;
use crate::durable::queue::Priority;
use crate::durable::queue::name::QueueName;
use crate::durable::store::kind::Kind;
use crate::durable::store::routes::ListId;
use crate::durable::store::{MoveWaiting, MovedPart, RunType};

/// The maximum number of lists that one request reads.
const MAX_LISTS: usize = 16;

/// The position of a part.
enum Position {
    /// In a list of a partition.
    InList(usize, InList),
    /// In the list of the tasks that still match: see `list_tasks.rs`.
    Rest(Option<Vec<u8>>),
}

/// A position in a list, or in a later one if this list does not exist.
#[derive(Clone, PartialEq, Eq)]
struct InList {
    list: ListId,
    /// The number of entries that were passed, and the id of the last of them.
    passed: u64,
    last: Vec<u8>,
    /// The number of entries that are left, or `None` at the beginning of a list.
    left: Option<u64>,
}

impl InList {
    fn start_of(list: ListId) -> Self {
        Self {
            list,
            passed: 0,
            last: Vec::new(),
            left: None,
        }
    }
}

impl Position {
    fn start_of(partition: usize) -> Self {
        Self::InList(partition, InList::start_of(ListId::from_number(i64::MIN)))
    }

    fn bytes(&self) -> Vec<u8> {
        match self {
            Self::InList(partition, it) => {
                let mut bytes = vec![b'l', *partition as u8];
                let left = it.left.unwrap_or(u64::MAX);
                for number in [it.list.number() as u64, it.passed, left] {
                    bytes.extend(number.to_be_bytes());
                }
                [bytes, it.last.clone()].concat()
            }
            Self::Rest(after) => [b"r", after.as_deref().unwrap_or_default()].concat(),
        }
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [b'l', partition, rest @ ..] => {
                let (numbers, last) = rest.split_at_checked(24)?;
                let number = |nth: usize| {
                    let bytes = numbers[8 * nth..8 * nth + 8].try_into();
                    bytes.map_or(0, u64::from_be_bytes)
                };
                let position = InList {
                    list: ListId::from_number(number(0) as i64),
                    passed: number(1).min(1 << 48),
                    last: last.to_vec(),
                    left: Some(number(2)).filter(|&left| left < 1 << 48),
                };
                Some(Self::InList((*partition).into(), position))
            }
            [b'r'] => Some(Self::Rest(None)),
            [b'r', after @ ..] => Some(Self::Rest(Some(after.to_vec()))),
            _ => None,
        }
    }
}

/// Moves the next tasks. Returns `None` if the position is not valid in this store.
pub(super) async fn move_waiting(
    inner: &Inner,
    request: &MoveWaiting,
) -> Result<Option<MovedPart>, Failure> {
    let position = match &request.after {
        None => Some(first_position(inner, request)),
        Some(bytes) => Position::read(bytes),
    };
    match position {
        Some(Position::InList(partition, at)) if partition < inner.partitions.count() => {
            let (part, next) = move_lists(inner, request, partition, at).await?;
            let next = Some(next.bytes());
            Ok(Some(MovedPart { next, ..part }))
        }
        Some(Position::Rest(after)) => move_rest(inner, request, after).await,
        _ => Ok(None),
    }
}

fn first_position(inner: &Inner, request: &MoveWaiting) -> Position {
    let queue_partition = inner.partitions.of_queue(&request.queue);
    Position::start_of(queue_partition.unwrap_or_default())
}

/// Moves tasks of the lists of a partition, from a position on. Returns the position of the next part.
async fn move_lists(
    inner: &Inner,
    request: &MoveWaiting,
    partition: usize,
    mut at: InList,
) -> Result<(MovedPart, Position), Failure> {
    let kinds = Kinds::read(inner, request, partition).await?;
    let mut part = MovedPart::default();
    for _ in 0..MAX_LISTS {
        let Some(list) = kinds.first_from(at.list) else {
            return Ok((part, after_partition(inner, request, partition)));
        };
        if list != at.list {
            at = InList::start_of(list);
        }
        at = kinds.move_part(inner, request, at, &mut part).await?;
        if at.left == Some(0) {
            at = InList::start_of(ListId::from_number(list.number().saturating_add(1)));
        }
        if part.changed > 0 || part.examined >= request.limit {
            break;
        }
    }
    Ok((part, Position::InList(partition, at)))
}

/// Returns the position after the lists of a partition. Tasks move only within the partition of a named queue.
fn after_partition(inner: &Inner, request: &MoveWaiting, partition: usize) -> Position {
    let is_in_one = inner.partitions.of_queue(&request.queue).is_some();
    match is_in_one || partition + 1 == inner.partitions.count() {
        true => Position::Rest(None),
        false => Position::start_of(partition + 1),
    }
}

/// The kinds of the tasks that may move, in one partition.
struct Kinds {
    partition: usize,
    types: BTreeMap<Kind, Moved>,
    /// The lists in which such tasks may wait.
    lists: BTreeMap<ListId, BTreeSet<Kind>>,
}

/// The type of a kind, and the kind after the move.
struct Moved {
    run_type: RunType,
    kind: Kind,
    priority: Priority,
}

impl Kinds {
    async fn read(inner: &Inner, request: &MoveWaiting, partition: usize) -> Result<Self, Failure> {
        let filter = &request.filter;
        let mut arguments = Arguments::default();
        arguments.push_number(u8::from(filter.name.is_some()));
        arguments.push(filter.name.as_deref().unwrap_or_default());
        arguments.push_number(u8::from(filter.queue.is_some()));
        arguments.push(filter.queue.as_ref().map_or("", QueueName::as_str));
        let answer = inner
            .run(&inner.scripts.kinds, partition, arguments)
            .await?;
        let rows = Reader::new(answer)?.rest(|part| Ok((part.bytes()?, part.bytes()?)))?;
        let routes = routing::read(inner, partition).await?.known.routes;
        let mut kinds = Self {
            partition,
            types: BTreeMap::new(),
            lists: BTreeMap::new(),
        };
        for (kind, names) in rows {
            let kind = <[u8; 8]>::try_from(&*kind).map(i64::from_be_bytes);
            let kind = kind.map_err(|error| unexpected_answer(&Value::Nil).with_source(error))?;
            kinds.add(Kind::from_number(kind), &names, &request.queue);
        }
        let own = kinds.types.keys().map(|&kind| (kind, ListId::own(kind)));
        let paths = routes.paths();
        let paths = paths.flat_map(|(kind, path)| path.iter().map(move |&list| (kind, list)));
        for (kind, list) in own.chain(paths).collect::<Vec<_>>() {
            if kinds.types.contains_key(&kind) {
                kinds.lists.entry(list).or_default().insert(kind);
            }
        }
        Ok(kinds)
    }

    /// Adds a kind, unless its tasks are in the other queue already.
    fn add(&mut self, kind: Kind, names: &[u8], to: &QueueName) {
        let Some(run_type) = stats::run_type(names) else {
            return;
        };
        let moved = kind.moved(run_type.name(), run_type.queue(), to);
        if let Some((after, priority)) = moved.filter(|_| run_type.queue() != to) {
            let kind_after = after;
            self.types.insert(
                kind,
                Moved {
                    run_type,
                    kind: kind_after,
                    priority,
                },
            );
        }
    }

    /// Returns the first list from this one on.
    fn first_from(&self, list: ListId) -> Option<ListId> {
        self.lists.range(list..).next().map(|(&list, _)| list)
    }

    /// Moves the next tasks of a list. Returns the position after them.
    async fn move_part(
        &self,
        inner: &Inner,
        request: &MoveWaiting,
        at: InList,
        part: &mut MovedPart,
    ) -> Result<InList, Failure> {
        let kinds = self.lists.get(&at.list).into_iter().flatten();
        let kinds: Vec<_> = kinds
            .filter_map(|kind| Some((kind, self.types.get(kind)?)))
            .collect();
        let types = kinds.iter();
        let types = types.map(|(_, it)| (it.kind, &request.queue, it.run_type.name()));
        types::record_kinds(inner, self.partition, types.collect()).await?;
        let mut arguments = Arguments::default();
        arguments.push(request.queue.as_str());
        arguments.push(routing::list_text(at.list));
        arguments.push_number(at.passed);
        arguments.push(&*at.last);
        arguments.push(at.left.map_or(String::new(), |left| left.to_string()));
        arguments.push(
            request
                .until
                .map_or(String::new(), |until| until.to_string()),
        );
        arguments.push_number(kinds.len());
        for (kind, moved) in &kinds {
            arguments.push(kind.to_bytes());
            arguments.push(moved.kind.to_bytes());
            arguments.push_number(moved.priority as u8);
        }
        let script = &inner.scripts.move_list;
        let answer = run_change(inner, script, self.partition, arguments).await?;
        let mut parts = Reader::new(answer)?;
        let at = InList {
            list: at.list,
            passed: parts.number()? as u64,
            last: parts.bytes()?,
            left: Some(parts.number()? as u64),
        };
        part.examined += parts.number()? as usize;
        part.changed += parts.number()? as u64;
        Ok(at)
    }
}

/// Moves tasks that still match, one by one.
async fn move_rest(
    inner: &Inner,
    request: &MoveWaiting,
    after: Option<Vec<u8>>,
) -> Result<Option<MovedPart>, Failure> {
    let page = list_tasks::list(inner, &request.page(after)).await?;
    let Some(page) = page else {
        return Ok(None);
    };
    let ids = request.selected(&page);
    let answers = move_tasks(inner, &ids, &request.queue).await?;
    let next = page
        .next
        .map(|next| next.position_in(request.filter.status));
    let next = next.transpose().ok().flatten();
    Ok(Some(MovedPart {
        answers,
        examined: page.examined,
        next: next.map(|after| Position::Rest(Some(after)).bytes()),
        ..MovedPart::default()
    }))
}
