//! Programs of different ages on one store: types whose encoding or whose name has changed.

use std::collections::BTreeSet;
use std::error::Error;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use throng::Retry;
use throng::durable::{
    DeadFilter, DeadReason, DurableClient, DurableExecutor, DurableHandle, DurableTask, Every, Key,
    MemoryStore, Run, SpawnOptions, Status, TaskContext, TaskError,
};

use crate::harness::{TestStore, reaches, until};
use crate::support::within;

on_all_stores! {
    a_newer_worker_migrates_older_tasks,
    newer_tasks_wait_for_a_newer_worker,
    a_type_with_a_new_name_runs_tasks_of_both_names,
    a_type_with_a_new_name_knows_the_versions_of_its_former_name,
    a_task_that_cannot_be_migrated_is_a_dead_letter,
    a_schedule_has_the_version_of_its_program,
    a_newer_task_that_waits_holds_its_key_until_it_is_cancelled,
    a_type_reads_the_outputs_of_older_workers,
}

type Decoded<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// A bill, in an old program.
#[derive(Serialize, Deserialize)]
struct OldBill {
    cents: u64,
}

impl DurableTask for OldBill {
    const NAME: &'static str = "bill";
    type Output = String;
}

impl Run<()> for OldBill {
    async fn run(self, _: TaskContext<()>) -> Result<String, TaskError> {
        Ok(format!("old {}", self.cents))
    }
}

/// The same type, in a new program. The amount 13 cannot be migrated: there is an error. The amount 14 makes the program panic.
#[derive(Debug, Serialize, Deserialize)]
struct Bill {
    amount: u64,
    currency: String,
}

impl Bill {
    fn new(amount: u64) -> Self {
        let currency = "EUR".into();
        Self { amount, currency }
    }
}

impl DurableTask for Bill {
    const NAME: &'static str = "bill";
    const VERSION: u8 = 2;
    type Output = String;

    fn migrate(version: u8, bytes: &[u8]) -> Decoded<Self> {
        assert_eq!(version, 1);
        match serde_json::from_slice::<OldBill>(bytes)?.cents {
            13 => Err("a bill of 13 cents".into()),
            14 => panic!("a bill of 14 cents"),
            cents => Ok(Self::new(cents)),
        }
    }
}

impl Run<()> for Bill {
    async fn run(self, _: TaskContext<()>) -> Result<String, TaskError> {
        match self.amount {
            15 => Err(TaskError::fatal("no such account")),
            amount => Ok(format!("new {amount} {}", self.currency)),
        }
    }
}

/// The same, in a program that can migrate all bills.
#[derive(Serialize, Deserialize)]
struct MendedBill(Bill);

impl DurableTask for MendedBill {
    const NAME: &'static str = "bill";
    const VERSION: u8 = 2;
    type Output = String;

    fn migrate(_: u8, bytes: &[u8]) -> Decoded<Self> {
        let OldBill { cents } = serde_json::from_slice(bytes)?;
        Ok(Self(Bill::new(cents)))
    }
}

impl Run<()> for MendedBill {
    async fn run(self, _: TaskContext<()>) -> Result<String, TaskError> {
        Ok(format!("mended {}", self.0.amount))
    }
}

/// The type with a new name, in a program that has renamed it.
#[derive(Serialize, Deserialize)]
struct Invoice {
    cents: u64,
}

impl DurableTask for Invoice {
    const NAME: &'static str = "invoice";
    const FORMER_NAMES: &'static [&'static str] = &["receipt", "bill"];
    type Output = String;
}

impl Run<()> for Invoice {
    async fn run(self, _: TaskContext<()>) -> Result<String, TaskError> {
        Ok(format!("invoice {}", self.cents))
    }
}

/// The type of version 3, which also has a new name. (It is written down that it has had this name before.)
#[derive(Serialize, Deserialize)]
struct Payment {
    amount: u64,
}

impl DurableTask for Payment {
    const NAME: &'static str = "payment";
    const FORMER_NAMES: &'static [&'static str] = &["bill", "payment"];
    const VERSION: u8 = 3;
    type Output = String;

    fn migrate(version: u8, bytes: &[u8]) -> Decoded<Self> {
        let amount = match version {
            1 => serde_json::from_slice::<OldBill>(bytes)?.cents,
            _ => serde_json::from_slice::<Bill>(bytes)?.amount,
        };
        Ok(Self { amount })
    }
}

