//! [`DurableTask`]: the arguments of a task. [`SpawnedType`] and [`TaskNames`]: the properties of a type. [`NewTask`]: a task that is to be
//! stored. The limits of a request.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::error::Error;
use std::iter;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::TaskId;
use super::key::NewKey;
use super::policy::Policy;
use super::queue::Priority;
use super::queue::group::GroupName;
use super::queue::name::QueueName;
use super::store::kind::Kind;
use crate::retry::Retry;

/// A type whose values can be stored as tasks. A program that only spawns and awaits tasks needs nothing else of them.
///
/// The value holds the task's arguments. A worker also implements [`Run`](super::Run), which defines what the task does.
/// A task is stored as JSON.
///
/// # Examples
///
/// ```
/// use serde::{Deserialize, Serialize};
/// use throng::durable::DurableTask;
///
/// #[derive(Serialize, Deserialize)]
/// struct SendMail {
///     to: String,
/// }
///
/// impl DurableTask for SendMail {
///     const NAME: &'static str = "mail.send";
///     type Output = ();
/// }
/// # let task = SendMail { to: "a@b.c".into() };
/// # assert_eq!(task.encode().unwrap(), br#"{"to":"a@b.c"}"#);
/// ```
///
/// # Changing a type
///
/// Tasks may wait while programs are replaced. So a program may read tasks that an older or a newer program has stored. Stored tasks
/// are never rewritten.
///
/// - **A new field** needs only `#[serde(default)]`: newer programs use the default for tasks that lack the field, and older programs
///   ignore it, unless the type has `#[serde(deny_unknown_fields)]`.
/// - **Any other change of the fields** needs a new [`VERSION`](Self::VERSION). [`migrate`](Self::migrate) then decodes the tasks of
///   older versions.
/// - **A new name**: change [`NAME`](Self::NAME), and add the old name to [`FORMER_NAMES`](Self::FORMER_NAMES). Do not start again with
///   version 1: the versions of all names of a type count together.
/// - **A change of [`Output`](Self::Output)** must leave outputs readable by the programs that await them, since outputs have no
///   version. [`decode_output`](Self::decode_output) can read outputs in older formats.
///
/// A worker never claims a task with a name or a version that it does not know. Such a task waits, without a time limit, for a worker
/// that knows them; [`Counts::unserved`](super::Counts::unserved) includes it. So workers and producers can be replaced in any order. If
/// you return to an older program, the tasks of the newer one stay in the store and wait. Meanwhile, they hold their
/// [keys](super::SpawnOptions::key), and a schedule [skips](super::Overlap::Skip) its ticks while such a task is its last one:
/// [cancel](super::DurableClient::cancel) these tasks if they are not to run any more. To avoid waiting during a deployment, replace
/// the workers first.
///
/// ```
/// use std::error::Error;
///
/// use serde::{Deserialize, Serialize};
/// use throng::durable::DurableTask;
///
/// #[derive(Serialize, Deserialize)]
/// struct SendMail {
///     to: Vec<String>,
/// }
///
/// /// Version 1, which was called `email`.
/// #[derive(Deserialize)]
/// struct Email {
///     to: String,
/// }
///
/// impl DurableTask for SendMail {
///     const NAME: &'static str = "mail.send";
///     const FORMER_NAMES: &'static [&'static str] = &["email"];
///     const VERSION: u8 = 2;
///     type Output = ();
///
///     fn migrate(_: u8, bytes: &[u8]) -> Result<Self, Box<dyn Error + Send + Sync>> {
///         let Email { to } = serde_json::from_slice(bytes)?;
///         Ok(Self { to: vec![to] })
///     }
/// }
/// # assert_eq!(SendMail::migrate(1, br#"{"to":"a@b.c"}"#).unwrap().to, ["a@b.c"]);
/// ```
pub trait DurableTask: Serialize + DeserializeOwned + Send + 'static {
    /// The name under which tasks of this type are stored. It must be the same in all programs that use a store, and must not change
    /// when only the Rust type is renamed. To change it, see [changing a type](Self#changing-a-type).
    const NAME: &'static str;

    /// The names under which older programs store tasks of this type. A worker that [registers](super::Builder::register) the type also
    /// runs tasks with these names. Handles and [`DeadLetters::task`](super::DeadLetters::task) accept them, too.
    ///
    /// [Keys](super::SpawnOptions::key), [pauses](super::TaskTypes::pause) and filters of dead letters treat each name as a type of its
    /// own. For example, a task with the old name and a task with the new name can hold the same key. Types that are merged must have
    /// encoded each version in the same way, since [`migrate`](Self::migrate) does not learn the name.
    const FORMER_NAMES: &'static [&'static str] = &[];

    /// The version of the encoded form, from 1 to 255: see [changing a type](Self#changing-a-type). Increase it by 1 if
    /// [`decode`](Self::decode) can no longer read the tasks of older programs, or if older programs must not run the tasks of newer
    /// ones.
    const VERSION: u8 = 1;

    /// The result of a successful task. It is stored as JSON, of at most 1 MiB. A task that returns a larger
    /// output becomes a dead letter ([`OutputTooLarge`](super::DeadReason::OutputTooLarge)) and does not run
    /// again. Keep large results elsewhere, and return a reference to them.
    type Output: Serialize + DeserializeOwned + Send + 'static;

    /// The time for which the end of a task, with its output, is kept for those who await it: 10 minutes by default.
    /// [`SpawnOptions::retention`](super::SpawnOptions::retention) sets it for one task. While no executor runs on the store,
    /// ends are kept for longer.
    const RETENTION: Duration = DEFAULT_RETENTION;

    /// The [queue](super::Queue) of tasks of this type: the default queue by default.
    /// [`SpawnOptions::queue`](super::SpawnOptions::queue) sets it for one task.
    const QUEUE: Option<&'static str> = None;

    /// The urgency of tasks of this type. [`SpawnOptions::priority`](super::SpawnOptions::priority) sets it for one task.
    const PRIORITY: Priority = Priority::Normal;

    /// The number of times that a failed task of this type is tried again, and the delays before that. If this is `None`, which is the
    /// default, the [retries of the executor](super::Builder::retry) apply. [`SpawnOptions::retry`](super::SpawnOptions::retry) sets the
    /// retries of one task.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use serde::{Deserialize, Serialize};
    /// use throng::Retry;
    /// use throng::durable::DurableTask;
    ///
    /// #[derive(Serialize, Deserialize)]
    /// struct Pay {
    ///     order: u64,
    /// }
    ///
    /// impl DurableTask for Pay {
    ///     const NAME: &'static str = "pay";
    ///     const RETRY: Option<Retry> =
    ///         Some(Retry::exponential().attempts(100).max_elapsed(Duration::from_secs(3600)));
    ///     const TIMEOUT: Option<Duration> = Some(Duration::from_secs(30));
    ///     type Output = ();
    /// }
    /// # drop(Pay { order: 7 });
    /// ```
    const RETRY: Option<Retry> = None;

    /// The maximum time that a run of a task of this type may take. If this is `None`, which is the default, runs have no time limit. If it
    /// is zero, a program that [registers](super::Builder::register) the type does not compile.
    /// [`SpawnOptions::timeout`](super::SpawnOptions::timeout) sets the timeout of one task.
    ///
    /// The timeout is measured from the beginning of the run. It includes the time for which the run awaits other durable tasks, but not
    /// the time for which the task waits for a permit before the run begins. When the timeout has passed:
    ///
    /// 1. The run is asked to [stop](super::StopReason::TimedOut). If it then ends, its output or its error counts as that of any other
    ///    run.
    /// 2. If the run has not ended after a further [lease](super::Builder::lease), which is 10 s by default, the attempt has failed:
    ///    the task is tried again or becomes a dead letter. The run is dropped at its next await point. If it blocks its thread, it keeps
    ///    its permit until it ends, but its result is ignored. Meanwhile, the task may run again, with a higher
    ///    [fencing token](super::TaskContext::fencing_token).
    const TIMEOUT: Option<Duration> = None;

    /// Encodes the task, as JSON by default. The encoded task may have at most 1 MiB; spawning a larger one fails.
    ///
    /// # Errors
    ///
    /// The task cannot be encoded. Then spawning it fails.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::error::Error;
    ///
    /// use serde::{Deserialize, Serialize};
    /// use throng::durable::DurableTask;
    ///
    /// #[derive(Serialize, Deserialize)]
    /// struct Compress(Vec<u8>);
    ///
    /// impl DurableTask for Compress {
    ///     const NAME: &'static str = "compress";
    ///     type Output = ();
    ///
    ///     // As JSON, each byte would take up to four bytes.
    ///     fn encode(&self) -> Result<Vec<u8>, Box<dyn Error + Send + Sync>> {
    ///         Ok(self.0.clone())
    ///     }
    ///
    ///     fn decode(bytes: &[u8]) -> Result<Self, Box<dyn Error + Send + Sync>> {
    ///         Ok(Self(bytes.to_vec()))
    ///     }
    /// }
    /// # let bytes = Compress(vec![7; 3]).encode().unwrap();
    /// # assert_eq!(Compress::decode(&bytes).unwrap().0, [7; 3]);
    /// ```
    fn encode(&self) -> Result<Vec<u8>, Box<dyn Error + Send + Sync>> {
        Ok(serde_json::to_vec(self)?)
    }

    /// Decodes a task of this [`VERSION`](Self::VERSION) that [`encode`](Self::encode) has encoded.
    ///
    /// # Errors
    ///
    /// The task cannot be decoded. It then becomes a dead letter ([`Unreadable`](super::DeadReason::Unreadable)), which can be
    /// replayed once a program can decode it. A panic has the same effect.
    ///
    /// # Examples
    ///
    /// See [`encode`](Self::encode).
    fn decode(bytes: &[u8]) -> Result<Self, Box<dyn Error + Send + Sync>> {
        Ok(serde_json::from_slice(bytes)?)
    }

    /// Decodes a task of an older `version`, which is lower than [`VERSION`](Self::VERSION): see
    /// [changing a type](Self#changing-a-type). By default, this calls [`decode`](Self::decode).
    ///
    /// # Errors
    ///
    /// As [`decode`](Self::decode).
    ///
    /// # Examples
    ///
    /// See [changing a type](Self#changing-a-type).
    fn migrate(version: u8, bytes: &[u8]) -> Result<Self, Box<dyn Error + Send + Sync>> {
        let _ = version;
        Self::decode(bytes)
    }

    /// Decodes the output of a task of this type, which is stored as JSON. By default, this deserialises an [`Output`](Self::Output). If
    /// that type has changed, override this method to read older formats, too. Outputs have no version, so try one format after another.
    ///
    /// Handles that were returned by a [spawn](super::DurableClient::spawn) or by [`attach`](super::DurableClient::attach) use this method.
    /// Handles that were deserialised do not know the type of their task, so they deserialise an [`Output`](Self::Output).
    ///
    /// # Errors
    ///
    /// The output cannot be decoded. Awaiting the task then fails with an error that
    /// [`is_decode`](super::DurableError::is_decode), and the output stays in the store.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::error::Error;
    ///
    /// use serde::{Deserialize, Serialize};
    /// use throng::durable::DurableTask;
    ///
    /// #[derive(Serialize, Deserialize)]
    /// struct Import;
    ///
    /// #[derive(Debug, PartialEq, Serialize, Deserialize)]
    /// struct Imported {
    ///     files: u64,
    /// }
    ///
    /// impl DurableTask for Import {
    ///     const NAME: &'static str = "import";
    ///     type Output = Imported;
    ///
    ///     fn decode_output(bytes: &[u8]) -> Result<Imported, Box<dyn Error + Send + Sync>> {
    ///         // In an older version, the output was a number.
    ///         let number = serde_json::from_slice(bytes).map(|files| Imported { files });
    ///         Ok(number.or_else(|_| serde_json::from_slice(bytes))?)
    ///     }
    /// }
    /// # drop(Import);
    /// # for bytes in [&b"7"[..], br#"{"files":7}"#] {
    /// #     assert_eq!(Import::decode_output(bytes).unwrap(), Imported { files: 7 });
    /// # }
    /// ```
    fn decode_output(bytes: &[u8]) -> Result<Self::Output, Box<dyn Error + Send + Sync>> {
        Ok(serde_json::from_slice(bytes)?)
    }
}

