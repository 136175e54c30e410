//! Children of workflows.

use std::time::Duration;

use futures::future::join_all;
use serde::{Deserialize, Serialize};
use throng::durable::{
    DurableClient, DurableExecutor, DurableHandle, DurableTask, QueueSettings, Run, ServedQueue,
    SpawnOptions, Status, TaskContext, TaskError, TaskId,
};

use crate::harness::{App, Door, Number, TestStore, builder, reaches, spawn, start, start_as};
use crate::support::within;
use crate::workflows::{Calls, fatal_error};

on_all_stores! {
    children_are_joined_in_their_order,
    a_parent_runs_again_after_its_last_child,
    children_are_spawned_once,
    a_run_that_ends_while_it_spawns_leaves_no_child_out,
    a_parent_and_its_children_need_one_permit,
    the_end_of_a_bad_child_is_an_error_in_the_list,
    a_child_of_another_task_is_not_joined,
    children_have_children,
    children_have_many_ancestors,
    an_output_that_is_too_large_for_a_step_is_an_error,
    a_child_that_is_listed_twice_is_waited_for_once,
    a_child_whose_end_the_run_finds_after_it_has_waited_ends_the_wait,
    children_wait_in_queues_with_limits,
    a_task_has_a_limited_number_of_children,
    children_that_are_spawned_at_the_same_time_have_one_limit,
    children_of_another_type_are_refused,
    children_whose_type_has_moved_to_another_queue_are_found,
    results_of_children_are_kept_for_a_while,
    children_of_a_former_life_are_found,
    a_full_task_uses_the_ends_of_its_children,
}

/// The same, in a store in Redis with several partitions.
#[cfg(feature = "redis")]
mod partitions {
    use crate::harness::{TestStore, in_time};

    macro_rules! on_partitions {
        ($($name:ident,)*) => {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                needs_redis!();
                in_time(super::$name(TestStore::partitions(8))).await;
            })*
        };
    }

    on_partitions! {
        children_are_joined_in_their_order,
        a_run_that_ends_while_it_spawns_leaves_no_child_out,
        a_parent_and_its_children_need_one_permit,
        the_end_of_a_bad_child_is_an_error_in_the_list,
        children_have_children,
        children_wait_in_queues_with_limits,
        children_whose_type_has_moved_to_another_queue_are_found,
        children_of_a_former_life_are_found,
    }
}

/// Spawns this number of children, whose numbers begin with 100, and returns the sum of their outputs.
async fn sum_of_children(cx: &TaskContext<App>, count: u64) -> Result<u64, TaskError> {
    let children = cx
        .spawn_all("child", (100..100 + count).map(Number))
        .await?;
    let mut sum = 0;
    for output in cx.join(&children).await? {
        sum += output?;
    }
    Ok(sum)
}

async fn children_are_joined_in_their_order(store: TestStore) {
    let client = store.client().await;
    let runs = Calls::default();
    let all = runs.clone();
    let executor = start(&client, move |number, cx| {
        let runs = all.clone();
        async move {
            if number >= 100 {
                return Ok(number);
            }
            runs.add();
            let children = cx.spawn_all("child", (100..400).map(Number)).await?;
            let outputs = cx.join(&children).await?;
            let outputs: Vec<_> = outputs.into_iter().flatten().collect();
            assert_eq!(outputs, (100..400).collect::<Vec<_>>());
            Ok(7)
        }
    })
    .await;
    assert_eq!(within(spawn(&client, 1).await).await.unwrap(), 7);
    // The run that spawns them, and one that finds all ends.
    assert!((1..=2).contains(&runs.get()), "{}", runs.get());
    assert_eq!(executor.metrics().late_wakes, 0);
}

