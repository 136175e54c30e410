//! Code of the user's that takes long, or blocks: it runs on none of the threads that the client needs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Deserializer, Serialize};
use throng::CompletionStream;
use throng::durable::{DurableClient, DurableExecutor, DurableTask, Run, TaskContext, TaskError};
use tokio::runtime::Runtime;

use crate::harness::{TestStore, start, until};
use crate::support::{Gate, current_thread, multi_thread, receive, thread_name, within};

on_all_stores! {
    an_app_that_owns_a_runtime_is_dropped,
    an_app_whose_drop_takes_long_holds_nobody_up,
    an_app_is_dropped_also_without_its_runtime,
    an_output_that_takes_long_to_decode_holds_nobody_up,
}

#[derive(Serialize, Deserialize)]
struct Nothing;

impl DurableTask for Nothing {
    const NAME: &'static str = "nothing";
    type Output = ();
}

/// An app that runs a closure when it is dropped.
struct App(Option<Box<dyn FnOnce() + Send + Sync>>);

impl App {
    fn new(drop: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self(Some(Box::new(drop)))
    }
}

impl Drop for App {
    fn drop(&mut self) {
        self.0.take().expect("it is dropped once")();
    }
}

impl Run<App> for Nothing {
    async fn run(self, _: TaskContext<App>) -> Result<(), TaskError> {
        Ok(())
    }
}

async fn start_with(client: &DurableClient, app: App) -> DurableExecutor {
    let mut builder = DurableExecutor::builder(client.clone());
    builder.register::<Nothing>();
    builder.start(app).await.expect("the store answers")
}

async fn an_app_that_owns_a_runtime_is_dropped(store: TestStore) {
    let client = store.client().await;
    let (dropped, drops) = channel();
    let runtime = multi_thread(1, "of the app");
    let executor = start_with(&client, owner(runtime, dropped)).await;
    within(client.spawn(Nothing).await.unwrap()).await.unwrap();
    // Nothing runs that it would wait for; so it waits only for the drop.
    within(executor.shutdown(std::time::Duration::from_secs(3600))).await;
    let thread = drops.try_recv().unwrap();
    assert!(!thread.starts_with("throng"), "{thread}");
}

/// An app that says on which thread the drop of its runtime has succeeded.
fn owner(runtime: Runtime, dropped: Sender<String>) -> App {
    let dropped = Mutex::new(dropped);
    App::new(move || {
        drop(runtime);
        let dropped = dropped.lock().unwrap_or_else(PoisonError::into_inner);
        dropped.send(thread_name()).ok();
    })
}

async fn an_app_whose_drop_takes_long_holds_nobody_up(store: TestStore) {
    let client = store.client().await;
    let (gate, is_dropped) = (Gate::new(), Arc::new(AtomicBool::new(false)));
    let (held, dropping) = (gate.clone(), Arc::clone(&is_dropped));
    let app = App::new(move || {
        dropping.store(true, Ordering::SeqCst);
        held.pass();
    });
    let executor = start_with(&client, app).await;
    within(client.spawn(Nothing).await.unwrap()).await.unwrap();
    drop(executor);
    until("it is dropped", || is_dropped.load(Ordering::SeqCst)).await;
    // Otherwise the gate is waited for in vain.
    client.spawn(Nothing).await.unwrap().status().await.unwrap();
    gate.open();
}

async fn an_app_is_dropped_also_without_its_runtime(store: TestStore) {
    let client = store.client().await;
    let (dropped, drops) = channel();
    let app = owner(multi_thread(1, "of the app"), dropped);
    let own = client.clone();
    let executor = std::thread::spawn(move || current_thread().block_on(start_with(&own, app)));
    until("its runtime is gone", || executor.is_finished()).await;
    let executor = executor.join().unwrap();
    within(executor.closed()).await;
    let thread = receive(&drops);
    assert!(
        thread == "throng-drop" || !thread.starts_with("throng"),
        "{thread}"
    );
}

/// A [`Nothing`] whose output takes long to read.
#[derive(Serialize, Deserialize)]
struct SlowToRead;

impl DurableTask for SlowToRead {
    const NAME: &'static str = "number";
    type Output = Slow;
}

#[derive(Debug, Serialize)]
struct Slow;

/// One for each test that reads it, in the order of their outputs.
static GATES: Mutex<Vec<(u64, Gate, Arc<AtomicBool>)>> = Mutex::new(Vec::new());

fn gates() -> std::sync::MutexGuard<'static, Vec<(u64, Gate, Arc<AtomicBool>)>> {
    GATES.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'de> Deserialize<'de> for Slow {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = u64::deserialize(deserializer)?;
        let gate = {
            let gates = gates();
            let own = gates.iter().find(|it| it.0 == number);
            own.map(|(_, gate, is_there)| (gate.clone(), Arc::clone(is_there)))
        };
        let (gate, is_there) = gate.expect("there is a gate for each number");
        is_there.store(true, Ordering::SeqCst);
        gate.pass();
        Ok(Self)
    }
}

async fn an_output_that_takes_long_to_decode_holds_nobody_up(store: TestStore) {
    let client = store.client().await;
    let (gate, is_there) = (Gate::new(), Arc::new(AtomicBool::new(false)));
    let number = {
        let mut gates = gates();
        let number = gates.len() as u64;
        gates.push((number, gate.clone(), Arc::clone(&is_there)));
        number
    };
    let _executor = start(&client, |number, _| async move { Ok(number) }).await;
    let (jobs, mut done) = CompletionStream::builder().build().unwrap();
    let slot = jobs.slot(()).await.unwrap();
    let handle = crate::harness::spawn(&client, number).await;
    client.attach::<SlowToRead>(handle.id()).complete(slot);
    until("it is read", || is_there.load(Ordering::SeqCst)).await;
    // Otherwise the gate is waited for in vain.
    assert_eq!(within(handle).await.unwrap(), number);
    gate.open();
    within(done.next()).await.unwrap().outcome.unwrap().unwrap();
}
