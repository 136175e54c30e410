//! `throng web`: the dashboard for browsers.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::Result;
use super::scene::fill;
use super::store::TestStore;

/// A server that runs the command.
struct WebServer {
    child: Child,
    host: String,
}

impl WebServer {
    fn start(store: &TestStore, args: &[&str]) -> Result<Self> {
        let mut command = store.command(&[&["web", "--listen", "127.0.0.1:0"], args].concat());
        let mut child = command.stderr(Stdio::piped()).spawn()?;
        let mut address = String::new();
        BufReader::new(child.stderr.take().ok_or("no stderr")?).read_line(&mut address)?;
        let host = address
            .trim()
            .trim_start_matches("http://")
            .trim_end_matches('/')
            .to_owned();
        Ok(Self { child, host })
    }

    /// Sends a request without a body, and returns the whole answer.
    fn ask(&self, request: &str, headers: &str) -> Result<String> {
        self.send(request, headers, "")
    }

    fn send(&self, request: &str, headers: &str, body: &str) -> Result<String> {
        let mut connection = TcpStream::connect(&self.host)?;
        let head = format!("{request} HTTP/1.1\r\n{headers}Connection: close\r\n\r\n");
        connection.write_all(&[head.as_bytes(), body.as_bytes()].concat())?;
        let mut answer = String::new();
        connection.read_to_string(&mut answer)?;
        Ok(answer)
    }

    fn end(mut self) -> Result {
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        assert!(self.child.wait()?.success());
        Ok(())
    }
}

async fn filled() -> Result<TestStore> {
    let store = TestStore::sqlite()?;
    let client = store.open().await?;
    fill(&client).await?;
    client.close().await?;
    Ok(store)
}

#[tokio::test]
async fn pages_are_served_to_local_browsers_only() -> Result {
    let store = filled().await?;
    let server = WebServer::start(&store, &[])?;
    let page = server.ask("GET /s/store", "Host: localhost\r\n")?;
    assert!(page.starts_with("HTTP/1.1 200"), "{page}");
    assert!(
        page.to_ascii_lowercase()
            .contains("content-security-policy: "),
        "{page}"
    );
    let foreign = server.ask("GET /s/store", "Host: attacker.example\r\n")?;
    assert!(foreign.starts_with("HTTP/1.1 4"), "{foreign}");
    server.end()
}

/// The same request pauses a queue with `--operate`, and is refused without.
#[tokio::test]
async fn changes_need_an_option() -> Result {
    let store = filled().await?;
    let request = "POST /s/store/queues/pause";
    let form = "Host: localhost\r\nSec-Fetch-Site: same-origin\r\nContent-Length: 12\r\n\
        Content-Type: application/x-www-form-urlencoded\r\n";
    for (args, status, is_paused) in [(&[][..], "404", false), (&["--operate"], "303", true)] {
        let server = WebServer::start(&store, args)?;
        let answer = server.send(request, form, "name=reports")?;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{answer}"
        );
        server.end()?;
        let shown = store.run(&["queue", "show", "reports"])?;
        let shown = String::from_utf8(shown.stdout)?;
        assert_eq!(shown.contains("state\tpaused"), is_paused, "{shown}");
    }
    Ok(())
}

#[tokio::test]
async fn users_need_their_passwords() -> Result {
    let store = filled().await?;
    fs::write(store.folder.path().join("users"), "ada:operate:a\n")?;
    let server = WebServer::start(&store, &["--basic-auth-file", "users"])?;
    let page = server.ask("GET /s/store", "Host: localhost\r\n")?;
    assert!(page.starts_with("HTTP/1.1 401"), "{page}");
    // "ada:a" in base 64.
    let page = server.ask(
        "GET /s/store",
        "Host: localhost\r\nAuthorization: Basic YWRhOmE=\r\n",
    )?;
    assert!(page.starts_with("HTTP/1.1 200"), "{page}");
    server.end()
}

/// Others get in only with a password, or if that is intended, and never to change something without one.
#[tokio::test]
async fn an_open_address_is_refused() -> Result {
    let store = filled().await?;
    for (args, remedy) in [
        (&["web", "--listen", "0.0.0.0:0"][..], "--insecure-no-auth"),
        (
            &[
                "web",
                "--listen",
                "0.0.0.0:0",
                "--operate",
                "--insecure-no-auth",
            ],
            "--basic-auth-file",
        ),
    ] {
        let refused = store.run(args)?;
        let message = String::from_utf8(refused.stderr)?;
        assert_eq!(refused.status.code(), Some(2), "{message}");
        assert!(message.contains(remedy), "{message}");
    }
    Ok(())
}