/// The properties of the type of a task that a client needs to store the task.
pub(crate) struct SpawnedType {
    pub(crate) name: Cow<'static, str>,
    pub(crate) version: u8,
    pub(crate) queue: Option<&'static str>,
    pub(crate) priority: Priority,
    pub(crate) retention: Duration,
}

/// The default of [`DurableTask::RETENTION`].
pub(crate) const DEFAULT_RETENTION: Duration = Duration::from_secs(600);

impl SpawnedType {
    pub(crate) fn of<T: DurableTask>() -> Self {
        Self {
            name: Cow::Borrowed(T::NAME),
            version: version_of::<T>(),
            queue: T::QUEUE,
            priority: T::PRIORITY,
            retention: T::RETENTION,
        }
    }
}

/// Returns the version of a type.
pub(crate) const fn version_of<T: DurableTask>() -> u8 {
    const { assert!(T::VERSION > 0, "`VERSION` is 0: the first version is 1") };
    T::VERSION
}

/// Returns the policy of a type.
///
/// A type with a timeout of zero cannot be registered:
///
/// ```compile_fail,E0080
/// use std::time::Duration;
///
/// use serde::{Deserialize, Serialize};
/// use throng::durable::{DurableClient, DurableExecutor, DurableTask, MemoryStore};
/// use throng::durable::{Run, TaskContext, TaskError};
///
/// #[derive(Serialize, Deserialize)]
/// struct Hopeless;
///
/// impl DurableTask for Hopeless {
///     const NAME: &'static str = "hopeless";
///     const TIMEOUT: Option<Duration> = Some(Duration::ZERO);
///     type Output = ();
/// }
///
/// impl Run<()> for Hopeless {
///     async fn run(self, _: TaskContext<()>) -> Result<(), TaskError> {
///         Ok(())
///     }
/// }
///
/// let client = DurableClient::open(MemoryStore::new());
/// DurableExecutor::builder::<()>(client).register::<Hopeless>();
/// ```
pub(crate) const fn policy_of<T: DurableTask>() -> Policy {
    const {
        assert!(
            !matches!(T::TIMEOUT, Some(Duration::ZERO)),
            "`TIMEOUT` is 0, so no run could succeed: use a longer time, or `None`"
        );
    };
    Policy {
        retry: T::RETRY,
        timeout: T::TIMEOUT,
    }
}

