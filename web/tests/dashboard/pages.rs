//! The pages.

use std::collections::{HashSet, VecDeque};

use axum::Router;
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use throng::durable::{DurableClient, MemoryStore, TaskId};
use throng_web::Dashboard;

use crate::stage::Stage;
use crate::support::{PREFIX, builder, get, links, mounted, operated, resolve};

#[tokio::test]
async fn each_page_shows_what_a_store_in_memory_has() {
    each_page_shows_what_the_store_has(&Stage::in_memory().await).await;
}

#[tokio::test]
async fn each_page_shows_what_a_file_has() {
    each_page_shows_what_the_store_has(&Stage::in_a_file().await).await;
}

pub(crate) async fn each_page_shows_what_the_store_has(stage: &Stage) {
    let app = operated(&stage.client);
    for (path, texts) in [
        (
            "",
            &[
                "Longest wait",
                "report.build",
                "queues that no live worker serves: bulk. Start an executor that serves these queues.",
                "550 refused",
            ][..],
        ),
        (
            "/queues",
            &["bulk", "paused", "4 at once; one start per 0.6 s", "Resume"],
        ),
        (
            "/types",
            &["report.build", "not served", "mail.send", "Pause"],
        ),
        (
            "/tasks/next",
            &["report.build", "ready for the longest time"],
        ),
        ("/tasks/next?queue=bulk", &["mail.send", "Cancel", "Move"]),
        (
            "/tasks/waiting",
            &[
                "report.build",
                "mail.send",
                "examined for it",
                "all tasks that match",
            ],
        ),
        ("/tasks/next?queue=(default)", &["report.build"]),
        ("/tasks/waiting?queue=bulk", &["mail.send", "Clear"]),
        (
            "/tasks/waiting?queue=(default)",
            &["report.build", "1 task on this page", "Clear"],
        ),
        ("/tasks/delayed", &["59 min", "Run now"]),
        (
            "/tasks/retrying",
            &["mail.send", "Run now", "1 task on this page"],
        ),
        ("/tasks/running", &["mail.send", "Cancel", "Running for"]),
        ("/tasks/done", &["Took", "Ended", "Kept for"]),
        ("/tasks/cancelled", &["Ended", "Kept for"]),
        (
            "/dead",
            &[
                "keeps a dead letter for 30 d",
                "fatal 1",
                "550 refused",
                "Replay",
                "Delete",
            ],
        ),
        ("/dead?error=refused", &["550 refused", "Clear"]),
        ("/dead?error=timeout", &["0 tasks on this page"]),
        ("/workers", &["permits", "mail.send", "live"]),
        (
            "/schedules",
            &["nightly", "mail.send", "every hour", "Fire now"],
        ),
        ("/find?q=ni", &["No queue or type"]),
        ("/find?q=nightly", &["Schedule"]),
        ("/find?q=bul", &["Queue", "bulk"]),
        ("/find?q=report", &["Type", "report.build"]),
    ] {
        let reply = get(&app, &format!("{PREFIX}/s/mail{path}")).await;
        assert_eq!(reply.status, StatusCode::OK, "{path}: {}", reply.text);
        for text in texts {
            let found = reply.text.to_lowercase().contains(&text.to_lowercase());
            assert!(found, "{path} does not show {text:?}: {}", reply.text);
        }
    }
    for (state, id) in stage.tasks() {
        let reply = get(&app, &format!("{PREFIX}/s/mail/task/{id}")).await;
        assert_eq!(reply.status, StatusCode::OK, "{state}: {}", reply.text);
        let shown = format!("<span class=\"state {state}\">");
        assert!(reply.text.contains(&shown), "{state}: {}", reply.text);
        let has_ended = ["done", "dead", "cancelled"].contains(&state);
        let says_when = reply.text.contains("<dt>Ended</dt>");
        assert_eq!(says_when, has_ended, "{state}: {}", reply.text);
    }
    let delayed = get(&app, &format!("{PREFIX}/s/mail/task/{}", stage.retried)).await;
    for text in ["421 try later", "62", "a@b.c", "Run now", "Due in"] {
        assert!(delayed.text.contains(text), "{text}: {}", delayed.text);
    }
    let process = get(&app, &format!("{PREFIX}/process")).await;
    assert!(process.text.contains("Durable stores"), "{}", process.text);
    the_page_of_a_worker_shows_what_it_runs(&app, stage).await;
}

