//! Fail points: places at which a test ends or stops the process, or has a thread panic.

#[cfg(all(test, feature = "test-util"))]
pub(crate) use self::panics::panic_at;

/// Passes the fail point `name`.
///
/// With the feature `test-util`, and `THRONG_KILL_AT=name:count` in the environment, the process is killed the `count`th
/// time that it passes this point. With `THRONG_STOP_AT`, it is stopped until it receives a signal to continue.
#[cfg(not(feature = "test-util"))]
#[inline]
pub(crate) fn failpoint(_name: &str) {}

/// As above.
#[cfg(feature = "test-util")]
pub(crate) fn failpoint(name: &str) {
    #[cfg(test)]
    panics::pass(name);
    for armed in armed() {
        if armed.name == name && armed.passed.add(1) + 1 == armed.count {
            (armed.act)();
        }
    }
}

#[cfg(feature = "test-util")]
struct Armed {
    name: String,
    count: usize,
    passed: crate::sync::Number,
    act: fn(),
}

/// Returns the fail points that the environment arms. It is read once.
#[cfg(feature = "test-util")]
fn armed() -> &'static [Armed] {
    static ARMED: std::sync::OnceLock<Vec<Armed>> = std::sync::OnceLock::new();
    ARMED.get_or_init(|| {
        let acts: [(_, fn()); 2] = [("THRONG_KILL_AT", kill), ("THRONG_STOP_AT", stop)];
        let armed = acts.into_iter().filter_map(|(variable, act)| {
            let text = std::env::var(variable).ok()?;
            let (name, count) = text.rsplit_once(':')?;
            Some(Armed {
                name: name.to_owned(),
                count: count.parse().ok()?,
                passed: crate::sync::Number::new(0),
                act,
            })
        });
        armed.collect()
    })
}

/// Ends the process as `kill -9` does: nothing is flushed, nothing is dropped.
#[cfg(feature = "test-util")]
fn kill() {
    #[cfg(unix)]
    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).ok();
    std::process::abort()
}

/// Stops all threads of the process, as `kill -STOP` does.
#[cfg(feature = "test-util")]
fn stop() {
    #[cfg(unix)]
    {
        use rustix::process::{Signal, getpid, kill_process};

        kill_process(getpid(), Signal::STOP).ok();
        // Another thread may take the signal, after some time. Until then, this thread must not go on.
        while is_pending(Signal::STOP) {}
    }
}

/// Returns `true` while no thread has taken a signal to the process, as far as the system says so. Once a thread has taken a
/// signal to stop, no thread returns from the system.
#[cfg(all(feature = "test-util", unix))]
fn is_pending(signal: rustix::process::Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"));
    let pending = pending.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    pending.is_some_and(|pending| pending & (1 << (signal.as_raw() - 1)) != 0)
}

/// Lets a test make its own thread panic at a fail point.
#[cfg(all(test, feature = "test-util"))]
mod panics {
    use std::cell::Cell;

    thread_local! {
        static PANICS_AT: Cell<Option<&'static str>> = const { Cell::new(None) };
    }

    /// Makes the current thread panic when it next passes the fail point `name`.
    pub(crate) fn panic_at(name: &'static str) {
        PANICS_AT.set(Some(name));
    }

    pub(super) fn pass(name: &str) {
        if PANICS_AT.get() == Some(name) {
            PANICS_AT.set(None);
            panic!("provoked by a test");
        }
    }
}
