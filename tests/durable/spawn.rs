//! Spawning: outputs, ids, sizes.

use std::collections::BTreeMap;
use std::error::Error;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use throng::durable::{
    DeadReason, DurableClient, DurableExecutor, DurableHandle, DurableTask, EncodedTask, Key, Run,
    SpawnOptions, Status, TaskContext, TaskError, TaskId,
};

use crate::harness::{Door, Number, TestStore, id, reaches, spawn, spawn_as, start, until};
use crate::support::within;

on_all_stores! {
    outputs_of_many_types_arrive,
    outputs_arrive_in_the_order_of_the_tasks,
    ten_thousand_tasks_are_spawned_in_one_call,
    no_tasks_are_spawned_in_one_call,
    a_task_with_an_id_is_stored_once,
    an_id_twice_in_one_call_is_one_task,
    a_task_may_be_spawned_again_once_it_is_not_kept,
    a_delayed_task_waits,
    a_delay_without_end_disturbs_nobody,
    what_is_not_kept_is_gone,
    the_largest_task_and_the_largest_output_fit,
    a_task_that_is_too_large_is_not_stored,
    nothing_is_stored_if_one_of_many_is_too_large,
    a_task_that_cannot_be_written_is_not_stored,
    an_output_that_is_too_large_makes_a_dead_letter,
    an_output_that_cannot_be_written_makes_a_dead_letter,
    a_task_that_cannot_be_read_makes_a_dead_letter,
    an_output_of_another_type_is_an_error,
    a_handle_of_another_type_of_task_is_an_error,
    a_task_spawns_tasks,
    a_task_is_spawned_without_its_type,
    a_task_that_is_encoded_wrongly_is_refused_or_dies,
}

/// A task that gives back what it is made of.
#[derive(Serialize, Deserialize)]
#[serde(bound = "T: Serialize + DeserializeOwned")]
struct Echo<T>(T);

impl<T: Serialize + DeserializeOwned + Named + Send + 'static> DurableTask for Echo<T> {
    const NAME: &'static str = T::NAME;
    type Output = T;
}

impl<T: Serialize + DeserializeOwned + Named + Send + 'static> Run<()> for Echo<T> {
    async fn run(self, _: TaskContext<()>) -> Result<T, TaskError> {
        Ok(self.0)
    }
}

trait Named {
    const NAME: &'static str;
}

