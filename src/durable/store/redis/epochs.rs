//! [`AdvanceEpochs`] ensures that new claims get higher epochs than those that a server may have lost.
//!
//! A server that was restarted or promoted may lack the last claims: see `lua/advance_epochs.lua`. A connection ends when
//! its server exits. The client also closes it as soon as the server refuses a write, as a replica does, and a Sentinel
//! closes all connections when it changes the role of a server. So it suffices that each connection advances the epochs
//! once.

use redis::Cmd;

use super::keys::Keys;
use super::scripts::{Arguments, Script};
use super::time::Time;

/// The request that a connection sends before its first turn on a partition.
pub(super) struct AdvanceEpochs<'a> {
    pub(super) script: &'a Script,
    pub(super) keys: &'a Keys,
    pub(super) partition: usize,
    pub(super) time: &'a Time,
}

impl AdvanceEpochs<'_> {
    pub(super) fn command(&self) -> Cmd {
        let mut arguments = Arguments::default();
        self.time.push_to(&mut arguments);
        let keys = self.script.keys(self.keys);
        arguments.command("EVAL", self.script.text(), keys)
    }
}
