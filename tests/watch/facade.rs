//! The feature `metrics`: a recorder shows what the text for Prometheus shows.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit, with_local_recorder,
};
use throng::BlockingPool;
use throng::watch::{BUCKETS, Registry};

use crate::exposition::{Exposition, Series};
use crate::support::{eventually, join, wait_until};

/// The values that a recorder has received, as an exporter with [`BUCKETS`] would show it.
#[derive(Default)]
struct Recorded {
    samples: BTreeMap<Series, f64>,
    helps: BTreeMap<String, String>,
}

#[derive(Clone, Default)]
struct Recording(Arc<Mutex<Recorded>>);

/// A series of a recording.
struct Cell {
    recording: Recording,
    series: Series,
}

impl Recording {
    fn cell(&self, key: &Key) -> Arc<Cell> {
        let labels = key.labels();
        let labels = labels.map(|label| (label.key().to_owned(), label.value().to_owned()));
        Arc::new(Cell {
            recording: self.clone(),
            series: (key.name().to_owned(), labels.collect()),
        })
    }

    fn describe(&self, name: &KeyName, help: &SharedString) {
        let help = help.clone().into_owned();
        self.0
            .lock()
            .unwrap()
            .helps
            .insert(name.as_str().into(), help);
    }

    fn get(&self, series: &Series) -> f64 {
        self.0.lock().unwrap().samples[series]
    }
}

impl Recorder for Recording {
    fn describe_counter(&self, name: KeyName, _: Option<Unit>, help: SharedString) {
        self.describe(&name, &help);
    }

    fn describe_gauge(&self, name: KeyName, _: Option<Unit>, help: SharedString) {
        self.describe(&name, &help);
    }

    fn describe_histogram(&self, name: KeyName, _: Option<Unit>, help: SharedString) {
        self.describe(&name, &help);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.cell(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.cell(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.cell(key))
    }
}

impl Cell {
    fn set(&self, value: f64) {
        let mut recorded = self.recording.0.lock().unwrap();
        recorded.samples.insert(self.series.clone(), value);
    }
}

impl CounterFn for Cell {
    fn increment(&self, _: u64) {
        panic!("a counter is set");
    }

    fn absolute(&self, value: u64) {
        self.set(value as f64);
    }
}

impl GaugeFn for Cell {
    fn increment(&self, _: f64) {
        panic!("a gauge is set");
    }

    fn decrement(&self, _: f64) {
        panic!("a gauge is set");
    }

