//! All connections to a server are cut again and again.

use std::time::{Duration, Instant};

use throng::durable::SpawnOptions;
use tokio::time::sleep;

use crate::job::Job;
use crate::load::Load;
use crate::site::{EVERYSEC, LEASED, Site};
use crate::support::{Numbers, rounds};

/// How many tasks show how fast it goes.
const SOME: usize = 200;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_and_it_goes_on_as_before() {
    needs_redis!();
    let site = Site::behind_proxy(&EVERYSEC).await;
    let mut workers = [site.worker(LEASED).await, site.worker(LEASED).await];
    let mut load = Load::start(&site.client, 4, || (Job::Work(2), SpawnOptions::new()));
    let before = time_of_some(&mut load).await;

    let mut random = Numbers::new(u64::from(std::process::id()));
    let end = Instant::now() + Duration::from_secs(rounds(10, 60) as u64);
    let mut cuts = 0;
    while Instant::now() < end {
        sleep(Duration::from_millis(50 + random.below(450))).await;
        site.proxy().cut();
        cuts += 1;
    }
    let meanwhile = load.counts();
    let after = time_of_some(&mut load).await;
    println!("{SOME} tasks took {before:?}, and {after:?} after {cuts} cuts; {meanwhile:?}");
    assert!(
        after < 2 * before + Duration::from_secs(2),
        "{before:?}, {after:?}"
    );

    load.ends_well(site, &mut workers).await;
}

async fn time_of_some(load: &mut Load) -> Duration {
    let start = Instant::now();
    load.goes_on(SOME).await;
    start.elapsed()
}
