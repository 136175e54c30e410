//! Deployments: the code of a workflow changes while its task waits.

use std::future::Future;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use throng::durable::{DeadFilter, DurableError, DurableTask, Run, Status, TaskContext, TaskError};

use crate::harness::{App, Number, TestStore, builder, reaches, spawn, start, start_as};
use crate::support::within;
use crate::workflows::{Calls, fatal_error};

on_all_stores! {
    steps_in_another_order_are_found,
    a_step_that_is_added_runs_once_and_one_that_is_removed_is_ignored,
    a_step_that_is_renamed_runs_again,
    a_wait_takes_as_long_as_the_first_program_has_asked_for,
    a_step_whose_type_has_changed_is_refused_until_a_program_reads_both,
    a_step_with_more_fields_reads_the_stored_value,
    a_signal_whose_type_has_changed_is_refused,
    an_older_program_continues_the_task_of_a_newer_one,
    a_task_is_migrated_and_finds_its_steps,
}

/// Runs a task with one program until it waits, and continues it with another one, which finds the signal `go` with the value 7.
async fn deploy<Old, New>(
    store: &TestStore,
    old: impl Fn(TaskContext<App>) -> Old + Send + Sync + 'static,
    new: impl Fn(TaskContext<App>) -> New + Send + Sync + 'static,
) -> Result<u64, DurableError>
where
    Old: Future<Output = Result<u64, TaskError>> + Send + 'static,
    New: Future<Output = Result<u64, TaskError>> + Send + 'static,
{
    let client = store.client().await;
    let executor = start(&client, move |_, cx| old(cx)).await;
    let handle = spawn(&client, 1).await;
    reaches(&handle, Status::Delayed).await;
    executor.shutdown(Duration::from_secs(20)).await;
    let client = store.client().await;
    let _executor = start(&client, move |_, cx| new(cx)).await;
    assert!(client.signal(handle.id(), "go", &7).await.unwrap());
    within(client.attach::<Number>(handle.id())).await
}

/// Runs a step that counts its calls and returns a number.
async fn count(
    cx: &TaskContext<App>,
    name: &str,
    calls: &Calls,
    number: u64,
) -> Result<u64, TaskError> {
    let run = || async {
        calls.add();
        Ok(number)
    };
    cx.step(name, run).await
}

async fn steps_in_another_order_are_found(store: TestStore) {
    let calls = Calls::default();
    let [old, new] = [calls.clone(), calls.clone()];
    let output = deploy(
        &store,
        move |cx| {
            let calls = old.clone();
            async move {
                count(&cx, "a", &calls, 1).await?;
                count(&cx, "b", &calls, 20).await?;
                cx.signal("go").await
            }
        },
        move |cx| {
            let calls = new.clone();
            async move {
                let go: u64 = cx.signal("go").await?;
                let b = count(&cx, "b", &calls, 0).await?;
                Ok(go * 100 + b + count(&cx, "a", &calls, 0).await?)
            }
        },
    );
    assert_eq!(output.await.unwrap(), 721);
    assert_eq!(calls.get(), 2);
}

async fn a_step_that_is_added_runs_once_and_one_that_is_removed_is_ignored(store: TestStore) {
    let [removed, added] = [0; 2].map(|_| Calls::default());
    let [old, new] = [removed.clone(), added.clone()];
    let output = deploy(
        &store,
        move |cx| {
            let removed = old.clone();
            async move {
                count(&cx, "removed", &removed, 1).await?;
                cx.signal("go").await
            }
        },
        move |cx| {
            let added = new.clone();
            async move {
                // It is before the wait, and runs behind it.
                let output = count(&cx, "added", &added, 30).await?;
                let go: u64 = cx.signal("go").await?;
                if cx.attempt() == 1 {
                    return Err(TaskError::retry("the first run of the new program fails"));
                }
                Ok(output + go)
            }
        },
    );
    assert_eq!(output.await.unwrap(), 37);
    assert_eq!((removed.get(), added.get()), (1, 1));
}

async fn a_step_that_is_renamed_runs_again(store: TestStore) {
    let calls = Calls::default();
    let [old, new] = [calls.clone(), calls.clone()];
    let output = deploy(
        &store,
        move |cx| {
            let calls = old.clone();
            async move {
                count(&cx, "charge", &calls, 1).await?;
                cx.signal("go").await
            }
        },
        move |cx| {
            let calls = new.clone();
            async move {
                let output = count(&cx, "charge the card", &calls, 2).await?;
                cx.signal::<u64>("go").await.map(|_| output)
            }
        },
    );
    assert_eq!(output.await.unwrap(), 2);
    assert_eq!(calls.get(), 2);
}

async fn a_wait_takes_as_long_as_the_first_program_has_asked_for(store: TestStore) {
    let (short, long) = (Duration::from_millis(2100), Duration::from_secs(3600));
    let output = deploy(
        &store,
        move |cx| async move {
            cx.sleep("pause", short).await?;
            Ok(1)
        },
        move |cx| async move {
            cx.sleep("pause", long).await?;
            Ok(2)
        },
    );
    assert_eq!(output.await.unwrap(), 2);
}

/// A receipt, of which an older program has stored only the number.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Receipt {
    Old(u64),
    New { number: u64 },
}

