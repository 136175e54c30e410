//! The example `mail`: its pages, its metrics, its traces and its end.

use throng::durable::{DurableClient, SqliteStore};

use super::program::Program;
use super::receiver::{Receiver, hex, text};
use super::server::Server;

/// The program exports its spans, those of the last runs included, only when it ends.
const AT_THE_END: (&str, &str) = ("OTEL_BSP_SCHEDULE_DELAY", "600000");

/// The program has closed its sessions, and no task is left running.
async fn assert_is_left_alone(client: DurableClient) {
    let overview = client.admin().overview().await.unwrap();
    assert_eq!(overview.counts.running, 0, "{overview:?}");
    let sessions = overview.queues.iter().map(|queue| queue.sessions);
    assert_eq!(sessions.sum::<u64>(), 0, "{overview:?}");
    client.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mail_is_in_the_dashboard_the_metrics_and_the_traces() {
    let (receiver, folder) = (Receiver::start().await, tempfile::tempdir().unwrap());
    let file = folder.path().join("mail.db");
    let store = file.to_str().unwrap();
    let otlp = ("OTEL_EXPORTER_OTLP_ENDPOINT", &*receiver.url);
    let args = ["--store", store, "--customers", "1"];
    let program = Program::start(&args, &[otlp, AT_THE_END]).await;
    let site = program.site;
    assert!(site.get("/").await.contains("Dashboard: /throng"));

    // An operator sends a dead letter after all.
    let (refused, _) = site.send_mail("moved@example.org").await;
    site.until_status(&refused, "dead").await;
    let unblocked = site.send("DELETE", "/blocked/moved@example.org", "").await;
    assert_eq!(unblocked.status, 204, "{unblocked:?}");
    let replay = format!("/throng/api/v1/s/mail/task/{refused}/replay");
    assert_eq!(site.send("POST", &replay, "{}").await.status, 200);
    site.until_status(&refused, "done").await;

    let (task, trace) = site.send_mail("reader@example.net").await;
    site.until_status(&task, "done").await;
    assert!(site.get("/throng/s/mail").await.contains("mail/steady"));
    let metrics = site.get("/metrics").await;
    for series in [
        r#"throng_durable_store_up{store="mail"} 1"#,
        r#"throng_durable_queue_tasks{store="mail",queue="mail/swift",state="waiting"}"#,
        r#"throng_durable_task_runs_total{executor="mail",type="mail.send",outcome="died"} "#,
        r#"throng_blocking_tasks_total{pool="archive",outcome="completed"} "#,
        r#"throng_compute_tasks_total{pool="renderer",outcome="completed"} "#,
        r#"throng_serial_jobs_total{executor="blocked",outcome="completed"} "#,
        r#"throng_completion_submitted_total{stream="customers"} "#,
    ] {
        assert!(metrics.contains(series), "{series} in {metrics}");
    }

    let output = program.stop("-TERM").await;
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("requests answered"), "{said}");

    let spawn = receiver.span_of("send mail.send", &task).await;
    let request = receiver.span(&spawn.parent_span_id).await;
    assert_eq!(request.name, "POST /mails");
    for span in [&spawn, &request] {
        assert_eq!(hex(&span.trace_id), trace);
    }
    let run = receiver.span_of("process mail.send", &task).await;
    let links = run.links.iter().map(|it| (&it.trace_id, &it.span_id));
    assert!(links.eq([(&spawn.trace_id, &spawn.span_id)]), "{run:?}");
    assert_eq!(text(&run, "messaging.destination.name"), "mail/steady");

    let store = SqliteStore::open(file).await.unwrap();
    assert_is_left_alone(DurableClient::open(store)).await;
}

#[tokio::test]
async fn bad_requests_are_refused_with_a_remedy() {
    let program = Program::start(&["--customers", "0"], &[]).await;
    for (body, remedy) in [
        (r#"{"customer":"a","to":[],"subject":""}"#, "use 1 to 100"),
        (
            r#"{"customer":"a","to":["a"],"subject":""}"#,
            "use one such as",
        ),
        (
            r#"{"customer":"a","to":["<a>\n@b"],"subject":""}"#,
            "use one such as",
        ),
        (
            r#"{"customer":"a","to":["a@b"],"subject":"a\nb"}"#,
            "without line breaks",
        ),
        (
            r#"{"customer":"a b","to":["a@b"],"subject":""}"#,
            "use 1 to 64",
        ),
    ] {
        let reply = program.site.send("POST", "/mails", body).await;
        assert_eq!(reply.status, 422, "{body}: {reply:?}");
        assert!(reply.body.contains(remedy), "{body}: {reply:?}");
    }
    let reply = program.site.send("DELETE", "/blocked/a@b", "").await;
    assert_eq!(reply.status, 404, "{reply:?}");
    assert!(program.stop("-TERM").await.status.success());
}

/// Without a collector, the spans are lines. This also runs the program with Redis, and ends it as Ctrl-C does.
#[tokio::test]
async fn without_a_collector_spans_are_printed() {
    let server = Server::start().expect("redis-server is installed");
    let client = server.open().await.expect("the server answers");
    let args = ["--redis", &*server.url(), "--customers", "1"];
    let program = Program::start(&args, &[]).await;
    let (task, trace) = program.site.send_mail("reader@example.org").await;
    program.site.until_status(&task, "done").await;
    let output = program.stop("-INT").await;
    assert!(output.status.success(), "{output:?}");
    let lines = String::from_utf8(output.stderr).unwrap();
    let linked = format!("linked to {trace}");
    let is_run = |line: &&str| line.contains("\"process mail.send\"") && line.ends_with(&linked);
    assert!(lines.lines().any(|line| is_run(&line)), "{trace}: {lines}");
    assert_is_left_alone(client).await;
}
