//! A server is killed that has on its disk whatever it has answered.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
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
/// The same for PostgreSQL, which needs some time to recover: meanwhile, the pauses between two attempts grow to two seconds.
const MAX_RECONNECT_AFTER_RECOVERY: Duration = Duration::from_secs(5);

/// A way to end a server, and to start it again.
#[derive(Clone, Copy)]
struct Failure {
    end: fn(&mut Site),
    start: fn(&mut Site),
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_it_has_answered_is_lost_and_all_go_on_by_themselves() {
    needs_redis!();
    let killed = Failure {
        end: Site::kill_server,
        start: Site::run_server,
    };
    let site = Site::server(&ALWAYS).await;
    all_go_on(site, &[killed], rounds(2, 10), MAX_RECONNECT).await;
}

/// In turn, PostgreSQL is stopped at once, and all of its processes are killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_postgres_has_answered_is_lost_and_all_go_on_by_themselves() {
    needs_postgres!();
    let stopped = Failure {
        end: |site| site.postgres().server().crash(),
        start: Site::run_server,
    };
    let killed = Failure {
        end: Site::kill_server,
        start: Site::run_server,
    };
    let site = Site::durable_database().await;
    let limit = MAX_RECONNECT_AFTER_RECOVERY;
    all_go_on(site, &[stopped, killed], rounds(5, 50), limit).await;
}

/// PostgreSQL then ends all connections, and recovers by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_backend_of_postgres_costs_nothing_else() {
    needs_postgres!();
    let killed = Failure {
        end: kill_backend,
        start: |site| site.postgres().server().revive(),
    };
    let site = Site::durable_database().await;
    all_go_on(site, &[killed], rounds(3, 50), MAX_RECONNECT_AFTER_RECOVERY).await;
}

/// Ends a server in one way after the other, under load, and starts it again each time. Within the limit, all processes work again.
async fn all_go_on(mut site: Site, failures: &[Failure], times: usize, limit: Duration) {
    let mut workers = [site.worker(WORK).await, site.worker(WORK).await];
    let mut load = Load::start(&site.client, 4, || (Job::Work(5), SpawnOptions::new()));
    for failure in failures.iter().cycle().take(times) {
        load.goes_on(100).await;
        (failure.end)(&mut site);
        sleep(AWAY).await;
        let before = load.counts();
        (failure.start)(&mut site);
        let back = Instant::now();
        load.goes_on(1).await;
        let needed = back.elapsed();
        println!("from {before:?} on, all work again after {needed:?}");
        assert!(needed < limit, "{needed:?}");
    }
    load.ends_well(site, &mut workers).await;
}

fn kill_backend(site: &mut Site) {
    let backend = site.postgres().number(
        "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'throng-%'
         ORDER BY random() LIMIT 1",
    );
    let backend = Pid::from_raw(backend as i32).expect("the id of a process");
    kill_process(backend, Signal::KILL).expect("it can be killed");
}