impl Run<()> for Payment {
    async fn run(self, _: TaskContext<()>) -> Result<String, TaskError> {
        match self.amount {
            15 => Err(TaskError::fatal("no such account")),
            amount => Ok(format!("payment {amount}")),
        }
    }
}

async fn worker<T: Run<()>>(client: &DurableClient) -> DurableExecutor {
    let mut executor = DurableExecutor::builder(client.clone());
    executor
        .register::<T>()
        .retry(Retry::exponential().attempts(1));
    let started = executor.start(()).await;
    started.expect("the store answers")
}

async fn a_newer_worker_migrates_older_tasks(store: TestStore) {
    let client = store.client().await;
    let old = client.spawn(OldBill { cents: 7 }).await.unwrap();
    let failing = client.spawn(OldBill { cents: 15 }).await.unwrap();
    let new = client.spawn(Bill::new(8)).await.unwrap();
    let _worker = worker::<Bill>(&client).await;
    assert_eq!(within(old).await.unwrap(), "new 7 EUR");
    assert_eq!(within(new).await.unwrap(), "new 8 EUR");
    // A dead letter is read as a task of the version of the program that asks.
    let id = failing.id();
    assert!(within(failing).await.is_err_and(|error| error.is_dead()));
    let dead_letter = client.dead_letters().task::<Bill>(id).await.unwrap();
    assert_eq!(dead_letter.expect("it is there").currency, "EUR");
    let dead_letter = client.dead_letters().task::<OldBill>(id).await.unwrap();
    assert_eq!(dead_letter.expect("it is there").cents, 15);
    let payload = client.dead_letters().payload(id).await.unwrap();
    assert_eq!(payload.expect("it is there"), br#"{"cents":15}"#);
    // A program cannot read one of a newer version.
    let newer = client.spawn(Bill::new(15)).await.unwrap();
    let id = newer.id();
    assert!(within(newer).await.is_err_and(|error| error.is_dead()));
    let dead_letter = client.dead_letters().task::<OldBill>(id).await;
    assert!(dead_letter.is_err_and(|error| error.is_decode()));
    let payload = client.dead_letters().payload(id).await.unwrap();
    let expected = br#"{"amount":15,"currency":"EUR"}"#;
    assert_eq!(payload.expect("it is there"), expected);
}

/// During a deployment, there are old and new producers and workers.
async fn newer_tasks_wait_for_a_newer_worker(store: TestStore) {
    const TASKS: u64 = 300;
    let [old_client, new_client] = [store.client().await, store.client().await];
    let old = worker::<OldBill>(&old_client).await;
    let newer = new_client.spawn_all((0..TASKS).map(Bill::new)).await;
    let newer = newer.unwrap();
    let older = old_client.spawn_all((100..100 + TASKS).map(|cents| OldBill { cents }));
    let mut outputs = BTreeSet::new();
    for handle in older.await.unwrap() {
        outputs.insert(within(handle).await.unwrap());
    }
    assert!(outputs.iter().all(|output| output.starts_with("old ")));
    assert_eq!(outputs.len(), TASKS as usize);
    assert_eq!(old.metrics().claimed, TASKS);
    assert_eq!(new_client.counts().await.unwrap().unserved, TASKS);
    let new = worker::<Bill>(&new_client).await;
    for (amount, handle) in newer.into_iter().enumerate() {
        // An old program can await the task, too.
        let same = old_client.attach::<OldBill>(handle.id());
        match amount {
            15 => assert!(within(handle).await.is_err_and(|error| error.is_dead())),
            _ => {
                assert_eq!(within(handle).await.unwrap(), format!("new {amount} EUR"));
                assert_eq!(within(same).await.unwrap(), format!("new {amount} EUR"));
            }
        }
    }
    // The new program is taken back.
    new.shutdown(Duration::ZERO).await;
    let newest = new_client.spawn(Bill::new(1)).await.unwrap();
    let last = old_client.spawn(OldBill { cents: 2 }).await.unwrap();
    assert_eq!(within(last).await.unwrap(), "old 2");
    assert_eq!(newest.status().await.unwrap(), Status::Waiting);
    let _new = worker::<Bill>(&new_client).await;
    assert_eq!(within(newest).await.unwrap(), "new 1 EUR");
    until("all are counted", || old.metrics().completed == TASKS + 1).await;
}

async fn a_type_with_a_new_name_runs_tasks_of_both_names(store: TestStore) {
    let client = store.client().await;
    let former = client.spawn(OldBill { cents: 1 }).await.unwrap();
    let same = client.attach::<Invoice>(former.id());
    let current = client.spawn(Invoice { cents: 2 }).await.unwrap();
    // An old worker runs only tasks with the former name.
    let old = worker::<OldBill>(&client).await;
    assert_eq!(within(former).await.unwrap(), "old 1");
    assert_eq!(within(same).await.unwrap(), "old 1");
    assert_eq!(current.status().await.unwrap(), Status::Waiting);
    old.shutdown(Duration::ZERO).await;
    let former = client.spawn(OldBill { cents: 3 }).await.unwrap();
    let _new = worker::<Invoice>(&client).await;
    assert_eq!(within(current).await.unwrap(), "invoice 2");
    let same = client.attach::<Invoice>(former.id());
    assert_eq!(within(former).await.unwrap(), "invoice 3");
    assert_eq!(within(same).await.unwrap(), "invoice 3");
}

async fn a_type_with_a_new_name_knows_the_versions_of_its_former_name(store: TestStore) {
    let client = store.client().await;
    let handles = [
        client.spawn(OldBill { cents: 1 }).await.unwrap(),
        client.spawn(Bill::new(2)).await.unwrap(),
        client.spawn(Payment { amount: 3 }).await.unwrap(),
    ];
    let failing = client.spawn(Bill::new(15)).await.unwrap();
    let _worker = worker::<Payment>(&client).await;
    for (number, handle) in (1..).zip(handles) {
        assert_eq!(within(handle).await.unwrap(), format!("payment {number}"));
    }
    let id = failing.id();
    assert!(within(failing).await.is_err_and(|error| error.is_dead()));
    let dead_letter = client.dead_letters().task::<Payment>(id).await.unwrap();
    assert_eq!(dead_letter.expect("it is there").amount, 15);
    // A program that knows only the former name does not take a task with the new one for its own.
    let newest = client.spawn(Payment { amount: 4 }).await.unwrap();
    let same = client.attach::<Bill>(newest.id());
    assert!(within(newest).await.is_ok());
    assert!(within(same).await.is_err_and(|error| error.is_decode()));
}

/// Bills in a program whose outputs are numbers of cents. Old workers return a text that ends with it.
#[derive(Debug, Serialize, Deserialize)]
struct CountedBill {
    cents: u64,
}

impl DurableTask for CountedBill {
    const NAME: &'static str = OldBill::NAME;
    type Output = u64;

    fn decode_output(bytes: &[u8]) -> Decoded<u64> {
        let text: String = serde_json::from_slice(bytes)?;
        let (_, cents) = text.rsplit_once(' ').ok_or("no number")?;
        Ok(cents.parse()?)
    }
}

async fn a_type_reads_the_outputs_of_older_workers(store: TestStore) {
    let client = store.client().await;
    let _old = worker::<OldBill>(&client).await;
    let handle = client.spawn(CountedBill { cents: 7 }).await.unwrap();
    assert_eq!(within(handle.clone()).await.unwrap(), 7);
    let attached = client.attach::<CountedBill>(handle.id());
    assert_eq!(within(attached).await.unwrap(), 7);
    // A handle that was deserialised does not know the type, so it decodes the JSON.
    let text = serde_json::to_string(&handle).unwrap();
    let unknown: DurableHandle<u64> = serde_json::from_str(&text).unwrap();
    let error = within(unknown.attach(&client)).await.unwrap_err();
    assert!(error.is_decode(), "{error}");
    // The type that has stored the task can decode the output in the error.
    let output = error.encoded_output().expect("it is an output");
    assert_eq!(CountedBill::decode_output(output).unwrap(), 7);
}

async fn a_task_that_cannot_be_migrated_is_a_dead_letter(store: TestStore) {
    let client = store.client().await;
    let new = worker::<Bill>(&client).await;
    for (cents, reason) in [
        (13, "a bill of 13 cents"),
        (14, "it panicked: a bill of 14 cents"),
    ] {
        let handle = client.spawn(OldBill { cents }).await.unwrap();
        let id = handle.id();
        let error = within(handle).await.unwrap_err();
        assert_eq!(error.dead_reason(), Some(DeadReason::Unreadable));
        assert!(error.to_string().contains(reason), "{error}");
        let dead_letter = client.dead_letters().task::<OldBill>(id).await.unwrap();
        assert_eq!(dead_letter.expect("its payload is kept").cents, cents);
    }
    new.shutdown(Duration::ZERO).await;
    let dead_letters = client.dead_letters();
    let dead = dead_letters.list(DeadFilter::all(), 9).await.unwrap();
    assert_eq!(
        dead_letters.replay(DeadFilter::name("bill")).await.unwrap(),
        2
    );
    let _mended = worker::<MendedBill>(&client).await;
    for dead_letter in dead {
        let handle = client.attach::<MendedBill>(dead_letter.id);
        assert!(within(handle).await.unwrap().starts_with("mended 1"));
    }
}

async fn a_schedule_has_the_version_of_its_program(store: TestStore) {
    let [old_client, new_client] = [store.client().await, store.client().await];
    let _old = worker::<OldBill>(&old_client).await;
    let yearly = || Every::new(Duration::from_secs(365 * 86_400));
    let schedules = new_client.schedules();
    new_client
        .schedule("yearly", yearly(), Bill::new(5))
        .await
        .unwrap();
    let newer = schedules.fire_now("yearly").await.unwrap();
    let newer = newer.expect("no task of it runs");
    reaches(&new_client.attach::<Bill>(newer), Status::Waiting).await;
    let _new = worker::<Bill>(&new_client).await;
    let output = within(new_client.attach::<Bill>(newer)).await.unwrap();
    assert_eq!(output, "new 5 EUR");
    // An old program defines it again.
    let cents = 6;
    old_client
        .schedule("yearly", yearly(), OldBill { cents })
        .await
        .unwrap();
    let older = schedules.fire_now("yearly").await.unwrap();
    let older = new_client.attach::<Bill>(older.expect("no task of it runs"));
    let output = within(older).await.unwrap();
    assert!(["old 6", "new 6 EUR"].contains(&&*output), "{output}");
}

/// The new program has stored tasks, and is taken back before they run.
async fn a_newer_task_that_waits_holds_its_key_until_it_is_cancelled(store: TestStore) {
    let client = store.client().await;
    let keyed = || SpawnOptions::new().key(Key::new("order 7"));
    let newer = client.spawn_with(Bill::new(7), keyed()).await.unwrap();
    let yearly = || Every::new(Duration::from_secs(365 * 86_400));
    let schedules = client.schedules();
    let defined = client.schedule("yearly", yearly(), Bill::new(5)).await;
    defined.unwrap();
    let tick = schedules.fire_now("yearly").await.unwrap().unwrap();
    let _old = worker::<OldBill>(&client).await;
    let older = || OldBill { cents: 7 };
    client.schedule("yearly", yearly(), older()).await.unwrap();
    let joined = client.spawn_with(older(), keyed()).await.unwrap();
    assert!(joined.was_joined());
    assert_eq!(joined.id(), newer.id());
    assert_eq!(schedules.fire_now("yearly").await.unwrap(), Some(tick));
    assert_eq!(client.cancel(&[newer.id(), tick]).await.unwrap(), 2);
    let older = client.spawn_with(older(), keyed()).await.unwrap();
    assert_eq!(within(older).await.unwrap(), "old 7");
    let tick = schedules.fire_now("yearly").await.unwrap().unwrap();
    let output = within(client.attach::<OldBill>(tick)).await;
    assert_eq!(output.unwrap(), "old 7");
}

#[tokio::test]
async fn types_with_a_common_name_are_refused() {
    let client = DurableClient::open(MemoryStore::new());
    let mut executor = DurableExecutor::builder(client.clone());
    let executor = executor.register::<Invoice>().register::<Bill>();
    let error = executor.start(()).await.unwrap_err();
    assert!(error.is_invalid());
    let text = error.to_string();
    for part in ["Invoice", "Bill", "\"bill\""] {
        assert!(text.contains(part), "{text}");
    }
    // The same type may be registered twice.
    let mut executor = DurableExecutor::builder(client);
    let executor = executor.register::<Invoice>().register::<Invoice>();
    assert!(executor.start(()).await.is_ok());
}