macro_rules! named {
    ($($type:ty => $name:literal,)*) => {
        $(impl Named for $type { const NAME: &'static str = $name; })*
    };
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Unit;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Shape {
    Point,
    Circle(f64),
    Box { sides: (u8, u8) },
}

named! {
    () => "nothing",
    Unit => "unit",
    bool => "bool",
    String => "string",
    Vec<u8> => "bytes",
    Vec<Shape> => "shapes",
    Option<i128> => "option",
    BTreeMap<String, Vec<u64>> => "map",
    Result<u8, String> => "result",
}

async fn echoes<T>(client: &DurableClient, value: T)
where
    T: Serialize + DeserializeOwned + Named + Send + Clone + PartialEq + std::fmt::Debug + 'static,
{
    let handle = client.spawn(Echo(value.clone())).await.unwrap();
    assert_eq!(within(handle).await.unwrap(), value);
}

async fn outputs_of_many_types_arrive(store: TestStore) {
    let client = store.client().await;
    let mut builder = DurableExecutor::builder(client.clone());
    builder
        .register::<Echo<()>>()
        .register::<Echo<Unit>>()
        .register::<Echo<bool>>()
        .register::<Echo<String>>()
        .register::<Echo<Vec<u8>>>()
        .register::<Echo<Vec<Shape>>>()
        .register::<Echo<Option<i128>>>()
        .register::<Echo<BTreeMap<String, Vec<u64>>>>()
        .register::<Echo<Result<u8, String>>>();
    let _executor = builder.start(()).await.unwrap();
    echoes(&client, ()).await;
    echoes(&client, Unit).await;
    echoes(&client, true).await;
    echoes(&client, String::new()).await;
    echoes(&client, "\"\0\u{1F980}\n".to_owned()).await;
    echoes(&client, (0..=255).collect::<Vec<u8>>()).await;
    let shapes = vec![
        Shape::Point,
        Shape::Circle(0.1),
        Shape::Box { sides: (1, 2) },
    ];
    echoes(&client, shapes).await;
    echoes(&client, None).await;
    echoes(&client, Some(i128::from(i64::MIN))).await;
    echoes(&client, BTreeMap::from([("a".to_owned(), vec![u64::MAX])])).await;
    echoes(&client, Err::<u8, _>("an output like any other".to_owned())).await;
}

async fn outputs_arrive_in_the_order_of_the_tasks(store: TestStore) {
    let client = store.client().await;
    let _executor = start(&client, |number, _| async move { Ok(number * 2) }).await;
    let handles = client.spawn_all((0..1_000).map(Number)).await.unwrap();
    for (number, handle) in (0..).zip(handles) {
        assert_eq!(within(handle).await.unwrap(), 2 * number);
    }
}

async fn ten_thousand_tasks_are_spawned_in_one_call(store: TestStore) {
    let client = store.client().await;
    let handles = client.spawn_all((0..10_000).map(Number)).await.unwrap();
    let ids: std::collections::HashSet<_> = handles.iter().map(|handle| handle.id()).collect();
    assert_eq!(ids.len(), 10_000);
    let counts = client.counts().await.unwrap();
    assert_eq!((counts.stored, counts.waiting), (10_000, 10_000));
}

async fn no_tasks_are_spawned_in_one_call(store: TestStore) {
    let client = store.client().await;
    assert!(client.spawn_all::<Number>([]).await.unwrap().is_empty());
    assert_eq!(client.counts().await.unwrap().stored, 0);
}

async fn a_task_with_an_id_is_stored_once(store: TestStore) {
    let (client, door) = (store.client().await, Door::new());
    let other = store.client().await;
    let options = SpawnOptions::new().id(id(1));
    let waiting = spawn_as(&client, 1, options.clone()).await;
    drop(spawn_as(&other, 2, options.clone()).await);
    let held = door.clone();
    let _executor = start(&client, move |number, _| {
        let door = held.clone();
        async move {
            door.pass().await;
            Ok(number)
        }
    })
    .await;
    reaches(&waiting, Status::Running).await;
    let running = spawn_as(&other, 3, options.clone()).await;
    door.open();
    assert_eq!(within(running).await.unwrap(), 1);
    let kept = spawn_as(&client, 4, options).await;
    assert_eq!(kept.status().await.unwrap(), Status::Done);
    assert_eq!(within(kept).await.unwrap(), 1);
    assert_eq!(within(waiting).await.unwrap(), 1);
    let counts = client.counts().await.unwrap();
    assert_eq!((counts.stored, counts.done), (1, 1));
}

async fn an_id_twice_in_one_call_is_one_task(store: TestStore) {
    let client = store.client().await;
    let options = SpawnOptions::new().id(id(1));
    let tasks = [(Number(1), options.clone()), (Number(2), options)];
    let handles = client.spawn_all_with(tasks).await.unwrap();
    let _executor = start(&client, |number, _| async move { Ok(number) }).await;
    for handle in handles {
        assert_eq!(within(handle).await.unwrap(), 1);
    }
    assert_eq!(client.counts().await.unwrap().stored, 1);
}

async fn a_task_may_be_spawned_again_once_it_is_not_kept(store: TestStore) {
    let client = store.client().await;
    let _executor = start(&client, |number, _| async move { Ok(number) }).await;
    let options = SpawnOptions::new().id(id(1)).retention(Duration::ZERO);
    let first = spawn_as(&client, 1, options.clone()).await;
    reaches(&first, Status::Absent).await;
    let second = spawn_as(&client, 2, options.retention(Duration::from_secs(600))).await;
    assert_eq!(within(second).await.unwrap(), 2);
    assert_eq!(client.counts().await.unwrap().stored, 2);
}

async fn a_delayed_task_waits(store: TestStore) {
    let client = store.client().await;
    let _executor = start(&client, |number, _| async move { Ok(number) }).await;
    let start = std::time::Instant::now();
    let delay = Duration::from_millis(150);
    let handle = spawn_as(&client, 1, SpawnOptions::new().delay(delay)).await;
    assert_eq!(within(handle).await.unwrap(), 1);
    // Stores count in milliseconds.
    assert!(start.elapsed() >= delay - Duration::from_millis(2));
}

async fn a_delay_without_end_disturbs_nobody(store: TestStore) {
    let client = store.client().await;
    let _executor = start(&client, |number, _| async move { Ok(number) }).await;
    let options = SpawnOptions::new()
        .delay(Duration::MAX)
        .retention(Duration::MAX);
    let never = spawn_as(&client, 1, options).await;
    let kept = SpawnOptions::new().retention(Duration::MAX);
    assert_eq!(within(spawn_as(&client, 2, kept).await).await.unwrap(), 2);
    assert_eq!(never.status().await.unwrap(), Status::Delayed);
    assert!(never.cancel().await.unwrap());
    assert_eq!(never.status().await.unwrap(), Status::Cancelled);
}

async fn what_is_not_kept_is_gone(store: TestStore) {
    let client = store.client().await;
    let options = SpawnOptions::new().retention(Duration::ZERO);
    let handle = spawn_as(&client, 1, options).await;
    let executor = start(&client, |number, _| async move { Ok(number) }).await;
    until("it is done", || executor.metrics().completed == 1).await;
    assert_eq!(handle.status().await.unwrap(), Status::Absent);
    assert!(within(handle).await.unwrap_err().is_expired());
    let counts = client.counts().await.unwrap();
    assert_eq!((counts.done, counts.kept), (1, 0));
}

/// The largest payload, and the largest output.
const MAX: usize = 1 << 20;

async fn the_largest_task_and_the_largest_output_fit(store: TestStore) {
    let client = store.client().await;
    let mut builder = DurableExecutor::builder(client.clone());
    builder.register::<Echo<String>>();
    let _executor = builder.start(()).await.unwrap();
    // Two quotes, and the version of the envelope.
    let handle = client.spawn(Echo("x".repeat(MAX - 3))).await.unwrap();
    assert_eq!(within(handle).await.unwrap().len(), MAX - 3);
}

/// The error for a task or an output that is one byte too large.
const TOO_LARGE: &str =
    "it has 1048577 bytes, and a store accepts at most 1048576: keep the data elsewhere and";

async fn a_task_that_is_too_large_is_not_stored(store: TestStore) {
    let client = store.client().await;
    let error = client.spawn(Echo("x".repeat(MAX - 2))).await.unwrap_err();
    assert!(error.is_too_large() && !error.is_unknown(), "{error}");
    assert!(error.to_string().contains(TOO_LARGE), "{error}");
    let id = error.task_id().unwrap();
    assert_eq!(client.status(id).await.unwrap(), Status::Absent);
    assert_eq!(client.counts().await.unwrap().stored, 0);
}

async fn nothing_is_stored_if_one_of_many_is_too_large(store: TestStore) {
    let client = store.client().await;
    let tasks = (0..1_000).map(|n| Echo("x".repeat(if n == 999 { MAX } else { 1 })));
    let error = client.spawn_all(tasks).await.unwrap_err();
    assert!(error.is_too_large(), "{error}");
    assert_eq!(client.counts().await.unwrap().stored, 0);
}

/// A task that cannot be written, or not read, or whose output cannot be written.
struct Odd {
    write: bool,
    read: bool,
}

struct OddOutput;

impl Serialize for OddOutput {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom("an odd output"))
    }
}

impl<'de> Deserialize<'de> for OddOutput {
    fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        Ok(Self)
    }
}

