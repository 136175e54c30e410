//! Idle executors cost nothing, and a dropped client leaves nothing behind.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use throng::durable::SpawnOptions;

use crate::harness::{TestStore, spawn, spawn_as, start, until};
use crate::support::within;

on_all_stores! {
    an_idle_executor_asks_for_nothing,
    an_executor_that_waits_for_a_delayed_task_asks_for_nothing,
    a_task_of_another_process_wakes_an_idle_executor,
}

/// A time in which an executor that polls would make a turn.
const SPAN: Duration = Duration::from_millis(300);

async fn an_idle_executor_asks_for_nothing(store: TestStore) {
    let (client, other) = (store.client().await, store.client().await);
    let executors = [
        start(&client, |number, _| async move { Ok(number) }).await,
        start(&other, |number, _| async move { Ok(number) }).await,
    ];
    within(spawn(&client, 1).await).await.unwrap();
    assert_idle(|| executors.each_ref().map(|it| it.metrics().turns)).await;
}

/// Waits until the executors are idle, and asserts that they make no turns from then on.
async fn assert_idle<T: PartialEq + Debug>(turns: impl Fn() -> T) {
    let before = until_idle(&turns).await;
    tokio::time::sleep(SPAN).await;
    assert_eq!(turns(), before);
}

/// Waits until executors make no more turns, and returns the number of those that they have made. After a task, an executor may
/// make another turn, to claim what was stored meanwhile.
async fn until_idle<T: PartialEq>(turns: impl Fn() -> T) -> T {
    let idle = async {
        loop {
            let before = turns();
            tokio::time::sleep(SPAN).await;
            if turns() == before {
                return before;
            }
        }
    };
    within(idle).await
}

async fn an_executor_that_waits_for_a_delayed_task_asks_for_nothing(store: TestStore) {
    let client = store.client().await;
    let executor = start(&client, |number, _| async move { Ok(number) }).await;
    let later = SpawnOptions::new().delay(Duration::from_secs(3600));
    let _handle = spawn_as(&client, 1, later).await;
    assert_idle(|| executor.metrics().turns).await;
}

async fn a_task_of_another_process_wakes_an_idle_executor(store: TestStore) {
    let (client, other) = (store.client().await, store.client().await);
    let executor = start(&client, |number, _| async move { Ok(number) }).await;
    until("it has looked", || executor.metrics().turns > 0).await;
    let mut best = Duration::MAX;
    // The shortest of some times counts: other programs use the machine and its disk.
    for number in 0..100 {
        until_idle(|| executor.metrics().turns).await;
        let begin = Instant::now();
        let handle = spawn(&other, number).await;
        within(handle).await.unwrap();
        best = best.min(begin.elapsed());
        if best < Duration::from_millis(50) {
            return;
        }
    }
    panic!("{best:?}");
}

#[cfg(target_os = "linux")]
mod threads {
    use std::fs;

    use futures::executor::block_on;
    use throng::durable::{DurableClient, MemoryStore};

    use crate::harness::{Number, start};
    use crate::support::{current_thread, wait_until};

    /// The threads of clients that were started by this thread or by none of the tests.
    fn threads() -> usize {
        let tasks = fs::read_dir("/proc/self/task").unwrap();
        let names =
            tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
        names
            .filter(|name| name.starts_with("throng-durable"))
            .count()
    }

    /// In a process of its own: the other tests have threads of the same name.
    fn is_own(test: &str) -> bool {
        const IN_CHILD: &str = "THRONG_TEST_IN_CHILD";
        if std::env::var_os(IN_CHILD).is_some() {
            return true;
        }
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env(IN_CHILD, "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&child.stdout);
        let complained = String::from_utf8_lossy(&child.stderr);
        assert!(child.status.success(), "{said}{complained}");
        assert!(said.contains("1 passed"), "it did not run: {said}");
        false
    }

    #[test]
    fn a_client_has_one_thread_which_ends_with_it() {
        if !is_own("idle::threads::a_client_has_one_thread_which_ends_with_it") {
            return;
        }
        assert_eq!(threads(), 0);
        let client = DurableClient::open(MemoryStore::new());
        let handle = block_on(client.spawn(Number(1))).unwrap();
        wait_until("there is one thread", || threads() == 1);
        let clone = client.clone();
        drop(client);
        drop(clone);
        assert!(block_on(handle.status()).is_ok(), "the handle keeps it");
        drop(handle);
        wait_until("the thread has ended", || threads() == 0);
    }

    #[test]
    fn the_thread_ends_with_the_executor_and_its_runtime() {
        if !is_own("idle::threads::the_thread_ends_with_the_executor_and_its_runtime") {
            return;
        }
        let runtime = current_thread();
        let executor = runtime.block_on(async {
            let client = DurableClient::open(MemoryStore::new());
            start(&client, |number, _| async move { Ok(number) }).await
        });
        wait_until("there is one thread", || threads() == 1);
        drop(executor);
        wait_until("the thread has ended", || threads() == 0);

        let executor = runtime.block_on(async {
            let client = DurableClient::open(MemoryStore::new());
            let executor = start(&client, |number, _| async move {
                std::future::pending::<()>().await;
                Ok(number)
            })
            .await;
            let handle = client.spawn(Number(1)).await.unwrap();
            crate::harness::reaches(&handle, throng::durable::Status::Running).await;
            executor
        });
        drop(executor);
        drop(runtime);
        wait_until("the thread has ended", || threads() == 0);
    }

    #[test]
    fn a_hundred_clients_leave_nothing_behind() {
        if !is_own("idle::threads::a_hundred_clients_leave_nothing_behind") {
            return;
        }
        for _ in 0..100 {
            let client = DurableClient::open(MemoryStore::new());
            drop(block_on(client.spawn(Number(1))).unwrap());
        }
        wait_until("the threads have ended", || threads() == 0);
    }
}
