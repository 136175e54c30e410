//! Points at which tests end the process, to see what the next one makes of it.

/// Passes the point `name`.
///
/// With the feature `test-util`, and `THRONG_KILL_AT=name:count` in the environment, the process is
/// killed the `count`th time that it passes here.
#[cfg(not(feature = "test-util"))]
#[inline]
pub(crate) fn point(_name: &str) {}

/// As above.
#[cfg(feature = "test-util")]
pub(crate) fn point(name: &str) {
    if let Some(deadly) = deadly()
        && deadly.name == name
        && deadly.passed.add(1) + 1 == deadly.count
    {
        kill();
    }
}

#[cfg(feature = "test-util")]
struct Deadly {
    name: String,
    count: usize,
    passed: crate::sync::Number,
}

/// What the environment says: read once.
#[cfg(feature = "test-util")]
fn deadly() -> Option<&'static Deadly> {
    static DEADLY: std::sync::OnceLock<Option<Deadly>> = std::sync::OnceLock::new();
    let deadly = DEADLY.get_or_init(|| {
        let text = std::env::var("THRONG_KILL_AT").ok()?;
        let (name, count) = text.rsplit_once(':')?;
        Some(Deadly {
            name: name.to_owned(),
            count: count.parse().ok()?,
            passed: crate::sync::Number::new(0),
        })
    });
    deadly.as_ref()
}

/// Ends the process as `kill -9` does: nothing is flushed, nothing is dropped.
#[cfg(feature = "test-util")]
fn kill() {
    #[cfg(unix)]
    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).ok();
    std::process::abort()
}