impl Serialize for Odd {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.write {
            true => serializer.serialize_bool(self.read),
            false => Err(serde::ser::Error::custom("an odd task")),
        }
    }
}

impl<'de> Deserialize<'de> for Odd {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match bool::deserialize(deserializer)? {
            true => Ok(Self {
                write: true,
                read: true,
            }),
            false => Err(serde::de::Error::custom("an odd task")),
        }
    }
}

impl DurableTask for Odd {
    const NAME: &'static str = "odd";
    type Output = OddOutput;
}

impl Run<()> for Odd {
    async fn run(self, _: TaskContext<()>) -> Result<OddOutput, TaskError> {
        Ok(OddOutput)
    }
}

async fn a_task_that_cannot_be_written_is_not_stored(store: TestStore) {
    let client = store.client().await;
    let task = Odd {
        write: false,
        read: true,
    };
    let error = client.spawn(task).await.unwrap_err();
    assert!(error.is_encode() && error.task_id().is_some(), "{error}");
    assert!(error.source().unwrap().to_string().contains("an odd task"));
    assert_eq!(client.counts().await.unwrap().stored, 0);
}

async fn an_output_that_cannot_be_written_makes_a_dead_letter(store: TestStore) {
    let client = store.client().await;
    let mut builder = DurableExecutor::builder(client.clone());
    builder.register::<Odd>();
    let _executor = builder.start(()).await.unwrap();
    let handle = client
        .spawn(Odd {
            write: true,
            read: true,
        })
        .await
        .unwrap();
    let error = within(handle).await.err().unwrap();
    assert_eq!(error.dead_reason(), Some(DeadReason::Fatal));
    assert!(error.to_string().contains("an odd output"), "{error}");
}