async fn a_parent_runs_again_after_its_last_child(store: TestStore) {
    let client = store.client().await;
    let (doors, runs) = ([Door::new(), Door::new()], Calls::default());
    let (passed, all) = (doors.clone(), runs.clone());
    let _executor = start(&client, move |number, cx| {
        let (doors, runs) = (passed.clone(), all.clone());
        async move {
            match number {
                100 | 101 => doors[number as usize - 100].pass().await,
                1 => {
                    runs.add();
                    return sum_of_children(&cx, 2).await;
                }
                _ => {}
            }
            Ok(number)
        }
    })
    .await;
    let parent = spawn(&client, 1).await;
    reaches(&parent, Status::Delayed).await;
    doors[0].open();
    let done = async || client.counts().await.expect("the store answers").done;
    while within(done()).await == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // If the first child made the parent ready, the parent would be claimed before this task.
    within(spawn(&client, 2).await).await.unwrap();
    doors[1].open();
    assert_eq!(within(parent).await.unwrap(), 201);
    assert_eq!(runs.get(), 2);
}

async fn children_are_spawned_once(store: TestStore) {
    let client = store.client().await;
    let (children, runs) = (Calls::default(), Calls::default());
    let (counted, all) = (children.clone(), runs.clone());
    let _executor = start(&client, move |number, cx| {
        let (children, runs) = (counted.clone(), all.clone());
        async move {
            if number >= 100 {
                return Ok(children.add());
            }
            let count = if runs.add() == 1 { 5 } else { 9 };
            let spawned = cx
                .spawn_all("child", (100..100 + count).map(Number))
                .await?;
            if runs.get() == 1 {
                return Err(TaskError::retry("the first run fails"));
            }
            Ok(cx.join(&spawned).await?.len() as u64)
        }
    })
    .await;
    assert_eq!(within(spawn(&client, 1).await).await.unwrap(), 5);
    assert_eq!(children.get(), 5);
}

/// The first run ends when about half of its children are stored.
async fn a_run_that_ends_while_it_spawns_leaves_no_child_out(store: TestStore) {
    const CHILDREN: u64 = 1000;
    let client = store.client().await;
    let (children, runs) = (Calls::default(), Calls::default());
    let (counted, all) = (children.clone(), runs.clone());
    let _executor = start(&client, move |number, cx| {
        let (children, runs) = (counted.clone(), all.clone());
        async move {
            if number >= 100 {
                children.add();
                return Ok(number);
            }
            let numbers = (100..100 + CHILDREN).map(Number);
            let spawn = cx.spawn_all("child", numbers);
            let spawned = match runs.add() {
                1 => tokio::select! {
                    spawned = spawn => spawned?,
                    () = half_are_stored(cx.client()) => return Err(TaskError::retry("the first run ends")),
                },
                _ => spawn.await?,
            };
            let outputs = cx.join(&spawned).await?;
            let outputs: Vec<_> = outputs.into_iter().flatten().collect();
            assert_eq!(outputs, (100..100 + CHILDREN).collect::<Vec<_>>());
            Ok(outputs.len() as u64)
        }
    })
    .await;
    assert_eq!(
        within(spawn(&client, 1).await).await.unwrap(),
        CHILDREN,
        "{}",
        runs.get()
    );
    assert_eq!(children.get(), CHILDREN);
}

async fn half_are_stored(client: &DurableClient) {
    loop {
        let counts = client.counts().await.expect("the store answers");
        if counts.stored >= 500 {
            return;
        }
        tokio::task::yield_now().await;
    }
}

async fn a_parent_and_its_children_need_one_permit(store: TestStore) {
    let client = store.client().await;
    let mut one_at_a_time = builder(&client);
    one_at_a_time.max_running(1);
    let executor = start_as(&one_at_a_time, |number, cx| async move {
        match number {
            100.. => Ok(number),
            _ => sum_of_children(&cx, 10).await,
        }
    })
    .await;
    let sum = (100..110).sum::<u64>();
    assert_eq!(within(spawn(&client, 1).await).await.unwrap(), sum);
    assert_eq!(executor.metrics().late_wakes, 0);
}

