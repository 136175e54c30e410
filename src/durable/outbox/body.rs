//! The body of an outbox row: a task, in a format that stays readable while programs are replaced.
//!
//! | bytes | body, version 1 |
//! | --- | --- |
//! | 1 | 1 |
//! | 4 | length of the JSON text, big-endian |
//! | | [`OutboxHead`] as a JSON text |
//! | | payload, in its envelope |
//!
//! A program leaves rows of later versions to later programs. A change to a task's properties therefore needs a new version if an earlier
//! program would ignore it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::durable::TaskId;
use crate::durable::clock::millis;
use crate::durable::envelope::open_payload;
use crate::durable::key::{Conflict, KeyHash, NewKey};
use crate::durable::queue::Priority;
use crate::durable::queue::group::GroupName;
use crate::durable::queue::name::QueueName;
use crate::durable::task::{MAX_PAYLOAD_BYTES, NewTask};

/// The version of the bodies that this build writes, and the latest one that it reads.
pub(crate) const BODY_VERSION: u8 = 1;

/// The properties of a task, except its id and its payload. Times are in milliseconds.
#[derive(Serialize, Deserialize)]
struct OutboxHead {
    name: String,
    queue: QueueName,
    group: Option<GroupName>,
    priority: Priority,
    key: Option<OutboxKey>,
    delay: u64,
    retention: u64,
    max_crashes: u32,
}

/// The key of a task: see [`NewKey`].
#[derive(Serialize, Deserialize)]
struct OutboxKey {
    hash: [u8; 16],
    conflict: Conflict,
    is_until_started: bool,
    window: u64,
    latest: Option<u64>,
}

/// Returns the body of a task without a parent.
pub(crate) fn encode_body(task: &NewTask) -> Vec<u8> {
    let head = OutboxHead {
        name: task.name.to_string(),
        queue: task.queue.clone(),
        group: task.group.clone(),
        priority: task.priority,
        key: task.key.as_ref().map(OutboxKey::new),
        delay: millis(task.delay),
        retention: millis(task.retention),
        max_crashes: task.max_crashes,
    };
    let text = serde_json::to_vec(&head).unwrap_or_default();
    let len = u32::try_from(text.len()).unwrap_or_default();
    let mut body = vec![BODY_VERSION];
    body.extend(len.to_be_bytes());
    body.extend(text);
    body.extend(&task.payload);
    body
}

/// Reads the body of the task with this id.
///
/// # Errors
///
/// The body cannot be read. Returns the reason.
#[cfg_attr(
    not(any(test, feature = "postgres", feature = "sqlite-unbundled")),
    allow(dead_code, reason = "other stores have no outbox")
)]
pub(crate) fn decode_body(id: TaskId, body: &[u8]) -> Result<NewTask, String> {
    let [BODY_VERSION, rest @ ..] = body else {
        return Err(String::from("it does not begin with a known version"));
    };
    let split = rest.split_first_chunk().and_then(|(len, rest)| {
        let len = usize::try_from(u32::from_be_bytes(*len)).ok()?;
        rest.split_at_checked(len)
    });
    let (text, payload) = split.ok_or("it is too short")?;
    let head: OutboxHead = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    head.check()?;
    let opened = open_payload(payload).ok_or("the envelope of its payload cannot be read")?;
    if payload.len() > MAX_PAYLOAD_BYTES {
        return Err(format!("its payload is too large: {} bytes", payload.len()));
    }
    Ok(NewTask {
        id,
        name: head.name.into(),
        envelope: payload[0],
        version: opened.version,
        payload: payload.to_vec(),
        queue: head.queue,
        group: head.group,
        priority: head.priority,
        key: head.key.map(OutboxKey::into_key),
        delay: Duration::from_millis(head.delay),
        retention: Duration::from_millis(head.retention),
        max_crashes: head.max_crashes,
        parent: None,
    })
}

impl OutboxHead {
    fn check(&self) -> Result<(), String> {
        match &self.group {
            Some(_) if self.queue.is_default() => Err(String::from("its group has no queue")),
            _ if self.queue.is_default() => Ok(()),
            _ => QueueName::new(self.queue.as_str()).map(drop),
        }
    }
}

impl OutboxKey {
    fn new(key: &NewKey) -> Self {
        Self {
            hash: key.hash.0,
            conflict: key.conflict,
            is_until_started: key.is_until_started,
            window: millis(key.window),
            latest: key.latest.map(millis),
        }
    }

    fn into_key(self) -> NewKey {
        NewKey {
            hash: KeyHash(self.hash),
            conflict: self.conflict,
            is_until_started: self.is_until_started,
            window: Duration::from_millis(self.window),
            latest: self.latest.map(Duration::from_millis),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::durable::envelope::seal_payload;
    use crate::durable::policy::Policy;

    fn task() -> NewTask {
        NewTask {
            id: TaskId::new(),
            name: "mail.send".into(),
            envelope: 2,
            version: 7,
            payload: seal_payload(7, None, Policy::DEFAULT, b"payload".into()),
            queue: QueueName::new("mail").unwrap(),
            group: Some(GroupName::new("customer 7").unwrap()),
            priority: Priority::High,
            key: Some(NewKey {
                hash: KeyHash([3; 16]),
                conflict: Conflict::Replace,
                is_until_started: true,
                window: Duration::ZERO,
                latest: Some(Duration::from_secs(9)),
            }),
            delay: Duration::from_secs(5),
            retention: Duration::from_secs(60),
            max_crashes: 4,
            parent: None,
        }
    }

    #[test]
    fn a_body_has_all_that_a_task_needs() {
        let mut plain = task();
        (plain.key, plain.group, plain.queue) = (None, None, QueueName::DEFAULT);
        for task in [task(), plain] {
            assert_eq!(decode_body(task.id, &encode_body(&task)), Ok(task));
        }
    }

    /// Rows may wait while a program is replaced, so version 1 never changes.
    #[test]
    fn version_1_is_what_it_was() {
        let id = TaskId::from_bytes([9; 16]);
        let text = br#"{"name":"a","queue":"q","group":null,"priority":"normal","key":{"hash":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],"conflict":"join","is_until_started":false,"window":5,"latest":null},"delay":1,"retention":2,"max_crashes":3}"#;
        let len = (text.len() as u32).to_be_bytes();
        let body = [&[1][..], &len, text, b"\x01payload"].concat();
        let task = decode_body(id, &body).unwrap();
        assert_eq!((task.envelope, task.version), (1, 1));
        assert_eq!(task.payload, b"\x01payload");
        assert_eq!(encode_body(&task), body);
    }

    #[test]
    fn a_body_that_makes_no_sense_is_refused() {
        let body = encode_body(&task());
        // A body that is cut off behind the envelope of its payload can still be read.
        for len in 0..body.len() - b"payload".len() {
            assert!(decode_body(TaskId::new(), &body[..len]).is_err(), "{len}");
        }
        let with = |change: fn(&mut NewTask)| {
            let mut task = task();
            change(&mut task);
            decode_body(task.id, &encode_body(&task)).is_err()
        };
        assert!(with(|task| task.queue = QueueName::DEFAULT));
        assert!(with(
            |task| task.queue = QueueName::from(Some(String::from("a b")))
        ));
        assert!(with(|task| task.payload = b"\x03payload".into()));
        assert!(with(|task| task.payload.extend(vec![0; MAX_PAYLOAD_BYTES])));
        let mut newer = body;
        newer[0] = BODY_VERSION + 1;
        assert!(decode_body(TaskId::new(), &newer).is_err());
    }
}
