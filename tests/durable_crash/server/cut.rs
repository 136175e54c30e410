//! All connections to a server are cut again and again.

use std::time::{Duration, Instant};

use throng::durable::SpawnOptions;
use tokio::time::sleep;

use crate::database::Database;
use crate::job::Job;
use crate::load::Load;
use crate::postgres_proxy::{CommitFate, CommitProxy};
use crate::site::{EVERYSEC, LEASED, Site};
use crate::support::{Numbers, rounds};

/// The number of tasks that are enough to measure the speed.
const SOME: usize = 200;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_and_it_goes_on_as_before() {
    needs_redis!();
    let site = Site::behind_proxy(&EVERYSEC).await;
    goes_on_as_before(site, Site::cut).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_when_postgres_ends_connections() {
    needs_postgres!();
    let site = Site::database().await;
    goes_on_as_before(site, Site::cut).await;
}

/// Notifications are lost, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_waits_when_postgres_ends_the_connections_of_listeners() {
    needs_postgres!();
    let mut ended = 0;
    let site = Site::database().await;
    goes_on_as_before(site, |site| ended += site.postgres().cut_listeners()).await;
    assert!(ended > 0, "there were some");
}

/// Each time, the answer to a COMMIT is lost, or the COMMIT itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_repeated_when_commits_of_postgres_or_their_answers_are() {
    needs_postgres!();
    let database = Database::shared();
    let proxy = CommitProxy::to(database.server().socket());
    let site = Site::database_behind(database, &proxy).await;
    let mut fates = [CommitFate::Unanswered, CommitFate::Dropped]
        .into_iter()
        .cycle();
    let decide = |_: &Site| proxy.decide(fates.next().expect("they never end"));
    goes_on_as_before(site, decide).await;
}

/// Cuts connections for some seconds, under load. Each task runs once, and afterwards tasks run as fast as before.
async fn goes_on_as_before(site: Site, mut cut: impl FnMut(&Site)) {
    let mut workers = [site.worker(LEASED).await, site.worker(LEASED).await];
    let mut load = Load::start(&site.client, 4, || (Job::Work(2), SpawnOptions::new()));
    let before = time_of_some(&mut load).await;

    let mut random = Numbers::new(u64::from(std::process::id()));
    let end = Instant::now() + Duration::from_secs(rounds(10, 60) as u64);
    let mut cuts = 0;
    while Instant::now() < end {
        sleep(Duration::from_millis(50 + random.below(450))).await;
        cut(&site);
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
