//! The details of workflows that operators see, and replays from a step.

use std::time::Duration;

use throng::durable::{
    Changed, DeadFilter, DurableClient, DurableExecutor, Refusal, Status, StepKind, TaskChange,
    TaskContext, TaskDetail, TaskError, TaskId, TaskWait,
};

use crate::harness::{App, Number, TestStore, reaches, spawn, start};
use crate::support::within;
use crate::workflows::{Calls, fatal_error};

on_all_stores! {
    a_task_shows_its_steps_in_their_order,
    a_task_shows_the_signal_that_it_waits_for,
    a_task_shows_the_time_limit_of_a_signal,
    a_task_shows_the_sleep_that_it_waits_for,
    a_task_shows_all_that_it_waits_for,
    a_task_shows_a_sleep_that_outlasts_the_safeguard_of_a_signal,
    a_task_does_not_show_a_sleep_for_which_it_no_longer_waits,
    a_task_that_is_delayed_otherwise_waits_for_nothing,
    a_dead_letter_is_replayed_from_a_step,
    a_suspended_task_is_replayed_from_a_step,
    a_task_that_is_replayed_from_the_same_step_again_runs_at_once,
    a_running_task_is_not_replayed_from_a_step,
    a_parent_shows_its_children,
    a_parent_shows_how_many_children_it_waits_for,
    a_replayed_parent_finds_the_ends_of_its_children,
    a_parent_that_is_replayed_from_the_end_of_a_child_reads_it_again,
}

const DAY: Duration = Duration::from_secs(24 * 3600);

async fn detail(client: &DurableClient, id: TaskId) -> TaskDetail {
    let detail = client.admin().task(id).await.unwrap();
    detail.expect("the store has the task")
}

async fn replay_from(client: &DurableClient, id: TaskId, step: &str) -> Changed {
    let change = TaskChange::replay_from(step);
    client.admin().change(id, change).await.unwrap()
}

fn names(detail: &TaskDetail) -> Vec<String> {
    detail.steps.iter().map(|step| step.full_name()).collect()
}

/// Returns the text of the value of a step.
fn value(detail: &TaskDetail, at: usize) -> &str {
    let value = detail.steps[at].value.as_ref().expect("it has a value");
    value.as_str().expect("it is a text")
}

fn is_about(left: Duration, time: Duration) -> bool {
    left <= time && left > time - Duration::from_secs(120)
}

/// Returns the details of a task whose run is suspended.
async fn suspended<F>(
    store: &TestStore,
    act: impl Fn(TaskContext<App>) -> F + Send + Sync + 'static,
) -> TaskDetail
where
    F: Future<Output = Result<u64, TaskError>> + Send + 'static,
{
    let client = store.client().await;
    let _executor = start(&client, move |_, cx| act(cx)).await;
    let handle = spawn(&client, 1).await;
    reaches(&handle, Status::Delayed).await;
    detail(&client, handle.id()).await
}

async fn a_task_shows_its_steps_in_their_order(store: TestStore) {
    let detail = suspended(&store, |cx| async move {
        let text = "<b>\u{fc}</b>".to_owned();
        cx.step("b", || async { Ok(text) }).await?;
        cx.step("a", || async { Ok(7) }).await?;
        let none: Option<u64> = cx.signal_within("none", Duration::ZERO).await?;
        cx.sleep("pause", DAY).await?;
        Ok(none.unwrap_or_default())
    })
    .await;
    let expected = [
        "step:b",
        "step:a",
        "timeout:none",
        "signal:none",
        "sleep:pause",
    ];
    assert_eq!(names(&detail), expected);
    assert_eq!(value(&detail, 0), "\"<b>\u{fc}</b>\"");
    assert_eq!(value(&detail, 1), "7");
    assert_eq!(detail.steps[2].left, Some(Duration::ZERO));
    assert_eq!(
        (&detail.steps[3].value, detail.steps[3].kind),
        (&None, StepKind::Signal)
    );
    assert!(is_about(detail.steps[4].left.unwrap(), DAY));
    let named = |text: &str| {
        let mut steps = detail.steps.iter();
        steps.position(|step| step.is_named(text))
    };
    let texts = ["step:b", "a", "sleep:pause", "pause", "sleep:", ""];
    let found = [Some(0), Some(1), Some(4), None, None, None];
    assert_eq!(texts.map(named), found);
    assert!(
        detail
            .steps
            .iter()
            .all(|step| step.age < Duration::from_secs(120))
    );
    assert!(detail.children.is_empty() && detail.parent.is_none());
}

