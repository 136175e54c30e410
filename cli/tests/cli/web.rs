//! `throng web`: the dashboard for browsers.

use std::fs;

use super::Result;
use super::scene::filled;
use super::server::TestServer;
use super::store::TestStore;

fn start(store: &TestStore, args: &[&str]) -> Result<TestServer> {
    TestServer::start(store, &[&["web"], args].concat())
}

/// Sends a request without a body.
fn ask(server: &TestServer, request: &str, headers: &str) -> Result<String> {
    server.send(request, headers, "")
}

#[tokio::test]
async fn pages_are_served_to_local_browsers_only() -> Result {
    let store = filled().await?;
    let server = start(&store, &[])?;
    let page = ask(&server, "GET /s/store", "Host: localhost\r\n")?;
    assert!(page.starts_with("HTTP/1.1 200"), "{page}");
    assert!(
        page.to_ascii_lowercase()
            .contains("content-security-policy: "),
        "{page}"
    );
    let foreign = ask(&server, "GET /s/store", "Host: attacker.example\r\n")?;
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
        let server = start(&store, args)?;
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
    let server = start(&store, &["--basic-auth-file", "users"])?;
    let page = ask(&server, "GET /s/store", "Host: localhost\r\n")?;
    assert!(page.starts_with("HTTP/1.1 401"), "{page}");
    // "ada:a" in base 64.
    let page = ask(
        &server,
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