async fn the_page_of_a_worker_shows_what_it_runs(app: &Router, stage: &Stage) {
    let task = format!("{PREFIX}/s/mail/task/{}", stage.running);
    let page = get(app, &task).await.text;
    let mut links = links(&page).into_iter();
    let worker = links.find(|link| link.contains("/workers/"));
    let worker = resolve(&task, &worker.expect("the task has a link to its worker"));
    let page = get(app, &worker).await;
    assert_eq!(page.status, StatusCode::OK, "{}", page.text);
    let running = stage.running.to_string();
    for text in [
        &running,
        "state live",
        "Permits",
        "Started",
        "<li>mail.send</li>",
    ] {
        assert!(page.text.contains(text), "{text}: {}", page.text);
    }
}

#[tokio::test]
async fn all_links_are_relative_and_lead_to_pages() {
    let stage = Stage::in_memory().await;
    for prefix in ["", PREFIX] {
        let app = match prefix {
            "" => builder(&stage.client).build().unwrap().service(),
            _ => mounted(&mut builder(&stage.client)),
        };
        let first = if prefix.is_empty() { "/" } else { prefix };
        let (mut seen, mut pages) = (HashSet::new(), VecDeque::from([first.to_owned()]));
        while let Some(path) = pages.pop_front() {
            if !seen.insert(path.clone()) {
                continue;
            }
            let reply = get(&app, &path).await;
            if reply.status == StatusCode::SEE_OTHER {
                pages.push_back(reply.location(&path));
                continue;
            }
            assert_eq!(reply.status, StatusCode::OK, "{path}: {}", reply.text);
            let links = links(&reply.text)
                .into_iter()
                .map(|link| resolve(&path, &link));
            for link in links.filter(|link| !link.contains("/assets/")) {
                assert!(link.starts_with(prefix), "{link} on {path} leaves {prefix}");
                pages.push_back(link);
            }
        }
        let tasks = seen.iter().filter(|path| path.contains("/task/"));
        assert_eq!(tasks.count(), 8, "{seen:?}");
    }
}

#[tokio::test]
async fn the_path_of_the_mount_works_with_and_without_a_slash() {
    let client = DurableClient::open(MemoryStore::new());
    let app = mounted(&mut builder(&client));
    for path in [PREFIX.to_owned(), format!("{PREFIX}/")] {
        let reply = get(&app, &path).await;
        assert_eq!(reply.location(&path), format!("{PREFIX}/s/mail"));
    }
}

#[tokio::test]
async fn parameters_of_the_host_do_not_mix_with_those_of_the_dashboard() {
    let client = DurableClient::open(MemoryStore::new());
    let dashboard = builder(&client).build().unwrap();
    let app = Router::new().nest_service("/shops/{store}/throng", dashboard.service());
    let page = get(&app, "/shops/7/throng/s/mail/queues").await;
    assert_eq!(page.status, StatusCode::OK, "{}", page.text);
}

#[tokio::test]
async fn several_stores_are_listed_with_their_states() {
    let client = DurableClient::open(MemoryStore::new());
    let mut builder = builder(&client);
    let app = mounted(builder.store("billing", DurableClient::open(MemoryStore::new())));
    let page = get(&app, PREFIX).await;
    assert_eq!(page.status, StatusCode::OK);
    for text in [
        "href=\"./throng/s/mail\"",
        "href=\"./throng/s/billing\"",
        "well",
    ] {
        assert!(page.text.contains(text), "{text}: {}", page.text);
    }
    let overview = get(&app, &format!("{PREFIX}/s/billing")).await;
    assert!(
        overview.text.contains("href=\"../s/mail\""),
        "{}",
        overview.text
    );
}

