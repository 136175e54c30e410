//! A server is killed that has on its disk whatever it has answered.

use std::time::{Duration, Instant};

use throng::durable::SpawnOptions;
use tokio::time::sleep;

use crate::child::Work;
use crate::job::Job;
use crate::load::Load;
use crate::site::{ALWAYS, LEASED, Site};
use crate::support::rounds;

/// A lease that does not end meanwhile.
const WORK: Work = Work {
    lease: 10_000,
    ..LEASED
};

/// For how long the server is away.
const AWAY: Duration = Duration::from_secs(1);
/// The time within which all processes work again after the server has returned.
const MAX_RECONNECT: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_it_has_answered_is_lost_and_all_go_on_by_themselves() {
    needs_redis!();
    let mut site = Site::server(&ALWAYS).await;
    let mut workers = [site.worker(WORK).await, site.worker(WORK).await];
    let mut load = Load::start(&site.client, 4, || (Job::Work(5), SpawnOptions::new()));
    for _ in 0..rounds(2, 10) {
        load.goes_on(100).await;
        site.redis().kill();
        sleep(AWAY).await;
        let before = load.counts();
        site.redis().run();
        let back = Instant::now();
        load.goes_on(1).await;
        let needed = back.elapsed();
        println!("from {before:?} on, all work again after {needed:?}");
        assert!(needed < MAX_RECONNECT, "{needed:?}");
    }
    load.ends_well(site, &mut workers).await;
}
