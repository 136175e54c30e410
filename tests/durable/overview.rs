//! The overview of a store, and the statistics of its runs.

use std::time::{Duration, SystemTime};

use throng::durable::{
    DurableClient, QueueSettings, RunTotals, SpawnOptions, StatsFilter, TaskError,
};

use crate::harness::{TestStore, spawn, spawn_as, start};
use crate::support::within;

on_all_stores! {
    runs_are_in_the_statistics_when_their_client_is_closed,
    an_overview_shows_queues_and_types,
}

/// Returns the statistics, which are those of numbers.
async fn stats(client: &DurableClient, filter: StatsFilter) -> Vec<RunTotals> {
    let page = client.admin().stats(&filter).await.unwrap();
    assert_eq!(page.next, None);
    assert!(page.rows.iter().all(|row| row.start <= page.now));
    assert!(
        page.rows
            .iter()
            .all(|row| row.name.as_deref() == Some("number"))
    );
    page.rows.iter().map(|row| row.runs).collect()
}

async fn runs_are_in_the_statistics_when_their_client_is_closed(store: TestStore) {
    let (client, viewer) = (store.client().await, store.client().await);
    let _executor = start(&client, |number, cx| async move {
        tokio::time::sleep(Duration::from_millis(1)).await;
        match number {
            7 => Err(TaskError::fatal("bad")),
            8 if cx.attempt() == 1 => Err(TaskError::retry("again")),
            _ => Ok(number),
        }
    })
    .await;
    for number in 0..9 {
        let ended = within(spawn(&client, number).await).await;
        assert_eq!(ended.is_ok(), number != 7);
    }
    client.close().await.unwrap();
    for filter in [StatsFilter::by_minute(), StatsFilter::by_hour()] {
        // A minute may have begun meanwhile.
        let all = stats(&viewer, filter.clone()).await;
        let sum = |number: fn(&RunTotals) -> u64| all.iter().map(number).sum::<u64>();
        let numbers = [
            sum(|it| it.started),
            sum(|it| it.done),
            sum(|it| it.retried),
            sum(|it| it.died),
            sum(|it| it.cancelled),
        ];
        assert_eq!(numbers, [10, 8, 1, 1, 0]);
        let took: Duration = all.iter().map(|it| it.run_time).sum();
        assert!(took >= Duration::from_millis(10) && took < Duration::from_secs(100));
        assert_eq!(stats(&viewer, filter.clone().name("number")).await, all);
        assert_eq!(
            stats(&viewer, filter.clone().last(Duration::from_secs(7200))).await,
            all
        );
        assert_eq!(
            stats(&viewer, filter.clone().from(SystemTime::UNIX_EPOCH)).await,
            all
        );
        for none in [
            filter.clone().name("other"),
            filter.clone().until(SystemTime::UNIX_EPOCH),
            filter.from(SystemTime::now() + Duration::from_secs(7200)),
        ] {
            assert_eq!(stats(&viewer, none).await, []);
        }
    }
    let overview = viewer.admin().overview().await.unwrap();
    let number = overview
        .types
        .iter()
        .find(|it| it.name.as_deref() == Some("number"));
    let number = number.expect("the type is listed");
    assert_eq!((number.last_hour.done, number.is_paused), (8, false));
}

async fn an_overview_shows_queues_and_types(store: TestStore) {
    let client = store.client().await;
    let settings = QueueSettings::new().max_running(4);
    client.queue("gpu").set(settings).await.unwrap();
    client.queue("gpu").pause().await.unwrap();
    client.types().pause("number").await.unwrap();
    let _executor = start(&client, |number, _| async move { Ok(number) }).await;
    spawn(&client, 1).await;
    spawn_as(
        &client,
        2,
        SpawnOptions::new().delay(Duration::from_secs(3600)),
    )
    .await;
    let overview = client.admin().overview().await.unwrap();
    assert_eq!((overview.counts.waiting, overview.counts.delayed), (1, 1));
    let [default, gpu] = &*overview.queues else {
        panic!("{overview:?}");
    };
    assert_eq!((default.info.waiting, default.sessions), (1, 1));
    assert_eq!(
        (gpu.name.as_deref(), gpu.info.is_paused),
        (Some("gpu"), true)
    );
    assert_eq!((gpu.info.settings, gpu.sessions), (settings, 0));
    let number = overview
        .types
        .iter()
        .find(|it| it.name.as_deref() == Some("number"));
    let number = number.expect("the type is listed");
    assert!(number.is_paused && number.is_served);
    assert_eq!(number.last_hour, RunTotals::default());
    let lag = SystemTime::now()
        .duration_since(overview.now)
        .unwrap_or_default();
    assert!(lag < Duration::from_secs(60), "{lag:?}");
    assert!(!overview.has_more_queues && !overview.has_more_types);
}
