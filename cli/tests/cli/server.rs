//! [`TestServer`]: a command that serves pages.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::Result;
use super::store::{TestStore, end_of};

/// A server that runs the command.
pub(crate) struct TestServer {
    child: Child,
    pub(crate) host: String,
}

impl TestServer {
    /// Starts a command that listens on a free port, and waits until it listens.
    pub(crate) fn start(store: &TestStore, args: &[&str]) -> Result<Self> {
        let mut command = store.command(args);
        command.args(["--listen", "127.0.0.1:0"]);
        let mut child = command.stderr(Stdio::piped()).spawn()?;
        let mut address = String::new();
        BufReader::new(child.stderr.take().ok_or("no stderr")?).read_line(&mut address)?;
        let address = address.trim().trim_start_matches("http://");
        let (host, _) = address.split_once('/').ok_or("no address")?;
        let host = host.to_owned();
        Ok(Self { child, host })
    }

    /// Sends a request, and returns the whole answer.
    pub(crate) fn send(&self, request: &str, headers: &str, body: &str) -> Result<String> {
        let mut connection = TcpStream::connect(&self.host)?;
        let head = format!("{request} HTTP/1.1\r\n{headers}Connection: close\r\n\r\n");
        connection.write_all(&[head.as_bytes(), body.as_bytes()].concat())?;
        let mut answer = String::new();
        connection.read_to_string(&mut answer)?;
        Ok(answer)
    }

    /// Ends the server, as a supervisor does.
    pub(crate) fn end(mut self) -> Result {
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        let status = end_of(&mut self.child)?;
        assert!(status.success(), "{status}");
        Ok(())
    }
}

/// A test that fails leaves no process behind.
impl Drop for TestServer {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