async fn the_end_of_a_bad_child_is_an_error_in_the_list(store: TestStore) {
    let client = store.client().await;
    let _executor = start(&client, |number, cx| async move {
        match number {
            100 => Ok(100),
            101 => Err(TaskError::fatal("it is bad")),
            102 => {
                cx.client().cancel(&[cx.id()]).await?;
                cx.stopped().await;
                Err(TaskError::retry("stopped"))
            }
            _ => {
                let children = cx.spawn_all("child", (100..103).map(Number)).await?;
                let outputs = cx.join(&children).await?;
                assert_eq!(*outputs[0].as_ref().unwrap(), 100);
                let dead = outputs[1].as_ref().unwrap_err();
                assert!(
                    dead.is_dead() && dead.to_string().contains("it is bad"),
                    "{dead}"
                );
                assert_eq!(dead.task_id(), Some(children[1].id()));
                assert!(outputs[2].as_ref().unwrap_err().is_cancelled());
                Ok(7)
            }
        }
    })
    .await;
    assert_eq!(within(spawn(&client, 1).await).await.unwrap(), 7);
}

async fn a_child_of_another_task_is_not_joined(store: TestStore) {
    let client = store.client().await;
    let _executor = start(&client, |_, cx| async move {
        let other = cx.client().attach::<Number>(cx.id());
        Ok(cx.join(&[other]).await?.len() as u64)
    })
    .await;
    let error = fatal_error(spawn(&client, 1).await).await;
    assert!(error.contains("is not a child of this run"), "{error}");
}

async fn children_have_children(store: TestStore) {
    let client = store.client().await;
    let _executor = start(&client, |depth, cx| async move {
        if depth == 0 {
            return Ok(1);
        }
        let children = cx
            .spawn_all("child", [Number(depth - 1), Number(depth - 1)])
            .await?;
        let mut sum = 0;
        for output in cx.join(&children).await? {
            sum += output?;
        }
        Ok(sum)
    })
    .await;
    assert_eq!(within(spawn(&client, 5).await).await.unwrap(), 32);
}

async fn children_have_many_ancestors(store: TestStore) {
    let client = store.client().await;
    let _executor = start(&client, |depth, cx| async move {
        if depth == 0 {
            return Ok(1);
        }
        let child = cx.spawn_all("child", [Number(depth - 1)]).await?;
        let mut outputs = cx.join(&child).await?;
        Ok(1 + outputs.remove(0)?)
    })
    .await;
    assert_eq!(within(spawn(&client, 20).await).await.unwrap(), 21);
}

/// Returns a text of this length.
#[derive(Debug, Serialize, Deserialize)]
struct Text(usize);

impl DurableTask for Text {
    const NAME: &'static str = "text";
    type Output = String;
}

impl Run<App> for Text {
    async fn run(self, _: TaskContext<App>) -> Result<String, TaskError> {
        Ok("x".repeat(self.0))
    }
}

async fn an_output_that_is_too_large_for_a_step_is_an_error(store: TestStore) {
    let client = store.client().await;
    let mut with_texts = builder(&client);
    with_texts.register::<Text>();
    let _executor = start_as(&with_texts, |_, cx| async move {
        let texts = cx.spawn_all("text", [Text(60_000), Text(70_000)]).await?;
        let texts = cx.join(&texts).await?;
        assert_eq!(texts[0].as_ref().unwrap().len(), 60_000);
        assert!(texts[1].as_ref().unwrap_err().is_too_large());
        Ok(7)
    })
    .await;
    assert_eq!(within(spawn(&client, 1).await).await.unwrap(), 7);
}

async fn a_child_that_is_listed_twice_is_waited_for_once(store: TestStore) {
    let client = store.client().await;
    let door = Door::new();
    let closed = door.clone();
    let _executor = start(&client, move |number, cx| {
        let door = closed.clone();
        async move {
            if number >= 100 {
                door.pass().await;
                return Ok(number);
            }
            let [child] = <[_; 1]>::try_from(cx.spawn_all("child", [Number(100)]).await?).unwrap();
            let outputs = cx.join(&[child.clone(), child]).await?;
            Ok(outputs.into_iter().flatten().sum())
        }
    })
    .await;
    let parent = spawn(&client, 1).await;
    reaches(&parent, Status::Delayed).await;
    door.open();
    assert_eq!(within(parent).await.unwrap(), 200);
}

