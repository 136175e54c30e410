//! [`Program`]: the example `mail`, as a person runs it.

use std::env;
use std::process::{Output, Stdio};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

use super::client::Client;
use super::{LIMIT, until};

/// The program, which is killed if the test fails.
pub(crate) struct Program {
    child: Child,
    stdout: BufReader<ChildStdout>,
    pub(crate) site: Client,
}

impl Program {
    /// Starts the program that cargo has built beside this test, and waits until it serves.
    pub(crate) async fn start(args: &[&str], variables: &[(&str, &str)]) -> Self {
        let test = env::current_exe().expect("the path of this test");
        let profile = test.ancestors().nth(2).expect("a profile has a folder");
        let program = profile.join("examples/mail");
        assert!(
            program.is_file(),
            "{program:?} is missing: run `cargo build --examples`"
        );
        let mut command = Command::new(program);
        command.args(["--listen", "127.0.0.1:0"]).args(args);
        command
            .env_remove("OTEL_EXPORTER_OTLP_ENDPOINT")
            .envs(variables.iter().copied());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        let read = timeout(LIMIT, stdout.read_line(&mut line)).await;
        read.expect("the program serves in time").unwrap();
        let address = line.trim().strip_prefix("http://").expect(&line);
        let site = Client(address.parse().expect(&line));
        Self {
            child,
            stdout,
            site,
        }
    }

    /// Sends a signal, and returns what the program has printed when it has ended.
    pub(crate) async fn stop(mut self, signal: &str) -> Output {
        let pid = self.child.id().expect("it runs").to_string();
        let sent = Command::new("kill").args([signal, &pid]).status().await;
        assert!(sent.unwrap().success());
        let mut stdout = Vec::new();
        let ended = async {
            let (read, output) = tokio::join!(
                self.stdout.read_to_end(&mut stdout),
                self.child.wait_with_output()
            );
            read.unwrap();
            output.unwrap()
        };
        let output = timeout(LIMIT, ended)
            .await
            .expect("the program ends in time");
        Output { stdout, ..output }
    }
}

impl Client {
    /// Sends a mail. Returns the id of its task, and the trace of the request.
    pub(crate) async fn send_mail(self, to: &str) -> (String, String) {
        let mail = json!({"customer": "test", "to": [to], "subject": "hello", "is_urgent": true});
        let reply = self.send("POST", "/mails", &mail.to_string()).await;
        assert_eq!(reply.status, 202, "{reply:?}");
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        let answer = reply.json();
        (text(&answer["tasks"][0]), text(&answer["trace"]))
    }

    /// Waits until the dashboard shows that the task has the status.
    pub(crate) async fn until_status(self, task: &str, status: &str) {
        let path = format!("/throng/api/v1/s/mail/task/{task}");
        let has_it = async || {
            let shown: Value = serde_json::from_str(&self.get(&path).await).unwrap();
            (shown["data"]["task"]["status"] == status).then_some(())
        };
        until(status, has_it).await;
    }
}