/// Decodes a task that a version of its type has encoded.
pub(crate) fn decode_version<T: DurableTask>(
    version: u8,
    bytes: &[u8],
) -> Result<T, Box<dyn Error + Send + Sync>> {
    match version.cmp(&T::VERSION) {
        Ordering::Less => T::migrate(version, bytes),
        Ordering::Equal => T::decode(bytes),
        Ordering::Greater => {
            let known = T::VERSION;
            Err(format!("its version is {version}, and this program knows {known} at most").into())
        }
    }
}

/// The names under which the tasks of a type may be stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TaskNames {
    pub(crate) current: &'static str,
    former: &'static [&'static str],
}

impl TaskNames {
    pub(crate) fn of<T: DurableTask>() -> Self {
        Self {
            current: T::NAME,
            former: T::FORMER_NAMES,
        }
    }

    pub(crate) fn all(self) -> impl Iterator<Item = &'static str> {
        iter::once(self.current).chain(self.former.iter().copied())
    }

    pub(crate) fn contains(self, name: &str) -> bool {
        self.all().any(|other| other == name)
    }
}

/// The maximum number of tasks, ids or verdicts in one request. The engine respects these limits, and the stores
/// rely on it.
pub const MAX_BATCH_TASKS: usize = 256;
/// The maximum size in bytes of a payload, including its envelope, and of an output, excluding it. The client refuses a larger task,
/// and an executor a larger output.
pub const MAX_PAYLOAD_BYTES: usize = 1 << 20;
/// The maximum size in bytes of the payloads in one request, and in one answer.
pub const MAX_BATCH_BYTES: usize = MAX_PAYLOAD_BYTES;

