//! Lists of tasks, a page at a time. The partitions are read one after the other.

use std::mem;
use std::time::{Duration, SystemTime};

use redis::Value;

use super::entry;
use super::error::unexpected_answer;
use super::inner::Inner;
use super::partitions;
use super::reply::{self, Reader};
use super::scripts::Arguments;
use crate::durable::failure::Failure;
use crate::durable::store::ListTasks;
use crate::durable::{Cursor, Status, TaskId, TaskInfo, TaskPage};

/// Returns a page of tasks, or `None` if the position is not valid in this store.
pub(super) async fn list(inner: &Inner, request: &ListTasks) -> Result<Option<TaskPage>, Failure> {
    let queue_partition = request.filter.queue.as_ref();
    let queue_partition = queue_partition.and_then(|queue| inner.partitions.of_queue(queue));
    let partitions = queue_partition.map_or_else(|| inner.partitions.all(), |it| it..it + 1);
    let mut position = match &request.after {
        None => Position::start_of(partitions.start),
        Some(bytes) => match Position::read(bytes) {
            Some(position) if partitions.contains(&position.partition) => position,
            _ => return Ok(None),
        },
    };
    let mut page = TaskPage::at(0);
    let mut is_first = true;
    loop {
        let part = read(inner, request, &position, &page).await?;
        if mem::take(&mut is_first) {
            page.now = part.now;
        }
        page.tasks.extend(part.tasks);
        page.examined += part.examined;
        match part.next {
            Some(next) => position = next,
            None if position.partition + 1 == partitions.end => return Ok(Some(page)),
            None => position = Position::start_of(position.partition + 1),
        }
        // A part may be short because its rows are large.
        let is_full = page.tasks.len() >= request.limit || page.examined >= request.max_examined();
        if is_full || position.is_within() {
            page.next = Some(Cursor::new(request.filter.status, position.bytes()));
            return Ok(Some(page));
        }
    }
}

/// The position of a page.
struct Position {
    partition: usize,
    /// The cursor of a scan, or a score in a sorted set.
    cursor: u64,
    /// The last task of the previous page.
    last: Option<TaskId>,
    /// If the page before has ended within a step of a scan, the cursor after this step.
    end: Option<u64>,
}

impl Position {
    fn start_of(partition: usize) -> Self {
        Self {
            partition,
            cursor: 0,
            last: None,
            end: None,
        }
    }

    /// Returns `true` if it is not the start of a partition.
    fn is_within(&self) -> bool {
        self.cursor != 0 || self.last.is_some()
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![self.partition as u8];
        bytes.extend(self.cursor.to_be_bytes());
        bytes.extend(self.last.iter().flat_map(|id| id.to_bytes()));
        bytes.extend(self.end.iter().flat_map(|end| end.to_be_bytes()));
        bytes
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let (&partition, rest) = bytes.split_first()?;
        let (cursor, rest) = rest.split_first_chunk()?;
        let (last, end) = rest.split_at(rest.len().min(16));
        let read_end = |end: &[u8]| end.try_into().ok().map(u64::from_be_bytes);
        Some(Self {
            partition: partition.into(),
            cursor: u64::from_be_bytes(*cursor),
            last: none_or(last, reply::id)?,
            end: none_or(end, read_end)?,
        })
    }
}

/// Returns `Some(None)` without bytes, and `None` if they cannot be read.
fn none_or<T>(bytes: &[u8], read: impl Fn(&[u8]) -> Option<T>) -> Option<Option<T>> {
    match bytes {
        [] => Some(None),
        bytes => read(bytes).map(Some),
    }
}

/// The tasks of a page that are in one partition.
struct PartitionPage {
    tasks: Vec<TaskInfo>,
    examined: usize,
    next: Option<Position>,
    now: SystemTime,
}

/// Reads the tasks of a partition that follow a position, as many as still fit into the page.
async fn read(
    inner: &Inner,
    request: &ListTasks,
    position: &Position,
    page: &TaskPage,
) -> Result<PartitionPage, Failure> {
    let filter = &request.filter;
    let last = position.last.map(TaskId::to_bytes);
    let queue = filter.queue.as_ref();
    let mut arguments = Arguments::default();
    arguments.push(letter(filter.status));
    arguments.push_number(position.cursor);
    arguments.push(last.map_or(Vec::new(), Vec::from));
    arguments.push_number(request.limit - page.tasks.len());
    arguments.push_number(request.max_examined() - page.examined);
    arguments.push_number(u8::from(filter.name.is_some()));
    arguments.push(filter.name.as_deref().unwrap_or_default());
    arguments.push(queue.map_or("", |queue| queue.as_str()));
    arguments.push(position.end.map_or(String::new(), |end| end.to_string()));
    arguments.push_number(u8::from(filter.has_failed));
    let session = filter.session;
    arguments.push(session.map_or(String::new(), |session| session.to_string()));
    arguments.push_number(u8::from(queue.is_some()));
    let answer = inner.run(&inner.scripts.list_tasks, position.partition, arguments);
    part(answer.await?, filter.status, position.partition)
}