/// The run asks for the end of a child, which is missing. It then finds the end, fails, and so is suspended: the end must not be missing
/// for the store.
async fn a_child_whose_end_the_run_finds_after_it_has_waited_ends_the_wait(store: TestStore) {
    let client = store.client().await;
    let (door, runs) = (Door::new(), Calls::default());
    let all = runs.clone();
    let _executor = start(&client, move |number, cx| {
        let (door, runs) = (door.clone(), all.clone());
        async move {
            if number >= 100 {
                door.pass().await;
                return Ok(number);
            }
            let children = cx.spawn_all("child", [Number(100)]).await?;
            match runs.add() {
                1 => Err(TaskError::retry("the next run looks for the end")),
                2 => {
                    assert!(cx.join(&children).await.is_err());
                    door.open();
                    reaches(&children[0], Status::Done).await;
                    cx.join(&children).await?;
                    Err(TaskError::fatal("the run has waited"))
                }
                _ => Ok(cx.join(&children).await?.into_iter().flatten().sum()),
            }
        }
    })
    .await;
    assert_eq!(within(spawn(&client, 1).await).await.unwrap(), 100);
    assert_eq!(runs.get(), 3);
}

/// Two children in each of three queues, of which a limit lets one run at a time.
async fn children_wait_in_queues_with_limits(store: TestStore) {
    let client = store.client().await;
    let settings = QueueSettings::new().max_running(1);
    let mut executors = Vec::new();
    for queue in ["a", "b", "c"] {
        let configured = client.queue(queue).set(settings).await;
        configured.expect("the store answers");
        let mut of_queue = DurableExecutor::builder(client.clone());
        match queue {
            "a" => of_queue.register::<Queued<0>>(),
            "b" => of_queue.register::<Queued<1>>(),
            _ => of_queue.register::<Queued<2>>(),
        };
        let executor = of_queue
            .serve(ServedQueue::new(queue))
            .start(unused_app())
            .await;
        executors.push(executor.expect("the store answers"));
    }
    let _parents = start(&client, |_, cx| async move {
        let a = cx.spawn_all("a", [1, 2].map(Queued::<0>)).await?;
        let b = cx.spawn_all("b", [3, 4].map(Queued::<1>)).await?;
        let c = cx.spawn_all("c", [5, 6].map(Queued::<2>)).await?;
        let mut sum = 0;
        for children in [a, b, c] {
            for output in cx.join(&children).await? {
                sum += output?;
            }
        }
        Ok(sum)
    })
    .await;
    let mut parents = Vec::new();
    for number in 0..4 {
        parents.push(spawn(&client, number).await);
    }
    for parent in parents {
        assert_eq!(within(parent).await.unwrap(), 21);
    }
}

/// Returns its number, in one of three queues.
#[derive(Debug, Serialize, Deserialize)]
struct Queued<const QUEUE: usize>(u64);

impl<const QUEUE: usize> DurableTask for Queued<QUEUE> {
    const NAME: &'static str = ["a-task", "b-task", "c-task"][QUEUE];
    const QUEUE: Option<&'static str> = Some(["a", "b", "c"][QUEUE]);
    type Output = u64;
}

impl<const QUEUE: usize> Run<App> for Queued<QUEUE> {
    async fn run(self, _: TaskContext<App>) -> Result<u64, TaskError> {
        Ok(self.0)
    }
}

/// Those of earlier runs count, too.
async fn a_task_has_a_limited_number_of_children(store: TestStore) {
    let client = store.client().await;
    let _executor = start(&client, |number, cx| async move {
        if number >= 100 {
            return Ok(number);
        }
        let few = cx.spawn_all("few", (100..103).map(Number)).await?;
        cx.join(&few).await?;
        let many = cx.spawn_all("many", (0..4094).map(|_| Number(100))).await?;
        Ok(many.len() as u64)
    })
    .await;
    let error = fatal_error(spawn(&client, 1).await).await;
    assert!(
        error.contains(
            "`spawn:many` has 4094 tasks, and the task has 3 children: it has at most 4096 in all"
        ),
        "{error}"
    );
}

