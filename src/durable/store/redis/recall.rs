//! [`Recall`] ensures that new claims get higher epochs than those that a server may have lost.
//!
//! A server that was restarted or promoted may lack the last claims: see `lua/recall.lua`. A connection ends when its
//! server ends. The client also closes it as soon as the server refuses a write, as a replica does, and a Sentinel cuts
//! all connections when it changes the role of a server. So it is enough that each connection recalls once.

use super::error::Fault;
use super::keys::Keys;
use super::link::{Arguments, Live};
use super::scripts::Script;
use super::time::Time;

/// The request that a connection sends before its first turn on a partition.
pub(super) struct Recall<'a> {
    pub(super) script: &'a Script,
    pub(super) keys: &'a Keys,
    pub(super) partition: usize,
    pub(super) time: &'a Time,
}

impl Recall<'_> {
    /// Runs the script on a connection. If it fails, the turn that should follow is not sent.
    pub(super) async fn run(&self, live: &Live) -> Result<(), Fault> {
        let mut arguments = Arguments::default();
        self.time.tell(&mut arguments);
        let keys = self.script.keys(self.keys);
        let command = arguments.command("EVAL", &self.script.text, keys);
        live.ask(&command).await.map(drop).map_err(Fault::not_sent)
    }
}
