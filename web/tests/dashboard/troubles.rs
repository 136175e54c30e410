//! What an operator sees first of a store that has troubles.

use throng::durable::{
    DurableClient, DurableExecutor, MemoryStore, ServedQueue, SpawnOptions, Status,
};
use tokio::sync::Semaphore;

use crate::stage::{Act, Mail, define, spawn};
use crate::support::{PREFIX, get, links, operated, resolve, until};

/// An operator sees at once that a queue is paused, that nobody knows a type, and that a task kills its workers, and where to go.
#[tokio::test]
async fn the_overview_leads_to_what_needs_attention() {
    let client = DurableClient::open(MemoryStore::new());
    let poisoned = kill_workers(&client).await;
    let _worker = start_worker(&client).await;
    define(&client).await;
    spawn(&client, Act::Succeed, SpawnOptions::new().queue("bulk")).await;
    let app = operated(&client);
    let overview = format!("{PREFIX}/s/mail");
    let page = get(&app, &overview).await.text;
    let warnings = page.split("<p class=\"warning\">").skip(1);
    let warnings: Vec<_> = warnings
        .filter_map(|rest| rest.split("</p>").next())
        .collect();
    assert_eq!(warnings.len(), 3, "{warnings:#?}");
    for (text, target, shown) in [
        ("paused queues: bulk", "/queues", "Resume"),
        ("registered: report.build", "/types", "not served"),
        (&poisoned, "/dead", "crashes"),
    ] {
        let warning = warnings.iter().find(|it| it.contains(text));
        let warning = warning.unwrap_or_else(|| panic!("{text} is missing: {warnings:#?}"));
        let links = links(&format!(" {warning}"));
        let [link] = &links[..] else {
            panic!("{warning} has one link");
        };
        let link = resolve(&overview, link);
        assert_eq!(link, format!("{PREFIX}/s/mail{target}"));
        let page = get(&app, &link).await.text;
        assert!(page.contains(shown), "{shown}: {page}");
    }
}

/// Ends workers while they run a task, until it is a dead letter. Returns its description.
async fn kill_workers(client: &DurableClient) -> String {
    let options = SpawnOptions::new().max_crashes(1);
    let id = spawn(client, Act::Hang, options).await;
    let is = async |status| client.status(id).await.unwrap() == status;
    for _ in 0..5 {
        let mut executor = DurableExecutor::builder(client.clone())
            .register::<Mail>()
            .start_inline(Semaphore::new(0))
            .await
            .unwrap();
        let run = tokio::spawn(async move { executor.run_due().await.ok() });
        until("the task runs", async || is(Status::Running).await).await;
        run.abort();
        until("the worker ends", async || !is(Status::Running).await).await;
        if is(Status::Dead).await {
            return format!("mail.send ({id})");
        }
    }
    panic!("the task is no dead letter");
}

/// Starts a worker that serves the default queue and the queue `bulk`.
async fn start_worker(client: &DurableClient) -> DurableExecutor {
    let worker = DurableExecutor::builder(client.clone())
        .register::<Mail>()
        .serve(ServedQueue::default_queue())
        .serve(ServedQueue::new("bulk"))
        .start(Semaphore::new(0))
        .await;
    worker.expect("the worker starts")
}
