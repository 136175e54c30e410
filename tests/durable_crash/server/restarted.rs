//! A task is awaited by its id in other processes, and the server is started again meanwhile.

use crate::child::Role;
use crate::job::Job;
use crate::process::Process;
use crate::site::{ALWAYS, LEASED, Site};

#[tokio::test]
async fn who_awaits_a_task_gets_its_output_all_the_same() {
    needs_redis!();
    gets_its_output(Site::server(&ALWAYS).await).await;
}

#[tokio::test]
async fn who_awaits_a_task_in_postgres_gets_its_output_all_the_same() {
    needs_postgres!();
    gets_its_output(Site::durable_database().await).await;
}

async fn gets_its_output(mut site: Site) {
    let id = site.spawn(Job::Wait).await.id();
    let mut worker = site.worker(LEASED).await;
    site.begun(id, &worker).await;
    let mut first = Process::start(&site.plan(Role::Awaiter { id }));
    first.wait_for_line("awaits").await;

    restart(&mut site);
    // A handle that begins to wait only now is resolved, too.
    let mut second = Process::start(&site.plan(Role::Awaiter { id }));
    second.wait_for_line("awaits").await;
    site.folder.open_gate();
    let pid = worker.pid().to_string();
    for awaiter in [&mut first, &mut second] {
        assert_eq!(awaiter.wait_for_line("run by ").await, pid);
        assert!(awaiter.died().await.success());
    }
    worker.stop(0).await;

    restart(&mut site);
    // When no worker is left, and the server has read it from its disk, the output still is there.
    let mut third = Process::start(&site.plan(Role::Awaiter { id }));
    assert_eq!(third.wait_for_line("run by ").await, pid);
    assert!(third.died().await.success());
    assert_eq!(site.settled().await.claimed, 1);
    site.ends(0).await;
}

fn restart(site: &mut Site) {
    site.kill_server();
    site.run_server();
}