async fn a_task_that_cannot_be_read_makes_a_dead_letter(store: TestStore) {
    let client = store.client().await;
    let mut builder = DurableExecutor::builder(client.clone());
    builder.register::<Odd>();
    let _executor = builder.register::<Echo<()>>().start(()).await.unwrap();
    let handle = client
        .spawn(Odd {
            write: true,
            read: false,
        })
        .await
        .unwrap();
    let error = within(handle).await.err().unwrap();
    assert_eq!(error.dead_reason(), Some(DeadReason::Unreadable));
    assert!(error.to_string().contains("an odd task"), "{error}");
    echoes(&client, ()).await;
}

/// A task whose output is longer than it is.
#[derive(Serialize, Deserialize)]
struct Long(usize);

impl DurableTask for Long {
    const NAME: &'static str = "long";
    type Output = String;
}

impl Run<()> for Long {
    async fn run(self, _: TaskContext<()>) -> Result<String, TaskError> {
        Ok("x".repeat(self.0))
    }
}

async fn an_output_that_is_too_large_makes_a_dead_letter(store: TestStore) {
    let client = store.client().await;
    let mut builder = DurableExecutor::builder(client.clone());
    builder.register::<Long>();
    let _executor = builder.start(()).await.unwrap();
    let fits = client.spawn(Long(MAX - 2)).await.unwrap();
    let over = client.spawn(Long(MAX - 1)).await.unwrap();
    let error = within(over).await.unwrap_err();
    assert_eq!(error.dead_reason(), Some(DeadReason::OutputTooLarge));
    assert!(error.to_string().contains(TOO_LARGE), "{error}");
    assert_eq!(within(fits).await.unwrap().len(), MAX - 2);
    // Another attempt would have the same result.
    let counts = client.counts().await.unwrap();
    assert_eq!((counts.claimed, counts.retried), (2, 0), "{counts:?}");
}

/// A version of [`Number`] with another output.
#[derive(Serialize, Deserialize)]
struct Shapes;

impl DurableTask for Shapes {
    const NAME: &'static str = Number::NAME;
    type Output = Vec<Shape>;
}

/// A type of task with the same output as [`Number`].
#[derive(Serialize, Deserialize)]
struct Letter;

impl DurableTask for Letter {
    const NAME: &'static str = "letter";
    type Output = u64;
}

async fn an_output_of_another_type_is_an_error(store: TestStore) {
    let client = store.client().await;
    let _executor = start(&client, |number, _| async move { Ok(number) }).await;
    let handle = spawn(&client, 1).await;
    let other = client.attach::<Shapes>(handle.id());
    let error = within(other).await.unwrap_err();
    assert!(error.is_decode() && error.source().is_some(), "{error}");
    assert_eq!(error.encoded_output(), Some(&b"1"[..]));
    assert_eq!(error.task_id(), Some(handle.id()));
    assert_eq!(within(handle).await.unwrap(), 1);
}