async fn a_task_shows_the_signal_that_it_waits_for(store: TestStore) {
    let detail = suspended(&store, |cx| async move { cx.signal("go").await }).await;
    let [TaskWait::Signal { name, left, .. }] = &detail.waits_for[..] else {
        panic!("{:?}", detail.waits_for);
    };
    assert_eq!((&**name, *left), ("go", None));
    assert!(detail.steps.is_empty());
}

async fn a_task_shows_the_time_limit_of_a_signal(store: TestStore) {
    let detail = suspended(&store, |cx| async move {
        let signal: Option<u64> = cx.signal_within("go", DAY).await?;
        Ok(signal.unwrap_or_default())
    })
    .await;
    let [TaskWait::Signal { name, left, .. }] = &detail.waits_for[..] else {
        panic!("{:?}", detail.waits_for);
    };
    assert_eq!(name, "go");
    assert!(is_about(left.unwrap(), DAY));
    assert_eq!(names(&detail), ["timeout:go"]);
}

async fn a_task_shows_the_sleep_that_it_waits_for(store: TestStore) {
    let detail = suspended(&store, |cx| async move {
        cx.sleep("short", Duration::from_millis(1)).await?;
        cx.sleep("long", DAY).await?;
        Ok(7)
    })
    .await;
    let [TaskWait::Sleep { name, left, .. }] = &detail.waits_for[..] else {
        panic!("{:?}", detail.waits_for);
    };
    assert_eq!(name, "long");
    assert!(is_about(*left, DAY));
}

async fn a_task_shows_all_that_it_waits_for(store: TestStore) {
    let detail = suspended(&store, |cx| async move {
        let hour = Duration::from_secs(3600);
        let waits = tokio::join!(
            cx.signal::<u64>("a"),
            cx.sleep("b", hour),
            cx.signal::<u64>("c\n\"")
        );
        waits.1?;
        waits.0.or(waits.2)
    })
    .await;
    let waits = detail.waits_for.iter().map(|wait| match wait {
        TaskWait::Signal {
            name, left: None, ..
        } => format!("signal {name}"),
        TaskWait::Sleep { name, .. } => format!("sleep {name}"),
        other => panic!("{other:?}"),
    });
    let waits: Vec<_> = waits.collect();
    assert_eq!(waits, ["signal a", "signal c\n\"", "sleep b"]);
    let json = serde_json::to_value(&detail.waits_for[0]).unwrap();
    assert_eq!(
        json,
        serde_json::json!({ "kind": "signal", "name": "a", "left": null })
    );
}

/// Returns the kind and the name of each wait, and what is left of it in days.
fn waits(detail: &TaskDetail) -> Vec<(&'static str, &str, Option<u64>)> {
    let days = |left: Duration| (left.as_secs() + 3600) / DAY.as_secs();
    let waits = detail.waits_for.iter().map(|wait| match wait {
        TaskWait::Sleep { name, left, .. } => ("sleep", &**name, Some(days(*left))),
        TaskWait::Signal { name, left, .. } => ("signal", &**name, left.map(days)),
        other => panic!("{other:?}"),
    });
    waits.collect()
}

/// A task that waits for a signal is due after six hours at the latest.
async fn a_task_shows_a_sleep_that_outlasts_the_safeguard_of_a_signal(store: TestStore) {
    let detail = suspended(&store, |cx| async move {
        let both = tokio::join!(
            cx.sleep("pause", 2 * DAY),
            cx.signal_within::<u64>("go", 3 * DAY)
        );
        both.0?;
        Ok(both.1?.unwrap_or_default())
    })
    .await;
    assert!(detail.task.due_in.unwrap() < DAY);
    let expected = [("signal", "go", Some(3)), ("sleep", "pause", Some(2))];
    assert_eq!(waits(&detail), expected);
}

