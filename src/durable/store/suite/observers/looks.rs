//! All that an observer may ask of a store.

use std::fmt::Debug;

use super::process::*;
use crate::durable::DeadFilter;
use crate::durable::failure::Failure;
use crate::durable::queue::name::QueueName;
use crate::durable::store::{CheckedFilter, ListTasks, ReadStats, Store};

fn text<T: Debug>(answer: Result<T, Failure>) -> String {
    format!("{:?}", answer.expect("a request that reads is answered"))
}

/// Makes all requests that only read. Returns the answers.
pub(in crate::durable::store) async fn look(store: &Store) -> Vec<String> {
    let store = &store.0;
    let ids: Vec<_> = (0..10).map(id).collect();
    let mut seen = vec![
        text(store.status(ids.clone()).await),
        text(store.progress(ids.clone()).await),
        text(store.steps(ids[5]).await),
        text(store.dead_letters(DeadFilter::all(), 9).await),
        text(store.counts().await),
        text(store.overview().await),
        text(store.diagnose().await),
        text(store.stats(ReadStats::last_hour()).await),
        text(store.workers(None, 9).await),
        text(store.paused_types().await),
        text(store.queue(queue_name("q")).await),
        text(store.head(QueueName::DEFAULT, 9).await),
        text(store.head(queue_name("q"), 9).await),
        text(store.worker(1).await),
        text(store.schedules(None, 9).await),
        text(store.schedule(schedule_name("minutely")).await),
        text(store.retention().await),
        text(store.layout().await),
        text(store.probe().await),
        format!("{:?}", store.health()),
        format!("{:?}", store.damage()),
    ];
    for id in ids {
        seen.push(text(store.find(id).await));
        seen.push(text(store.errors(id).await));
        seen.push(text(store.dead_letter_payload(id).await));
    }
    for status in LISTED {
        let filter = CheckedFilter::new(status);
        let request = ListTasks {
            filter,
            after: None,
            limit: 9,
        };
        seen.push(text(store.list(request).await));
    }
    seen
}