    fn set(&self, value: f64) {
        Self::set(self, value);
    }
}

impl HistogramFn for Cell {
    fn record(&self, value: f64) {
        let mut recorded = self.recording.0.lock().unwrap();
        let (name, labels) = &self.series;
        for end in BUCKETS.into_iter().chain([f64::INFINITY]) {
            let end_name = if end.is_infinite() {
                "+Inf".into()
            } else {
                end.to_string()
            };
            let mut labels = labels.clone();
            labels.insert("le".into(), end_name);
            let count = recorded.samples.entry((format!("{name}_bucket"), labels));
            *count.or_default() += f64::from(u8::from(value <= end));
        }
    }
}

/// The samples of the text that a recorder can show: the facade has no exact sum of a histogram.
fn expected(registry: &Registry) -> BTreeMap<Series, f64> {
    let mut samples = Exposition::parse(&registry.prometheus()).samples;
    samples.retain(|(name, _), _| {
        let is_part = name.ends_with("_seconds_sum") || name.ends_with("_seconds_count");
        !is_part && name != "throng_watch_seconds"
    });
    samples
}

#[test]
fn a_recorder_shows_the_same_numbers_as_the_text() {
    let (registry, recording) = (Registry::new(), Recording::default());
    let pool = BlockingPool::builder()
        .max_threads(1)
        .queue_capacity(9)
        .build()
        .unwrap();
    registry.watch("d\"b", &pool);
    for _ in 0..3 {
        for _ in 0..200 {
            join(pool.spawn_blocking(|| ())).unwrap();
        }
        wait_until("a task was sampled", || pool.metrics().run_time.count() > 0);
        wait_until("the thread is idle", || pool.metrics().idle == 1);
        with_local_recorder(&recording, || registry.publish());
        let expected = expected(&registry);
        let recorded = recording.0.lock().unwrap();
        for (series, value) in &expected {
            assert_eq!(recorded.samples.get(series), Some(value), "{series:?}");
        }
        assert_eq!(
            recorded.samples.len(),
            expected.len() + 1,
            "and the time that it took"
        );
        let help = recorded
            .helps
            .get("throng_blocking_threads_max")
            .map(String::as_str);
        assert_eq!(help, Some("Maximum number of threads that is configured."));
    }
}

/// The facade cannot remove a gauge.
#[test]
fn gauges_of_a_name_without_parts_are_set_to_zero() {
    let (registry, recording) = (Registry::new(), Recording::default());
    let pool = BlockingPool::builder().max_threads(7).build().unwrap();
    registry.watch("db", &pool);
    join(pool.spawn_blocking(|| ())).unwrap();
    with_local_recorder(&recording, || registry.publish());
    let labels = BTreeMap::from([("pool".to_owned(), "db".to_owned())]);
    let max = ("throng_blocking_threads_max".to_owned(), labels.clone());
    let submitted = ("throng_blocking_submitted_total".to_owned(), labels);
    assert_eq!((recording.get(&max), recording.get(&submitted)), (7.0, 1.0));
    drop(pool);
    wait_until("the pool is gone", || {
        registry.snapshot().parts()[0].live() == 0
    });
    for _ in 0..2 {
        with_local_recorder(&recording, || registry.publish());
        assert_eq!((recording.get(&max), recording.get(&submitted)), (0.0, 1.0));
    }
}

/// Two who publish the same registry do not record a time twice.
#[test]
fn each_time_is_recorded_once() {
    let (registry, recording) = (Registry::new(), Recording::default());
    let pool = BlockingPool::builder().max_threads(1).build().unwrap();
    registry.watch("db", &pool);
    wait_until("a task was sampled", || {
        join(pool.spawn_blocking(|| ())).unwrap();
        pool.metrics().run_time.count() > 0
    });
    wait_until("the thread is idle", || pool.metrics().idle == 1);
    let (early, late) = (registry.snapshot(), registry.clone().snapshot());
    for snapshot in [&late, &early, &late] {
        with_local_recorder(&recording, || registry.publish_snapshot(snapshot));
    }
    let labels = [("pool", "db"), ("le", "+Inf")].map(|(name, value)| (name.into(), value.into()));
    let all = (
        "throng_blocking_run_seconds_bucket".to_owned(),
        BTreeMap::from(labels),
    );
    assert_eq!(recording.get(&all), pool.metrics().run_time.count() as f64);
}

/// A store is not asked each time, and its numbers stay meanwhile.
#[cfg(feature = "test-util")]
#[test]
fn gauges_that_a_snapshot_lacks_keep_their_values() {
    use throng::durable::{DurableClient, MemoryStore};

    let (registry, recording) = (Registry::new(), Recording::default());
    let client = DurableClient::open(MemoryStore::new());
    registry.watch("jobs", &client);
    let snapshot = crate::support::block_on(registry.snapshot_with_stores());
    with_local_recorder(&recording, || registry.publish_snapshot(&snapshot));
    let labels = [("store", "jobs"), ("state", "waiting")];
    let labels = labels.map(|(name, value)| (name.into(), value.into()));
    let waiting = ("throng_durable_tasks".to_owned(), BTreeMap::from(labels));
    assert_eq!(recording.get(&waiting), 0.0);
    recording
        .0
        .lock()
        .unwrap()
        .samples
        .insert(waiting.clone(), 7.0);
    with_local_recorder(&recording, || registry.publish());
    assert_eq!(recording.get(&waiting), 7.0, "it was not set");
    drop(client);
    wait_until("the client is gone", || {
        registry.snapshot().parts()[0].live() == 0
    });
    with_local_recorder(&recording, || registry.publish());
    assert_eq!(recording.get(&waiting), 0.0);
}

/// A queue that is gone does not look as if its tasks still waited.
#[cfg(feature = "test-util")]
#[test]
fn gauges_of_a_queue_that_is_gone_are_set_to_zero() {
    use throng::durable::{DurableClient, MemoryStore, QueueSettings};

    let recording = Recording::default();
    let published = Registry::new();
    let labels = [("store", "jobs"), ("queue", "gpu")];
    let labels = labels.map(|(name, value)| (name.into(), value.into()));
    let limit = (
        "throng_durable_queue_limit".to_owned(),
        BTreeMap::from(labels.clone()),
    );
    let paused = (
        "throng_durable_queue_paused".to_owned(),
        BTreeMap::from(labels),
    );
    let client = DurableClient::open(MemoryStore::new());
    published.watch("jobs", &client);
    for (is_there, expected) in [(true, (4.0, 1.0)), (false, (0.0, 0.0))] {
        // Another store under this name, which has the queue or has not.
        let store = DurableClient::open(MemoryStore::new());
        crate::support::block_on(async {
            let settings = QueueSettings::new().max_running(4);
            let [gpu, cpu] = ["gpu", "cpu"].map(|name| store.queue(name));
            cpu.set(settings).await.unwrap();
            if is_there {
                gpu.set(settings).await.unwrap();
                gpu.pause().await.unwrap();
            }
        });
        let registry = Registry::new();
        registry.watch("jobs", &store);
        let snapshot = crate::support::block_on(registry.snapshot_with_stores());
        with_local_recorder(&recording, || published.publish_snapshot(&snapshot));
        assert_eq!((recording.get(&limit), recording.get(&paused)), expected);
    }
}

#[test]
fn a_publisher_publishes_in_each_interval() {
    let recording = Recording::default();
    let registry = Registry::new();
    let pool = BlockingPool::builder().max_threads(1).build().unwrap();
    registry.watch("db", &pool);
    let labels = BTreeMap::from([("pool".to_owned(), "db".to_owned())]);
    let submitted = ("throng_blocking_submitted_total".to_owned(), labels);
    let recorded = || recording.0.lock().unwrap().samples.get(&submitted).copied();
    let _recorder = metrics::set_default_local_recorder(&recording);
    crate::support::current_thread().block_on(async {
        let publish = registry.publish_every(std::time::Duration::from_millis(1));
        let look = async {
            for expected in [1.0, 2.0, 3.0] {
                pool.spawn_blocking(|| ()).await.unwrap();
                eventually("the number is recorded", || recorded() == Some(expected)).await;
            }
        };
        tokio::select! {
            () = publish => unreachable!("it publishes until it is dropped"),
            () = look => {}
        }
    });
}
