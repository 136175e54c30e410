//! Harm that is done to the server of a [`Site`].

use rustix::process::Signal;

use super::site::{Host, Site};

impl Site {
    /// Kills the server.
    pub(crate) fn kill_server(&mut self) {
        match &mut self.host {
            Host::Folder => panic!("this site has no server"),
            Host::Redis(server) => server.kill(),
            Host::Postgres(database) => database.server().kill(),
        }
    }

    /// Starts the server again, and waits until it answers.
    pub(crate) fn run_server(&mut self) {
        match &mut self.host {
            Host::Folder => panic!("this site has no server"),
            Host::Redis(server) => server.run(),
            Host::Postgres(database) => database.server().restart(),
        }
    }

    /// Has the server stand still.
    pub(crate) fn freeze_server(&mut self) {
        match &self.host {
            Host::Folder => panic!("this site has no server"),
            Host::Redis(server) => server.signal(Signal::STOP),
            Host::Postgres(database) => database.server().freeze(),
        }
    }

    pub(crate) fn thaw_server(&mut self) {
        match &self.host {
            Host::Folder => panic!("this site has no server"),
            Host::Redis(server) => server.signal(Signal::CONT),
            Host::Postgres(database) => database.server().thaw(),
        }
    }

    /// Cuts connections to the server.
    pub(crate) fn cut(&self) {
        match &self.host {
            Host::Postgres(database) => database.cut_some(),
            _ => self.proxy().cut(),
        }
    }
}
