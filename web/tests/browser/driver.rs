//! [`Browser`]: a Chromium that a test drives through ChromeDriver.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use axum::http::Method;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use fantoccini::wd::{Capabilities, WebDriverCompatibleCommand};
use fantoccini::{Client, ClientBuilder};
use futures_util::FutureExt;
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};
use url::{ParseError, Url};

/// The time after which a test gives up waiting for something.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// The switches make Chromium run as root and in a container, and send nothing to anybody but the test.
const SWITCHES: [&str; 10] = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
];

pub(crate) struct Browser {
    pub(crate) client: Client,
}

/// Returns the program that `THRONG_CHROMEDRIVER` names, or `chromedriver`.
pub(crate) fn program() -> PathBuf {
    let program = std::env::var_os("THRONG_CHROMEDRIVER");
    program.map_or_else(|| "chromedriver".into(), PathBuf::from)
}

/// Runs a test with a new browser, and ends the browser whether or not the test succeeds. Without ChromeDriver, the test is skipped:
/// one test fails then.
pub(crate) async fn with_browser<F: Future<Output = ()>>(test: impl FnOnce(Browser) -> F) {
    let profile = tempfile::tempdir().expect("a folder for the profile");
    let Some((_driver, port)) = start_driver().await else {
        eprintln!("skipped: there is no ChromeDriver");
        return;
    };
    let client = connect(port, &profile).await;
    let browser = Browser {
        client: client.clone(),
    };
    let result = AssertUnwindSafe(test(browser)).catch_unwind().await;
    // The driver ends its browser only if the session is closed.
    client.close().await.expect("the session is closed");
    if let Err(panic) = result {
        std::panic::resume_unwind(panic);
    }
}

/// Starts ChromeDriver on a free port. It ends if another process has the same port of the other version of IP.
async fn start_driver() -> Option<(Child, u16)> {
    let start = Instant::now();
    loop {
        let mut driver = spawn_driver()?;
        let port = timeout(LIMIT, printed_port(&mut driver)).await;
        if let Some(port) = port.expect("ChromeDriver starts") {
            return Some((driver, port));
        }
        assert!(start.elapsed() < LIMIT, "ChromeDriver finds no port");
    }
}

fn spawn_driver() -> Option<Child> {
    let mut command = Command::new(program());
    command
        .arg("--port=0")
        .stdout(Stdio::piped())
        .kill_on_drop(true);
    command.spawn().ok()
}

/// Returns the port that ChromeDriver prints, or `None` if it ends before.
async fn printed_port(driver: &mut Child) -> Option<u16> {
    let output = driver.stdout.take().expect("a pipe");
    let mut lines = BufReader::new(output).lines();
    while let Some(line) = lines.next_line().await.expect("the output of ChromeDriver") {
        if let Some((_, port)) = line.split_once("started successfully on port ") {
            return Some(port.trim_end_matches('.').parse().expect("a port"));
        }
    }
    None
}

async fn connect(port: u16, profile: &TempDir) -> Client {
    let mut switches: Vec<String> = SWITCHES.map(String::from).into();
    switches.push(format!("--user-data-dir={}", profile.path().display()));
    let mut capabilities = Capabilities::new();
    capabilities.insert("goog:chromeOptions".into(), json!({ "args": switches }));
    capabilities.insert("goog:loggingPrefs".into(), json!({ "browser": "ALL" }));
    // A dialog stays open, so that a test notices it.
    capabilities.insert("unhandledPromptBehavior".into(), json!("ignore"));
    ClientBuilder::new(HttpConnector::new())
        .capabilities(capabilities)
        .connect(&format!("http://127.0.0.1:{port}"))
        .await
        .expect("Chromium starts")
}

impl Browser {
    pub(crate) async fn open(&self, url: &str) {
        self.client.goto(url).await.expect("the page loads");
    }

    /// Evaluates the body of a function in the page.
    pub(crate) async fn eval(&self, script: &str) -> Value {
        let result = self.client.execute(script, Vec::new()).await;
        result.unwrap_or_else(|error| panic!("{script}: {error}"))
    }

