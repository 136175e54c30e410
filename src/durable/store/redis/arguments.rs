//! [`Arguments`]: the arguments of a script.

use std::fmt::Display;

use redis::Cmd;

use crate::durable::TaskId;

/// The arguments of a script, in order.
#[derive(Debug, Default)]
pub(super) struct Arguments(Vec<Vec<u8>>);

impl Arguments {
    pub(super) fn push(&mut self, argument: impl Into<Vec<u8>>) {
        self.0.push(argument.into());
    }

    pub(super) fn push_number(&mut self, number: impl Display) {
        self.push(number.to_string());
    }

    /// Adds the number of ids, and the ids.
    pub(super) fn push_ids(&mut self, ids: &[TaskId]) {
        self.push_number(ids.len());
        ids.iter().for_each(|id| self.push(id.to_bytes()));
    }

    /// Returns the command that runs a script: `EVAL` with its text, or `EVALSHA` with its hash.
    pub(super) fn command<'a>(
        &self,
        name: &str,
        script: &str,
        keys: impl ExactSizeIterator<Item = &'a str>,
    ) -> Cmd {
        let size = self.0.iter().map(Vec::len).sum::<usize>() + script.len() + 1024;
        let mut command = Cmd::with_capacity(self.0.len() + keys.len() + 3, size);
        command.arg(name).arg(script).arg(keys.len());
        for key in keys {
            command.arg(key);
        }
        for argument in &self.0 {
            command.arg(argument);
        }
        command
    }
}