/// Neither call sees the step of the other one, since both wait for their children to be stored.
async fn children_that_are_spawned_at_the_same_time_have_one_limit(store: TestStore) {
    let client = store.client().await;
    let _executor = start(&client, |number, cx| async move {
        if number >= 100 {
            return Ok(number);
        }
        let tasks = |count| (0..count).map(|_| Number(100));
        let (first, second) = tokio::join!(
            cx.spawn_all("first", tasks(3)),
            cx.spawn_all("second", tasks(4094)),
        );
        assert_eq!(first?.len(), 3);
        Ok(second?.len() as u64)
    })
    .await;
    let error = fatal_error(spawn(&client, 1).await).await;
    let expected = "`spawn:second` has 4094 tasks, and the task has 3 children";
    assert!(error.contains(expected), "{error}");
    assert_eq!(client.counts().await.unwrap().stored, 4);
}

/// A later run of the task spawns children of another type under the same name.
async fn children_of_another_type_are_refused(store: TestStore) {
    let client = store.client().await;
    let runs = Calls::default();
    let all = runs.clone();
    let _executor = start(&client, move |number, cx| {
        let runs = all.clone();
        async move {
            if number >= 100 {
                return Ok(number);
            }
            if runs.add() == 1 {
                cx.spawn_all("child", [Number(100)]).await?;
                return Err(TaskError::retry("the next run has another type"));
            }
            Ok(cx.spawn_all("child", [Unkept(7)]).await?.len() as u64)
        }
    })
    .await;
    let error = fatal_error(spawn(&client, 1).await).await;
    let expected = "children of the type `number` as `spawn:child`, and this one expects `unkept`";
    assert!(error.contains(expected), "{error}");
}

/// A type that one program has in the queue `before`, and another one in the default queue.
#[derive(Debug, Serialize, Deserialize)]
struct Moved<const IS_MOVED: bool>(u64);

impl<const IS_MOVED: bool> DurableTask for Moved<IS_MOVED> {
    const NAME: &'static str = "moved";
    const QUEUE: Option<&'static str> = if IS_MOVED { None } else { Some("before") };
    type Output = u64;
}

impl<const IS_MOVED: bool> Run<App> for Moved<IS_MOVED> {
    async fn run(self, _: TaskContext<App>) -> Result<u64, TaskError> {
        Ok(self.0)
    }
}

/// One program spawns the children, and another one joins them.
async fn children_whose_type_has_moved_to_another_queue_are_found(store: TestStore) {
    let client = store.client().await;
    let mut of_queue = DurableExecutor::builder(client.clone());
    of_queue.register::<Moved<false>>();
    let of_queue = of_queue.serve(ServedQueue::new("before"));
    let _children = of_queue
        .start(unused_app())
        .await
        .expect("the store answers");
    let runs = Calls::default();
    let all = runs.clone();
    let _parents = start(&client, move |_, cx| {
        let runs = all.clone();
        async move {
            if runs.add() == 1 {
                cx.spawn_all("child", (0..10).map(Moved::<false>)).await?;
                return Err(TaskError::retry("the next run is that of another program"));
            }
            let children = cx.spawn_all("child", (0..10).map(Moved::<true>)).await?;
            let outputs = cx.join(&children).await?;
            Ok(outputs.into_iter().flatten().sum())
        }
    })
    .await;
    assert_eq!(within(spawn(&client, 1).await).await.unwrap(), 45);
}

/// Its type asks for no retention.
#[derive(Debug, Serialize, Deserialize)]
struct Unkept(u64);

impl DurableTask for Unkept {
    const NAME: &'static str = "unkept";
    const RETENTION: Duration = Duration::ZERO;
    type Output = u64;
}

impl Run<App> for Unkept {
    async fn run(self, _: TaskContext<App>) -> Result<u64, TaskError> {
        Ok(self.0)
    }
}

async fn results_of_children_are_kept_for_a_while(store: TestStore) {
    let client = store.client().await;
    let mut with_unkept = builder(&client);
    with_unkept.register::<Unkept>();
    let _executor = start_as(&with_unkept, |_, cx| async move {
        let children = cx.spawn_all("child", [Unkept(7)]).await?;
        let outputs = cx.join(&children).await?;
        // So if this run had failed before it stored that it has spawned the child, the next one would not run it again.
        assert_eq!(children[0].status().await?, Status::Done);
        Ok(outputs.into_iter().flatten().sum())
    })
    .await;
    assert_eq!(within(spawn(&client, 1).await).await.unwrap(), 7);
}

