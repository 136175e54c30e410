//! Many schedules that are due in the same second, and one executor that fires them.

use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use throng::durable::{DurableClient, DurableExecutor, Every, Overlap, ScheduleOptions};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use super::tasks::{Echo, Nothing};
use super::{SPAWNERS, Syncs, new_dir, ours};
use crate::areas::{on_worker, two_workers};
use crate::measure::{Rules, Sample, Section};

const SCHEDULES: u64 = 10_000;

/// The period of all schedules. It is so long that each of them fires once.
const PERIOD: Duration = Duration::from_secs(24 * 3600);

/// The time in which the schedules are defined and the executor comes to rest.
const LEAD: Duration = Duration::from_secs(15);

/// What the executor does apart from firing the schedules.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Tasks {
    /// It runs their tasks.
    Run,
    /// It knows only another type of task.
    Wait,
}

/// Schedules that are defined, and the executor that fires them.
pub(super) struct Due<'a> {
    runtime: &'a Runtime,
    client: DurableClient,
    executor: DurableExecutor,
    schedules: u64,
    due: SystemTime,
}

impl<'a> Due<'a> {
    /// Defines the schedules, starts an executor, and waits for the second in which all schedules are due.
    pub(super) fn begin(
        rules: &Rules,
        runtime: &'a Runtime,
        client: DurableClient,
        tasks: Tasks,
    ) -> Self {
        let schedules = rules.scaled(SCHEDULES);
        let due = full_second(SystemTime::now() + LEAD);
        on_worker(runtime, define_all(client.clone(), schedules, due));
        let mut builder = DurableExecutor::builder(client.clone());
        match tasks {
            Tasks::Run => builder.register::<Nothing>(),
            Tasks::Wait => builder.register::<Echo>(),
        };
        let executor = runtime.block_on(builder.start(()));
        let left = due.duration_since(SystemTime::now());
        let left = left.expect("the schedules are defined before they are due");
        assert!(left > Duration::from_secs(1), "the executor cannot rest");
        thread::sleep(left);
        Self {
            runtime,
            client,
            executor: executor.expect("an executor can be started"),
            schedules,
            due,
        }
    }

    pub(super) fn schedules(&self) -> u64 {
        self.schedules
    }

    /// Waits until all tasks are stored. Returns the time since the schedules were due, in milliseconds.
    pub(super) fn stored(&self) -> f64 {
        let limit = self.due + Duration::from_secs(60);
        while self.executor.metrics().fired < self.schedules {
            assert!(SystemTime::now() < limit, "schedules did not fire");
            thread::sleep(Duration::from_micros(500));
        }
        let since = SystemTime::now().duration_since(self.due);
        since.expect("no schedule fires early").as_secs_f64() * 1e3
    }

    /// Checks that each schedule has stored one task.
    pub(super) fn check(&self) {
        // A schedule that fires twice would store a second task.
        thread::sleep(Duration::from_millis(200));
        let counts = self.runtime.block_on(self.client.counts());
        let counts = counts.expect("the store can be read");
        let stored = counts.waiting + counts.running + counts.done;
        assert_eq!(stored, self.schedules, "{counts:?}");
        assert_eq!(self.executor.metrics().fired, self.schedules);
    }
}

/// The same in SQLite.
pub(super) fn sqlite(rules: &Rules, tasks: Tasks) -> Sample {
    let dir = new_dir(rules);
    let runtime = two_workers().build().expect("a runtime can be built");
    let client = runtime.block_on(ours::open(dir.path()));
    let due = Due::begin(rules, &runtime, client, tasks);
    let (syncs, section) = (Syncs::begin(), Section::begin());
    let took = due.stored();
    let sample = section.end().per_task(due.schedules).with_value(took);
    let sample = syncs.note(sample, due.schedules);
    due.check();
    sample
}

/// Defines all schedules, of which many are defined at once.
async fn define_all(client: DurableClient, schedules: u64, due: SystemTime) {
    let share = schedules.div_ceil(SPAWNERS);
    let definer = |client: DurableClient, first: u64| async move {
        for number in first..schedules.min(first + share) {
            define(&client, number, due).await;
        }
    };
    let definers = (0..SPAWNERS).map(|definer| definer * share);
    let definers = definers.map(|first| definer(client.clone(), first));
    definers.collect::<JoinSet<_>>().join_all().await;
}

async fn define(client: &DurableClient, number: u64, due: SystemTime) {
    let every = Every::new(PERIOD).anchor(due);
    let options = ScheduleOptions::new().overlap(Overlap::Allow);
    let (name, task) = (number.to_string(), Nothing::new(number));
    let defined = client.schedule_with(&name, every, task, options);
    assert!(defined.await.expect("a schedule can be defined"));
}

/// The last full second up to a time.
fn full_second(time: SystemTime) -> SystemTime {
    let since = time.duration_since(UNIX_EPOCH);
    let since = since.expect("the clock is set").as_secs();
    UNIX_EPOCH + Duration::from_secs(since)
}
