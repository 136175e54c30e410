//! Measures schedules in Redis: see [`Due`].

use super::ours::begin;
use super::server::{Fsync, with_server};
use crate::areas::durable::schedules::{Due, Tasks};
use crate::measure::{Rules, Sample};

pub(super) fn due(rules: &Rules, tasks: Tasks) -> Sample {
    with_server(rules, Fsync::EverySecond, |server| {
        let (runtime, client) = begin(server);
        let due = Due::begin(rules, &runtime, client, tasks);
        let meter = server.meter();
        let took = due.stored();
        let sample = meter.end(due.schedules()).with_value(took);
        due.check();
        sample
    })
}
