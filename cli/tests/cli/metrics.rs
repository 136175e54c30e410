//! The numbers for Prometheus.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};

use super::Result;
use super::scene::fill;
use super::store::{TestStore, succeeds};

#[tokio::test]
async fn numbers_are_printed_and_served() -> Result {
    let store = TestStore::sqlite()?;
    let client = store.open().await?;
    fill(&client).await?;
    client.close().await?;
    let expected = "\nthrong_durable_tasks{store=\"jobs\",state=\"dead\"} 3\n";
    let printed = store.run(&["metrics", "--label", "jobs"])?;
    assert!(String::from_utf8(printed.stdout)?.contains(expected));

    let mut command = store.command(&["metrics", "--label", "jobs", "--listen", "127.0.0.1:0"]);
    command.stderr(Stdio::piped());
    let mut server = command.spawn()?;
    let mut address = String::new();
    BufReader::new(server.stderr.take().ok_or("no stderr")?).read_line(&mut address)?;
    let host = address
        .trim()
        .trim_start_matches("http://")
        .trim_end_matches("/metrics");
    let mut connection = TcpStream::connect(host)?;
    connection
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer)?;
    assert!(
        answer.contains("content-type: text/plain; version=0.0.4"),
        "{answer}"
    );
    assert!(answer.contains(expected), "{answer}");
    // A client that never ends its request does not keep the server alive.
    let mut silent = TcpStream::connect(host)?;
    silent.write_all(b"GET /metrics")?;
    kill_process(Pid::from_child(&server), Signal::TERM)?;
    succeeds(&mut server)
}
