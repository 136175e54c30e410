//! Replays from a step on a store that loses requests and answers.

use super::*;
use crate::durable::{Changed, TaskChange};

/// Runs two steps, and fails for good.
#[derive(Serialize, Deserialize)]
struct Failing;

impl DurableTask for Failing {
    const NAME: &'static str = "failing";
    type Output = ();
}

/// The number of runs of the second step.
type Runs = Mutex<u64>;

impl Run<StdArc<Runs>> for Failing {
    async fn run(self, cx: TaskContext<StdArc<Runs>>) -> Result<(), TaskError> {
        cx.step("first", async || Ok(())).await?;
        let second = async || {
            *lock(cx.app()) += 1;
            Ok(())
        };
        cx.step("second", second).await?;
        Err(TaskError::fatal("it always fails"))
    }
}

/// The task has often run again before the request is sent again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replay_whose_answer_is_lost_has_one_effect() {
    const REPLAYS: u64 = 30;
    let memory = MemoryStore::new();
    let client = DurableClient::open(memory.clone());
    let runs = StdArc::new(Runs::default());
    let executor = DurableExecutor::builder(client.clone())
        .register::<Failing>()
        .start(StdArc::clone(&runs))
        .await
        .unwrap();
    let handle = client.spawn(Failing).await.unwrap();
    let id = handle.id();
    handle.await.unwrap_err();
    let operator = DurableClient::open(Faulty::store(&memory, 60, 1));
    for replay in 1..=REPLAYS {
        let change = TaskChange::replay_from("second");
        let changed = operator.admin().change(id, change).await.unwrap();
        assert_eq!(changed, Changed::Yes);
        client.attach::<Failing>(id).await.unwrap_err();
        assert_eq!(*lock(&runs), 1 + replay);
    }
    executor.shutdown(Duration::from_secs(5)).await;
}
