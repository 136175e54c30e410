//! The numbers for Prometheus.

use std::io::Write;
use std::net::TcpStream;

use super::Result;
use super::scene::filled;
use super::server::TestServer;

#[tokio::test]
async fn numbers_are_printed_and_served() -> Result {
    let store = filled().await?;
    let expected = "\nthrong_durable_tasks{store=\"jobs\",state=\"dead\"} 3\n";
    let printed = store.run(&["metrics", "--label", "jobs"])?;
    assert!(String::from_utf8(printed.stdout)?.contains(expected));

    let server = TestServer::start(&store, &["metrics", "--label", "jobs"])?;
    let answer = server.send("GET /metrics", "Host: localhost\r\n", "")?;
    assert!(
        answer.contains("content-type: text/plain; version=0.0.4"),
        "{answer}"
    );
    assert!(answer.contains(expected), "{answer}");
    // A client that never ends its request does not keep the server alive.
    let mut silent = TcpStream::connect(&server.host)?;
    silent.write_all(b"GET /metrics")?;
    server.end()
}