/// Spawns a task with the id of another one, whose result is not kept.
async fn spawn_again(client: &DurableClient, id: TaskId) -> DurableHandle<u64> {
    let options = SpawnOptions::new().id(id).retention(Duration::ZERO);
    let handle = client.spawn_with(Number(1), options).await;
    handle.expect("the store answers")
}

/// The id of a task is used twice, and the second task spawns the same children.
async fn children_of_a_former_life_are_found(store: TestStore) {
    let client = store.client().await;
    let children = Calls::default();
    let counted = children.clone();
    let _executor = start(&client, move |number, cx| {
        let children = counted.clone();
        async move {
            if number >= 100 {
                children.add();
                return Ok(number);
            }
            sum_of_children(&cx, 3).await
        }
    })
    .await;
    let id = TaskId::new();
    for _ in 0..2 {
        let parent = spawn_again(&client, id).await;
        ends(&parent).await;
    }
    assert_eq!(children.get(), 3);
}

/// Waits until a task has ended whose result is not kept.
async fn ends(task: &DurableHandle<u64>) {
    reaches(task, Status::Absent).await;
}

/// The second task with an id has no room for the ends of the children of the first one.
async fn a_full_task_uses_the_ends_of_its_children(store: TestStore) {
    let client = store.client().await;
    let runs = Calls::default();
    let all = runs.clone();
    let _executor = start(&client, move |number, cx| {
        let runs = all.clone();
        async move {
            if number >= 100 {
                return Ok(number);
            }
            let children = cx.spawn_all("child", [Number(100)]).await?;
            let cx = &cx;
            if runs.get() > 0 {
                let steps = (0..8191)
                    .map(|nth| async move { cx.step(&nth.to_string(), || async { Ok(()) }).await });
                for stored in join_all(steps).await {
                    stored?;
                }
            }
            let outputs = cx.join(&children).await?;
            assert_eq!(*outputs[0].as_ref().unwrap(), 100);
            runs.add();
            Ok(7)
        }
    })
    .await;
    let id = TaskId::new();
    for _ in 0..2 {
        ends(&spawn_again(&client, id).await).await;
    }
    assert_eq!(runs.get(), 2);
}

/// The store loses that there are steps, so a claim says that the task has none.
#[cfg(feature = "redis")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_is_not_the_first_looks_whether_it_has_spawned_children() {
    needs_redis!();
    let store = TestStore::server();
    let TestStore::Server(server, namespace, _) = &store else {
        panic!("it is a server");
    };
    let (server, meta) = (server.clone(), format!("throng:{{{namespace}:0}}:meta"));
    let client = store.client().await;
    let [children, runs, losses] = [(); 3].map(|()| Calls::default());
    let (counted, all, lost) = (children.clone(), runs.clone(), losses.clone());
    let _executor = start(&client, move |number, cx| {
        let (children, run, losses) = (counted.clone(), all.clone(), lost.clone());
        let (server, meta) = (server.clone(), meta.clone());
        async move {
            if number >= 100 {
                return Ok(children.add());
            }
            let (run, forget) = (run.add(), || server.ask(&["HDEL", &meta, "steps"]));
            let count = if run == 1 { 2 } else { 4 };
            let spawned = cx
                .spawn_all("child", (100..100 + count).map(Number))
                .await?;
            if run == 1 {
                for child in &spawned {
                    reaches(child, Status::Done).await;
                }
                // A panic would only end this run.
                if forget() == ::redis::Value::Int(1) {
                    losses.add();
                }
                return Err(TaskError::retry("the first run fails"));
            }
            Ok(cx.join(&spawned).await?.len() as u64)
        }
    })
    .await;
    assert_eq!(within(spawn(&client, 1).await).await.unwrap(), 2);
    assert_eq!((runs.get(), losses.get()), (2, 1));
    // Another child would be stored, but may not have run yet.
    assert_eq!(client.counts().await.unwrap().stored, 3);
    assert_eq!(children.get(), 2);
}

fn unused_app() -> App {
    App::new(|number, _| async move { Ok(number) })
}
