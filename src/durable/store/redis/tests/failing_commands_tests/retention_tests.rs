//! Commands fail while the retention changes, and while it removes ends.

use super::*;
use crate::durable::Retention;

fn strict() -> Retention {
    Retention::default()
        .dead_for(SECOND)
        .dead_most(0)
        .kept_most(1)
}

/// The retention is the old one or the new one, whatever has failed, and a request that is sent again changes it.
#[tokio::test]
async fn a_retention_changes_as_a_whole() {
    needs_redis!();
    for_each_command(async |scene, trial| {
        let store = &scene.worker.store;
        let before = Retention::default().kept_most(7);
        store.set_retention(before).await.unwrap();
        let set = || store.set_retention(strict());
        let (set, has_failed) = scene.send(trial, false, set).await;
        let after = store.retention().await.unwrap();
        match set {
            Ok(()) => assert_eq!(after, strict(), "{trial:?}"),
            Err(_) => assert!([before, strict()].contains(&after), "{trial:?}: {after:?}"),
        }
        let read = || store.retention();
        let (read, has_read_failed) = scene.send(trial, false, read).await;
        match read {
            Ok(read) => assert_eq!(read, after, "{trial:?}"),
            Err(failure) => assert!(has_read_failed, "{trial:?}: {failure}"),
        }
        store.set_retention(strict()).await.unwrap();
        assert_eq!(store.retention().await.unwrap(), strict(), "{trial:?}");
        store.set_retention(Retention::default()).await.unwrap();
        has_failed
    })
    .await;
}

#[tokio::test]
async fn maintenance_removes_what_is_in_excess_after_all() {
    needs_redis!();
    for_each_command(async |scene, trial| {
        scene.worker.turn(all_verdicts(&scene.claim), 0).await;
        let store = &scene.worker.store;
        let strict = strict().dead_for(HOUR);
        store.set_retention(strict).await.unwrap();
        let (more, has_failed) = scene.send(trial, true, || store.maintain(100)).await;
        assert!(more.is_ok(), "{trial:?}: {more:?}");
        while store.maintain(100).await.unwrap() {}
        let counts = store.counts().await.unwrap();
        assert_eq!((counts.dead, counts.kept), (0, 1), "{trial:?}");
        // The rest of the trial expects the usual ends.
        store.set_retention(Retention::default()).await.unwrap();
        has_failed
    })
    .await;
}
