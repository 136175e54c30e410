//! Schedules: executors fire them, and run their tasks.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use throng::durable::{
    DurableClient, Every, Key, Missed, Overlap, Priority, ScheduleInfo, ScheduleOptions,
    SpawnOptions, TaskContext,
};

use crate::harness::{App, Door, Number, TestStore, builder, id, spawn, start, timed, until};
use crate::support::within;

on_all_stores! {
    each_tick_runs_once,
    a_schedule_that_many_processes_define_exists_once,
}

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// The number of runs of each tick.
#[derive(Clone, Default)]
struct Ticks(Arc<Mutex<BTreeMap<SystemTime, usize>>>);

impl Ticks {
    fn record(&self, cx: &TaskContext<App>) {
        let tick = cx.tick().expect("a schedule has stored it");
        *self.0.lock().unwrap().entry(tick).or_default() += 1;
    }

    fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

/// Two processes fire the schedule of a third process, and run its tasks.
async fn each_tick_runs_once(store: TestStore) {
    let (ticks, client) = (Ticks::default(), store.client().await);
    let options = ScheduleOptions::new()
        .missed(Missed::All(64))
        .overlap(Overlap::Allow);
    let every = Every::new(SECOND);
    let defined = client.schedule_with("a", every, Number(7), options).await;
    assert!(defined.unwrap());
    let mut executors = Vec::new();
    for _ in 0..2 {
        let ticks = ticks.clone();
        let act = move |number, cx: TaskContext<App>| {
            ticks.record(&cx);
            async move { Ok(number) }
        };
        executors.push(start(&store.client().await, act).await);
    }
    until("three ticks have run", || ticks.len() >= 3).await;
    assert!(client.schedules().remove("a").await.unwrap());
    for executor in &executors {
        executor.shutdown(SECOND).await;
    }
    let ticks = ticks.0.lock().unwrap();
    let mut expected = *ticks.keys().next().unwrap();
    for (&tick, &runs) in &*ticks {
        assert_eq!((tick, runs), (expected, 1));
        assert_eq!(tick.duration_since(UNIX_EPOCH).unwrap().subsec_nanos(), 0);
        expected += SECOND;
    }
    let fired: u64 = executors
        .iter()
        .map(|executor| executor.metrics().fired)
        .sum();
    assert!(fired >= ticks.len() as u64);
}

async fn a_schedule_that_many_processes_define_exists_once(store: TestStore) {
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let client = store.client().await;
        tasks.push(tokio::spawn(async move {
            for number in 0..20 {
                let name = format!("{}", number % 5);
                let every = Every::new(3600 * SECOND);
                assert!(client.schedule(&name, every, Number(1)).await.unwrap());
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let client = store.client().await;
    let all = client.schedules().list(None, 100).await.unwrap();
    assert_eq!(all.len(), 5);
    let next = all[0].next_tick;
    assert!(next > Some(SystemTime::now()));
    for info in all {
        assert_eq!((info.next_tick, info.last_tick), (next, None));
        assert_eq!(
            (info.started, &*info.task, &*info.when),
            (0, "number", "every hour")
        );
        assert!(!info.is_paused && info.stuck.is_none());
    }
}

/// Waits until the state of a schedule fulfils a condition.
async fn reaches(client: &DurableClient, name: &str, condition: fn(&ScheduleInfo) -> bool) {
    let info = async || client.schedules().get(name).await.unwrap();
    let waits = async {
        while !condition(&info().await.expect("there is such a schedule")) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    within(waits).await;
}

#[tokio::test]
async fn a_running_executor_fires_at_the_tick() {
    let (clock, client) = timed();
    let ticks = Ticks::default();
    let ran = ticks.clone();
    let _executor = start(&client, move |number, cx| {
        ran.record(&cx);
        async move { Ok(number) }
    })
    .await;
    client
        .schedule("a", Every::new(MINUTE), Number(7))
        .await
        .unwrap();
    for round in 1..=5 {
        clock.advance(MINUTE);
        until("the tick has run", || ticks.len() == round).await;
    }
    assert!(ticks.0.lock().unwrap().values().all(|&runs| runs == 1));
}

/// All permits are taken, so the executor claims no task.
#[tokio::test]
async fn a_busy_executor_fires_at_the_tick() {
    let (clock, client) = timed();
    let (door, held) = (Door::new(), Door::new());
    let (blocked, begun) = (door.clone(), held.clone());
    let mut builder = builder(&client);
    let executor = builder.max_running(1).start(App::new(move |number, cx| {
        let (door, begun) = (blocked.clone(), begun.clone());
        async move {
            begun.open();
            if cx.tick().is_none() {
                door.pass().await;
            }
            Ok(number)
        }
    }));
    let executor = executor.await.unwrap();
    client
        .schedule("a", Every::new(MINUTE), Number(7))
        .await
        .unwrap();
    let blocking = spawn(&client, 1).await;
    within(held.pass()).await;
    for round in 1..=2 {
        clock.advance(MINUTE);
        // The task of the first tick waits for the permit, so the second tick is skipped.
        match round {
            1 => reaches(&client, "a", |info| info.started == 1).await,
            _ => reaches(&client, "a", |info| info.skipped == 1).await,
        }
    }
    door.open();
    assert_eq!(within(blocking).await.unwrap(), 1);
    let last = client
        .schedules()
        .get("a")
        .await
        .unwrap()
        .unwrap()
        .last_task;
    let task = client.attach::<Number>(last.expect("there is one"));
    assert_eq!(within(task).await.unwrap(), 7);
    executor.shutdown(Duration::ZERO).await;
}

/// No worker is woken for a schedule that is defined while all permits are taken, so the executor asks for one now and then.
#[tokio::test]
async fn a_busy_executor_learns_of_a_new_schedule() {
    let (clock, client) = timed();
    let (door, held) = (Door::new(), Door::new());
    let (blocked, begun) = (door.clone(), held.clone());
    let mut builder = builder(&client);
    builder.lease(Duration::from_millis(100)).max_running(1);
    let executor = builder.start(App::new(move |number, _| {
        let (door, begun) = (blocked.clone(), begun.clone());
        async move {
            begun.open();
            door.pass().await;
            Ok(number)
        }
    }));
    let executor = executor.await.unwrap();
    let _blocking = spawn(&client, 1).await;
    within(held.pass()).await;
    let minute = Every::new(MINUTE);
    client.schedule("a", minute, Number(7)).await.unwrap();
    clock.advance(MINUTE);
    reaches(&client, "a", |info| info.started >= 1).await;
    executor.shutdown(Duration::ZERO).await;
}

#[tokio::test]
async fn tasks_have_the_options_of_their_schedule() {
    let (_, client) = timed();
    let spawn = SpawnOptions::new().queue("q").priority(Priority::High);
    let options = ScheduleOptions::new().spawn(spawn);
    let every = Every::new(MINUTE);
    client
        .schedule_with("a", every, Number(7), options)
        .await
        .unwrap();
    let id = client.schedules().fire_now("a").await.unwrap().unwrap();
    let mut builder = builder(&client);
    builder.serve(throng::durable::ServedQueue::new("q"));
    let executor = builder.start(App::new(|number, cx| async move {
        assert!(cx.tick().is_some());
        Ok(number)
    }));
    let _executor = executor.await.unwrap();
    assert_eq!(within(client.attach::<Number>(id)).await.unwrap(), 7);
}

#[tokio::test]
async fn a_task_of_no_schedule_has_no_tick() {
    let (_, client) = timed();
    let _executor = start(&client, |number, cx| async move {
        assert_eq!(cx.tick(), None);
        Ok(number)
    })
    .await;
    assert_eq!(within(spawn(&client, 3).await).await.unwrap(), 3);
}

#[tokio::test]
async fn invalid_definitions_are_refused() {
    let (_, client) = timed();
    let minute = Every::new(MINUTE);
    let refused = async |name: &str, every, options| {
        let defined = client.schedule_with(name, every, Number(1), options).await;
        let error = defined.unwrap_err();
        assert!(error.is_invalid(), "{error}");
        error.to_string()
    };
    let spawn = |options| ScheduleOptions::new().spawn(options);
    refused("", minute, ScheduleOptions::new()).await;
    refused("a b", minute, ScheduleOptions::new()).await;
    refused("a", Every::new(Duration::ZERO), ScheduleOptions::new()).await;
    let error = refused("a", Every::new(Duration::MAX), ScheduleOptions::new()).await;
    assert!(error.contains("there is no time"), "{error}");
    refused("a", minute, spawn(SpawnOptions::new().id(id(1)))).await;
    refused("a", minute, spawn(SpawnOptions::new().key(Key::new("k")))).await;
    refused("a", minute, spawn(SpawnOptions::new().delay(SECOND))).await;
    refused("a", minute, spawn(SpawnOptions::new().queue("a b"))).await;
    let error = refused("a", minute, ScheduleOptions::new().missed(Missed::All(3))).await;
    assert!(error.contains("Overlap::Allow"), "{error}");
    assert_eq!(client.schedules().list(None, 9).await.unwrap(), []);
}

#[cfg(feature = "cron")]
#[tokio::test]
async fn a_cron_expression_fires_in_its_zone() {
    let (clock, client) = timed();
    let cron = throng::durable::Cron::parse("0 3 * * *", "Europe/Berlin").unwrap();
    client.schedule("a", cron, Number(7)).await.unwrap();
    let info = client.schedules().get("a").await.unwrap().unwrap();
    assert_eq!(info.when, "0 3 * * * Europe/Berlin");
    let next = info.next_tick.unwrap().duration_since(UNIX_EPOCH).unwrap();
    // The manual clock begins in September. In summer, three o'clock in Berlin is one o'clock in UTC.
    assert_eq!(next.as_secs() % (24 * 3600), 3600);
    let _executor = start(&client, |number, _| async move { Ok(number) }).await;
    clock.advance(24 * 3600 * SECOND);
    reaches(&client, "a", |info| info.started >= 1).await;
}
