//! What an operator sees first of a store that has problems.

use throng::durable::{
    DurableClient, DurableExecutor, MemoryStore, ServedQueue, SpawnOptions, SqliteStore,
};
use tokio::sync::Semaphore;

use crate::crash::crash_workers;
use crate::stage::{Act, Mail, define, spawn};
use crate::support::{PREFIX, get, links, operated, resolve, until};

/// An operator sees at once that a queue is paused, that no worker has registered a type, and that a task crashes its workers, and where to go.
#[tokio::test]
async fn the_overview_leads_to_what_needs_attention() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tasks.db");
    let client = DurableClient::open(SqliteStore::open(&path).await.unwrap());
    let _worker = start_worker(&client).await;
    let poisoned = crash_workers(&client, &path).await;
    let task = format!("/task/{poisoned}");
    let poisoned =
        format!("pdf.render (<a class=\"id\" href=\"../s/mail/task/{poisoned}\">{poisoned}</a>)");
    define(&client).await;
    spawn(&client, Act::Succeed, SpawnOptions::new().queue("bulk")).await;
    let app = operated(&client);
    let overview = format!("{PREFIX}/s/mail");
    let page = get(&app, &overview).await.text;
    let warnings = page.split("<p class=\"warning warn\">").skip(1);
    let warnings: Vec<_> = warnings
        .filter_map(|rest| rest.split("</p>").next())
        .collect();
    for (text, targets, shown) in [
        ("paused queues: bulk", &["/queues"][..], "Resume"),
        ("registered: report.build", &["/types"], "not served"),
        (&poisoned, &[&task, "/dead"], "crashes"),
    ] {
        let warning = warnings.iter().find(|it| it.contains(text));
        let warning = warning.unwrap_or_else(|| panic!("{text} is missing: {warnings:#?}"));
        let links = links(&format!(" {warning}"));
        let links: Vec<_> = links.iter().map(|it| resolve(&overview, it)).collect();
        let expected = targets.iter().map(|it| format!("{PREFIX}/s/mail{it}"));
        assert_eq!(links, expected.collect::<Vec<_>>(), "{warning}");
        for link in &links {
            let page = get(&app, link).await.text;
            assert!(page.contains(shown), "{link}: {shown}: {page}");
        }
    }
}

/// The page of a waiting task says why it waits, and leads to where an operator can do something about it.
#[tokio::test]
async fn the_page_of_a_waiting_task_says_why_it_waits() {
    let client = DurableClient::open(MemoryStore::new());
    let task = spawn(&client, Act::Succeed, SpawnOptions::new().queue("bulk")).await;
    let app = operated(&client);
    let path = format!("{PREFIX}/s/mail/task/{task}");
    let page = async || get(&app, &path).await.text;
    let expect = async |reason: &str, target: &str| {
        let page = page().await;
        let warning = page
            .split("class=\"warning\">This task waits because ")
            .nth(1);
        let warning = warning.unwrap_or_else(|| panic!("a reason: {page}"));
        assert!(warning.starts_with(reason), "{reason}: {warning}");
        let target = format!("{PREFIX}/s/mail{target}");
        assert_eq!(resolve(&path, &links(warning)[0]), target);
    };
    expect("no live worker serves its queue", "/queues").await;
    client.queue("bulk").pause().await.unwrap();
    until("the pause is shown", async || {
        page().await.contains("because its queue is paused")
    })
    .await;
    expect("its queue is paused", "/queues").await;
    client.types().pause("mail.send").await.unwrap();
    until("the pause of the type is shown", async || {
        page().await.contains("because its type is paused")
    })
    .await;
    expect("its type is paused", "/types").await;
    let json = get(&app, &path.replace("/s/mail", "/api/v1/s/mail")).await;
    assert_eq!(json.json()["data"]["wait_reason"], "type_paused");
    let delayed = SpawnOptions::new().delay(std::time::Duration::from_secs(60));
    let delayed = spawn(&client, Act::Succeed, delayed).await;
    let page = get(&app, &format!("{PREFIX}/s/mail/task/{delayed}")).await;
    assert!(!page.text.contains("wait?") && !page.text.contains("This task waits"));
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
