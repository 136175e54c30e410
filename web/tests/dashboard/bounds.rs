//! The cost of a page does not depend on the number of tasks.

use std::time::Duration;

use axum::http::StatusCode;
use throng::durable::{DurableClient, RedisStore, SpawnOptions};

use crate::redis_info::ReadScripts;
use crate::server::Server;
use crate::stage::{Act, mail};
use crate::support::{PREFIX, get, operated};

/// The cost of a page.
#[derive(Debug)]
struct PageCost {
    scripts: u64,
    /// The rows of all tables, with their heads.
    rows: usize,
    bytes: usize,
}

const FEW_TASKS: usize = 1_000;
const MANY_TASKS: usize = 100_000;
/// One of this many tasks is delayed.
const DELAYED_EVERY: usize = 2;

/// The paths below the store, and the maximum numbers of scripts that the server runs for them.
const PAGES: [(&str, u64); 16] = [
    ("", 12),
    ("?range=24h", 13),
    ("/queues", 6),
    ("/types", 6),
    ("/tasks/next?queue=bulk", 2),
    ("/tasks/waiting?limit=200", 1),
    ("/tasks/waiting?limit=200&queue=bulk", 1),
    ("/tasks/waiting?limit=200&name=absent", 1),
    ("/tasks/delayed?limit=200", 1),
    ("/tasks/delayed?limit=200&name=absent", 1),
    ("/tasks/running", 1),
    ("/tasks/done", 1),
    ("/dead", 2),
    ("/workers", 1),
    ("/schedules", 1),
    ("/find?q=absent", 7),
];

#[tokio::test]
async fn no_page_costs_more_if_the_store_has_more_tasks() {
    let server = Server::start().expect("redis-server is installed");
    let client = server.open().await.expect("the server answers");
    store(&client, FEW_TASKS).await;
    let few = costs(&server).await;
    store(&client, MANY_TASKS - FEW_TASKS).await;
    let many = costs(&server).await;
    for (((path, most), few), many) in PAGES.iter().zip(few).zip(many) {
        let compared = format!("{path}: {few:?} with few tasks, {many:?} with many");
        assert!((1..=*most).contains(&many.scripts), "{compared}");
        assert_eq!(many.scripts, few.scripts, "{compared}");
        assert!(many.rows <= 201 && many.bytes <= 1 << 20, "{compared}");
        // Numbers and durations may have more digits, and steps through a hash table of Redis differ by some rows.
        assert!(many.rows <= few.rows + few.rows / 10, "{compared}");
        assert!(many.bytes <= few.bytes + few.bytes / 10, "{compared}");
    }
}

async fn store(client: &DurableClient, tasks: usize) {
    let tasks = (0..tasks).map(|number| {
        let options = SpawnOptions::new().queue("bulk");
        let is_delayed = number.is_multiple_of(DELAYED_EVERY);
        let options = match is_delayed {
            true => options.delay(Duration::from_secs(3600)),
            false => options,
        };
        (mail(Act::Succeed), options)
    });
    let stored = client.spawn_all_with(tasks).await;
    drop(stored.expect("the tasks are stored"));
}

/// Returns the cost of each page. Each one is requested from a new dashboard, since a dashboard sends equal questions only once.
async fn costs(server: &Server) -> Vec<PageCost> {
    let store = RedisStore::observe(&server.url()).await;
    let client = DurableClient::open(store.expect("the server answers"));
    let scripts = || {
        ReadScripts::of(&server.socket())
            .expect("the server answers")
            .count
    };
    let mut costs = Vec::new();
    for (path, _) in PAGES {
        let before = scripts();
        let page = get(&operated(&client), &format!("{PREFIX}/s/mail{path}")).await;
        assert_eq!(page.status, StatusCode::OK, "{path}: {}", page.text);
        costs.push(PageCost {
            scripts: scripts() - before,
            rows: page.text.matches("<tr").count(),
            bytes: page.text.len(),
        });
    }
    costs
}
