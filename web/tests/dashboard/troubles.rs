//! What an operator sees first of a store that has problems.

use throng::durable::{DurableClient, DurableExecutor, ServedQueue, SpawnOptions, SqliteStore};
use tokio::sync::Semaphore;

use crate::crash::crash_workers;
use crate::stage::{Act, Mail, define, spawn};
use crate::support::{PREFIX, get, links, operated, resolve};

/// An operator sees at once that a queue is paused, that no worker has registered a type, and that a task crashes its workers, and where to go.
#[tokio::test]
async fn the_overview_leads_to_what_needs_attention() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tasks.db");
    let client = DurableClient::open(SqliteStore::open(&path).await.unwrap());
    let _worker = start_worker(&client).await;
    let poisoned = crash_workers(&client, &path).await;
    let poisoned = format!("pdf.render ({poisoned})");
    define(&client).await;
    spawn(&client, Act::Succeed, SpawnOptions::new().queue("bulk")).await;
    let app = operated(&client);
    let overview = format!("{PREFIX}/s/mail");
    let page = get(&app, &overview).await.text;
    let warnings = page.split("<p class=\"warning warn\">").skip(1);
    let warnings: Vec<_> = warnings
        .filter_map(|rest| rest.split("</p>").next())
        .collect();
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

/// Starts a worker that serves the default queue and the queue `bulk`.
pub(crate) async fn start_worker(client: &DurableClient) -> DurableExecutor {
    let worker = DurableExecutor::builder(client.clone())
        .register::<Mail>()
        .serve(ServedQueue::default_queue())
        .serve(ServedQueue::new("bulk"))
        .start(Semaphore::new(0))
        .await;
    worker.expect("the worker starts")
}
