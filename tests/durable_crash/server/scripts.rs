//! A server forgets its scripts, under load.

use std::time::Duration;

use throng::durable::SpawnOptions;
use tokio::time::sleep;

use crate::job::Job;
use crate::load::Load;
use crate::site::{EVERYSEC, LEASED, Site};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_notices() {
    needs_redis!();
    let mut site = Site::server(&EVERYSEC).await;
    let mut workers = [site.worker(LEASED).await, site.worker(LEASED).await];
    let mut load = Load::start(&site.client, 4, || (Job::Work(1), SpawnOptions::new()));
    for _ in 0..50 {
        load.goes_on(5).await;
        site.redis().ask(&["SCRIPT", "FLUSH"]);
        // Most are forgotten while others run.
        sleep(Duration::from_millis(5)).await;
    }
    load.ends_well(site, &mut workers).await;
    for worker in &mut workers {
        assert_eq!(worker.wait_for_line("failures ").await, "0");
    }
}
