//! [`Time`]: the source of a store's time.

use std::time::Duration;

use tokio::sync::mpsc;

use super::scripts::{Arguments, TimeSource};
#[cfg(test)]
use crate::durable::clock::Clock;
use crate::durable::clock::since_boot;
use crate::durable::store::Event;
#[cfg(test)]
use crate::sync::{Arc, Mutex, lock};

/// The source of a store's time.
#[derive(Clone, Debug)]
pub(crate) struct Time {
    #[cfg(test)]
    clock: Option<Clock>,
    #[cfg(test)]
    fault: Option<Arc<Mutex<InjectedFault>>>,
}

/// Selects the command of the next scripts that fails, before or after it runs.
#[cfg(test)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct InjectedFault {
    /// The index of the command, from 1; with 0, none fails.
    pub(crate) at: usize,
    /// `true` if the command runs before it fails.
    pub(crate) is_after: bool,
}

impl Time {
    /// Returns the time of the server.
    pub(crate) fn server() -> Self {
        Self {
            #[cfg(test)]
            clock: None,
            #[cfg(test)]
            fault: None,
        }
    }

    /// Returns the time since this machine was started, or that of a manual clock.
    pub(super) fn since_boot(&self) -> Duration {
        #[cfg(test)]
        if let Some(clock) = &self.clock {
            return clock.boot();
        }
        since_boot()
    }

    #[cfg(not(test))]
    pub(super) fn of_scripts(&self) -> TimeSource {
        TimeSource::Server
    }

    #[cfg(not(test))]
    pub(super) fn push_to(&self, _: &mut Arguments) {}

    #[cfg(not(test))]
    pub(super) fn watch(&self, _: &mpsc::UnboundedSender<Event>) {}
}

#[cfg(test)]
impl Time {
    /// Returns the time of a test's clock, which each request passes to its script.
    pub(crate) fn manual(clock: Clock) -> Self {
        Self {
            clock: Some(clock),
            fault: None,
        }
    }

    /// Returns the time of a test's clock. A command of each script fails.
    pub(crate) fn failing(clock: Clock, fault: Arc<Mutex<InjectedFault>>) -> Self {
        Self {
            fault: Some(fault),
            ..Self::manual(clock)
        }
    }

    pub(super) fn of_scripts(&self) -> TimeSource {
        match (&self.clock, &self.fault) {
            (_, Some(_)) => TimeSource::Failing,
            (Some(_), None) => TimeSource::Manual,
            (None, None) => TimeSource::Server,
        }
    }

    /// Adds the arguments that the time needs, which are the last ones.
    pub(super) fn push_to(&self, arguments: &mut Arguments) {
        if let Some(fault) = &self.fault {
            let fault = *lock(fault);
            arguments.push_number(fault.at);
            arguments.push(if fault.is_after { "after" } else { "before" });
        }
        if let Some(clock) = &self.clock {
            arguments.push_number(clock.wall().as_micros());
        }
    }

    /// Wakes the engine whenever a test advances its clock.
    pub(super) fn watch(&self, events: &mpsc::UnboundedSender<Event>) {
        if let Some(clock) = &self.clock {
            let events = events.clone();
            clock.watch(move || events.send(Event::Wake(None)).is_ok());
        }
    }
}
