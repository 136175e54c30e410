//! Opens and closes the store and its sessions.

use tokio::time::Instant;

use super::error::no_connection;
use super::inner::{Inner, after_others};
use super::namespaces;
use super::routing::{self, Write};
use super::scripts::Arguments;
use super::{last_numbers, probe, reply};
use crate::durable::failure::{Cause, Effect, Failure};
use crate::durable::store::kind::{SetId, TypeSet};
use crate::durable::store::layouts::Layouts;
use crate::durable::store::{NewSession, SessionId, WorkerCard};
use crate::durable::{StoreLayout, TaskId};

/// The number of attempts to open a session whose set is declared: another process may remove the set meanwhile.
const MAX_DECLARATIONS: usize = 10;

/// Refuses a server that is unfit, and writes the layout if the store is new.
pub(super) async fn open_store(inner: &Inner, wait_for_disk: bool) -> Result<(), Failure> {
    let end = Instant::now() + inner.nodes.answer_timeout();
    loop {
        let opened = try_open_store(inner, wait_for_disk).await;
        // The connection was replaced. All of these requests may be sent again.
        let is_lost = |it: &Failure| it.cause == Cause::Unavailable && it.effect == Effect::Unknown;
        match opened {
            Err(failure) if is_lost(&failure) && !failure.answered && Instant::now() < end => {}
            opened => return opened,
        }
    }
}

async fn try_open_store(inner: &Inner, wait_for_disk: bool) -> Result<(), Failure> {
    probe::refuse_unfit(inner, inner.allow_eviction).await?;
    probe::refuse_few_replicas(inner).await?;
    if wait_for_disk {
        let has_to_wait = probe::can_wait_for_disk(inner).await?;
        inner.has_to_wait.get_or_init(|| has_to_wait);
    }
    for partition in inner.partitions.all() {
        open(inner, partition, None, None, None).await?;
    }
    last_numbers::check_births(inner, inner.partitions.all()).await?;
    namespaces::record(inner).await;
    inner.nodes.subscribed().await;
    Ok(())
}

/// Fails if the server has no store, or if the store cannot be read. Writes nothing.
pub(super) async fn observe_store(inner: &Inner) -> Result<(), Failure> {
    // Even a store that may lose tasks can be observed.
    probe::refuse_unfit(inner, true).await?;
    inner.nodes.refuse_writes().await;
    for partition in inner.partitions.all() {
        let mut arguments = Arguments::default();
        arguments.push_number(inner.partitions.count());
        let script = &inner.scripts.observe;
        inner.run(script, partition, arguments).await?;
    }
    Ok(())
}

/// Opens a session with a random id.
pub(super) async fn open_session(inner: &Inner, new: NewSession) -> Result<SessionId, Failure> {
    let mut bytes = [0; 8];
    // The last bytes of a task id are random.
    bytes.copy_from_slice(&TaskId::new().to_bytes()[8..]);
    let session = SessionId::from_be_bytes(bytes);
    let queue_partition = new.set.as_ref();
    let queue_partition = queue_partition.and_then(|set| inner.partitions.of_queue(set.queue()));
    for partition in inner.partitions.all() {
        // The card is only in the partition of the queue, since the worker sends requests only there.
        let card = new.card.as_ref();
        let card = card.filter(|_| partition == queue_partition.unwrap_or_default());
        match open(inner, partition, Some(session), new.set.as_ref(), card).await {
            // The session exists: an answer was lost, and the request was sent again.
            Err(failure) if failure.cause == Cause::NoSession => return Err(no_connection()),
            opened => opened?,
        }
    }
    // The last session may have ended because the server was emptied.
    last_numbers::check_births(inner, inner.partitions.all())
        .await
        .map_err(|failure| after_others(failure, 1))?;
    if new.set.is_some() {
        inner
            .sessions
            .update(session, |state| state.queue_partition = queue_partition);
    }
    Ok(session)
}

/// Opens a session in a partition, and declares its set if necessary.
async fn open(
    inner: &Inner,
    partition: usize,
    session: Option<SessionId>,
    set: Option<&TypeSet>,
    card: Option<&WorkerCard>,
) -> Result<(), Failure> {
    for nth in 0..MAX_DECLARATIONS {
        let mut arguments = Arguments::default();
        arguments.push(session.map_or_else(String::new, |session| session.to_string()));
        arguments.push(&*inner.client_id);
        arguments.push_number(inner.partitions.count());
        arguments.push(set.map_or_else(Vec::new, |set| set.id().to_bytes().to_vec()));
        arguments.push(describe_process());
        arguments.push(card.map_or_else(Vec::new, stored_card));
        let answer = inner.run(&inner.scripts.open, partition, arguments).await?;
        match (routing::opened(&answer)?, set) {
            (None, Some(set)) => {
                // If the set is still missing after it was declared, the routes are damaged.
                let write = if nth == 0 { Write::Changes } else { Write::All };
                routing::declare(inner, partition, set, write).await?;
            }
            (time, _) => {
                time.into_iter()
                    .for_each(|time| inner.set_server_time(time));
                return Ok(());
            }
        }
    }
    // The row of the set is missing, and declaring the set again does not restore it.
    Err(Failure::new(Effect::None, Cause::Corrupt))
}

