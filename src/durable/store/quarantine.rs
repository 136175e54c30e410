//! Decides when tasks that crash their workers are quarantined or become dead letters.

/// Returns the deaths of workers that count against a task. All its lost claims count as one: later claims are confirmed
/// before the task runs, so if it killed its worker then, that was a crash.
fn deaths(crashes: u32, lost: u32) -> u32 {
    crashes.saturating_add(lost.min(1))
}

/// Returns `true` if a task with these crashes and losses becomes a dead letter. A task that was only lost never does.
///
/// With Redis, a script decides.
#[cfg(any(
    test,
    feature = "postgres",
    feature = "sqlite-unbundled",
    feature = "test-util",
    feature = "unstable-store"
))]
pub fn is_dead_letter(crashes: u32, lost: u32, max_crashes: u32) -> bool {
    crashes > 0 && deaths(crashes, lost) >= max_crashes
}

/// Returns `true` if the next crash makes the task a dead letter, and a worker has died with it before. A worker runs one
/// such task at a time. Tasks that ran beside the one that kills its workers have crashed as often, so this separates
/// them, and only the task to blame goes on to crash.
pub fn is_quarantined(crashes: u32, lost: u32, max_crashes: u32) -> bool {
    let deaths = deaths(crashes, lost);
    deaths > 0 && deaths.saturating_add(1) >= max_crashes
}
