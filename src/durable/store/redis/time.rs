//! [`Time`]: what time a store goes by.

use tokio::sync::mpsc;

use super::link::Arguments;
use super::scripts;
#[cfg(test)]
use crate::durable::clock::Clock;
use crate::durable::store::Event;

/// What time a store goes by.
#[derive(Clone, Debug)]
pub(crate) struct Time {
    #[cfg(test)]
    told: Option<Clock>,
}

impl Time {
    /// The server's.
    pub(crate) fn machine() -> Self {
        Self {
            #[cfg(test)]
            told: None,
        }
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
        Self { told: Some(clock) }
    }

    pub(super) fn of_scripts(&self) -> scripts::Time {
        match self.told {
            Some(_) => scripts::Time::Told,
            None => scripts::Time::Server,
        }
    }

    pub(super) fn tell(&self, arguments: &mut Arguments) {
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