async fn a_handle_of_another_type_of_task_is_an_error(store: TestStore) {
    let client = store.client().await;
    let _executor = start(&client, |number, _| async move { Ok(number) }).await;
    let handle = spawn(&client, 1).await;
    let other = client.attach::<Letter>(handle.id());
    let error = within(other.clone()).await.unwrap_err();
    assert!(error.is_decode() && !error.is_damaged(), "{error}");
    let reason = error.source().expect("the reason").to_string();
    assert_eq!(reason, "the task is a `number`, not a `letter`");
    assert_eq!(error.task_id(), Some(handle.id()));
    // A handle that was deserialised knows the output only.
    let stored = serde_json::to_string(&other).unwrap();
    let other: DurableHandle<u64> = serde_json::from_str(&stored).unwrap();
    assert_eq!(within(other.attach(&client)).await.unwrap(), 1);
    assert_eq!(within(handle).await.unwrap(), 1);
}

async fn a_task_spawns_tasks(store: TestStore) {
    let client = store.client().await;
    let _executor = start(&client, |number, cx| async move {
        if number == 0 {
            return Ok(1);
        }
        let tasks = [Number(number - 1), Number(number - 1)];
        let mut sum = 1;
        for handle in cx.client().spawn_all(tasks).await? {
            sum += handle.await?;
        }
        Ok(sum)
    })
    .await;
    assert_eq!(within(spawn(&client, 4).await).await.unwrap(), 31);
    assert_eq!(client.counts().await.unwrap().done, 31);
}

#[test]
fn an_id_is_derived_from_all_that_it_is_derived_from() {
    let id = TaskId::derive("a", b"bc");
    assert_eq!(id, TaskId::derive("a", b"bc"));
    for other in [
        TaskId::derive("ab", b"c"),
        TaskId::derive("a", b"bd"),
        TaskId::derive("", b"abc"),
    ] {
        assert_ne!(id, other);
    }
}

async fn a_task_is_spawned_without_its_type(store: TestStore) {
    let client = store.client().await;
    let _executor = start(&client, |number, _| async move { Ok(number + 1) }).await;
    let seven = || EncodedTask::new(Number::NAME, *b"7");
    let handle = client.spawn_encoded::<u64>(seven(), SpawnOptions::new());
    assert_eq!(within(handle.await.unwrap()).await.unwrap(), 8);

    // The key is that of the type, so a spawn that has the type conflicts with it.
    let later = || {
        SpawnOptions::new()
            .key(Key::new("k"))
            .delay(Duration::from_secs(3600))
    };
    let first = client.spawn_encoded::<u64>(seven(), later()).await.unwrap();
    let second = client.spawn_with(Number(7), later()).await.unwrap();
    let third = client.spawn_encoded::<u64>(seven(), later()).await.unwrap();
    assert!(second.was_joined() && third.was_joined());
    assert!([second.id(), third.id()] == [first.id(); 2]);

    // No worker knows this version.
    let newer = client.spawn_encoded::<u64>(seven().version(2), SpawnOptions::new());
    assert_eq!(
        newer.await.unwrap().status().await.unwrap(),
        Status::Waiting
    );
}

async fn a_task_that_is_encoded_wrongly_is_refused_or_dies(store: TestStore) {
    let client = store.client().await;
    let _executor = start(&client, |number, _| async move { Ok(number) }).await;
    for task in [
        EncodedTask::new("", *b"7"),
        EncodedTask::new("number", *b"7").version(0),
    ] {
        let error = client
            .spawn_encoded::<u64>(task, SpawnOptions::new())
            .await
            .unwrap_err();
        assert!(error.is_invalid(), "{error}");
    }
    let wrong = EncodedTask::new("number", *b"seven");
    let handle = client
        .spawn_encoded::<u64>(wrong, SpawnOptions::new())
        .await
        .unwrap();
    let error = within(handle).await.unwrap_err();
    assert_eq!(error.dead_reason(), Some(DeadReason::Unreadable));
}
