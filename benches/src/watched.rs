//! The rows `throng-watched`: ours, while a registry watches its parts and is read over and over.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use throng::watch::{Part, Registry};

use crate::measure::{Rules, Sample};

/// The name of these rows.
pub(crate) const NAME: &str = "throng-watched";

/// The time between two reads. Programs read once a second or less often, but a repetition lasts only half a second.
const INTERVAL: Duration = Duration::from_millis(100);

static REGISTRY: OnceLock<Registry> = OnceLock::new();
static HAS_PARTS: AtomicBool = AtomicBool::new(false);

/// Runs a row of ours watched.
///
/// # Panics
///
/// Panics if the row watches no part.
pub(crate) fn run(row: impl Fn(&Rules) -> Sample, rules: &Rules) -> Sample {
    let registry = REGISTRY.get_or_init(Registry::new);
    thread::spawn(|| {
        loop {
            thread::sleep(INTERVAL);
            std::hint::black_box(registry.prometheus());
        }
    });
    let sample = row(rules);
    assert!(
        HAS_PARTS.load(Relaxed),
        "no part of this row is watched: `--watched` is for the areas blocking, compute, serial and completion"
    );
    sample
}

/// Watches a part of ours, if this process runs a row watched.
pub(crate) fn watch(part: &impl Part) {
    if let Some(registry) = REGISTRY.get() {
        registry.watch("ours", part);
        HAS_PARTS.store(true, Relaxed);
    }
}
