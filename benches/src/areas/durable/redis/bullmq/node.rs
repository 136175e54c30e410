//! BullMQ itself: a script for Node.js.

use std::process::{Command, Stdio};

use super::plain::Produced;
use super::{Jobs, QUEUE, System};
use crate::areas::durable::redis::server::Server;
use crate::areas::durable::worker::Worker;
use crate::areas::program::{Language, Program};
use crate::measure::Rules;

pub(in crate::areas::durable) const PROGRAM: Program = Program {
    folder: "bullmq",
    file: "main.js",
    language: Language::JavaScript,
};

pub(super) struct Bullmq {
    rules: Rules,
    url: String,
}

impl Bullmq {
    /// Starts a process that stores jobs when it is told to [go](Worker::go), and says when they are stored.
    pub(super) fn producer(&self, jobs: Produced) -> Worker {
        let jobs = serde_json::to_string(&jobs).expect("jobs have nothing that JSON cannot say");
        Worker::start_program(&mut self.command("produce", &jobs))
    }

    fn command(&self, role: &str, argument: &str) -> Command {
        let mut command = PROGRAM.command(&self.rules).expect("it is installed");
        command.args([role, &self.url, argument]);
        command
    }
}

impl System for Bullmq {
    fn open(rules: &Rules, server: &Server) -> Self {
        Self {
            rules: rules.clone(),
            url: server.url(),
        }
    }

    fn store(&self, jobs: Jobs) {
        let jobs = serde_json::to_string(&jobs).expect("jobs have nothing that JSON cannot say");
        let stored = self.command("store", &jobs).stdin(Stdio::null()).status();
        let stored = stored.expect("node can be started");
        assert!(stored.success(), "jobs cannot be stored: {stored}");
    }

    fn worker(&self, permits: usize) -> Worker {
        Worker::start_program(&mut self.command("work", &permits.to_string()))
    }

    fn done(&self, server: &Server) -> u64 {
        let answer = server.ask(&format!("ZCARD bull:{QUEUE}:completed"));
        let answer = answer.expect("it answers");
        let number = answer.strip_prefix(':').and_then(|text| text.parse().ok());
        number.unwrap_or_else(|| panic!("not a number: {answer}"))
    }
}