    /// Waits until an expression is true.
    pub(crate) async fn wait_until(&self, condition: &str) {
        let start = Instant::now();
        while self.eval(&format!("return Boolean({condition})")).await != json!(true) {
            assert!(
                start.elapsed() < LIMIT,
                "{condition} is not true: {}",
                self.text().await
            );
            sleep(Duration::from_millis(50)).await;
        }
    }

    pub(crate) async fn text(&self) -> String {
        let text = self.eval("return document.body.innerText").await;
        text.as_str().unwrap_or_default().to_owned()
    }

    /// Sets the width, and the theme of the system.
    pub(crate) async fn emulate(&self, width: u32, theme: &str) {
        self.resize(width, 800, 1).await;
        let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": theme }] });
        self.devtools("Emulation.setEmulatedMedia", media).await;
    }

    /// Sets the size in CSS pixels, and the number of pixels in each of them.
    async fn resize(&self, width: u32, height: u64, scale: u32) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": scale, "mobile": false });
        self.devtools("Emulation.setDeviceMetricsOverride", size)
            .await;
    }

    pub(crate) async fn disable_scripts(&self) {
        let value = json!({ "value": true });
        self.devtools("Emulation.setScriptExecutionDisabled", value)
            .await;
    }

    /// Returns what the browser has written to the console since the last call. It includes violations of the security policy.
    pub(crate) async fn console(&self) -> Vec<String> {
        let entries = self.send("se/log", json!({ "type": "browser" })).await;
        let entries = entries.as_array().expect("a list of messages");
        entries
            .iter()
            .map(|entry| entry["message"].to_string())
            .collect()
    }

    /// Writes a picture of the whole page to `target/screenshots`.
    pub(crate) async fn screenshot(&self, name: &str) {
        let folder = target().join("screenshots");
        std::fs::create_dir_all(&folder).expect("a folder for pictures");
        let path = folder.join(format!("{name}.png"));
        std::fs::write(path, self.picture().await).expect("the picture is written");
    }

    /// Returns a picture of the whole page for screens with twice as many pixels.
    pub(crate) async fn sharp_picture(&self, width: u32) -> Vec<u8> {
        let height = self.eval("return document.documentElement.scrollHeight");
        let height = height.await.as_u64().expect("a height");
        self.resize(width, height, 2).await;
        // The page draws its charts again, with more pixels.
        self.wait_until(
            "[...document.querySelectorAll('canvas')].every(it => it.width >= 2 * it.clientWidth)",
        )
        .await;
        self.picture().await
    }

    async fn picture(&self) -> Vec<u8> {
        let options = json!({ "format": "png", "captureBeyondViewport": true });
        let picture = self.devtools("Page.captureScreenshot", options).await;
        let bytes = BASE64_STANDARD.decode(picture["data"].as_str().expect("a picture"));
        bytes.expect("base64")
    }

    async fn devtools(&self, command: &str, parameters: Value) -> Value {
        let body = json!({ "cmd": command, "params": parameters });
        self.send("goog/cdp/execute", body).await
    }

    /// Sends a command that only ChromeDriver knows.
    async fn send(&self, path: &'static str, body: Value) -> Value {
        let answer = self.client.issue_cmd(ChromeCommand { path, body }).await;
        answer.unwrap_or_else(|error| panic!("{path}: {error}"))
    }
}

/// Returns the folder `target` of the workspace, even if the programs are built elsewhere.
pub(crate) fn target() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../target")
}

#[derive(Debug)]
struct ChromeCommand {
    path: &'static str,
    body: Value,
}

impl WebDriverCompatibleCommand for ChromeCommand {
    fn endpoint(&self, base: &Url, session: Option<&str>) -> Result<Url, ParseError> {
        let session = session.unwrap_or_default();
        base.join(&format!("session/{session}/{}", self.path))
    }

    fn method_and_body(&self, _: &Url) -> (Method, Option<String>) {
        (Method::POST, Some(self.body.to_string()))
    }
}