async fn a_step_whose_type_has_changed_is_refused_until_a_program_reads_both(store: TestStore) {
    let calls = Calls::default();
    let client = store.client().await;
    let counted = calls.clone();
    let old = start(&client, move |_, cx| {
        let calls = counted.clone();
        async move {
            count(&cx, "charge", &calls, 5).await?;
            cx.signal("go").await
        }
    })
    .await;
    let handle = spawn(&client, 1).await;
    let id = handle.id();
    reaches(&handle, Status::Delayed).await;
    old.shutdown(Duration::from_secs(20)).await;
    let wrong = start(&client, |_, cx| async move {
        let unexpected = || async { Err(TaskError::fatal("it runs again")) };
        let receipt = cx.step::<String, _, _>("charge", unexpected).await?;
        Ok(receipt.len() as u64)
    })
    .await;
    assert!(client.signal(id, "go", &7).await.unwrap());
    let error = fatal_error(handle).await;
    for part in [
        "the stored value of `step:charge` is not of the type `alloc::string::String`, which this program expects",
        "invalid type: integer `5`, expected a string",
        "let it also read the stored value, or use a new name",
        "replay the dead letter",
    ] {
        assert!(error.contains(part), "{error}");
    }
    wrong.shutdown(Duration::from_secs(20)).await;

    let _mended = start(&client, |_, cx| async move {
        let unexpected = || async { Err(TaskError::fatal("it runs again")) };
        let number = match cx.step("charge", unexpected).await? {
            Receipt::Old(number) | Receipt::New { number } => number,
        };
        let go: u64 = cx.signal("go").await?;
        Ok(number * 10 + go)
    })
    .await;
    let replayed = client.dead_letters().replay(DeadFilter::ids([id])).await;
    assert_eq!(replayed.unwrap(), 1);
    let output = within(client.attach::<Number>(id)).await;
    assert_eq!(output.unwrap(), 57);
    assert_eq!(calls.get(), 1);
}

/// A quote of the older program.
#[derive(Serialize, Deserialize)]
struct OldQuote {
    cents: u64,
}

/// A quote of the newer program.
#[derive(Serialize, Deserialize)]
struct Quote {
    cents: u64,
    #[serde(default)]
    discount: u64,
}

async fn a_step_with_more_fields_reads_the_stored_value(store: TestStore) {
    let output = deploy(
        &store,
        |cx| async move {
            cx.step("quote", || async { Ok(OldQuote { cents: 500 }) })
                .await?;
            cx.signal("go").await
        },
        |cx| async move {
            let (cents, discount) = (1, 1);
            let quote = cx
                .step("quote", || async { Ok(Quote { cents, discount }) })
                .await?;
            let go: u64 = cx.signal("go").await?;
            Ok(quote.cents - quote.discount + go)
        },
    );
    assert_eq!(output.await.unwrap(), 507);
}

async fn a_signal_whose_type_has_changed_is_refused(store: TestStore) {
    let ended = deploy(
        &store,
        |cx| async move { cx.signal("go").await },
        |cx| async move {
            let answer: String = cx.signal("go").await?;
            Ok(answer.len() as u64)
        },
    );
    let error = ended.await.unwrap_err().to_string();
    assert!(
        error
            .contains("the stored value of `signal:go` is not of the type `alloc::string::String`"),
        "{error}"
    );
}

async fn an_older_program_continues_the_task_of_a_newer_one(store: TestStore) {
    let calls = Calls::default();
    let [newer, older] = [calls.clone(), calls.clone()];
    let output = deploy(
        &store,
        move |cx| {
            let calls = newer.clone();
            async move {
                count(&cx, "both", &calls, 1).await?;
                count(&cx, "newer", &calls, 2).await?;
                cx.signal("go").await
            }
        },
        move |cx| {
            let calls = older.clone();
            async move {
                let output = count(&cx, "both", &calls, 0).await?;
                let go: u64 = cx.signal("go").await?;
                Ok(output + go)
            }
        },
    );
    assert_eq!(output.await.unwrap(), 8);
    assert_eq!(calls.get(), 2);
}

/// The order of an older program.
#[derive(Serialize, Deserialize)]
struct OldOrder(u64);

impl DurableTask for OldOrder {
    const NAME: &'static str = "order";
    type Output = u64;
}

impl Run<App> for OldOrder {
    async fn run(self, cx: TaskContext<App>) -> Result<u64, TaskError> {
        let cents = cx.step("price", || async { Ok(self.0 * 100) }).await?;
        cx.signal::<u64>("go").await.map(|go| cents + go)
    }
}

/// The same type, in a newer program.
#[derive(Serialize, Deserialize)]
struct Order {
    goods: Vec<u64>,
}

impl DurableTask for Order {
    const NAME: &'static str = "order";
    const VERSION: u8 = 2;
    type Output = u64;

    fn migrate(_: u8, bytes: &[u8]) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let OldOrder(goods) = serde_json::from_slice(bytes)?;
        Ok(Self { goods: vec![goods] })
    }
}

impl Run<App> for Order {
    async fn run(self, cx: TaskContext<App>) -> Result<u64, TaskError> {
        let cents = cx.step("price", || async { Ok(0) }).await?;
        let go: u64 = cx.signal("go").await?;
        Ok(cents + go * 10 + self.goods.len() as u64)
    }
}

async fn a_task_is_migrated_and_finds_its_steps(store: TestStore) {
    let client = store.client().await;
    let unused = |_, _| async { Err(TaskError::fatal("no such task is spawned")) };
    let mut old = builder(&client);
    let old = start_as(old.register::<OldOrder>(), unused).await;
    let handle = client.spawn(OldOrder(3)).await.unwrap();
    reaches(&handle, Status::Delayed).await;
    old.shutdown(Duration::from_secs(20)).await;
    let mut new = builder(&client);
    let _new = start_as(new.register::<Order>(), unused).await;
    assert!(client.signal(handle.id(), "go", &7).await.unwrap());
    assert_eq!(within(handle).await.unwrap(), 371);
}