#[tokio::test]
async fn errors_say_what_to_do() {
    let client = DurableClient::open(MemoryStore::new());
    let app = mounted(&mut builder(&client));
    let absent = TaskId::new();
    for (path, status, remedy) in [
        ("/nowhere", 404, "use the links above"),
        ("/s/nowhere/queues", 404, "choose one"),
        ("/s/mail/tasks/absent", 404, "use the links above"),
        ("/s/mail/task/7", 404, "use the links above"),
        (&format!("/s/mail/task/{absent}"), 404, "never stored"),
        ("/s/mail/bulk/7", 404, "keeps only the last"),
        (
            "/s/mail/tasks/waiting?after=x",
            400,
            "start with the first page",
        ),
        ("/s/mail/tasks/waiting?limit=0", 400, "1 to 200"),
        ("/s/mail/tasks/waiting?limit=x", 400, "invalid digit"),
        ("/s/mail/tasks/waiting?queue=a+b", 400, "letters, digits"),
        ("/s/mail/tasks/done?queue=a", 400, "remove"),
        ("/s/mail/tasks/next?name=a", 400, "remove"),
        ("/s/mail/tasks/delayed?error=a", 400, "remove `error`"),
        ("/s/mail/workers/7", 404, "look for its successor"),
        ("/s/mail/workers/x", 404, "use the links above"),
        ("/s/mail/schedules?after=a+b", 400, "letters, digits"),
        ("/s/mail/find?q=", 400, "enter 1 to"),
    ] {
        for (format, prefix) in [("text/html", ""), ("application/problem+json", "/api/v1")] {
            let reply = get(&app, &format!("{PREFIX}{prefix}{path}")).await;
            assert_eq!(reply.status.as_u16(), status, "{path}: {}", reply.text);
            let media_type = reply.headers[CONTENT_TYPE].to_str().unwrap();
            assert!(media_type.starts_with(format), "{path}: {media_type}");
            let text = reply.text.to_lowercase();
            assert!(text.contains(remedy), "{path} lacks {remedy:?}: {text}");
        }
    }
}

#[tokio::test]
async fn a_store_that_does_not_answer_is_said_to_be_down_and_the_process_is_still_shown() {
    let client = DurableClient::open(MemoryStore::new());
    let app = mounted(&mut builder(&client));
    client.close().await.unwrap();
    for path in [
        "/s/mail",
        "/s/mail/tasks/waiting",
        "/api/v1/s/mail/overview",
    ] {
        let reply = get(&app, &format!("{PREFIX}{path}")).await;
        assert_eq!(reply.status, StatusCode::SERVICE_UNAVAILABLE, "{path}");
        assert_eq!(reply.headers[RETRY_AFTER], "5", "{path}");
        assert!(reply.text.contains("was closed"), "{}", reply.text);
    }
    let process = get(&app, &format!("{PREFIX}/process")).await;
    assert_eq!(process.status, StatusCode::OK);
}

#[tokio::test]
async fn probes_and_scrapes_are_answered() {
    let client = DurableClient::open(MemoryStore::new());
    let app = mounted(&mut builder(&client));
    let health = get(&app, &format!("{PREFIX}/health")).await;
    assert_eq!(health.status, StatusCode::OK);
    assert_eq!(health.text, r#"{"stores":{"mail":"well"}}"#);
    let metrics = get(&app, &format!("{PREFIX}/metrics")).await;
    let sample = "\nthrong_durable_tasks{store=\"mail\",state=\"waiting\"} 0\n";
    assert!(metrics.text.contains(sample), "{}", metrics.text);

    let app = mounted(Dashboard::builder().store("mail", client));
    let metrics = get(&app, &format!("{PREFIX}/metrics")).await;
    assert_eq!(metrics.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn settings_that_cannot_work_are_refused() {
    let client = DurableClient::open(MemoryStore::new());
    let mut twice = builder(&client);
    twice.store("mail", client.clone());
    let mut unnamed = builder(&client);
    unnamed.store("a/b", client);
    let mut nothing = Dashboard::builder();
    for (builder, remedy) in [
        (&mut twice, "a name of its own"),
        (&mut unnamed, "letters, digits"),
        (&mut nothing, "add a `store`"),
    ] {
        let error = builder.build().unwrap_err().to_string();
        assert!(error.contains(remedy), "{error}");
    }
}
