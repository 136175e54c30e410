//! [`Time`]: the source of a store's time.

use std::time::Duration;

use tokio::sync::mpsc;

use super::link::Arguments;
use super::scripts;
#[cfg(test)]
use crate::durable::clock::Clock;
use crate::durable::clock::since_boot;
use crate::durable::store::Event;
#[cfg(test)]
use crate::sync::{Arc, Mutex, lock};

/// What time a store goes by.
#[derive(Clone, Debug)]
pub(crate) struct Time {
    #[cfg(test)]
    told: Option<Clock>,
    #[cfg(test)]
    fault: Option<Arc<Mutex<Fault>>>,
}

/// Selects the command of the next scripts that fails, before or after it runs.
#[cfg(test)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fault {
    /// Counted from 1; at zero, none fails.
    pub(crate) at: usize,
    pub(crate) is_after: bool,
}

impl Time {
    /// The server's.
    pub(crate) fn machine() -> Self {
        Self {
            #[cfg(test)]
            told: None,
            #[cfg(test)]
            fault: None,
        }
    }

    /// Returns the time since this machine was started. A told clock replaces it, too.
    pub(super) fn since_boot(&self) -> Duration {
        #[cfg(test)]
        if let Some(clock) = &self.told {
            return clock.boot();
        }
        since_boot()
    }

    #[cfg(not(test))]
    pub(super) fn of_scripts(&self) -> scripts::Time {
        scripts::Time::Server
    }

    #[cfg(not(test))]
    pub(super) fn tell(&self, _: &mut Arguments) {}

    #[cfg(not(test))]
    pub(super) fn watch(&self, _: &mpsc::UnboundedSender<Event>) {}
}

#[cfg(test)]
impl Time {
    /// That of a test, which tells it to the scripts.
    pub(crate) fn told(clock: Clock) -> Self {
        Self {
            told: Some(clock),
            fault: None,
        }
    }

    /// The same, and commands fail.
    pub(crate) fn failing(clock: Clock, fault: Arc<Mutex<Fault>>) -> Self {
        Self {
            fault: Some(fault),
            ..Self::told(clock)
        }
    }

    pub(super) fn of_scripts(&self) -> scripts::Time {
        match (&self.told, &self.fault) {
            (_, Some(_)) => scripts::Time::Failing,
            (Some(_), None) => scripts::Time::Told,
            (None, None) => scripts::Time::Server,
        }
    }

    pub(super) fn tell(&self, arguments: &mut Arguments) {
        if let Some(fault) = &self.fault {
            let fault = *lock(fault);
            arguments.number(fault.at);
            arguments.push(if fault.is_after { "after" } else { "before" });
        }
        if let Some(clock) = &self.told {
            arguments.number(clock.wall().as_micros());
        }
    }

    /// Has everybody look when time has passed.
    pub(super) fn watch(&self, events: &mpsc::UnboundedSender<Event>) {
        if let Some(clock) = &self.told {
            let events = events.clone();
            clock.watch(move || events.send(Event::Wake).is_ok());
        }
    }
}
