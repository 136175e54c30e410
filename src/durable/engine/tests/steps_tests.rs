//! Steps and signals on a store that loses requests and answers, and takes tasks from live workers.

use std::collections::BTreeSet;

use super::*;

/// Runs three steps, and waits for a signal after the second.
#[derive(Serialize, Deserialize)]
struct Workflow(u64);

impl DurableTask for Workflow {
    const NAME: &'static str = "workflow";
    type Output = Vec<u64>;
}

/// The outputs of each step, in all runs.
type Outputs = Mutex<HashMap<(u64, u64), BTreeSet<u64>>>;

impl Run<StdArc<Outputs>> for Workflow {
    async fn run(self, cx: TaskContext<StdArc<Outputs>>) -> Result<Vec<u64>, TaskError> {
        let mut outputs = Vec::new();
        for step in 0..3 {
            let run = || async { Ok(fastrand::u64(..)) };
            let output = cx.step(&format!("step {step}"), run).await?;
            lock(cx.app())
                .entry((self.0, step))
                .or_default()
                .insert(output);
            outputs.push(output);
            if step == 1 {
                outputs.push(cx.signal("go").await?);
            }
        }
        Ok(outputs)
    }
}

/// Sends a signal until the store has answered.
async fn signal(client: &DurableClient, id: TaskId, value: u64) {
    loop {
        match client.signal(id, "go", &value).await {
            Ok(_) => return,
            // The first answer was lost, and the task has ended meanwhile.
            Err(error) if error.is_expired() => return,
            Err(error) => assert!(error.is_unknown() || error.is_busy(), "{error}"),
        }
    }
}

async fn all_runs_see_the_same_outputs(faults: u32, seed: u64) {
    const WORKFLOWS: u64 = 60;
    let memory = MemoryStore::new();
    let reliable = DurableClient::open(memory.clone());
    let producer = DurableClient::open(Faulty::store(&memory, faults, seed));
    let outputs = StdArc::new(Outputs::default());
    let mut executors = Vec::new();
    for seed in [seed + 1, seed + 2] {
        let worker = DurableClient::open(Faulty::store(&memory, faults, seed));
        let executor = DurableExecutor::builder(worker)
            .register::<Workflow>()
            .max_running(8)
            .retry(
                Retry::exponential()
                    .base(Duration::from_millis(1))
                    .attempts(1_000),
            )
            .lease(Duration::from_millis(400))
            .start(StdArc::clone(&outputs))
            .await;
        executors.push(executor.expect("the store answers in time"));
    }
    let options = SpawnOptions::new().max_crashes(1_000);
    let tasks = (0..WORKFLOWS).map(|number| (Workflow(number), options.clone()));
    let handles = reliable.spawn_all_with(tasks).await.unwrap();
    let signals = (0..).zip(&handles);
    let signals = signals.map(|(number, handle)| signal(&producer, handle.id(), number));
    futures::future::join_all(signals).await;
    for (number, handle) in (0..).zip(handles) {
        // A lost wake-up would take hours.
        let output = tokio::time::timeout(Duration::from_secs(60), handle).await;
        let output = output.expect("no wake-up is lost").expect("it succeeds");
        assert_eq!(output[2], number);
        for (step, output) in [(0, output[0]), (1, output[1]), (2, output[3])] {
            let seen = &lock(&outputs)[&(number, step)];
            assert_eq!(seen, &BTreeSet::from([output]), "step {step} of {number}");
        }
    }
    for executor in executors {
        executor.shutdown(Duration::from_secs(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_runs_see_the_same_outputs_on_a_store_that_loses_requests_and_answers() {
    for seed in 0..3 {
        all_runs_see_the_same_outputs(30, 100 * seed).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_runs_see_the_same_outputs_on_a_store_that_hardly_ever_answers() {
    all_runs_see_the_same_outputs(60, 7).await;
}