/// A task that is to be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTask {
    /// The id. No other task of the store has it.
    pub id: TaskId,
    /// The name of the type.
    pub name: Cow<'static, str>,
    /// The version of the envelope around the payload.
    pub envelope: u8,
    /// The version of the payload.
    pub version: u8,
    /// The payload in its envelope, which stores do not read.
    pub payload: Vec<u8>,
    /// The queue of the task.
    pub queue: QueueName,
    /// The group of the task, which is in a named queue.
    pub group: Option<GroupName>,
    /// The priority of the task in its queue.
    pub priority: Priority,
    /// The key of the task, if it has one.
    pub key: Option<NewKey>,
    /// If it is zero, the task can be claimed at once.
    pub delay: Duration,
    /// The time for which the end of the task is kept; zero: the end is not kept. (Dead letters are kept for
    /// `DEAD_LETTER_RETENTION`.)
    pub retention: Duration,
    /// The number of deaths of workers that makes the task a dead letter: see `is_dead_letter`.
    pub max_crashes: u32,
    /// The task that has spawned this one as its child, and that is told of its end.
    pub parent: Option<TaskId>,
}

impl NewTask {
    /// Returns the kind of the type of the task, whatever its queue and its priority.
    pub fn type_kind(&self) -> Kind {
        Kind::in_envelope(&self.name, self.envelope).with_version(self.version)
    }

    /// Returns the kind of the task.
    pub fn kind(&self) -> Kind {
        self.type_kind().placed(&self.queue, self.priority)
    }
}

/// Returns the size of the payloads of these tasks, in bytes.
pub(crate) fn bytes_of(tasks: &[NewTask]) -> usize {
    tasks.iter().map(|task| task.payload.len()).sum()
}
