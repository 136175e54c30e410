//! A task is awaited by processes that did not spawn it, and of which some are killed.

use throng::durable::TaskId;

use super::child::Role;
use super::job::Job;
use super::process::Process;
use super::site::Site;

on_all_stores! {
    who_waits_is_killed_and_its_successor_gets_the_output,
}

async fn who_waits_is_killed_and_its_successor_gets_the_output(site: Site) {
    let id = site.spawn(Job::Wait).await.id();
    let mut worker = site.worker(site.work()).await;
    site.begun(id, &worker).await;
    let mut first = awaiter(&site, id).await;
    first.kill();
    let mut second = awaiter(&site, id).await;
    assert_eq!(second.heard("run by "), [""; 0]);

    site.folder.open_gate();
    let pid = worker.pid().to_string();
    assert_eq!(second.wait_for_line("run by ").await, pid);
    assert!(second.died().await.success());
    worker.stop(0).await;
    // When no worker is left, the output still is.
    let third = awaiter(&site, id).await;
    assert_eq!(third.wait_for_line("run by ").await, pid);
    assert_eq!(first.heard("run by "), [""; 0]);
    assert_eq!(site.settled().await.claimed, 1);
}

/// A process that awaits a task.
async fn awaiter(site: &Site, id: TaskId) -> Process {
    let awaiter = Process::start(&site.plan(Role::Awaiter { id }));
    awaiter.wait_for_line("awaits").await;
    awaiter
}