/// Returns the arguments that open a session again that the server has lost. It claims no tasks.
pub(super) fn reopening(inner: &Inner, session: SessionId) -> Arguments {
    let mut arguments = Arguments::default();
    arguments.push_number(session);
    arguments.push(&*inner.client_id);
    arguments.push_number(inner.partitions.count());
    arguments.push("");
    arguments.push(describe_process());
    arguments.push("");
    arguments
}

/// Returns a card in its stored form.
fn stored_card(card: &WorkerCard) -> Vec<u8> {
    let Layouts { oldest, newest } = Layouts::KNOWN;
    let layouts = Some((oldest, newest));
    let card = card.clone();
    WorkerCard { layouts, ..card }.to_bytes()
}

/// Describes this process for the users of other processes.
fn describe_process() -> String {
    let (id, system) = (std::process::id(), rustix::system::uname());
    format!("process {id} on {}", system.nodename().to_string_lossy())
}

/// Raises the layout of the store to the newest that this process knows. Stops at the first partition that fails.
pub(super) async fn upgrade(inner: &Inner) -> Result<(), Failure> {
    for partition in inner.partitions.all() {
        let upgraded = upgrade_one(inner, partition).await;
        upgraded.map_err(|failure| after_others(failure, partition))?;
    }
    Ok(())
}

async fn upgrade_one(inner: &Inner, partition: usize) -> Result<(), Failure> {
    let found = run_upgrade(inner, partition, true).await?;
    match found.older_processes {
        processes if processes.is_empty() => Ok(()),
        processes => Err(Failure::new(Effect::None, Cause::OldProcesses(processes))),
    }
}

/// Returns the layout of the store.
pub(super) async fn layout(inner: &Inner) -> Result<StoreLayout, Failure> {
    let mut layout = run_upgrade(inner, 0, false).await?;
    for partition in inner.partitions.all().skip(1) {
        let other = run_upgrade(inner, partition, false).await?;
        layout.current = layout.current.min(other.current);
        layout.older_processes.extend(other.older_processes);
    }
    layout.older_processes.sort();
    layout.older_processes.dedup();
    Ok(layout)
}

/// Returns the layout that a partition had before this request. Raises the layout only if `raise` is `true`.
async fn run_upgrade(inner: &Inner, partition: usize, raise: bool) -> Result<StoreLayout, Failure> {
    let mut arguments = Arguments::default();
    arguments.push_number(u8::from(raise));
    let answer = inner.run(&inner.scripts.upgrade, partition, arguments);
    let mut parts = reply::Reader::new(answer.await?)?;
    Ok(StoreLayout {
        current: parts.number()?,
        newest: parts.number()?,
        older_processes: parts.rest(reply::Reader::text)?,
    })
}

/// Closes a session in all partitions.
pub(super) async fn close_session(inner: &Inner, session: SessionId) -> Result<(), Failure> {
    let mut skipped = None;
    // If an answer is lost, a search for lost writes would take the session for a lost one.
    inner.tail.close(session);
    for partition in inner.partitions.all() {
        match close(inner, partition, session).await {
            // If removing the routes of the set fails, its lists do no harm.
            Ok(Some(set)) => drop(routing::remove(inner, partition, set).await),
            Ok(None) => {}
            Err(failure) if inner.skips(&failure) => skipped = Some(failure),
            Err(failure) => return Err(failure),
        }
    }
    if let Some(failure) = skipped {
        return Err(failure);
    }
    inner.sessions.remove(session);
    Ok(())
}

/// Closes a session in a partition. Returns its set if it was the last session of the set.
async fn close(
    inner: &Inner,
    partition: usize,
    session: SessionId,
) -> Result<Option<SetId>, Failure> {
    let mut cursor = b"0".to_vec();
    while !cursor.is_empty() {
        let mut arguments = Arguments::default();
        arguments.push_number(session);
        arguments.push(&*inner.client_id);
        arguments.push(cursor);
        let answer = inner.run_part(&inner.scripts.close, partition, arguments);
        cursor = reply::bytes(answer.await?)?;
        if let Some(set) = cursor.strip_prefix(b"LAST") {
            // The row of the session may be damaged.
            return Ok(routing::set(set).ok());
        }
    }
    Ok(None)
}
