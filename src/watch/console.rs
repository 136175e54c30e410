//! The watched parts as resources in tokio-console.
//!
//! Its subscriber, `console-subscriber`, takes each span named `runtime.resource` for a resource, and the events of the target
//! [`STATE_UPDATE`] within this span for changes of its attributes. So the names of the span, the target and the fields are not ours.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::MissedTickBehavior;
use tracing::{Level, Span};

use super::kind::PartKind;
use super::registry::Registry;
use super::snapshot::{PartSnapshot, Snapshot};
use super::value::Value;

const STATE_UPDATE: &str = "runtime::resource::state_update";

impl Registry {
    /// Shows the watched parts in [tokio-console](https://docs.rs/tokio-console), and updates their numbers once per interval, until the
    /// future is dropped. The stores of clients are not shown.
    ///
    /// A resource stands for the parts of one kind and name. Its attributes are the `name`, and the numbers of jobs that are `running`, are
    /// `queued`, or are `ready` to be read. Nothing is read while no subscriber is interested in resources.
    ///
    /// # Panics
    ///
    /// Panics if `interval` is zero, or outside of a Tokio runtime with timers.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time. The resources then disappear from the console.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use throng::watch::Registry;
    ///
    /// # #[tokio::main] async fn main() {
    /// // Before this: `console_subscriber::init();`
    /// tokio::spawn(Registry::global().trace_every(Duration::from_secs(1)));
    /// # }
    /// ```
    pub async fn trace_every(&self, interval: Duration) {
        let mut interval = tokio::time::interval(interval);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut resources = Resources::default();
        loop {
            interval.tick().await;
            match tracing::event_enabled!(target: STATE_UPDATE, Level::TRACE) {
                true => resources.update(&self.snapshot()),
                false => resources = Resources::default(),
            }
        }
    }
}

/// The spans of the parts, by kind and name. A resource exists for as long as its span.
#[derive(Default)]
struct Resources(HashMap<(PartKind, String), Span>);

impl Resources {
    fn update(&mut self, snapshot: &Snapshot) {
        self.0.retain(|(kind, name), _| {
            let part = snapshot.part(*kind, name);
            part.is_some_and(|part| part.live() > 0)
        });
        for part in snapshot.parts().iter().filter(|part| part.live() > 0) {
            let Some(resource) = resource_of(part.kind()) else {
                continue;
            };
            let key = (part.kind(), part.name().to_owned());
            let span = self.0.entry(key).or_insert_with(|| resource.span());
            span.in_scope(|| resource.report(part));
        }
    }
}

/// A kind of parts as tokio-console shows it.
struct Resource {
    concrete_type: &'static str,
    kind: &'static str,
    /// The metrics of its attributes, with the values of their labels.
    running: Option<Metric>,
    queued: Option<Metric>,
    ready: Option<Metric>,
}

type Metric = (&'static str, &'static str);

const fn resource(concrete_type: &'static str, kind: &'static str) -> Resource {
    Resource {
        concrete_type,
        kind,
        running: None,
        queued: None,
        ready: None,
    }
}

fn resource_of(kind: PartKind) -> Option<Resource> {
    Some(match kind {
        PartKind::BlockingPool => Resource {
            running: Some(("throng_blocking_threads", "busy")),
            queued: Some(("throng_blocking_queue_length", "")),
            ..resource("BlockingPool", "pool")
        },
        PartKind::Bulkhead => Resource {
            running: Some(("throng_bulkhead_running", "")),
            queued: Some(("throng_bulkhead_queue_length", "")),
            ..resource("Bulkhead", "pool")
        },
        PartKind::ComputePool => Resource {
            queued: Some(("throng_compute_queue_length", "")),
            ..resource("ComputePool", "pool")
        },
        PartKind::SerialExecutor => Resource {
            running: Some(("throng_serial_busy", "")),
            queued: Some(("throng_serial_queue_length", "")),
            ..resource("SerialExecutor", "actor")
        },
        PartKind::CompletionStream => Resource {
            running: Some(("throng_completion_running", "")),
            ready: Some(("throng_completion_ready", "")),
            ..resource("CompletionStream", "stream")
        },
        #[cfg(feature = "durable")]
        PartKind::DurableExecutor => Resource {
            running: Some(("throng_durable_running", "")),
            ..resource("DurableExecutor", "worker")
        },
        #[cfg(feature = "durable")]
        PartKind::DurableStore => return None,
    })
}

impl Resource {
    fn span(&self) -> Span {
        tracing::trace_span!(
            parent: None,
            "runtime.resource",
            concrete_type = self.concrete_type,
            kind = self.kind,
        )
    }

    /// Sends the attributes of a part. An event has one attribute.
    fn report(&self, part: &PartSnapshot) {
        let count = |metric: Option<Metric>| {
            let (name, label_value) = metric?;
            match part.value(name, label_value)? {
                Value::Count(count) => Some(*count),
                _ => None,
            }
        };
        tracing::trace!(target: STATE_UPDATE, name = part.name(), name.op = "override");
        if let Some(running) = count(self.running) {
            tracing::trace!(target: STATE_UPDATE, running, running.op = "override");
        }
        if let Some(queued) = count(self.queued) {
            tracing::trace!(target: STATE_UPDATE, queued, queued.op = "override");
        }
        if let Some(ready) = count(self.ready) {
            tracing::trace!(target: STATE_UPDATE, ready, ready.op = "override");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::names::families;

    /// A name that is changed in the table is changed here, too.
    #[test]
    fn the_attributes_are_metrics_of_their_parts() {
        for &kind in PartKind::ALL {
            let Some(resource) = resource_of(kind) else {
                continue;
            };
            let families = families(kind);
            let metrics = [resource.running, resource.queued, resource.ready];
            for (name, value) in metrics.into_iter().flatten() {
                let mut found = families.iter().filter(|(family, _)| family.name == name);
                let (_, values) = found.next().expect(name);
                assert!(values.contains(&value), "{name}: {value:?}");
            }
        }
    }
}