async fn a_task_does_not_show_a_sleep_for_which_it_no_longer_waits(store: TestStore) {
    let client = store.client().await;
    let _executor = start(&client, |_, cx| async move {
        if let Err(error) = cx.signal::<u64>("first").await {
            // This sleep ends at about the latest time at which a task that waits for a signal is due.
            cx.sleep("pause", Duration::from_secs(6 * 3600)).await?;
            return Err(error);
        }
        cx.signal("second").await
    })
    .await;
    let handle = spawn(&client, 1).await;
    reaches(&handle, Status::Delayed).await;
    let before = detail(&client, handle.id()).await;
    let expected = [("signal", "first", None), ("sleep", "pause", Some(0))];
    assert_eq!(waits(&before), expected);
    client.signal(handle.id(), "first", &7).await.unwrap();
    let after = loop {
        let after = detail(&client, handle.id()).await;
        if waits(&after).iter().any(|(_, name, _)| *name == "second") {
            break after;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    };
    assert_eq!(waits(&after), [("signal", "second", None)]);
}

async fn a_task_that_is_delayed_otherwise_waits_for_nothing(store: TestStore) {
    let detail = suspended(&store, |cx| async move {
        cx.step("a", || async { Ok(7) }).await?;
        Err(TaskError::snooze(DAY))
    })
    .await;
    assert_eq!(
        (names(&detail), detail.waits_for.len()),
        (vec!["step:a".into()], 0)
    );
}

async fn a_dead_letter_is_replayed_from_a_step(store: TestStore) {
    let client = store.client().await;
    let (first, second) = (Calls::default(), Calls::default());
    let (one, two) = (first.clone(), second.clone());
    let _executor = start(&client, move |_, cx| {
        let (one, two) = (one.clone(), two.clone());
        async move {
            let first = cx.step("first", || async { Ok(one.add()) }).await?;
            let second = cx.step("second", || async { Ok(two.add()) }).await?;
            match second {
                1 => Err(TaskError::fatal("the second step is bad")),
                _ => Ok(10 * first + second),
            }
        }
    })
    .await;
    let handle = spawn(&client, 1).await;
    let id = handle.id();
    fatal_error(handle).await;
    assert_eq!(
        names(&detail(&client, id).await),
        ["step:first", "step:second"]
    );
    let refused = replay_from(&client, id, "third").await;
    assert_eq!(refused, Changed::Refused(Refusal::NoSuchStep));
    let nameless = client.admin().change(id, TaskChange::replay_from("")).await;
    assert!(nameless.unwrap_err().is_invalid());
    assert_eq!(replay_from(&client, id, "second").await, Changed::Yes);
    assert_eq!(within(client.attach::<Number>(id)).await.unwrap(), 12);
    assert_eq!((first.get(), second.get()), (1, 2));
    let done = replay_from(&client, id, "second").await;
    assert_eq!(done, Changed::NotIn(Status::Done));
}

async fn a_suspended_task_is_replayed_from_a_step(store: TestStore) {
    let client = store.client().await;
    let runs = Calls::default();
    let _executor = start(&client, move |_, cx| {
        let runs = runs.clone();
        async move {
            let run = cx.step("run", || async { Ok(runs.add()) }).await?;
            if run == 1 {
                cx.signal::<u64>("go").await?;
            }
            Ok(run)
        }
    })
    .await;
    let handle = spawn(&client, 1).await;
    reaches(&handle, Status::Delayed).await;
    assert_eq!(
        replay_from(&client, handle.id(), "step:run").await,
        Changed::Yes
    );
    assert_eq!(within(handle).await.unwrap(), 2);
}

async fn a_task_that_is_replayed_from_the_same_step_again_runs_at_once(store: TestStore) {
    let client = store.client().await;
    let runs = Calls::default();
    let _executor = start(&client, move |_, cx| {
        let runs = runs.clone();
        async move {
            cx.step("first", || async { Ok(1) }).await?;
            let run = runs.add();
            if run == 2 {
                cx.signal::<u64>("go").await?;
            }
            cx.step("second", || async { Ok(2) }).await?;
            match run {
                1 => Err(TaskError::fatal("it is bad")),
                _ => Ok(run),
            }
        }
    })
    .await;
    let handle = spawn(&client, 1).await;
    let id = handle.id();
    fatal_error(handle).await;
    assert_eq!(replay_from(&client, id, "second").await, Changed::Yes);
    reaches(&client.attach::<Number>(id), Status::Delayed).await;
    let delayed = detail(&client, id).await;
    assert_eq!(names(&delayed), ["step:first", "replay:2"]);
    assert_eq!(value(&delayed, 1), "step:second");
    assert_eq!(replay_from(&client, id, "second").await, Changed::Yes);
    assert_eq!(within(client.attach::<Number>(id)).await.unwrap(), 3);
}

async fn a_running_task_is_not_replayed_from_a_step(store: TestStore) {
    let client = store.client().await;
    let _executor = start(&client, |_, cx| async move {
        cx.step("a", || async { Ok(7) }).await?;
        cx.stopped().await;
        Err(TaskError::retry("stopped"))
    })
    .await;
    let handle = spawn(&client, 1).await;
    let id = handle.id();
    while detail(&client, id).await.steps.is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let refused = replay_from(&client, id, "a").await;
    assert_eq!(refused, Changed::NotIn(Status::Running));
    assert_eq!(names(&detail(&client, id).await), ["step:a"]);
    handle.cancel().await.unwrap();
}

// ===== Children =====

/// A parent that is a dead letter if one of its children, 100 and 101, is bad. The second child is bad at first.
async fn start_family(client: &DurableClient) -> DurableExecutor {
    let calls = Calls::default();
    start(client, move |number, cx| {
        let calls = calls.clone();
        async move {
            match number {
                100 => Ok(100),
                101 if calls.add() == 1 => Err(TaskError::fatal("it is bad")),
                101 => Ok(101),
                _ => {
                    let children = cx.spawn_all("child", [100, 101].map(Number)).await?;
                    let outputs: Result<Vec<_>, _> =
                        cx.join(&children).await?.into_iter().collect();
                    let outputs = outputs.map_err(|error| TaskError::fatal(error.to_string()))?;
                    Ok(outputs.into_iter().sum())
                }
            }
        }
    })
    .await
}

/// Returns the details of a parent that is a dead letter, after its bad child was replayed and has succeeded.
async fn dead_parent(client: &DurableClient) -> TaskDetail {
    let parent = spawn(client, 1).await;
    let id = parent.id();
    fatal_error(parent).await;
    let parent = detail(client, id).await;
    let bad = parent.children[1].id;
    let replayed = client.dead_letters().replay(DeadFilter::ids([bad])).await;
    assert_eq!(replayed.unwrap(), 1);
    assert_eq!(within(client.attach::<Number>(bad)).await.unwrap(), 101);
    parent
}

async fn a_parent_shows_its_children(store: TestStore) {
    let client = store.client().await;
    let _executor = start_family(&client).await;
    let parent = dead_parent(&client).await;
    let [good, bad] = &parent.children[..] else {
        panic!("{:?}", parent.children);
    };
    assert_eq!((good.end, good.error.as_ref()), (Some(Status::Done), None));
    assert_eq!(good.output.as_ref().unwrap().as_str(), Some("100"));
    assert_eq!(good.name.as_deref(), Some("number"));
    assert_eq!(
        (bad.end, bad.error.as_deref()),
        (Some(Status::Dead), Some("it is bad"))
    );
    assert!(bad.age.is_some() && bad.output.is_none());
    let kinds: Vec<_> = parent.steps.iter().map(|step| step.kind).collect();
    assert!(kinds.contains(&StepKind::Spawn) && kinds.contains(&StepKind::Child));
}

async fn a_parent_shows_how_many_children_it_waits_for(store: TestStore) {
    let client = store.client().await;
    let _executor = start(&client, |number, cx| async move {
        match number {
            200 => cx.signal("go").await,
            201 => Ok(201),
            _ => {
                let children = cx.spawn_all("child", [200, 201].map(Number)).await?;
                Ok(cx.join(&children).await?.len() as u64)
            }
        }
    })
    .await;
    let id = spawn(&client, 1).await.id();
    let parent = loop {
        let parent = detail(&client, id).await;
        let ended = parent.children.iter().filter(|child| child.end.is_some());
        if !parent.waits_for.is_empty() && ended.count() == 1 {
            break parent;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    };
    let [TaskWait::Children { number: 1, .. }] = &parent.waits_for[..] else {
        panic!("{:?}", parent.waits_for);
    };
    let child = detail(&client, parent.children[0].id).await;
    assert_eq!(child.parent, Some(id));
}

async fn a_replayed_parent_finds_the_ends_of_its_children(store: TestStore) {
    let client = store.client().await;
    let _executor = start_family(&client).await;
    let parent = dead_parent(&client).await.task.id;
    assert_eq!(
        replay_from(&client, parent, "spawn:child").await,
        Changed::Yes
    );
    assert_eq!(within(client.attach::<Number>(parent)).await.unwrap(), 201);
}

async fn a_parent_that_is_replayed_from_the_end_of_a_child_reads_it_again(store: TestStore) {
    let client = store.client().await;
    let _executor = start_family(&client).await;
    let parent = dead_parent(&client).await;
    let ends = parent
        .steps
        .iter()
        .filter(|step| step.kind == StepKind::Child);
    let bad = parent.children[1].id.to_string();
    let end = ends
        .clone()
        .find(|step| step.name == bad)
        .expect("it has ended");
    let id = parent.task.id;
    assert_eq!(
        replay_from(&client, id, &end.full_name()).await,
        Changed::Yes
    );
    assert_eq!(within(client.attach::<Number>(id)).await.unwrap(), 201);
}