fn letter(status: Status) -> &'static str {
    match status {
        Status::Waiting => "w",
        Status::Delayed => "l",
        Status::Running => "r",
        Status::Done => "d",
        Status::Dead => "x",
        Status::Cancelled | Status::Absent => "c",
    }
}

/// Returns the status that a letter stands for.
pub(super) fn status_of(letter: &str) -> Status {
    match letter {
        "w" => Status::Waiting,
        "l" => Status::Delayed,
        "r" => Status::Running,
        "d" => Status::Done,
        "x" => Status::Dead,
        "c" => Status::Cancelled,
        _ => Status::Absent,
    }
}

fn part(answer: Value, status: Status, partition: usize) -> Result<PartitionPage, Failure> {
    let mut parts = Reader::new(answer)?;
    let (cursor, last, end) = (parts.text()?, parts.bytes()?, parts.text()?);
    let next = cursor.parse().ok().map(|cursor| Position {
        partition,
        cursor,
        last: reply::id(&last),
        end: end.parse().ok(),
    });
    let examined = parts.number()? as usize;
    let time = parts.number()?;
    let now = Duration::from_millis(parts.number()?.max(0) as u64);
    let tasks = parts.rest(|part| info(part.list()?, status, time, partition))?;
    Ok(PartitionPage {
        tasks,
        examined,
        next,
        now: SystemTime::UNIX_EPOCH + now,
    })
}

/// Reads the description of a task: see `lua/task_rows.lua`.
pub(super) fn info(
    mut parts: Reader,
    status: Status,
    now: i64,
    partition: usize,
) -> Result<TaskInfo, Failure> {
    let id = parts.id()?;
    let name = parts.optional_bytes()?;
    let (queue, group) = (parts.text()?, parts.text()?);
    let header = parts.optional_bytes()?;
    let failures = parts.number()?;
    let ready_at = header.as_deref().and_then(entry::ready_at);
    let header = header.map(|header| entry::failures_and_crashes(&header));
    let is_known = !matches!(status, Status::Done | Status::Cancelled);
    let failures = header.map_or(failures as u32, |(failures, _)| failures);
    let mut info = TaskInfo {
        id,
        status,
        name: name.map(|name| String::from_utf8_lossy(&name).into_owned()),
        queue: Some(queue).filter(|queue| !queue.is_empty()),
        group: Some(group).filter(|group| !group.is_empty()),
        failures: is_known.then_some(failures),
        crashes: header.map(|(_, crashes)| crashes),
        ready_for: None,
        due_in: None,
        fencing_token: None,
        kept_for: None,
        running_for: None,
        took: None,
        age: None,
        reason: None,
        error: None,
    };
    match status {
        Status::Running => {
            let epoch = parts.text()?.parse().ok();
            info.fencing_token = epoch.map(|epoch| partitions::whole(epoch, partition));
            let claimed_at = Some(parts.number()?).filter(|&at| at >= 0);
            info.running_for = claimed_at.map(|at| left(now, at));
        }
        Status::Delayed => info.due_in = Some(left(parts.number()?, now)),
        Status::Done | Status::Cancelled => read_end(&mut info, &mut parts, now)?,
        Status::Dead => {
            read_end(&mut info, &mut parts, now)?;
            let reason = reply::reason(parts.number()?);
            info.reason = Some(reason.ok_or_else(|| unexpected_answer(&Value::Nil))?);
            info.error = Some(shortened(&parts.bytes()?));
        }
        Status::Waiting => info.ready_for = ready_at.map(|at| left(now, at)),
        Status::Absent => {}
    }
    Ok(info)
}

/// Reads what the description of each task that has ended contains.
fn read_end(info: &mut TaskInfo, parts: &mut Reader, now: i64) -> Result<(), Failure> {
    info.kept_for = Some(left(parts.number()?, now));
    info.age = Some(left(now, parts.number()?));
    info.took = entry::run_time(&parts.bytes()?);
    Ok(())
}

/// Returns the time until `at`, or zero if it is over.
pub(super) fn left(at: i64, now: i64) -> Duration {
    let left = u64::try_from(at.saturating_sub(now));
    Duration::from_millis(left.unwrap_or_default())
}

/// Returns an error as text. The script may have cut off a part of its last character.
fn shortened(bytes: &[u8]) -> String {
    let whole = match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => &bytes[..error.valid_up_to()],
        _ => bytes,
    };
    String::from_utf8_lossy(whole).into_owned()
}
