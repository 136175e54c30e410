//! The feature `tracing`: parts are resources, in the form that tokio-console reads.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use throng::watch::Registry;
use throng::{BlockingPool, SerialExecutor};
use tokio::runtime::Builder;
use tokio::time::timeout;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{Interest, set_default};
use tracing::{Event, Metadata, Subscriber};

/// Follows resources as `console-subscriber` does.
#[derive(Default)]
struct Console {
    is_interested: AtomicBool,
    /// The resources by the numbers of their spans, from 1.
    resources: Mutex<Vec<Resource>>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Resource {
    fields: BTreeMap<String, String>,
    /// The last values of the attributes, and the number of updates of each.
    attributes: BTreeMap<String, (String, u32)>,
    is_closed: bool,
}

thread_local! {
    static ENTERED: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// The fields of a span or an event.
#[derive(Default)]
struct Fields(BTreeMap<String, String>);

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().into(), value.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().into(), format!("{value:?}"));
    }
}

impl Subscriber for Console {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // The filter of `console-subscriber`.
        let is_runtime = match metadata.is_event() {
            true => metadata.target().starts_with("runtime"),
            false => metadata.name().starts_with("runtime."),
        };
        is_runtime && self.is_interested.load(Ordering::Relaxed)
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut fields = Fields::default();
        span.record(&mut fields);
        let mut resources = self.resources.lock().unwrap();
        resources.push(Resource {
            fields: fields.0,
            ..Resource::default()
        });
        Id::from_u64(resources.len() as u64)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        assert_eq!(event.metadata().target(), "runtime::resource::state_update");
        let mut fields = Fields::default();
        event.record(&mut fields);
        let mut fields = fields.0.into_iter();
        let (Some((name, value)), Some(op), None) = (fields.next(), fields.next(), fields.next())
        else {
            panic!("an event has an attribute and its operation");
        };
        assert_eq!(op, (format!("{name}.op"), "override".into()));
        let span = ENTERED.with_borrow(|entered| *entered.last().expect("it is in a span"));
        let mut resources = self.resources.lock().unwrap();
        let attributes = &mut resources[span as usize - 1].attributes;
        let attribute = attributes.entry(name).or_default();
        *attribute = (value, attribute.1 + 1);
    }

    fn enter(&self, id: &Id) {
        ENTERED.with_borrow_mut(|entered| entered.push(id.into_u64()));
    }

    fn exit(&self, _: &Id) {
        ENTERED.with_borrow_mut(Vec::pop);
    }

    fn try_close(&self, id: Id) -> bool {
        self.resources.lock().unwrap()[id.into_u64() as usize - 1].is_closed = true;
        true
    }
}

impl Console {
    fn resources(&self) -> Vec<Resource> {
        self.resources.lock().unwrap().clone()
    }
}

/// Runs the future for as many intervals.
async fn run_for(intervals: u32, traced: &mut (impl Future<Output = ()> + Unpin)) {
    let time = Duration::from_secs(1) * intervals;
    assert!(timeout(time, traced).await.is_err(), "it does not end");
}

fn attributes<const N: usize>(
    attributes: [(&str, &str, u32); N],
) -> BTreeMap<String, (String, u32)> {
    let attributes = attributes.into_iter();
    attributes
        .map(|(name, value, updates)| (name.into(), (value.into(), updates)))
        .collect()
}

#[test]
fn parts_are_resources_while_a_console_is_interested() {
    let console = Arc::new(Console::default());
    let _subscriber = set_default(Arc::clone(&console));
    let registry = Registry::new();
    let sums = SerialExecutor::new(0);
    registry.watch("sums", &sums);
    let is_interested = |is_it| console.is_interested.store(is_it, Ordering::Relaxed);
    let mut builder = Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let mut traced = Box::pin(registry.trace_every(Duration::from_secs(1)));
        run_for(3, &mut traced).await;
        assert_eq!(console.resources(), []);

        is_interested(true);
        run_for(2, &mut traced).await;
        let pool = BlockingPool::builder().max_threads(3).build().unwrap();
        registry.watch("db", &pool);
        run_for(1, &mut traced).await;
        let [actor, db] = &console.resources()[..] else {
            panic!("{:?}", console.resources());
        };
        assert_eq!(actor.fields["concrete_type"], "SerialExecutor");
        assert_eq!(actor.fields["kind"], "actor");
        assert_eq!(
            actor.attributes,
            attributes([("name", "sums", 3), ("queued", "0", 3), ("running", "0", 3)])
        );
        assert_eq!(db.fields["kind"], "pool");
        assert_eq!(
            db.attributes,
            attributes([("name", "db", 1), ("queued", "0", 1), ("running", "0", 1)])
        );

        // A part that is gone, and a console that is gone.
        drop(sums);
        run_for(1, &mut traced).await;
        let closed = || {
            console
                .resources()
                .iter()
                .map(|it| it.is_closed)
                .collect::<Vec<_>>()
        };
        assert_eq!(closed(), [true, false]);
        is_interested(false);
        run_for(2, &mut traced).await;
        assert_eq!(closed(), [true, true]);
        assert_eq!(console.resources()[1].attributes["name"].1, 2);
    });
}
