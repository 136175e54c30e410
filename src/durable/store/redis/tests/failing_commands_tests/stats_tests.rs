//! Commands fail while statistics are recorded and read.

use super::*;
use crate::durable::RunTotals;
use crate::durable::store::{ReadStats, RunType, StatReport};

fn report(number: u64) -> Arc<StatReport> {
    let run_type = |name: &str| RunType::new(&name.into(), &QueueName::DEFAULT);
    let runs = RunTotals::of([1; 5], Duration::from_micros(1));
    Arc::new(StatReport {
        reporter: 7,
        number,
        runs: vec![(run_type("job"), runs), (run_type("other"), runs)],
    })
}

/// A report that is sent again counts once, whatever has happened to it the first time.
#[tokio::test]
async fn a_report_is_recorded_as_a_whole_and_once() {
    needs_redis!();
    for_each_command(async |scene, trial| {
        let store = &scene.worker.store;
        store.record_stats(report(1)).await.unwrap();
        let record = async || {
            // It also fails if one of its commands fails.
            store.overview().await?;
            store.record_stats(report(2)).await
        };
        let (recorded, has_failed) = scene.send(trial, true, record).await;
        assert!(recorded.is_ok(), "{trial:?}: {recorded:?}");
        let page = store.stats(ReadStats::last_hour()).await.unwrap();
        let done: Vec<_> = page.rows.iter().map(|row| row.2.done).collect();
        assert_eq!(done, [2, 2], "{trial:?}");
        has_failed
    })
    .await;
}
